"""Trust in records and reports, and runs of FedTAB: resuming, export, join."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedwca.datasets.digits_mini import DigitsMini
from fedwca.results.low_trust import name_clients
from fedwca.results.read_run import read_run
from fedwca.results.report.page_data import page_data
from fedwca.results.report.warnings import run_warnings
from fedwca.runs.python_api import bench, resume
from tests.cli.conftest import call
from tests.conftest import MINI
from tests.read_rounds import read_rounds
from tests.runs.stopping import check_same_bits, stop

SMALL: dict[str, Any] = {
    "clients": 2,
    "samples": 30,
    "rounds": 2,
    "batch_size": 8,
    "epochs": 1,
    "device": "cpu",
    "model": MINI,
}
OVERRIDES = {"source_training.epochs": 2}
LABELERS = {"none": "trusted:least=1", "every": "trusted:least=0", "plain": "prototype"}


def play(out: Path, *methods: str) -> Path:
    finished = bench(**SMALL, baselines=list(methods), composed=False, overrides=OVERRIDES, out=out, keep="all")
    return finished.path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    methods = ("source_only", "local", "ifca", "ladd", "agnostic=fedavg/aggregator=afl")
    return play(tmp_path_factory.mktemp("trust") / "plain", *methods)


@pytest.fixture(scope="module")
def gated(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of FedTAB with a threshold that half of the clients reach."""
    trust = sorted(read_rounds(plain, "local")[1]["trust"])
    least = (trust[3] + trust[4]) / 2
    out = tmp_path_factory.mktemp("trust") / "gated"
    return play(out, f"fedtab/pseudo_labeler=trusted:least={least}", "source_ada_bn")


def name_of(run: Path) -> str:
    return next(iter(read_run(run).labels))


def test_every_method_records_the_same_trust_once(plain: Path) -> None:
    first = {name: read_rounds(plain, name)[1] for name in ("local", "ifca", "ladd", "agnostic")}
    assert all(record["round"] == 0 for record in first.values())
    assert all(record["trust"] == first["local"]["trust"] for record in first.values())
    assert len(first["local"]["trust"]) == 8
    assert all(0 <= value <= 1 for value in first["local"]["trust"])
    assert not any("trust" in read_rounds(plain, name)[2] for name in first)
    assert not any("trusted" in record for record in first.values())
    assert [record.get("trust") for record in read_rounds(plain, "source_only")] == [None]


def test_recording_trust_takes_no_extra_pass(plain: Path) -> None:
    assert read_rounds(plain, "local")[1]["passes"] == 8  # the one that makes pseudo-labels


def test_reports_say_where_trust_is_low(plain: Path) -> None:
    run = read_run(plain)
    low = [k for k, value in enumerate(read_rounds(plain, "local")[1]["trust"]) if value < 0.5]
    assert low  # after two epochs of source training
    (warning,) = [warning for warning in run_warnings(run) if "trust" in warning or "says little" in warning]
    assert warning.startswith(f"The source model says little about {name_clients(low, domains=run.domains)}: ")
    assert f"({run.domains[low[0]]})" in warning
    (page,) = page_data([run], ["run"])
    shown = page["units"][0]["methods"]["local"]["trust"]
    assert shown[0] is None
    assert [round(value, 4) for value in read_rounds(plain, "local")[1]["trust"]] == shown[1]


def test_records_of_a_gated_run(gated: Path) -> None:
    first, second = read_rounds(gated, name_of(gated))[1:]
    trusted = [value >= sorted(first["trust"])[4] for value in first["trust"]]
    assert first["trusted"] == trusted
    assert "trusted" not in second
    images = [value for value, is_trusted in zip(first["dropped"], trusted, strict=True) if not is_trusted]
    assert min(images) > 0
    assert [value for value, is_trusted in zip(first["dropped"], trusted, strict=True) if is_trusted] == [0.0] * 4
    # First a pass for trust, one for moments and one for labels; then one for labels.
    assert (first["passes"], second["passes"]) == (24, 8)
    assert first["bytes_up"] - second["bytes_up"] == 8 * 4 * 16
    (only,) = read_rounds(gated, "source_ada_bn")[1:]
    assert only["trusted"] == [False] * 8


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(gated: Path, tmp_path: Path) -> None:
    stop(lambda: play(tmp_path / "run", name_of(gated), "source_ada_bn"), call=2)
    check_same_bits(resume(tmp_path / "run").path, gated)


def test_export_and_join(gated: Path, tmp_path: Path) -> None:
    method = name_of(gated)
    result = call("export", str(gated), "--method", method, "--client", "1", "--out", str(tmp_path / "m.safetensors"))
    assert result.code == 0, result.err
    pixels = DigitsMini().load().domains["neon"].images[:20]
    np.savez(tmp_path / "own.npz", images=pixels)
    words = [
        "join",
        str(gated),
        "--method",
        method,
        "--data",
        str(tmp_path / "own.npz"),
        "--out",
        str(tmp_path / "new"),
    ]
    result = call(*words)
    assert result.code == 0, result.err


def test_a_last_phase_records_whom_it_trusts(tmp_path: Path) -> None:
    """With all clients trained on labels nobody is asked in round 0."""
    methods = [f"{name}=sfda/pseudo_labeler={labeler}" for name, labeler in LABELERS.items()]
    run = bench(**SMALL, target="neon", baselines=methods, composed=False, out=tmp_path)
    none, every, plain = (read_rounds(run.path, name)[1:] for name in LABELERS)
    assert not any("trusted" in record for record in (*none[:-1], *every[:-1], *plain))
    assert [record["passes"] for record in none[:-1]] == [record["passes"] for record in plain[:-1]]
    assert none[-1]["phase"] == "finish"
    assert none[-1]["trusted"] == [name != "neon" for name in read_run(run.path).domains]
    assert all(every[-1]["trusted"])
    assert every[-1]["passes"] == 2 * none[-1]["trusted"].count(False)  # a pass for trust, and one for labels
