"""`fedwca sweep`: its tries, the criterion that ranks them, continuing a study, and the error without Optuna."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

import pytest

from tests.read_rounds import read_rounds

from .conftest import SMALL, Run, call


def sweep(shades: Path, out: Path, *arguments: str) -> Run:
    return call("sweep", *arguments, "--data", str(shades), *SMALL, "--rounds", "1", "--out", str(out))


def tries(run: Run) -> list[dict[str, str]]:
    assert run.code == 0, run.err
    return list(csv.DictReader(io.StringIO(run.out)))


def test_a_grid_is_tried_once_and_goes_on(shades: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    planned = ["fedavg", "--param", "training.lr=0.001,0.01,0.1", "--keep", "none"]
    arguments = [*planned, "--format", "csv"]
    one_try = sweep(shades, tmp_path / "s", *arguments, "--tries", "1", "--quiet")
    assert {line.split(":")[0] for line in one_try.err.splitlines()} <= {"Warning"}
    assert not list(tmp_path.rglob("*.safetensors"))
    first = tries(one_try)
    assert len(first) == 1
    assert "3 tries; 1 is there already: 2 runs, 2 rounds" in sweep(shades, tmp_path / "s", *planned, "--dry-run").err
    again = sweep(shades, tmp_path / "s", *arguments)
    assert "1 try is there already" in again.err
    rows = tries(again)
    assert sorted(float(row["training.lr"]) for row in rows) == [0.001, 0.01, 0.1]
    values = [float(row["density"]) for row in rows]
    assert values == sorted(values, reverse=True)
    runs = list((tmp_path / "s/runs").iterdir())
    assert len(runs) == 3
    for path in runs:
        last = read_rounds(path)[-1]
        assert {name: len(per_client) for name, per_client in last["evidence"].items()} == {"density": 4, "entropy": 4}
        assert all(value >= 0 for value in last["evidence"]["entropy"])
    assert [row["try"] for row in tries(sweep(shades, tmp_path / "s", *arguments))] == [row["try"] for row in rows]
    other_seed = sweep(shades, tmp_path / "s", *arguments, "--seed", "1")
    assert other_seed.code == 2
    assert "other settings" in other_seed.err


def test_a_dry_run_counts_what_would_be_tried_and_leaves_nothing(shades: Path, tmp_path: Path) -> None:
    plan = sweep(shades, tmp_path / "s", "--param", "training.lr=0.001..0.1:log", "--tries", "4", "--dry-run")
    assert (plan.code, plan.out) == (0, "")
    assert "4 tries: 4 runs, 4 rounds" in plan.err
    assert not (tmp_path / "s").exists()
    # Two epochs cannot be cut in two; the search leaves such a try out with a warning.
    pairs = ["--param", "training.epochs=1,2", "--param", "training.rounds_per_epoch=1,2", "--rounds", "2"]
    places = ["--data", str(shades), "--out", str(tmp_path / "s")]
    impossible = call("sweep", "fedavg", *pairs, *SMALL, *places, "--dry-run")
    assert (impossible.code, "4 tries: " in impossible.err) == (0, True), impossible.err


def test_where_every_try_diverges_none_is_the_best(shades: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    run = sweep(shades, tmp_path / "s", "fedavg", "--param", "training.lr=1e200,1e201", "--quiet")
    assert run.code == 1
    assert run.err.splitlines()[-1] == "Error: every try diverged; lower values of training.lr may help"
    assert "--set" not in run.out
    assert run.out.count("diverged") == 2


def test_an_oracle_is_named_one(shades: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    run = sweep(shades, tmp_path / "s", "fedavg", "--param", "training.lr=1e-4..1e-1:log", "--tries", "2", "--oracle")
    assert run.code == 0, run.err
    assert "ORACLE" in run.out
    assert "accuracy" in run.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "nothing to try"),
        (["--grid", "wac"], "did you mean 'wca'"),
        (["--param", "lr=1"], "--param lr=1"),
        (["--param", "training.lr=1,2", "--criterion", "accuracy"], "no criterion 'accuracy'"),
        (["--param", "aggregator.u=1,2"], "no field of FedWCA's aggregator 'u'. Known: direction"),
        (["--grid", "wca", "--param", "aggregator.ta=0.2,0.3"], "aggregator.wca.ta is given twice"),
        (
            [x for key in ("ta", "tb") for x in ("--param", f"aggregator.{key}=" + ",".join(map(str, range(1, 401))))],
            "the values have 160,000 combinations",
        ),
        (["--param", "aggregator.ta=-1,2"], "aggregator wca.ta: Input should be greater than 0"),
        (["--param", "aggregator.ta=1,2", "--keep", "some"], "--keep some: takes last"),
        (["--param", "aggregator.ta=1,2", "--logger", "tensorbord"], "did you mean 'tensorboard'"),
    ],
)
def test_mistakes_get_a_sentence(shades: Path, tmp_path: Path, arguments: list[str], sentence: str) -> None:
    if "greater than 0" in sentence:
        pytest.importorskip("optuna")
    run = sweep(shades, tmp_path / "s", *arguments)
    assert (run.code, run.out) == (2, "")
    assert sentence in run.err
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fedavg", "--samples", "2", "--oracle"], "--oracle: no client has test images"),
        (["fedavg", "--partition", "shards", "--validation", "0"], "criterion validation: no client that trains"),
        (["fedavg-labelled", "--partition", "all-labelled"], "criterion density: it is measured on clients without"),
        (["source-only", "--criterion", "entropy"], "criterion entropy: it is measured after the last round"),
    ],
    ids=["test images", "validation images", "clients without labels", "rounds"],
)
def test_what_the_criterion_reads_is_looked_for_before_training(
    shades: Path, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    pytest.importorskip("optuna")
    words = [*arguments, "--clients", "2", "--data", str(shades), "--param", "training.lr=0.1,0.2"]
    run = call("sweep", *words, "--out", str(tmp_path / "s"))
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith(f"Error: {sentence}")
    assert not (tmp_path / "s").exists()


def test_without_optuna_the_extra_is_named(shades: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    run = sweep(shades, tmp_path / "s", "--param", "training.lr=1e-3,1e-2")
    assert run.code == 2
    assert run.err.strip() == "Error: fedwca sweep needs Optuna; install it with: pip install 'fedwca[sweep]'"


def test_fields_of_a_partition_may_be_given(shades: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    asked = ["--partition", "dirichlet:alpha=0.1", "--data", str(shades), "--param", "training.lr=0.1,0.2", "--dry-run"]
    run = call("sweep", "pfl-sampled", *asked, "--out", str(tmp_path / "s"))
    assert (run.code, "2 tries" in run.err + run.out) == (0, True), run.err
