"""Runs with labelled clients and a target without labels: refusals, records, resuming, export and printed tables."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from fedwca.aggregators.mdmgb import MDMGB
from fedwca.config.build_component import architecture
from fedwca.config.resolve_config import resolve_plan
from fedwca.core.messages import Predictions
from fedwca.core.tensor_files import write_tensors
from fedwca.core.training_settings import CentralTraining, Training
from fedwca.data.dataset import Domain, FederatedDataset
from fedwca.data.partition import leave_one_out, partition
from fedwca.deploy.deployable_checks import check_deployable
from fedwca.errors import DataError, UsageError
from fedwca.export.model_from_run import model_of
from fedwca.federated import close_round as closing
from fedwca.federated.source_model import initial_model
from fedwca.results.read_run import read_run
from fedwca.results.report.warnings import run_warnings
from fedwca.runs import run_rounds
from fedwca.runs.compare import run_comparison
from fedwca.runs.final_model_predictions import predict_for_pictures
from fedwca.runs.open_run import open_run
from fedwca.runs.python_api import bench, compare, resume
from fedwca.runs.run_request import RunRequest
from tests.cli.conftest import call
from tests.conftest import MINI
from tests.read_rounds import read_rounds
from tests.runs.stopping import check_same_bits, stop

SMALL: dict[str, Any] = {
    "target": "neon",
    "samples": 25,
    "rounds": 2,
    "batch_size": 8,
    "baselines": ["fedavg_labelled", "mdmgb"],
    "device": "cpu",
    "model": MINI,
}
OVERRIDES = {"finish_training.epochs": 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("target") / "run"
    return bench(**SMALL, overrides=OVERRIDES, out=out, keep="all").path


def test_the_last_phase_is_counted_as_a_round_and_that_is_said(run: Path) -> None:
    shown = call("runs", "show", str(run)).out
    assert "3 of 3" in shown
    assert shown.endswith("A last phase counts as one more round\n")


def test_trust_of_the_target_is_asked_before_its_last_phase(run: Path) -> None:
    contents = read_run(run)
    trust_by_round = {(r["method"], r["round"]): r["trust"] for r in contents.records if "trust" in r}
    assert list(trust_by_round) == [("sfda", 2)], "of what labels trained, in the last phase alone"
    (trust,) = trust_by_round.values()
    assert [math.isnan(value) for value in trust] == [domain != "neon" for domain in contents.domains]
    assert 0 <= trust[contents.domains.index("neon")] < 0.5, "after two epochs"
    (warning,) = [warning for warning in run_warnings(contents) if "says little" in warning]
    client = contents.domains.index("neon")
    assert warning.startswith(f"SFDA: what clients with labels trained says little about client {client} (neon): its")
    (last,) = (r for r in contents.records if (r["method"], r["round"]) == ("sfda", 2))
    assert last["passes"] == 2, "those that labels of two epochs are made by"


def test_an_export_without_a_number_says_which_client_is_the_target(run: Path) -> None:
    opened = open_run(run, "sfda")
    client = opened.domains.index("neon")
    with pytest.raises(UsageError, match=rf"--client K or --cluster C; the target neon is client {client}$"):
        model_of(opened)
    # The two models that docs/several-sources.md names: the target's own, and that of before the last phase.
    _, adapted = model_of(opened, client)
    _, gathered = model_of(opened, cluster=0)
    _, before = model_of(open_run(run, "sfda", round=2), client)
    assert adapted.weights_hash != gathered.weights_hash == before.weights_hash


def test_a_target_alone_selects_the_setting() -> None:
    plan = resolve_plan({"target": "neon"})
    assert (plan.config.partition, plan.config.source, plan.domain_role, plan.domain) == (
        "leave_one_out",
        None,
        "target",
        "neon",
    )
    method, count = plan.methods[-1]
    assert (method.name, method.label, count) == ("sfda", "SFDA", plan.config.rounds + 1)
    assert (method.aggregator.name, [o.name for o in method.finish]) == ("mdmgb", ["shot"])
    assert method.finish_training is not None
    assert method.finish_training.trains == "classifier"
    assert {"fedavg_labelled", "sfda_uniform"} <= {method.name for method, _ in plan.methods}
    resolved_again = resolve_plan(json.loads(plan.config.model_dump_json()))
    assert resolved_again.described()["methods"] == plan.described()["methods"]


def test_a_method_in_a_word_has_a_last_phase() -> None:
    word = "mine=sfda/finish=shot:lam=0.3"
    plan = resolve_plan({"target": "neon", "baselines": [word, "sfda/finish=none", "sfda_ls_pl"], "composed": False})
    (changed, rounds), (without_phase, fewer_rounds), (fast, _) = plan.methods
    assert (changed.finish[0].model_dump()["lam"], rounds - fewer_rounds, without_phase.finish) == (0.3, 1, ())
    assert changed.objectives[0].model_dump() == {"smoothing": 0.1}
    assert fast.training is not None
    assert fast.finish_training is not None
    assert (fast.training.lr, fast.finish_training.lr, fast.training.epochs) == (0.05, 0.05, 1)


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        ({"target": "neon", "source": "photo"}, "leave out one of both"),
        ({"target": "neon", "baselines": ["fedwca"]}, "belongs to the setting ffreeda (--source DOMAIN)"),
        ({"baselines": ["sfda"]}, "belongs to the setting sfda (--target DOMAIN)"),
        ({"target": "neon", "aggregator": "wca"}, "'wca' averages groups of clients"),
        ({"target": "neon", "aggregator": "local"}, "keeps every client alone"),
        ({"target": "neon", "aggregator": "afl"}, "'afl' learns of every client from its training"),
        (
            {
                "target": "neon",
                "aggregator": "scaffold",
                "objectives": ["cross_entropy", "control"],
                "training": {"momentum": 0},
            },
            "'scaffold' learns of every client from its training",
        ),
        ({"aggregator": "mdmgb"}, "it needs one, by --target"),
        ({"finish": ["shot"]}, "it needs --target"),
        ({"training": {"trains": "classifier"}}, "with a labelled source at the server the classifier is frozen"),
        ({"target": "neon", "batch_norm": "local"}, "--batch-norm local"),
        ({"target": "neon", "clusterer": "finch"}, "clusterer 'finch' is not used"),
        ({"partition": "leave_one_out", "source": "photo"}, "has a target; give --target"),
        ({"target": "neon", "source_training": {"lr": 0.1}}, "with --target no source model is trained"),
        (
            {"finish_training": {"lr": 0.1}},
            "with a labelled source at the server there is no last phase; give --target DOMAIN in place of a source",
        ),
        ({"central_training": {"lr": 0.1}}, "with a labelled source at the server no model is trained at one place"),
        (
            {"finish": ["shot"], "target": "neon", "finish_training": {"rounds_per_epoch": 2}},
            "one learning rate; leave rounds_per_epoch out",
        ),
        (
            {"finish": ["shot"], "target": "neon", "finish_training": {"cosine": 9}},
            "one learning rate; leave cosine out",
        ),
        ({"target": "neon", "finish": ["self_training"]}, "there is no source model, which objective 'self_training'"),
        (
            {"target": "neon", "pseudo_labeler": "argmax:model=source"},
            "there is no source model, which pseudo-labeler 'argmax' reads",
        ),
        (
            {"target": "neon", "baselines": ["dann"], "methods": {"dann": {"training": {"lr": 0.1}}}},
            "methods.dann.training.lr is given, but no method of this run is called so and reads it",
        ),
        ({"partition": "leave_two_out"}, "no partition 'leave_two_out'; did you mean 'leave_one_out'?"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_said(layer: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_plan(layer)
    assert sentence in str(caught.value)


def test_a_teacher_that_is_not_read_needs_no_source_model() -> None:
    finish = {"target": "neon", "finish": ["self_training:distillation=0"]}
    assert resolve_plan(finish).methods[-1][0].finish[0].name == "self_training"


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("finish_training.lr", "has a last phase"),
        ("central_training.lr", "trains a model at one place"),
        ("central-training.lr", "trains a model at one place"),
    ],
)
def test_values_of_a_training_that_no_method_has_are_refused(key: str, why: str) -> None:
    layer = {"target": "neon", "baselines": ["fedavg_labelled"], "composed": False}
    said = f"{key.replace('-', '_')} is given, but no method of this run {why}; leave it out"
    with pytest.raises(UsageError, match=said):
        resolve_plan(layer, [(key, "0.1")])
    assert resolve_plan(layer, [(key, "0.1")], checked=True)
    assert resolve_plan({"target": "neon", "baselines": ["dann"]}, [(key, "0.1")])


def test_a_preset_of_the_other_setting_is_refused() -> None:
    with pytest.raises(UsageError, match="preset paper is for the setting ffreeda"):
        resolve_plan({"target": "usps", "dataset": "digit-five"}, preset_name="paper")


def small_set(**sizes: int) -> FederatedDataset:
    domains = {}
    for name, size in sizes.items():
        labels = np.arange(size, dtype=np.int64) % 2
        domains[name] = Domain(name, np.zeros((size, 4, 4, 3), np.uint8), labels)
    return FederatedDataset("toy", ("a", "b"), domains)


@pytest.mark.parametrize(
    ("sizes", "error", "sentence"),
    [
        ({"one": 9}, UsageError, "has only the target domain 'one'"),
        ({"one": 9, "two": 1}, DataError, "'two' has no image of class 'b'"),
        ({"one": 2, "two": 9}, DataError, "'one' has no test image"),
        ({"one": 9, "two": 2}, None, ""),
    ],
    ids=str,
)
def test_domains_that_are_too_small_are_refused(sizes: dict[str, int], error: Any, sentence: str) -> None:
    if error is None:
        assert len(leave_one_out(small_set(**sizes), "one", clients=1, samples=None, seed=0)) == 2
        return
    with pytest.raises(error, match=sentence):
        leave_one_out(small_set(**sizes), "one", clients=1, samples=None, seed=0)


def test_a_client_of_one_image_is_refused() -> None:
    with pytest.raises(DataError, match="1 training image; it needs 2"):
        leave_one_out(small_set(one=9, two=2), "one", clients=2, samples=None, seed=0)


def test_a_domain_is_split_alike_whatever_its_role() -> None:
    data = small_set(one=30, two=40, three=50)
    by_target = leave_one_out(data, "two", clients=2, samples=None, seed=3)
    by_source = partition(data, "one", clients=2, samples=None, seed=3)
    assert [client.labels is None for client in by_target.clients] == [False, False, True, True, False, False]
    assert by_target.metrics.counted.tolist() == [False, False, True, True, False, False]
    for expected, actual in zip(by_target.clients[2:], by_source.clients, strict=True):
        assert torch.equal(expected.train, actual.train)


def test_records_keep_the_target_apart_and_say_what_the_last_phase_did(run: Path) -> None:
    by_round = {(r["method"], r["round"]): r for r in read_rounds(run)}
    last = by_round["sfda", 2]
    assert (last["phase"], last["bytes_up"]) == ("finish", 0)
    assert [value is None for value in last["accuracy"]] == [True, True, True, True, False]
    right = sum(images for true, predicted, images in last["confusion"] if true == predicted)
    counted = sum(images for *_, images in last["confusion"])
    assert 100 * right / counted == pytest.approx(last["accuracy"][-1]), "of the adapted model alone"
    assert [value is None for value in last["accuracy_sources"]] == [False, False, False, False, True]
    (gathered,) = by_round["sfda", 1]["gathered"]
    assert gathered[0] == gathered[-1] == 0
    assert sum(gathered) == pytest.approx(1)
    assert "phase" not in by_round["sfda", 1]
    assert ("mdmgb", 2) not in by_round
    assert by_round["sfda", 1]["pseudo_label_accuracy"] == [None] * 5
    assert by_round["sfda", 1]["accuracy"] == by_round["mdmgb", 1]["accuracy"]
    entry = json.loads((run / "summary.json").read_text())["methods"]["sfda"]
    assert list(entry["domains"]) == ["neon"]
    assert entry["before"]["mean"] == by_round["sfda", 1]["accuracy"][-1]
    assert entry["difference"]["to"] == "fedavg_labelled"


def test_bytes_are_those_of_two_models_down_and_centroids_up(run: Path) -> None:
    opened = open_run(run, "mdmgb")
    values, sources, classes, features = opened.layout.width, 4, 10, 8
    for record in read_rounds(run, "mdmgb"):
        if record["round"] >= 0:
            assert record["bytes_down"] == 4 * values * (2 * sources + 1)
            assert record["bytes_up"] == 4 * (sources * values + (sources + 1) * classes * (features + 1))
            assert record["passes"] == sources + 1


@pytest.mark.parametrize(
    ("call", "function", "module"),
    [(2, "ask_about_mean", closing), (1, "close_last_phase", run_rounds)],
    ids=["between two gathers", "in the last phase"],
)
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    run: Path, call: int, function: str, module: ModuleType, tmp_path: Path
) -> None:
    stop(lambda: bench(**SMALL, overrides=OVERRIDES, out=tmp_path / "run", keep="all"), call, function, module)
    check_same_bits(resume(tmp_path / "run").path, run)


def test_the_model_that_is_handed_on_is_the_adapted_one(run: Path) -> None:
    opened, before_last_phase = open_run(run, "sfda"), open_run(run, "sfda", round=2)
    assert torch.equal(opened.delivered[:4], before_last_phase.delivered[:4])
    head = opened.layout.classifier
    assert not torch.equal(opened.delivered[4, head], before_last_phase.delivered[4, head])
    assert torch.equal(opened.delivered[4, : head.start], before_last_phase.delivered[4, : head.start])
    assert predict_for_pictures(run, "sfda").title.startswith("SFDA after 2 rounds and the last phase: digits_mini")
    out = run.parent / "model.safetensors"
    result = call("export", str(run), "--method", "sfda", "--client", "4", "--out", str(out))
    assert result.code == 0, result.err
    card = next(run.parent.glob("*.md")).read_text()
    assert "labelled images of digits_mini: handwritten, photo, printed, street" in card
    # The last phase is no round of communication.
    assert f"rounds: {before_last_phase.round + 1}, then the last phase at the target" in card


def test_without_a_target_all_domains_are_sources_and_tested_at_home(tmp_path: Path) -> None:
    layer = {**SMALL, "target": "none", "baselines": ["sfda_dg"], "rounds": 2}
    for part in ("aggregator", "finish", "objectives", "pseudo_labeler"):
        layer.pop(part, None)
    finished = bench(**layer, out=tmp_path / "run")
    assert (finished.config.target, finished.config.partition) == (None, "all_labelled")
    assert {row.name for row in finished.table} == {"sfda_dg", "fedavg"}
    last = read_rounds(finished.path)[-1]
    assert [math.isnan(value) for value in last["accuracy"]] == [False] * 5
    assert "phase" not in last


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"source": "neon", "sources": ["photo"]}, "source and sources both say which domains"),
        ({"target": "neon", "sources": ["photo"]}, "target and sources both say which domains"),
        ({"aggregator": "one_hot"}, "aggregator: methods say their parts themselves"),
    ],
)
def test_compare_ignores_nothing_that_it_is_given(tmp_path: Path, more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        compare(["fedavg"], out=tmp_path, **more)
    assert not list(tmp_path.iterdir())


def test_compare_goes_over_targets(tmp_path: Path) -> None:
    layer = {key: value for key, value in SMALL.items() if key not in ("target", "baselines", "batch_size")}
    layer |= {"partition": "leave_one_out", "rounds": 1, "training": {"batch_size": 8}}
    request = RunRequest(layer)
    comparison = run_comparison(request, ["fedavg_labelled", "mdmgb"], ["neon", "photo"], None, tmp_path)
    assert (comparison.sources, comparison.reference) == (("neon", "photo"), "fedavg_labelled")
    assert not math.isnan(comparison.sample("mdmgb").mean)


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--target", "neom"], 2, "did you mean 'neon'?"),
        (["--target", "neon", "--source", "photo"], 2, "leave out one of both"),
        (["--target", "neon", "--baseline", "fedavg"], 2, "fedavg_labelled"),
        (["--source", "photo", "--baseline", "pooled"], 2, "belongs to the setting sfda (--target DOMAIN)"),
        (["--source", "photo", "--aggregator", "mdmgb"], 2, "it needs one, by --target"),
        (["--source", "photo", "--finish", "shot"], 2, "it needs --target"),
        (["--target", "none", "--aggregator", "mdmgb"], 2, "it needs one, by --target"),
        (["--target", "none", "--baseline", "dann"], 2, "it needs --target"),
        (["--target", "none", "--finish", "shot"], 2, "it needs --target"),
        (["--target", "neon", "--clusterer", "true"], 2, "leave the clusterer out"),
        (
            ["--target", "neon", "--epochs", "1", "--rounds", "3", "--set", "training.rounds_per_epoch=2"],
            2,
            "take --rounds 2 or 4",
        ),
        (["--target", "neon", "--set", "training.rounds_per_epoch=2", "--epochs", "5"], 2, "it needs epochs = 1"),
    ],
    ids=str,
)
def test_bad_words_are_said_in_a_sentence(words: list[str], code: int, sentence: str) -> None:
    result = call("bench", *words)
    assert result.code == code
    assert sentence in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("counts", "words", "code", "sentence"),
    [
        ({"a": (9, 9)}, (), 2, "has only the target domain 'a'"),
        ({"a": (9, 9), "b": (9, 0)}, (), 1, "source domain 'b' has no image of class '1'"),
        ({"a": (9, 9), "b": (1, 0)}, (), 1, "source domain 'b' has no image of class '1'"),
        ({"a": (9, 9), "b": (1, 1)}, ("--clients", "2"), 1, "source domain 'b' has 1 training image; it needs 2"),
        ({"a": (1, 1), "b": (9, 9)}, (), 1, "target domain 'a' has no test image; it needs 3 images"),
    ],
    ids=str,
)
def test_folders_that_do_not_do_are_said_in_a_sentence(
    counts: dict[str, tuple[int, int]], words: tuple[str, ...], code: int, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    for name, images_per_class in counts.items():
        labels = np.repeat(np.arange(2), images_per_class)
        np.savez(tmp_path / "data" / f"{name}.npz", images=np.zeros((len(labels), 8, 8, 3), np.uint8), labels=labels)
    out = tmp_path / "run"
    result = call("bench", "--data", str(tmp_path / "data"), "--target", "a", "--out", str(out), *words)
    assert (result.code, out.exists()) == (code, False)
    assert sentence in result.err
    assert "Traceback" not in result.err


def test_an_answer_that_is_refused_is_said_with_its_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = MDMGB.answer, []

    def spoil(self: MDMGB, predictions: Predictions, own: torch.Tensor | None) -> Any:
        calls.append(own)
        answer = original(self, predictions, own)
        return {"centroids": torch.full_like(answer["centroids"], math.nan)} if len(calls) == 3 else answer

    monkeypatch.setattr(MDMGB, "answer", spoil)
    words = ("--target", "neon", "--samples", "25", "--rounds", "1", "--baseline", "none", "--workers", "1")
    result = call("bench", *words, "--model", MINI, "--device", "cpu", "--out", str(tmp_path / "run"))
    assert result.code == 0, result.err
    assert (
        "client 2's answer is refused (centroids has values that are not finite); the mean is made without it"
        in result.err
    )
    (record,) = read_rounds(tmp_path / "run", "sfda", number=0)
    assert record["refused"] == {"2": "centroids has values that are not finite"}
    assert record["gathered"][0][3] == 0
    assert sum(record["gathered"][0]) == pytest.approx(1)


def test_central_methods_train_as_long_as_clients() -> None:
    plan = resolve_plan({"target": "neon", "rounds": 7, "training": {"epochs": 3}})
    assert plan.config.central_training.as_long_as(plan.config.training, plan.config.rounds).epochs == 21
    cut = resolve_plan({"target": "neon", "rounds": 8, "training": {"epochs": 1, "rounds_per_epoch": 4}}).config
    assert cut.central_training.as_long_as(cut.training, cut.rounds).epochs == 2
    explicit = resolve_plan({"target": "neon", "central_training": {"epochs": 5}}).config
    assert explicit.central_training.as_long_as(explicit.training, explicit.rounds).epochs == 5
    with pytest.raises(UsageError, match="rounds of 3 steps do not say how many epochs"):
        CentralTraining().as_long_as(Training(steps=3), rounds=2)
    with pytest.raises(UsageError, match="method 'dann': rounds of 3 steps do not say how many epochs"):
        resolve_plan({"target": "neon", "training": {"steps": 3}, "baselines": ["fedavg_labelled", "dann"]})


WORDS = ("--samples", "25", "--rounds", "1", "--model", MINI, "--device", "cpu")


def test_tables_over_targets_speak_of_targets(tmp_path: Path) -> None:
    central = ("--set", "central_training.epochs=2")
    result = call(
        "compare", "fedavg-labelled", "oracle", "--target", "neon", "--target", "photo", *WORDS, *central,
        "--out", str(tmp_path / "runs"),
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "by target" in result.out
    assert "of all targets" in result.out
    assert "all sources" not in result.out
    assert "Oracle (ORACLE)" in result.out
    assert "Oracle (ORACLE): epoch 0 of 2, all domains at one place" in result.err


def test_a_sweep_tries_the_target_that_was_named(tmp_path: Path) -> None:
    result = call(
        "sweep", "--target", "photo", *WORDS, "--param", "finish_training.lr=0.1,0.01", "--out", str(tmp_path),
        "--set", "finish_training.epochs=1",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "sfda: density after the last round" in result.out
    targets = [
        json.loads((path / "config.json").read_text())["config"]["target"] for path in (tmp_path / "runs").iterdir()
    ]
    assert targets == ["photo", "photo"]


def test_the_page_speaks_of_the_model_it_began_with(run: Path) -> None:
    assert call("report", str(run)).code == 0
    page = (run / "report.html").read_text()
    assert '"first_model":"untrained model"' in page.replace('": "', '":"')
    assert "the source model it began from" not in page


@pytest.mark.parametrize("name", ["sfda", "mdmgb", "fedavg_labelled"])
def test_deployments_are_refused_in_a_sentence(name: str) -> None:
    plan = resolve_plan({"target": "neon", "baselines": [name], "composed": False})
    ((method, rounds),) = plan.methods
    network = initial_model(tuple("0123456789"), architecture(plan.config), 0).network
    with pytest.raises(UsageError, match=f"'{name}' cannot be deployed: its clients have labels .* two messages more"):
        check_deployable(method, rounds, network, 4)


def test_a_central_method_may_have_a_last_phase_or_steps(tmp_path: Path) -> None:
    small = {
        **SMALL,
        "composed": False,
        "baselines": ["pooled", "pooled/finish=shot", "pooled/adaptation=entropy:lr=5"],
    }
    ended = bench(**small, overrides={**OVERRIDES, "central_training.epochs": 1}, out=tmp_path / "run", keep="all")
    plain, finished, stepped = (row.name for row in ended.table)
    by_method = {name: read_rounds(ended.path, name) for name in (plain, finished, stepped)}
    assert [r["round"] for r in by_method[finished]] == [-1, 0]
    assert by_method[finished][0]["accuracy"] == by_method[plain][0]["accuracy"], "the same start"
    assert ended.summary["timing"]["methods"][plain] == by_method[plain][0]["seconds"]["central"] > 0
    assert by_method[finished][1]["phase"] == "finish"
    (steps,) = by_method[stepped]
    assert min(steps["adaptation"]["steps"]) > 0
    target = open_run(ended.path, method=plain).federation.metrics.domains.index("neon")
    assert steps["adaptation"]["accuracy_before"][target] == by_method[plain][0]["accuracy"][target]
    assert open_run(ended.path, method=finished).finished


def test_a_central_model_from_a_checkpoint_is_of_its_architecture(
    tmp_path: Path, private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDWCA_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "own.safetensors"
    model = architecture(resolve_plan({"target": "neon", "components": {"model": {"lenet": {"bottleneck": 8}}}}).config)
    write_tensors(file, model.build(10, seed=1, trains_classifier=True).state_dict())
    settings = {**SMALL, "model": "lenet", "checkpoint": str(file), "composed": False, "baselines": ["pooled"]}
    for number, dropout in enumerate((0.0, 0.9, 0.9)):
        overrides = {"central_training.epochs": 1, "model.bottleneck": 8, "model.dropout": dropout}
        overrides["dataset.root"] = str(private_cache)
        bench(**settings, overrides=overrides, out=tmp_path / f"run-{number}", keep="none")
    assert len(list((tmp_path / "cache/centrals").iterdir())) == 2


def test_what_labelled_clients_upload_is_not_asked_of_the_target(tmp_path: Path) -> None:
    finished = bench(
        target="neon",
        samples=25,
        rounds=1,
        aggregator="fedavg",
        objectives=["cross_entropy", "prototype_contrastive"],
        finish=["shot"],
        baselines=[],
        device="cpu",
        model=MINI,
        overrides=OVERRIDES,
        out=tmp_path / "run",
    )
    assert [record["round"] for record in read_rounds(finished.path)] == [-1, 0, 1]
