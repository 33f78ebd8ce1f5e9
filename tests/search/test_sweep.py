"""Values to try, and what they are judged by."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedwca.config.resolve_config import resolve_plan
from fedwca.errors import UsageError
from fedwca.results.lock import hold_lock
from fedwca.runs.run_request import RunRequest
from fedwca.search.criteria import CRITERIA, judge
from fedwca.search.space import Options, Range, check_taken, grid, grids, parse_space, resolve_grid
from fedwca.search.study import Search, tabulate_tries

from ..cli.conftest import call


def test_spans_and_lists() -> None:
    assert parse_space("training.lr=1e-3, 1e-2") == Options("training.lr", (0.001, 0.01))
    assert parse_space("clusterer.signature=1,all") == Options("clusterer.signature", (1, "all"))
    assert parse_space("training.epochs=1..5") == Range("training.epochs", 1, 5, whole=True)


@pytest.mark.parametrize("text", ["lr=1", "training.lr", "training.lr=", "a.b=3..1", "a.b=0..1:log", "a.b=1..2:linear"])
def test_mistakes_get_a_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="--param"):
        parse_space(text)


def test_keys_name_their_component() -> None:
    decided = resolve_plan({"baselines": ["fedwca"], "composed": False})
    assert resolve_grid("aggregator.ta", decided) == "aggregator.wca.ta"
    assert resolve_grid("training.lr", decided) == "training.lr"
    assert resolve_grid("model.bottleneck", decided) == "model.lenet.bottleneck"
    assert resolve_grid("aggregator.wca.tb", decided) == "aggregator.wca.tb"
    with pytest.raises(UsageError, match="has a field"):
        resolve_grid("aggregator.u", decided)


def test_a_field_that_the_baseline_states_is_refused() -> None:
    stated = resolve_plan({"baselines": ["revised_fedwca"], "composed": False}, [("aggregator.revised_wca.u", "3")])
    with pytest.raises(UsageError, match="revised_fedwca/aggregator=revised_wca"):
        check_taken("aggregator.revised_wca.u", 3, stated)
    word = "revised_fedwca/aggregator=revised_wca"
    free = resolve_plan({"baselines": [word], "composed": False}, [("aggregator.revised_wca.u", "3")])
    check_taken("aggregator.revised_wca.u", 3, free)


def test_the_papers_grids() -> None:
    method, params = grid("wca")
    assert method == "fedwca"
    assert [len(param.values) for param in params] == [5, 5]
    sizes = {name: [len(param.values) for param in grid(name)[1]] for name in grids()}
    assert sizes == {"wca": [5, 5], "lr": [5], "ladd": [8, 6], "fedpcl": [6]}
    assert grid("fedpcl")[1][0].values == pytest.approx([7 * 10.0**-i for i in range(-2, 4)])
    assert grid("ladd")[1][0].values == pytest.approx([10.0**-i for i in range(-2, 6)])
    with pytest.raises(UsageError, match="no grid"):
        grid("wac")


@pytest.mark.parametrize("name", grids())
def test_every_value_of_a_grid_reaches_its_method(name: str) -> None:
    method, params = grid(name)
    layer = {"baselines": [method or "fedavg"], "composed": False}
    for param in params:
        key = resolve_grid(param.key, resolve_plan(layer))
        for value in param.values:
            check_taken(key, value, resolve_plan(layer, [(key, str(value))]))


def test_judged_by_the_last_round_of_each_run() -> None:
    def record(trial: int, number: int, density: float, accuracy: float) -> dict[str, object]:
        about = {"method": "m", "source_model": 0, "trial": trial, "round": number, "accuracy": [accuracy]}
        kept_aside = {"accuracy_validation": [30.0 - 10 * number, 20.0]}
        return {**about, **kept_aside, "evidence": {"density": [density, density + 2], "entropy": [0.5]}}

    records = [record(0, 0, 9.0, 9.0), record(0, 1, 1.0, 50.0), record(1, 0, 3.0, 70.0)]
    assert judge(records, "density") == 3.0
    assert judge(records, "accuracy") == 60.0
    # Labels are behind `accuracy`: without it the criteria still have all they need.
    blind = [{key: value for key, value in r.items() if key != "accuracy"} for r in records]
    # Validation is of the round in which it is best: round 0 of both trials.
    assert [judge(blind, criterion) for criterion in CRITERIA] == [3.0, 0.5, 25.0]


def test_what_is_tried_is_put_over_what_is_set() -> None:
    asked = [("aggregator.ta", "0.2"), ("aggregator.tb", "0.3")]
    decided = resolve_plan({"baselines": ["fedwca"], "composed": False}, asked, tried=[("aggregator.wca.ta", "0.01")])
    assert decided.config.components["aggregator"]["wca"] == {"ta": 0.01, "tb": 0.3}


@pytest.mark.parametrize(
    ("second", "said"), [(1.5, "2 tries are equally good; the first"), (1.25, "The best")], ids=["alike", "one best"]
)
def test_the_best_of_equal_tries_is_not_called_the_best(tmp_path: Path, second: float, said: str) -> None:
    request = RunRequest({"baselines": ["fedwca"]}, [], "default", None)
    wanted = Search(request, [], "density", 3, tmp_path)
    found = [{"try": 0, "training.lr": 0.1, "density": 1.5}, {"try": 1, "training.lr": 0.2, "density": second}]
    assert f"{said}: --set training.lr=0.1" in tabulate_tries(wanted, found).markdown()


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    lock = hold_lock(tmp_path)
    try:
        run = call("sweep", "fedavg", "--param", "training.lr=0.1,0.2", "--out", str(tmp_path))
    finally:
        lock.release()
    assert run.code == 2
    assert run.err.splitlines()[-1] == f"Error: {tmp_path}: another process is at work here; wait for it or stop it"
    assert not (tmp_path / "study.journal").exists()
