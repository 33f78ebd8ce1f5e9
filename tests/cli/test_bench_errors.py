"""An error of `fedwca bench` is one sentence with its exit code; what can be known before work is said before it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedwca.cli import main
from fedwca.clusterers.single import Single
from fedwca.core.messages import Signatures

from .conftest import Run

Bench = Callable[..., Run]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--aggregator", "wac"], 2, "no aggregator 'wac'; did you mean 'wca'?"),
        (["--clusterer", "finsh"], 2, "did you mean 'finch'?"),
        (["--baseline", "fedavgg"], 2, "no baseline 'fedavgg'; did you mean 'fedavg'?"),
        (["--preset", "papers"], 2, "no preset 'papers'; did you mean 'paper'?"),
        (["--source", "ambr"], 2, "has no domain 'ambr'; did you mean 'amber'?"),
        (["--aggregator", "wca:ta=0"], 2, "aggregator wca.ta: Input should be greater than 0 (given '0')"),
        (["--set", "aggregator.tc=1"], 2, "aggregator wca.tc: there is no such field"),
        (["--set", "aggregator"], 2, "--set aggregator: not of the form kind.field=value"),
        (["--set", "rounds=3"], 2, "not of the form kind.field=value"),
        (["--set", "aggregator.one_hot.weighting=samples"], 2, "no method of this run uses the aggregator 'one_hot'"),
        (["--aggregator", "fedavg", "--clusterer", "finch", "--name", "x"], 2, "clusterer 'finch' is not used"),
        (
            ["--aggregator", "fedavg", "--baseline", "fedavg"],
            2,
            "two methods are called 'fedavg'; give the composed one another --name",
        ),
        (["--baseline", "none", "--baseline", "fedavg"], 2, "baselines: none cannot be combined"),
        (["--rounds", "0"], 2, "rounds: Input should be greater than 0 (given 0)"),
        (["--samples", "0"], 2, "samples: Input should be greater than 0"),
        (["--clients", "61"], 2, "'brass' has 60 images, too few for 61 clients"),
        (["--device", "cuda:99"], 2, "--device cuda:99: this machine has"),
        (["--device", "abacus"], 2, "--device abacus: no such device; take auto, cpu, cuda or cuda:1"),
        (["--device", "mps"], 2, "only cpu and cuda are supported"),
        (["--engine", "warp"], 2, "engine: Input should be 'auto', 'loop' or 'stacked'"),
        (["--config", "nowhere.toml"], 2, "--config nowhere.toml: No such file"),
        (["--checkpoint", "nowhere.pt"], 1, "nowhere.pt: no such file; --checkpoint takes"),
        (["--dataset", "shades"], 2, "no dataset 'shades': it is neither a folder in"),
        (["--data", "nowhere"], 1, "the folder nowhere does not exist"),
        (
            ["--data", __file__],
            1,
            "test_bench_errors.py is a file, and --data takes the folder of a data set; one archive alone",
        ),
        (["--clusterer", "finch:signature=9"], 2, "signature 9: this model has 3 layers with weights"),
        (["--dataset", "pacs", "--data", "nowhere"], 1, "--data PATH"),
        (["--column", "wrost"], 2, "--column wrost: no column 'wrost'; did you mean 'worst'?"),
        (["--lr", "1e30"], 1, "model has values that are not finite; a lower --lr may help"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_error_is_one_sentence_with_its_exit_code(
    bench: Bench, tmp_path: Path, arguments: list[str], code: int, sentence: str
) -> None:
    folder = tmp_path / "run"
    run = bench(*arguments, out=folder, small="--checkpoint" not in arguments)
    assert run.code == code
    assert sentence in run.err
    assert any(line.startswith("Error: ") for line in run.err.splitlines())
    assert "Traceback" not in run.err
    assert "unexpected" not in run.err
    # A mistake that can be known before work starts leaves no folder behind.
    has_started = arguments[0] == "--lr"
    assert folder.exists() == has_started
    if has_started:
        assert all(entry["diverged"] for name, entry in run.summary["methods"].items() if name != "source_only")


@pytest.mark.parametrize("arguments", [["--rounds", "many"], ["--speed", "3"]])
def test_a_wrong_option_is_a_usage_error(bench: Bench, arguments: list[str]) -> None:
    assert bench(*arguments).code == 2


def test_debug_raises_the_error_itself(bench: Bench) -> None:
    with pytest.raises(ValueError, match="did you mean 'wca'"):
        bench("--aggregator", "wac", "--debug")


def test_debug_leaves_the_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["fedwca", "show", "aggregator", "wac", "--debug"])
    with pytest.raises(SystemExit) as raised:
        main()
    assert raised.value.code == 2
    assert capsys.readouterr().err.startswith("Traceback")


def test_an_unexpected_error_is_one_sentence_too(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a surprise")

    monkeypatch.setattr("fedwca.runs.start_run.load", fail)
    run = bench()
    assert run.code == 1
    assert run.err.startswith("Error: unexpected RuntimeError: a surprise. Please run again with --debug")


def test_a_file_that_a_plugin_misses_names_the_plugin(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing(Single):
        """A clusterer that reads a file."""

        name = "missing"

        def __call__(self, signatures: Signatures) -> Tensor:
            return torch.tensor(json.loads(Path("nowhere.json").read_text()))

    monkeypatch.setattr("fedwca.runs.start_run.load", lambda *_: Missing()(None))  # type: ignore[arg-type]
    run = bench()
    assert run.code == 1
    assert re.match(
        r"Error: clusterer 'missing' \(test_bench_errors.py:\d+\) raised FileNotFoundError: .*nowhere.json", run.err
    )


def never(*_: Any, **__: Any) -> None:
    pytest.fail("work has started")


def test_a_folder_that_cannot_be_written_is_found_before_work(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedwca.runs.start_run.load", never)
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        run = bench(out=path)
        assert run.code == 1
        assert run.err.startswith(f"Error: {path}: cannot be written (")


def test_a_full_disk_is_found_before_work(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedwca.runs.start_run.load", never)
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1 << 20}))
    run = bench()
    assert run.code == 1
    assert "only 1 MiB are free there; a run needs 64 MiB" in run.err


def test_a_run_is_never_written_over(bench: Bench, plain: Run) -> None:
    before = plain.lines
    run = bench(out=plain.folder)
    assert run.code == 2
    assert "holds a run already; name another folder" in run.err
    assert plain.lines == before
