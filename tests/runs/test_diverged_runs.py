"""A method whose training diverges ends there; all others go on, and no table counts its rounds."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from fedwca.engine.class_predictions import ClassPredictions
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.errors import Diverged
from fedwca.federated.upload_checks import ExpectedUpload, Upload, check_uploads
from fedwca.models import models
from fedwca.reproduce.groups_table import groups_beside
from fedwca.reproduce.phases_table import phases_apart
from fedwca.reproduce.side_by_side import accuracies_beside
from fedwca.results.checkpoints import Checkpoints
from fedwca.results.comparison import Comparison
from fedwca.results.diverged_runs import DIVERGED, NOTE, Divergence, counted_rounds
from fedwca.results.pictures.accuracy import draw_curve, mean_by_round
from fedwca.results.pictures.catalogue import PICTURES, PictureRequest
from fedwca.results.pictures.style import figure, line_style, looks
from fedwca.results.read_run import read_run
from fedwca.results.report.warnings import run_warnings
from fedwca.results.retention_policy import RetentionPolicy
from fedwca.results.table_rows import Row
from fedwca.results.unit import Unit
from fedwca.results.write_run import RunFolder
from fedwca.runs.open_run import open_run
from fedwca.runs.resuming.find_resume_points import find_resume_points
from fedwca.runs.run_request import RunRequest
from fedwca.runs.start_run import start_run
from fedwca.runs.write_report import render_report
from fedwca.search.criteria import judge
from tests.cli.conftest import Run, call
from tests.conftest import MINI
from tests.read_rounds import read_rounds
from tests.shades import write_shades

SIZE = "--preset upfl --clients 4 --new-clients 4 --samples 16 --rounds 2 --source-models 1 --batch-size 8 --device cpu"
SMALL = ["bench", *SIZE.split(), "--set", "model.width=8", "--set", "training.steps=2"]
WILD = """
[methods.fedprox]
training.lr = 1e30
[methods.fedtta]
components.adaptation.learned = { lr = 1e30 }
"""
WHY = "client 0's model has values that are not finite; a lower --lr may help"
LOST = Divergence(8, WHY)


def bench(out: Path, *words: str) -> Run:
    (out.parent / "wild.toml").write_text(WILD)
    return call(*SMALL, *words, "--config", str(out.parent / "wild.toml"), "--out", str(out), folder=out)


def of(*methods: str) -> list[str]:
    return [word for method in methods for word in ("--baseline", method)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return bench(tmp_path_factory.mktemp("diverged") / "run", *of("fedprox", "fedtta", "fedavg"))


def test_all_others_go_on_and_the_table_says_what_ended(run: Run) -> None:
    assert run.code == 0
    for label in ("FedProx", "FedTTA"):  # because of its learning rate; because of that of its inner step
        sentence = f"{label}, source model 0, trial 0, diverged in round 1: {WHY}"
        assert f"Warning: {sentence}\n" in run.err
        assert f"{sentence}; no number of the table is of it." in run.out
        assert f"{label} (diverged in round 1)" in run.out
    ends = {record["method"]: record["round"] for record in run.rounds}
    assert ends == {"fedprox": 0, "fedtta": 0, "fedavg": 1}
    last = [record for record in run.rounds if DIVERGED in record]
    assert [record["accuracy"] for record in last] == [[None] * 8] * 2
    summary = run.summary
    diverged, finished = summary["methods"]["fedprox"], summary["methods"]["fedavg"]
    assert (summary["complete"], diverged["mean"], diverged["n"], diverged["runs"]) == (True, None, 0, [])
    assert diverged["diverged"] == [{"source_model": 0, "trial": 0, "round": 1, "why": WHY}]
    assert finished["n"] == 1
    assert not {"difference", "validation", "last", "round"} & set(diverged)
    assert "diverged" not in finished


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_where_nothing_else_is_there_the_exit_code_is_1(engine: str, tmp_path: Path) -> None:
    wild = ["--baseline", "none", "--objective", "adapted", "--adaptation", "learned:lr=1e30", "--engine", engine]
    result = call(*SMALL, *wild, "--out", str(tmp_path / "run"), folder=tmp_path / "run")
    assert result.code == 1
    sentence = f"every run of every method that trains diverged, the first because {WHY}\n"
    assert result.err.endswith(sentence)
    assert "could not be drawn" not in result.err
    assert result.summary["complete"]
    assert [record["round"] for record in result.rounds] == [-1, 0]
    assert call("resume", str(tmp_path / "run")).code == 1
    (tmp_path / "run" / "rounds.jsonl").unlink()
    again = call("resume", str(tmp_path / "run"))
    assert (again.code, again.err.endswith(sentence)) == (1, True), "without the records of its rounds"


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("rounds", [0, 1])
def test_an_adaptation_that_diverges_is_no_accuracy_of_the_first_class(
    engine: str, rounds: int, shades: Path, tmp_path: Path
) -> None:
    words = [*SMALL, "--baseline", "tent/adaptation=entropy:lr=1e30"]
    if not rounds:  # the source model, adapted
        data = ["--dataset", "folder", "--data", str(shades), "--model", MINI, "--clients", "1", "--rounds", "1"]
        sources = ["--source-models", "1", "--trials", "1", "--set", "source_training.epochs=1", "--device", "cpu"]
        methods = ["--baseline", "source_only/adaptation=entropy:lr=1e30"]
        words = ["bench", *data, *sources, *methods]
    result = call(*words, "--engine", engine, "--out", str(tmp_path / "run"), folder=tmp_path / "run")
    sentence = "a client's adapted model has outputs that are not finite for some of the client's test images"
    assert f"diverged {'in round 1' if rounds else 'before the first round'}: {sentence}; a lower adap" in result.err
    (last,) = [record for record in result.rounds if DIVERGED in record]
    assert {value for value in last["accuracy"] if value is not None} == set()


def test_everything_reads_such_a_run(run: Run, tmp_path: Path) -> None:
    contents = read_run(run.folder)
    assert contents.has_all_rounds
    assert contents.state == "done"
    assert [row.name for row in contents.table][-1] == "fedavg"
    assert "FedProx (diverged in round 1)" in render_report([run.folder], "md")
    assert "FedProx (diverged in round 1)" in render_report([run.folder])
    assert run_warnings(contents)[0] == f"FedProx, source model 0, trial 0, diverged in round 1: {WHY}. " + (
        "No number of the table is of it."
    )
    for name in ("overview", "accuracy", "bars"):
        PICTURES[name].draw(PictureRequest(contents, lambda: None, None, None))  # type: ignore[arg-type, return-value]
    for words in (["runs", "show"], ["runs", "show", "--json"], ["resume"], ["resume", "--json"]):
        shown = call(*words, str(run.folder.resolve()))
        assert (shown.code, "FedProx (diverged in round 1)" in shown.out) == (0, True), words
    table = tmp_path / "rounds.csv"
    assert call("runs", "export", str(run.folder.resolve()), "--out", str(table)).code == 0
    assert WHY in table.read_text()
    with pytest.warns(UserWarning, match="FedProx diverged in round 1; no round of it is done"):
        assert open_run(run.folder, "fedprox").round == -1
    assert judge([line for line in contents.lines if line["method"] == "fedprox"], "validation") == -float("inf")


def test_it_is_said_without_the_records_of_rounds_too(run: Run, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run.folder, tmp_path / "copy"))
    (folder / "rounds.jsonl").unlink()
    assert "FedProx (diverged in" in call("runs", "show", str(folder)).out


def test_a_stopped_run_does_not_repeat_it(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, original = tmp_path / "run", RunFolder.append

    def stop(self: RunFolder, record: dict[str, Any]) -> None:
        original(self, record)
        if record["method"] == "fedavg" and record["round"] == 0:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append", stop)
        assert bench(out, *of("fedprox", "fedtta", "fedavg")).code == 130
    assert read_run(out).state == "stopped"
    assert read_run(out).labels["fedprox"] == "FedProx (diverged in round 1)"
    resumed = call("resume", str(out), folder=out)
    assert resumed.code == 0
    assert "Warning" not in resumed.err
    assert read_rounds(out, without=["seconds"]) == read_rounds(run.folder, without=["seconds"])


def test_a_training_before_the_first_round_that_diverges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wild(*_: object) -> None:
        raise Diverged(f"central training of pooled: {WHY}")

    monkeypatch.setattr("fedwca.runs.run_trials_and_methods.central_model", wild)
    layer = {
        "dataset": "folder",
        "data": str(write_shades(tmp_path / "shades")),
        "model": "lenet",
        "target": "coral",
        "clients": 1,
        "rounds": 1,
    }
    layer |= {"baselines": ["pooled", "fedavg_labelled"], "composed": False, "source_models": 1, "device": "cpu"}
    request = RunRequest({**layer, "partition": "leave_one_out"}, (("model.bottleneck", "8"),), out=tmp_path / "run")
    with pytest.warns(UserWarning, match="diverged before the first round: central training of pooled"):
        finished = start_run(request)
    assert [row.name for row in finished.table if row.runs] == ["fedavg_labelled"]
    assert read_run(tmp_path / "run").has_all_rounds


SHADES = ["--dataset", "folder", "--model", "lenet:bottleneck=8", "--clients", "1", "--device", "cpu"]


def test_a_model_whose_outputs_overflow_has_no_accuracy(shades: Path, tmp_path: Path) -> None:
    """All its values are finite, so it can be loaded; the largest of outputs that are none would be class 0."""
    network = models.build("lenet:bottleneck=8").build(2, 0)
    tensors = {name: value.contiguous() for name, value in network.state_dict().items()}
    tensors["bottleneck.weight"] *= 1e38
    tensors["norm.weight"] *= 1e38
    save_file(tensors, tmp_path / "big.safetensors")
    words = ["--data", str(shades), "--checkpoint", str(tmp_path / "big.safetensors"), "--baseline", "source_only"]
    result = call("bench", *SHADES, *words, "--out", str(tmp_path / "run"), folder=tmp_path / "run")
    assert "diverged before the first round: the model before the first round has outputs" in result.err
    assert "a lower source_training.lr may help" not in result.err, "it is not trained here"
    assert set(result.rounds[-1]["accuracy"]) == {None}


def test_a_last_phase_whose_outputs_overflow_has_no_accuracy(
    shades: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predict = SequentialEngine.predict_tests

    def overflow(engine: SequentialEngine, *models: Any, clients: Any = None) -> list[ClassPredictions]:
        """What clients' own models predict is not finite; only a last phase hands these on."""
        predicted = predict(engine, *models, clients=clients)
        return predicted if clients is None else [p._replace(confidences=p.confidences * math.nan) for p in predicted]

    monkeypatch.setattr(SequentialEngine, "predict_tests", overflow)
    words = ["--data", str(shades), "--target", "coral", "--baseline", "sfda", "--rounds", "1", "--engine", "loop"]
    result = call("bench", *SHADES, *words, "--out", str(tmp_path / "run"), folder=tmp_path / "run")
    assert "diverged in round 2: a client's model has outputs that are not finite" in result.err
    assert "a lower finish_training.lr may help" in result.err


def save(run: Path, unit: Unit, rounds: Sequence[int]) -> None:
    checkpoints = Checkpoints(run, "same", RetentionPolicy(2, 1))
    for number in rounds:
        checkpoints.save(unit, number, {"rows": torch.zeros(1)}, {}, False)


@pytest.mark.parametrize(("other", "again"), [(1, True), (2, False), (3, False)])
def test_one_that_went_together_diverges_again_where_its_companion_did_not_do_that_round(
    other: int, again: bool, tmp_path: Path
) -> None:
    first, second = Unit(0, 0, "scaffold"), Unit(0, 1, "scaffold")
    save(tmp_path, first, [-1, 0, 1])
    save(tmp_path, second, range(-1, other + 1))
    lines = [
        {**unit._asdict(), "round": n} for unit, last in ((first, 1), (second, other)) for n in range(-1, last + 1)
    ]
    lines.append({**first._asdict(), "round": 2, DIVERGED: WHY})
    resume_points, sentences = find_resume_points(
        Checkpoints(tmp_path, "same"), {first: 5, second: 5}, lines, [[(0, 0), (0, 1)]]
    )
    assert not sentences
    saved = resume_points[first]
    assert (saved.round if saved else None) == (1 if again else None)
    saved_second = resume_points[second]
    assert saved_second is not None
    assert saved_second.round == other


def row(name: str, runs: dict[int, float], diverged: Sequence[int] = (), own: bool = True) -> Row:
    values = {(index, 0): value for index, value in runs.items()}
    return Row(
        *(name, name.upper(), values, {"new clients": list(values.values())}),
        validation=values if own else {},
        before={} if own else values,
        diverged={(index, 0): LOST for index in diverged},
    )


def test_tables_of_papers_say_how_many_diverged() -> None:
    table = [row("a", {0: 50.0, 1: 52.0, 2: 54.0}), row("b", {1: 60.0}, [0, 2]), row("c", {}, [0, 1, 2])]
    rows = {"A": "a", "B": "b", "C": "c"}
    grid, entries = groups_beside("t", table, rows, {("C", "new clients"): (70.0, None)}, "Table 1")
    value_by_row = {line[0]: line[1] for line in grid.rows}
    lost = replace(row("d", {}, [0]), domains={"training clients": [], "new clients": []})
    heads = [line[0] for line in groups_beside("t", [lost], {"D": "d"}, {}, "")[0].rows]
    assert heads == ["training clients: D (diverged in round 8)"]
    assert value_by_row["new clients: B (diverged in 2 of 3 runs)"] == "60.00"
    assert value_by_row["new clients: C (diverged in 3 of 3 runs)"] == "–"
    assert NOTE in grid.notes
    assert [entry["diverged"] for entry in entries[:3]] == [0, 2, 3]
    comparison = Comparison.of("d", {"x": table}, "a")
    difference = comparison.difference("b")
    assert difference is not None
    assert difference.n == 1
    assert comparison.difference("c") is None
    assert [line[0] for line in comparison.table().rows][1] == "B (diverged in 2 of 3 runs)"
    assert [entry["diverged"] for entry in comparison.flat()] == [0, 2, 3]
    assert comparison.table().notes[0].startswith("Mean ± std (ddof 1) over n = 0 to 3 runs ")
    accuracies = accuracies_beside("t", comparison, rows, {}, "")
    assert [line[0] for line in accuracies.rows][2] == "x: C (diverged in 3 of 3 runs)"
    grid, entries = phases_apart("t", {"x": [row("a", {0: 1.0}, own=False), row("b", {}, [0], own=False)]}, rows={
        "A": "a", "B": "b"})  # fmt: skip
    assert [line[0] for line in grid.rows][1] == "x: B (diverged in round 8)"
    assert entries[1]["diverged"] == 1


def test_means_over_rounds_are_of_runs_that_did_not_diverge() -> None:
    def line(method: str, model: int, number: int, accuracy: float) -> dict[str, Any]:
        unit = {"method": method, "source_model": model, "trial": 0, "round": number, "accuracy": [accuracy]}
        return unit | ({DIVERGED: WHY} if math.isnan(accuracy) else {})

    complete = [line("a", 0, number, 10.0 * number) for number in range(3)]
    lost = [line("a", 1, 0, 90.0), line("a", 1, 1, math.nan)]
    alone = [line("b", 0, 0, 50.0), line("b", 0, 1, math.nan)]
    assert counted_rounds([*complete, *lost, *alone]) == [*complete, alone[0]]
    assert counted_rounds(complete) == complete
    assert mean_by_round([*complete, *lost], "accuracy") == {1: [0.0], 2: [10.0], 3: [20.0]}


def test_a_method_that_diverged_at_once_is_not_drawn_as_one_that_never_trains() -> None:
    start = {"method": "a", "source_model": 0, "trial": 0, "round": -1, "accuracy": [50.0]}
    lost = {**start, "round": 0, "accuracy": [math.nan], DIVERGED: WHY}
    for records, is_level in (([start], True), ([start, lost], False)):
        axis = figure(3, 2, "").subplots()
        draw_curve(axis, records, line_style(looks(["a"])["a"], False), "A")
        (line,) = axis.get_lines()
        assert (line.get_linestyle() == "--" and len(line.get_xdata()) == 2) is is_level


def test_what_is_sent_beside_a_model_may_have_diverged_too() -> None:
    upload = Upload(report={"loss": torch.tensor([torch.inf])})
    with pytest.raises(Diverged, match=r"client 1's upload is refused: .*; a lower --lr may help"):
        check_uploads(torch.ones(2, 2), {1: upload}, ExpectedUpload())


def test_an_older_folder_without_the_field_is_read(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path / "run")
    lines = [line for line in run.lines if json.loads(line)["method"] == "fedavg"]
    (tmp_path / "run" / "rounds.jsonl").write_text("\n".join(lines) + "\n")
    assert [entry.name for entry in read_run(tmp_path / "run").table] == ["fedavg"]
