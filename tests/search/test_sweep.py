"""Searches: the values they try, the criteria they judge by, and studies that are stopped and resumed."""

from __future__ import annotations

import math
import shutil
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from fedwca.cli import make_command
from fedwca.config.describe_method import method_parts
from fedwca.config.resolve_config import resolve_plan
from fedwca.errors import DataError, Diverged, FedwcaError, UsageError
from fedwca.results.lock import hold_lock
from fedwca.runs.reporter import RunReporter
from fedwca.runs.run_request import RunRequest
from fedwca.search.criteria import CRITERIA, ORACLE, judge, worst
from fedwca.search.open_study import JOURNAL, read_tried_values
from fedwca.search.plan_search import PlannedSearch, Search, check_clients, plan_search
from fedwca.search.space import Options, Range, grid, grids, parse_space, resolve_grid
from fedwca.search.study import _suggested, search, tabulate_tries

from ..cli.conftest import call
from ..shades import write_shades

FEDTTA = {"upfl_lr", "upfl_fedprox", "fedgma", "fedtta_prox", "fedtta_pp"}
"""Grids of the FedTTA paper, for preset `upfl`."""


def test_spans_and_lists() -> None:
    assert parse_space("training.lr=1e-3, 1e-2") == Options("training.lr", (0.001, 0.01))
    assert parse_space("clusterer.signature=1,all") == Options("clusterer.signature", (1, "all"))
    assert parse_space("training.epochs=1..5") == Range("training.epochs", 1, 5, whole=True)


@pytest.mark.parametrize("text", ["lr=1", "training.lr", "training.lr=", "a.b=3..1", "a.b=0..1:log", "a.b=1..2:linear"])
def test_mistakes_get_a_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="--param"):
        parse_space(text)


def test_spans_are_drawn_as_they_are_written() -> None:
    trial = Mock()
    _suggested(trial, Range("a.b", 1e-4, 0.1, log=True))
    _suggested(trial, Range("a.b", 1, 5, whole=True))
    trial.suggest_float.assert_called_once_with("a.b", 1e-4, 0.1, log=True)
    trial.suggest_int.assert_called_once_with("a.b", 1, 5, log=False)


def test_keys_name_their_component() -> None:
    plan = resolve_plan({"baselines": ["fedwca"], "composed": False})
    assert resolve_grid("aggregator.ta", plan) == "aggregator.wca.ta"
    assert resolve_grid("training.lr", plan) == "training.lr"
    assert resolve_grid("model.bottleneck", plan) == "model.lenet.bottleneck"
    assert resolve_grid("aggregator.wca.tb", plan) == "aggregator.wca.tb"
    with pytest.raises(UsageError, match="no field of FedWCA's aggregator 'tta'; did you mean 'ta'"):
        resolve_grid("aggregator.tta", plan)
    with pytest.raises(UsageError, match=r"--param central\.x: FedWCA has no central with fields"):
        resolve_grid("central.x", plan)
    with pytest.raises(UsageError, match=r"has no finish with fields; did you mean aggregator\.wca\.ta\?$"):
        resolve_grid("finish.ta", plan)


def test_a_field_that_the_baseline_states_is_refused() -> None:
    tried = [("aggregator.revised_wca.u", "3")]
    with pytest.raises(UsageError, match=r"states u itself.* as METHOD/aggregator=revised_wca"):
        resolve_plan({"baselines": ["revised_fedwca"], "composed": False}, tried=tried)
    word = "revised_fedwca/aggregator=revised_wca"
    assert resolve_plan({"baselines": [word], "composed": False}, tried=tried)


def test_the_papers_grids() -> None:
    method, params = grid("wca")
    assert method == "fedwca"
    assert [len(param.values) for param in params] == [5, 5]
    sizes = {name: [len(param.values) for param in grid(name)[1]] for name in grids()}
    of_fedtta = {"upfl_lr": [9], "upfl_fedprox": [4], "fedgma": [5, 9], "fedtta_prox": [4], "fedtta_pp": [4, 3]}
    assert sizes == {"wca": [5, 5], "lr": [5], "ladd": [8, 6], "fedpcl": [6], **of_fedtta}
    assert set(of_fedtta) == FEDTTA
    assert grid("fedpcl")[1][0].values == pytest.approx([7 * 10.0**-i for i in range(-2, 4)])
    assert grid("ladd")[1][0].values == pytest.approx([10.0**-i for i in range(-2, 6)])
    with pytest.raises(UsageError, match="no grid"):
        grid("wac")


@pytest.mark.parametrize("name", grids())
def test_every_value_of_a_grid_reaches_its_method(name: str) -> None:
    method, params = grid(name)
    layer = {"baselines": [method or "fedprox"], "composed": False}
    preset = "default"
    if name in FEDTTA:
        preset, layer = "upfl", {**layer, "dataset": "cifar10", "partition": "shards:public=0.1"}
    searched = {param.key.split(".")[-1] for param in params}
    plain = {**layer, "baselines": [layer["baselines"][0].split("/")[0]]}
    ((baseline, _),) = resolve_plan(plain, preset_name=preset).methods
    own = [part.model_dump(exclude=searched) for _, part in method_parts(baseline)]
    for param in params:
        key = resolve_grid(param.key, resolve_plan(layer, preset_name=preset))
        for value in param.values:
            plan = resolve_plan(layer, preset_name=preset, tried=[(key, str(value))])
            ((tried, _),) = plan.methods
            kind, *_, field_name = key.split(".")
            parts = [("training", tried.training or plan.config.training), *method_parts(tried)]
            assert value in [getattr(part, field_name, None) for part_kind, part in parts if part_kind == kind]
            assert [part.model_dump(exclude=searched) for _, part in method_parts(tried)] == own


def test_help_names_the_grids() -> None:
    (option,) = [option for option in make_command("sweep").commands["sweep"].params if option.name == "grid"]
    assert all(name.replace("_", "-") in option.help for name in grids())


def test_judged_by_the_last_round_of_each_run() -> None:
    def record(trial: int, number: int, density: float, accuracy: float) -> dict[str, object]:
        unit = {"method": "m", "source_model": 0, "trial": trial, "round": number, "accuracy": [accuracy]}
        validation = {"accuracy_validation": [30.0 - 10 * number, 20.0]}
        return {**unit, **validation, "evidence": {"density": [density, density + 2], "entropy": [0.5]}}

    records = [record(0, 0, 9.0, 9.0), record(0, 1, 1.0, 50.0), record(1, 0, 3.0, 70.0)]
    assert judge(records, "density") == 3.0
    assert judge(records, "accuracy") == 60.0
    # `accuracy` is computed with labels; the criteria do not need it.
    blind = [{key: value for key, value in r.items() if key != "accuracy"} for r in records]
    # Validation is of the round in which it is best: round 0 of both trials.
    assert [judge(blind, criterion) for criterion in CRITERIA] == [3.0, 0.5, 25.0]


def test_tries_that_differ_by_rounding_alone_are_equally_good() -> None:
    rights = ([6, 0, 0, 4, 0], [1, 1, 5, 0, 3])  # of 6 images each; sums of the percents differ in the last digit
    unit = {"method": "m", "source_model": 0, "trial": 0, "round": 0}
    tries = [judge([{**unit, "accuracy": [100 * right / 6 for right in clients]}], "accuracy") for clients in rights]
    assert tries == [33.333333333] * 2


def test_what_is_tried_is_put_over_what_is_set() -> None:
    pairs = [("aggregator.ta", "0.2"), ("aggregator.tb", "0.3")]
    plan = resolve_plan({"baselines": ["fedwca"], "composed": False}, pairs, tried=[("aggregator.wca.ta", "0.01")])
    assert plan.config.components["aggregator"]["wca"] == {"ta": 0.01, "tb": 0.3}


@pytest.mark.parametrize(
    ("second", "said"), [(1.5, "2 tries are equally good; the first"), (1.25, "The best")], ids=["alike", "one best"]
)
def test_the_best_of_equal_tries_is_not_called_the_best(tmp_path: Path, second: float, said: str) -> None:
    request = RunRequest({"baselines": ["fedwca"]}, [], "default", None)
    requested = Search(request, [], "density", 3, tmp_path)
    tries = [{"try": 0, "training.lr": 0.1, "density": 1.5}, {"try": 1, "training.lr": 0.2, "density": second}]
    assert f"{said}: --set training.lr=0.1" in tabulate_tries(requested, tries).markdown()


def test_values_stand_below_their_names_though_parameters_came_in_another_order(tmp_path: Path) -> None:
    requested = Search(RunRequest({"baselines": ["fedwca"]}, [], "default", None), [], "density", 3, tmp_path)
    tries = [
        {"try": 1, "training.lr": 0.1, "ta": 0.5, "density": 2},
        {"try": 0, "ta": 0.7, "training.lr": 0.2, "density": 1},
    ]
    table = tabulate_tries(requested, tries)
    assert table.columns == ("try", "training.lr", "ta", "density")
    assert table.rows == [["1", "0.1", "0.5", "2"], ["0", "0.2", "0.7", "1"]]


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    lock = hold_lock(tmp_path)
    try:
        data = ("--data", str(write_shades(tmp_path / "shades", images=16)))
        run = call("sweep", "fedavg", "--param", "training.lr=0.1,0.2", *data, "--out", str(tmp_path))
    finally:
        lock.release()
    assert run.code == 2
    assert run.err.splitlines()[-1] == f"Error: {tmp_path}: another process is at work here; wait for it or stop it"
    assert not (tmp_path / "study.journal").exists()


LR = "training.lr"
LIST, SPAN = Options(LR, (0.1, 0.2, 0.3, 0.4)), Range(LR, 0.1, 0.4)


class Killed(BaseException):
    """Stands for a killed process: no handler of exceptions catches it, so nothing more is written."""


class Notes(RunReporter):
    """Collects notes and warnings in a list."""

    def __init__(self, said: list[str]) -> None:
        self.note = self.warn = said.append  # type: ignore[method-assign, assignment]


@dataclass
class Trainings:
    """A stand-in for the trainings of a search: the criterion's value is the learning rate, some raise an error."""

    data: Path
    rates: list[float] = field(default_factory=list)
    """Learning rates tried so far, by all searches."""
    errors: dict[int, BaseException] = field(default_factory=dict)
    """Errors to raise, by the number of the training, from 0."""
    value: float | None = None
    """The criterion's value; None: the learning rate."""
    said: list[str] = field(default_factory=list)
    criterion: str = "density"

    def __call__(self, request: RunRequest, *_: Any) -> Any:
        ((key, rate),) = request.tried
        assert key == LR
        self.rates.append(float(rate))
        if error := self.errors.get(len(self.rates) - 1):
            raise error
        value = float(rate) if self.value is None else self.value
        record = {"method": "fedavg", "source_model": 0, "trial": 0, "round": 0, "evidence": {self.criterion: [value]}}
        return Mock(runs={"fedavg": Mock(lines_of=lambda method: [record])})

    def search(self, out: Path, param: Options | Range, tries: int | None = None) -> list[float]:
        """Run a search; returns the learning rates of its rows, the best first."""
        rows = search(self.wanted(out, param, tries), Notes(self.said))
        return [entry[LR] for entry in rows]

    def wanted(self, out: Path, param: Options | Range, tries: int | None = None) -> Search:
        """The search that `search` runs."""
        request = RunRequest({"baselines": ["fedavg"], "composed": False, "data": self.data})
        return Search(request, [param], self.criterion, tries, out)


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Trainings:
    pytest.importorskip("optuna")
    stand_in = Trainings(write_shades(tmp_path / "shades", images=16))
    monkeypatch.setattr("fedwca.search.study.collect_runs", stand_in)
    return stand_in


STOPS = [KeyboardInterrupt(), Killed(), FedwcaError("the disk is full")]
stopped_by = pytest.mark.parametrize("stop", STOPS, ids=[type(stop).__name__ for stop in STOPS])


@stopped_by
def test_each_combination_is_tried_once_wherever_a_search_was_stopped(
    stop: BaseException, trainings: Trainings, tmp_path: Path
) -> None:
    trainings.errors = {2: stop, 3: stop}
    for _ in trainings.errors:
        with pytest.raises(type(stop)):
            trainings.search(tmp_path, LIST)
    assert trainings.search(tmp_path, LIST) == [0.4, 0.3, 0.2, 0.1]
    assert trainings.rates[2] == trainings.rates[3] == trainings.rates[4]
    assert len(trainings.rates) == 6
    assert trainings.search(tmp_path, LIST) == [0.4, 0.3, 0.2, 0.1]
    assert len(trainings.rates) == 6


@stopped_by
def test_a_value_that_was_drawn_is_tried_again_after_a_stop(
    stop: BaseException, trainings: Trainings, tmp_path: Path
) -> None:
    trainings.errors = {2: stop}
    with pytest.raises(type(stop)):
        trainings.search(tmp_path, SPAN, tries=4)
    rows = trainings.search(tmp_path, SPAN, tries=4)
    assert trainings.rates[2] == trainings.rates[3]
    assert sorted(rows) == sorted(set(trainings.rates))
    assert len(rows) == 4
    assert len(trainings.search(tmp_path, SPAN, tries=5)) == 5
    assert len(trainings.rates) == 6


def test_fewer_tries_than_combinations_are_the_first_of_all(trainings: Trainings, tmp_path: Path) -> None:
    first = trainings.search(tmp_path / "few", LIST, tries=2)
    assert sorted(first) == sorted(trainings.rates)
    trainings.search(tmp_path / "all", LIST)
    assert trainings.rates[2:4] == trainings.rates[:2]


def test_whole_numbers_of_a_range_are_tried_once(trainings: Trainings, tmp_path: Path) -> None:
    whole = parse_space(f"{LR}=1..3")
    assert len(trainings.search(tmp_path, whole, tries=2)) == 2
    assert trainings.search(tmp_path, whole, tries=6) == [3, 2, 1]
    assert sorted(trainings.rates) == [1, 2, 3]
    assert len(trainings.search(tmp_path / "many", parse_space(f"{LR}=1..30"))) == 20


@pytest.mark.parametrize(
    ("key", "kind", "others"), [(LR, "aggregator", 2), ("source_training.lr", "aggregator", 1), (LR, "central", 1)]
)
def test_tries_that_differ_in_more_than_their_values_are_said(
    key: str, kind: str, others: int, trainings: Trainings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(name: str) -> Any:
        line = {"method": "fedavg", "source_model": 0, "trial": 0, "round": -1, "source_weights": name}
        return SimpleNamespace(path=Path(name), methods=methods, lines=[line], environment={"device": name})

    methods = {"fedavg": {"components": [{"kind": kind}]}}
    monkeypatch.setattr("fedwca.search.study.run_folders", lambda out: ["one", "two"])
    monkeypatch.setattr("fedwca.search.study.read_if_run", run)
    monkeypatch.setattr(f"{__name__}.LR", key)
    trainings.search(tmp_path, parse_space(f"{key}=0.1,0.2"))
    said = [text for text in trainings.said if text.startswith("two ")]
    assert len(said) == others
    assert "was made, unlike one" in said[-1]
    assert ("two began from another source model than one" in said[0]) == (others == 2)


def test_a_study_of_an_earlier_release_goes_on(trainings: Trainings, tmp_path: Path) -> None:
    """There a stopped try counted as done, and another combination was tried twice in its place."""
    optuna = pytest.importorskip("optuna")
    trainings.search(tmp_path, LIST, tries=1)
    journal = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.journal"))
    study = optuna.load_study(study_name="fedwca", storage=optuna.storages.JournalStorage(journal))
    stopped, twice, once = (rate for rate in LIST.values if rate not in trainings.rates)
    states = optuna.trial.TrialState
    trials = [(stopped, states.FAIL), (stopped, states.RUNNING), (twice, states.COMPLETE), (twice, states.COMPLETE)]
    for rate, state in trials:
        study.add_trial(
            optuna.trial.create_trial(
                params={LR: rate},
                distributions={LR: optuna.distributions.CategoricalDistribution(LIST.values)},
                value=rate if state == states.COMPLETE else None,
                state=state,
            )
        )
    study.enqueue_trial({LR: stopped})
    assert set(trainings.search(tmp_path, LIST)) == set(LIST.values)
    assert sorted(trainings.rates[1:]) == [stopped, once]
    assert {trial.state for trial in study.get_trials()} == {states.COMPLETE, states.FAIL}


def test_a_warning_in_a_try_is_heard(trainings: Trainings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn_first(*arguments: Any) -> Any:
        warnings.warn("the seed does not decide this", UserWarning, stacklevel=1)
        return trainings(*arguments)

    monkeypatch.setattr("fedwca.search.study.collect_runs", warn_first)
    with pytest.warns(UserWarning, match="the seed does not decide this"):
        trainings.search(tmp_path, LIST, tries=1)


def test_a_try_that_diverged_is_a_result(trainings: Trainings, tmp_path: Path) -> None:
    trainings.errors = {0: Diverged("source training gave values that are not finite")}
    rows = trainings.search(tmp_path, LIST)
    assert rows[-1] == trainings.rates[0]
    assert trainings.said[0] == "source training gave values that are not finite"
    assert trainings.said[1].endswith(": density diverged")
    assert trainings.search(tmp_path, LIST) == rows
    assert len(trainings.rates) == 4


def test_of_entropy_less_is_better(trainings: Trainings, tmp_path: Path) -> None:
    trainings.criterion = "entropy"
    wanted = trainings.wanted(tmp_path / "all", LIST)
    rows = search(wanted, Notes(trainings.said))
    assert [entry[LR] for entry in rows] == [0.1, 0.2, 0.3, 0.4]
    assert "(less is better)" in tabulate_tries(wanted, rows).title
    trainings.errors = {4: Diverged("source training gave values that are not finite")}
    assert trainings.search(tmp_path / "one diverged", LIST)[-1] == trainings.rates[4]
    assert (worst("entropy"), worst("density")) == (math.inf, -math.inf)


def test_a_criterion_that_no_try_has_a_value_of_is_said(trainings: Trainings, tmp_path: Path) -> None:
    trainings.value = math.nan
    with pytest.raises(FedwcaError, match="no try can be judged, since density was measured in none"):
        trainings.search(tmp_path, LIST)
    assert [note.split(": ")[-1] for note in trainings.said] == ["density not measured"] * 4


def test_what_a_killed_search_left_is_mended(
    trainings: Trainings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = Path("mine")
    first = trainings.search(out, LIST, tries=2)
    journal = out / JOURNAL
    (out / f"{JOURNAL}.lock").symlink_to(journal)  # the lock of an earlier release, which dangles
    with journal.open("ab") as file:
        file.write(b'{"op_code": 5, "work')
    optuna = pytest.importorskip("optuna")
    planned = plan_search(trainings.wanted(out, LIST))
    assert len(read_tried_values(optuna, out, planned.about)) == 2
    assert set(first) < set(trainings.search(out, LIST))
    assert len(trainings.rates) == 4
    assert len(read_tried_values(optuna, out, planned.about)) == 4


def test_a_search_needs_no_symbolic_links(
    trainings: Trainings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, where few users may make them, and on drives that cannot hold them."""
    monkeypatch.setattr("os.symlink", Mock(side_effect=PermissionError(1, "a privilege is not held")))
    assert len(trainings.search(tmp_path, LIST, tries=2)) == 2


def test_tries_on_other_images_are_not_put_beside_each_other(trainings: Trainings, tmp_path: Path) -> None:
    trainings.search(tmp_path / "s", LIST, tries=1)
    shutil.rmtree(trainings.data)
    write_shades(trainings.data, images=17)
    with pytest.raises(UsageError, match="its tries were made on other images"):
        trainings.search(tmp_path / "s", LIST)
    assert len(trainings.rates) == 1


def test_tries_of_a_search_that_drew_some_are_counted(trainings: Trainings, tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    rates = trainings.search(tmp_path, SPAN, tries=3)
    planned = plan_search(trainings.wanted(tmp_path, SPAN, 5))
    complete = read_tried_values(optuna, tmp_path, planned.about)
    assert sorted(values[LR] for values in complete) == sorted(rates)
    assert planned.missing(complete) == [{}, {}]
    other_search = plan_search(trainings.wanted(tmp_path, LIST))
    with pytest.raises(UsageError, match="holds a search with other settings"):
        read_tried_values(optuna, tmp_path, other_search.about)


def planned(
    tmp_path: Path, method: str, *params: str, criterion: str = ORACLE, tries: int | None = None
) -> PlannedSearch:
    request = RunRequest({"baselines": [method], "composed": False})
    return plan_search(Search(request, [parse_space(text) for text in params], criterion, tries, tmp_path))


def test_values_that_go_with_those_of_another_field_are_no_mistake(tmp_path: Path) -> None:
    planned_search = planned(
        tmp_path, "fedavg/adaptation=entropy", "adaptation.patience=2,5", "adaptation.candidates=all,adapted"
    )
    assert planned_search.tries == 4


def test_no_combination_is_tried_twice(tmp_path: Path) -> None:
    assert planned(tmp_path, "fedavg", "training.lr=0.1,0.2", tries=50).tries == 2
    assert planned(tmp_path, "fedavg", "training.lr=0.1..0.2", tries=50).tries == 50


def test_the_partition_is_named_as_other_parts_are() -> None:
    plan = resolve_plan({"partition": "dirichlet", "baselines": ["fedtta"], "composed": False}, preset_name="upfl")
    assert resolve_grid("partition.alpha", plan) == "partition.dirichlet.alpha"


def test_what_the_criterion_does_not_see_is_not_searched(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--param adaptation.entropy.lr: criterion density is of models before"):
        planned(tmp_path, "fedavg/adaptation=entropy", "adaptation.lr=0.1,0.2", criterion="density")
    assert planned(tmp_path, "fedavg/adaptation=entropy", "adaptation.lr=0.1,0.2").tries == 2
    through = "fedavg/objective=adapted/adaptation=entropy"  # trains through the steps
    assert planned(tmp_path, through, "adaptation.lr=0.1,0.2", criterion="density").tries == 2


def test_values_that_do_not_go_together_are_left_out(trainings: Trainings, tmp_path: Path) -> None:
    """The check before a search is off here: it pairs values only with the first ones of other fields."""
    original = RunRequest.plan

    def plan(request: RunRequest) -> Any:
        if dict(request.tried).get(LR) == "0.3":
            raise UsageError("0.3 is too much")
        return original(request)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RunRequest, "plan", plan)
        patched.setattr("fedwca.search.plan_search._check_values", lambda *arguments: None)
        for _ in range(2):
            assert trainings.search(tmp_path, LIST) == [0.4, 0.2, 0.1]
    assert sorted(trainings.rates) == [0.1, 0.2, 0.4]
    assert sum("cannot be run: 0.3 is too much" in text for text in trainings.said) == 1


def test_values_that_the_images_do_not_suffice_for_are_left_out(
    trainings: Trainings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(request: RunRequest) -> None:
        if dict(request.tried)[LR] == "0.3":
            raise UsageError("8 images of 4 clients")

    monkeypatch.setattr("fedwca.search.study.check_clients", check)
    for _ in range(2):
        assert trainings.search(tmp_path, LIST) == [0.4, 0.2, 0.1]
    assert sum("= 0.3 cannot be run: 8 images of 4 clients" in text for text in trainings.said) == 1


def test_an_error_that_is_not_of_the_values_ends_the_search(trainings: Trainings, tmp_path: Path) -> None:
    trainings.errors = {1: UsageError("no device")}
    with pytest.raises(UsageError, match="no device"):
        trainings.search(tmp_path, LIST)
    assert len(trainings.search(tmp_path, LIST)) == 4


def test_a_try_is_left_out_only_if_its_partition_cannot_be_dealt(tmp_path: Path) -> None:
    layer = {"baselines": ["fedavg"], "composed": False, "data": write_shades(tmp_path / "s", images=16)}

    def check(public: str) -> None:
        check_clients(RunRequest(layer, preset="upfl", tried=[("partition.dirichlet.public", public)]))

    layer |= {"partition": "dirichlet", "clients": 4, "new_clients": 2}
    check("0.1")
    with pytest.raises(UsageError, match="are left for 6 clients"):
        check("0.99")
    (tmp_path / "s").rename(tmp_path / "gone")
    with pytest.raises(DataError):
        check("0.1")
