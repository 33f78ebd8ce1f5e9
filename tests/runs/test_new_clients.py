"""Runs with labelled and new clients: which clients are measured, which round is shown, what is refused, resuming."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedwca.config.resolve_config import resolve_plan
from fedwca.data.federation import Federation
from fedwca.data.metrics import Metrics
from fedwca.deploy.deployable_checks import check_deployable
from fedwca.errors import UsageError
from fedwca.results.class_scores import macro_f1
from fedwca.results.read_run import read_run
from fedwca.results.report.page_data import page_data
from fedwca.results.run_schemas import SCHEMA, RoundRecord
from fedwca.results.table_rows import summarise, table_rows
from fedwca.runs import split_trials
from fedwca.runs.compare import run_comparison
from fedwca.runs.load_data import build_network
from fedwca.runs.open_run import open_run
from fedwca.runs.python_api import bench, resume
from fedwca.runs.run_request import RunRequest
from tests.cli.conftest import call
from tests.read_rounds import read_rounds
from tests.runs.stopping import check_same_bits, stop

SMALL: dict[str, Any] = {
    "preset": "upfl",
    "clients": 4,
    "new_clients": 6,
    "samples": 16,
    "rounds": 3,
    "source_models": 1,
    "batch_size": 8,
    "device": "cpu",
    "baselines": ["fedprox"],
}
OVERRIDES = {"model.width": 8, "training.steps": 4}


def play(out: Path, **settings: Any) -> Path:
    return bench(**{**SMALL, **settings}, overrides=OVERRIDES, out=out, keep="all").path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(tmp_path_factory.mktemp("new") / "run")


def summary(path: Path) -> dict[str, Any]:
    methods: dict[str, Any] = json.loads((path / "summary.json").read_text())["methods"]
    return methods


def test_the_preset_says_all() -> None:
    plan = resolve_plan({}, preset_name="upfl")
    config, training = plan.config, plan.config.training
    assert (config.dataset, config.partition, config.model, plan.domain_role, plan.domain) == (
        *("digits_plain", "shards", "mlp"),
        *(None, None),
    )
    assert (config.source_models, config.trials, training.steps, training.momentum, training.weight_decay) == (
        *(1, 1, 10),
        *(0, 0),
    )
    assert {method.name: rounds for method, rounds in plan.methods} == {"tent": 40, "fedtta": 40, "fedavg": 40}
    resolved_again = resolve_plan(json.loads(config.model_dump_json()))
    assert resolved_again.described()["methods"] == plan.described()["methods"]
    defaults = resolve_plan({"partition": "dirichlet:alpha=0.3"}).config.training
    assert (defaults.steps, defaults.momentum, defaults.weight_decay) == (20, 0, 0)


def test_what_the_user_says_of_a_rounds_length_counts() -> None:
    assert resolve_plan({"training": {"epochs": 2}}, preset_name="upfl").config.training.steps is None
    assert resolve_plan({"training": {"steps": 3}, "baselines": ["fedavg"]}).config.training.steps == 3
    assert resolve_plan({"dataset": "fashion_mnist"}, preset_name="upfl").config.training.lr == 0.3


def test_records_hold_both_groups_and_tables_one_round_for_both(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    assert config["domains"] == ["training clients"] * 4 + ["new clients"] * 6
    records = read_rounds(run)
    for record in records:
        assert [value is None for value in record["accuracy"]] == [True] * 4 + [False] * 6
        assert [value is None for value in record["accuracy_validation"]] == [False] * 4 + [True] * 6
        assert sum(images for *_, images in record["confusion"]) == 6 * 16, "of new clients alone"
    assert records[0]["test_images"] == [2] * 4 + [16] * 6
    entry, rounds = summary(run)["fedavg"], [r for r in records if r["method"] == "fedavg" and r["round"] >= 0]
    assert list(entry["domains"]) == ["new clients"]
    validation = [sum(r["accuracy_validation"][:4]) / 4 for r in rounds]
    shown = max(range(3), key=lambda number: (validation[number], number))
    assert entry["round"]["mean"] == entry["runs"][0]["round"] == shown + 1
    assert entry["validation"]["mean"] == pytest.approx(validation[shown])
    assert entry["mean"] == pytest.approx(sum(rounds[shown]["accuracy"][4:]) / 6)
    assert entry["last"]["mean"] == pytest.approx(sum(rounds[2]["accuracy"][4:]) / 6)
    assert entry["worst"]["mean"] == min(rounds[shown]["accuracy"][4:])
    assert entry["calibration_error"]["mean"] == rounds[shown]["calibration_error"]
    assert entry["f1"]["mean"] == macro_f1(rounds[shown]["confusion"])
    assert summary(run)["fedprox"]["difference"]["to"] == "fedavg"


def test_labels_of_clients_are_drawn_as_no_pseudo_labels(run: Path) -> None:
    refused = call("plot", str(run), "pseudo_labels")
    assert (refused.code, refused.err) == (1, "Error: no client was given pseudo-labels\n")


def record(number: int, training: list[float | None], new: list[float | None]) -> dict[str, Any]:
    nothing = [math.nan]
    return {
        "method": "fedavg",
        "source_model": 0,
        "trial": 0,
        "round": number,
        "accuracy": nothing * len(training) + [math.nan if value is None else value for value in new],
        "accuracy_validation": [math.nan if value is None else value for value in training] + nothing * len(new),
        "labels": [0] * len(training),
    }


def test_the_round_is_chosen_by_training_clients_and_of_equals_the_later_one() -> None:
    domains = ["training clients"] * 2 + ["new clients"]
    rounds = [
        record(-1, [100, 100], [100]),
        record(0, [60, 60], [90]),
        record(1, [50, 70], [20]),
        record(2, [50, 50], [95]),
    ]
    (row,) = table_rows(rounds, {"fedavg": "FedAvg"}, domains)
    entry = summarise([row])["fedavg"]
    assert (entry["mean"], entry["validation"]["mean"], entry["round"]["mean"], entry["last"]["mean"]) == (
        *(20, 60),
        *(2, 95),
    )
    better = [
        {**line, "accuracy": [math.nan, math.nan, value]} for line, value in zip(rounds, (1, 2, 3, 4), strict=True)
    ]
    assert table_rows(better, {"fedavg": "FedAvg"}, domains)[0].shown == row.shown
    # 10 of 30 images are right in both rounds; means over clients of 6 images differ in the last digit.
    equal = [
        record(n, [100 * right / 6 for right in clients], [n])
        for n, clients in enumerate(([6, 0, 0, 4, 0], [1, 1, 5, 0, 3]))
    ]
    (row,) = table_rows(equal, {"fedavg": "FedAvg"}, ["training clients"] * 5 + ["new clients"])
    assert list(row.shown.values()) == [2]
    (unmeasured,) = table_rows([record(n, [None, None], [n]) for n in (0, 1)], {"fedavg": "FedAvg"}, domains)
    assert unmeasured.mean == 1
    assert not unmeasured.shown, "no round is called the best one where no client has validation images"


def test_a_record_has_a_value_for_whom_it_is_of() -> None:
    valid = {key: [None if value != value else value for value in values] if isinstance(values, list) else values
             for key, values in record(0, [60, 60], [90]).items()} | {"schema": SCHEMA}  # fmt: skip
    RoundRecord.model_validate(valid)
    before = {key: value for key, value in valid.items() if key != "labels"} | {"train_images": [9, 9]}
    RoundRecord.model_validate(before)  # in round -1 no client has a cluster yet
    with pytest.raises(ValueError, match="trust has 3 values, 2 are right"):
        RoundRecord.model_validate({**before, "trust": [1.0, 1.0, 1.0]})
    for name, value in (("labels", [0, 0, 0]), ("test_images", [1, 1]), ("accuracy_validation", [1.0])):
        with pytest.raises(ValueError, match="are right"):
            RoundRecord.model_validate({**valid, name: value} | ({"agreement": [1.0, 1.0]} if name == "labels" else {}))


@pytest.mark.parametrize("what", ["labels", "absent"])
def test_training_never_meets_new_clients(
    what: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = split_trials.split_trial

    def changed(*arguments: Any) -> Federation:
        federation = original(*arguments)
        (new,) = federation.newcomers
        if what == "absent":
            return replace(federation, newcomers=(replace(new, clients=new.clients[:1], metrics=first_of(new)),))
        other_labels = [(new.metrics.test_truth(k) + 1) % 10 for k in range(len(new))]
        no_validation = [torch.zeros(0, dtype=torch.int64)] * len(new)
        return replace(
            federation, newcomers=(replace(new, metrics=Metrics(new.metrics.domains, no_validation, other_labels)),)
        )

    def first_of(new: Federation) -> Metrics:
        return Metrics(new.metrics.domains[:1], [torch.zeros(0, dtype=torch.int64)], [new.metrics.test_truth(0)])

    monkeypatch.setattr(split_trials, "split_trial", changed)
    changed_run = play(tmp_path / "run")
    assert read_rounds(changed_run, without=["seconds"]) != read_rounds(run, without=["seconds"])
    measured = ("seconds", "accuracy", "accuracy_validation", "test_images", "calibration_error", "confusion")
    assert read_rounds(changed_run, without=measured) == read_rounds(run, without=measured)
    for method in ("fedavg", "fedprox"):
        assert torch.equal(open_run(changed_run, method).bank, open_run(run, method).bank)
        assert summary(changed_run)[method]["round"] == summary(run)[method]["round"]
        assert summary(changed_run)[method]["validation"] == summary(run)[method]["validation"]


def test_engines_agree(run: Path, tmp_path: Path) -> None:
    stacked_run = play(tmp_path / "run", engine="stacked")
    for expected, actual in zip(read_rounds(run), read_rounds(stacked_run), strict=True):
        assert expected["accuracy"] == actual["accuracy"]
        assert expected["accuracy_validation"] == actual["accuracy_validation"]
    assert torch.allclose(open_run(run).server.rows, open_run(stacked_run).server.rows, atol=1e-5)


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(run: Path, tmp_path: Path) -> None:
    stop(lambda: play(tmp_path / "run"), call=2)
    check_same_bits(resume(tmp_path / "run").path, run)


def test_the_trained_classifier_is_everybodys_own(run: Path) -> None:
    opened, after_one_round = open_run(run), open_run(run, round=1)
    assert opened.source is None
    assert len(opened.domains) == len(opened.bank) == 4
    head = opened.layout.classifier
    assert not torch.equal(opened.delivered[0, head], after_one_round.delivered[0, head])
    for record in read_rounds(run):
        if record["round"] >= 0:
            assert record["bytes_down"] == record["bytes_up"] == 4 * 4 * opened.layout.width
    out = run.parent / "model.safetensors"
    result = call("export", str(run), "--client", "1", "--out", str(out))
    assert result.code == 0, result.err
    measured = read_rounds(run)[-1]["accuracy_validation"][1]
    assert f"{measured:.1f} %" in out.with_name("model.safetensors.md").read_text()


def test_reports_and_pictures_are_drawn(run: Path, tmp_path: Path) -> None:
    for words in (["report", str(run), "--out", str(tmp_path / "page.html")], ["plot", str(run), "accuracy"]):
        result = call(*words)
        assert result.code == 0, result.err
    shown = call("runs", "show", str(run))
    assert shown.code == 0, shown.err
    assert "FedProx" in shown.out
    (page,) = page_data([read_run(run)], ["run"])
    for method in page["units"][0]["methods"].values():
        assert method["on_validation"] == [0, 1, 2, 3], "the six new clients are measured on their test images"
    report = call("report", str(run), "--format", "md", "--out", str(tmp_path / "page.md"))
    assert report.code == 0, report.err
    assert "| method | training clients | new clients | to FedAvg | round |" in (tmp_path / "page.md").read_text()


def test_given_labels_of_one_class_raise_no_doubt(tmp_path: Path) -> None:
    words = "--preset upfl --partition shards:per_client=1 --clients 6 --new-clients 4 --rounds 1 --source-models 1"
    result = call("bench", *words.split(), "--baseline", "none", "--out", str(tmp_path / "run"))
    assert (result.code, "Warning" in result.err) == (0, False)
    report = call("report", str(tmp_path / "run"))
    assert "collapsed" not in (tmp_path / "run" / "report.html").read_text() + report.out


def test_a_baseline_of_a_name_that_two_settings_have_is_shown() -> None:
    assert "fedwca show baseline upfl/fedavg" in call("show", "baseline", "fedavg").out
    assert "objectives: cross_entropy" in call("show", "baseline", "upfl/fedavg").out


def test_compare_has_one_column(tmp_path: Path) -> None:
    layer = {key: value for key, value in SMALL.items() if key not in ("preset", "batch_size", "baselines")}
    request = RunRequest({**layer, "rounds": 1}, list(OVERRIDES.items()), "upfl")
    comparison = run_comparison(request, ["fedavg", "fedprox"], [], None, tmp_path)
    assert (comparison.sources, comparison.named, comparison.reference) == (("shards",), "partition", "fedavg")


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        ({"target": "neon"}, "labelled clients), and this run has sfda (--target DOMAIN)"),
        ({"source": "photo"}, "labelled clients), and this run has ffreeda (--source DOMAIN)"),
        ({"partition": "shards", "source": "photo"}, "deals images of all domains together; leave it out"),
        ({"baselines": ["mdmgb"]}, "belongs to the setting sfda (--target DOMAIN)"),
        ({"baselines": ["fedwca"]}, "belongs to the setting ffreeda (--source DOMAIN)"),
        ({"aggregator": "wca"}, "new clients need one model of all that train"),
        ({"aggregator": "local"}, "new clients need one model of all that train"),
        ({"aggregator": "mdmgb"}, "it needs one, by --target"),
        ({"finish": ["shot"]}, "it needs --target"),
        ({"batch_norm": "local"}, "take mixed or pooled"),
        ({"source_training": {"lr": 0.1}}, "with partition dirichlet no source model is trained; leave it out"),
        ({"training": {"steps": 3, "epochs": 2}}, "leave one out"),
        ({"validation": 1.0}, "validation"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_said(layer: dict[str, Any], sentence: str) -> None:
    if "source_training" in layer:
        layer = {**layer, "partition": "dirichlet"}
    with pytest.raises(UsageError) as caught:
        resolve_plan(layer, preset_name="upfl")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--preset", "upfl", "--set", "partition.per_client=200"], "too few for"),
        (["--preset", "upfl", "--clients", "1000"], "too few for"),
        (["--preset", "upfl", "--split", "published"], "deals them anew"),
        (
            ["--preset", "upfl", "--pseudo-labeler", "prototype"],
            "pseudo-labeler 'prototype' and its fields change nothing",
        ),
        (["--preset", "upfl", "--pseudo-labeler", "argmax:confidence=0.9"], "'argmax' and its fields change nothing"),
        (["--preset", "upfl", "--baseline", "tent/pseudo_labeler=prototype"], "change nothing; leave them out"),
        (
            ["--preset", "upfl", "--aggregator", "wca"],
            "'wca' averages groups of clients, and a new client is in no group",
        ),
        (["--new-clients", "3"], "partition domains has no new clients"),
        (["--target", "neon", "--validation", "0.2"], "partition leave_one_out has no new clients"),
        (["--baseline", "fedavg", "--partition", "shards", "--source", "photo"], "leave it out"),
        (["--set", "training.steps=5", "--baseline", "local"], "labels images before each epoch"),
    ],
    ids=str,
)
def test_bad_words_are_said_in_a_sentence(words: list[str], sentence: str, tmp_path: Path) -> None:
    result = call("bench", *words, "--out", str(tmp_path / "run"))
    assert (result.code, (tmp_path / "run").exists()) == (2, False)
    assert sentence in result.err
    assert "Traceback" not in result.err


def test_new_clients_do_not_join_or_deploy_yet(run: Path) -> None:
    plan = resolve_plan({}, preset_name="upfl")
    with pytest.raises(UsageError, match="its clients have labels and train the whole network"):
        check_deployable(plan.methods[-1][0], 3, build_network(plan.config, 10), 4)
    (run.parent / "photos").mkdir(exist_ok=True)
    result = call("join", str(run), "--data", str(run.parent / "photos"), "--out", str(run.parent / "joined"))
    assert (result.code, "Traceback" in result.err) == (2, False)
