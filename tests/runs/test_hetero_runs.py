"""Runs of models of several sizes that learn from public images: records, resuming, engines, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedwca.config.resolve_config import resolve_plan
from fedwca.engine.randomness import Keys
from fedwca.errors import UsageError
from fedwca.export.delivered_accuracy import classify
from fedwca.federated.model_sizes import draw_sizes
from fedwca.newcomers.join import join
from fedwca.newcomers.load_federation import load_federation
from fedwca.results.json_output.printed_join import PrintedJoin
from fedwca.results.pictures.weights import label_rows
from fedwca.results.read_run import read_run
from fedwca.runs.open_run import open_run
from fedwca.runs.python_api import bench, resume
from fedwca.runs.split_trials import split_trial
from tests.cli.conftest import call
from tests.read_rounds import read_rounds
from tests.runs.stopping import check_same_bits, stop

SMALL: dict[str, Any] = {
    "preset": "upfl",
    "partition": "shards:public=0.05",
    "model": "mlp:sizes=4+6+8",
    "baselines": ["hetero_fedtta", "hetero_tent"],
    "composed": False,
    "clients": 4,
    "new_clients": 5,
    "samples": 16,
    "rounds": 3,
    "source_models": 1,
    "batch_size": 8,
    "device": "cpu",
}
DIGEST = {"passes": 1, "new_passes": 2, "batch_size": 30}
OVERRIDES = {"training.steps": 3, **{f"objective.digest.{name}": value for name, value in DIGEST.items()}}


def play(out: Path, **settings: Any) -> Path:
    overrides = settings.pop("overrides", OVERRIDES)
    return bench(**{**SMALL, **settings}, overrides=overrides, out=out, keep="all").path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(tmp_path_factory.mktemp("hetero") / "run")


def test_a_client_has_the_model_of_its_size_from_first_to_last(run: Path) -> None:
    drawn = draw_sizes(Keys(0), range(4), 3).tolist()
    assert len(set(drawn)) > 1
    for method in SMALL["baselines"]:
        last = open_run(run, method)
        slot = next(slot for slot in last.layout.parameters if slot.name == "backbone.layers.0.weight")
        widths = (slot.of(last.delivered) != 0).any(2).sum(1).tolist()
        assert widths == [(4, 6, 8)[size] for size in drawn]
        initial = open_run(run, method, round=0)
        assert torch.equal(initial.bank, initial.server.rows)
        assert (slot.of(initial.bank) != 0).any(2).sum(1).tolist() == widths
    adapting = open_run(run, "hetero_fedtta")
    head = next(slot for slot in adapting.layout.parameters if slot.name == "extras.adaptation.0.weight")
    assert (head.of(adapting.delivered) != 0).any(2).sum(1).tolist() == [(32, 64, 128)[size] for size in drawn]


def test_bytes_are_those_of_logits(run: Path) -> None:
    public = split_trial(open_run(run).config, open_run(run).dataset, None, 0, 0).public_images
    assert public is not None
    for record in read_rounds(run):
        if record["round"] >= 0:
            logits_per_client = 2 if record["method"] == "hetero_fedtta" else 1
            values = 4 * 4 * logits_per_client * len(public) * 10
            assert record["bytes_up"] == values
            assert record["bytes_down"] == (values if record["round"] else 0)
            assert record["passes"] == 4 * 2
            assert len(record["adaptation"]["steps"]) == 4 + 5


def test_engines_agree(run: Path, tmp_path: Path) -> None:
    stacked_run = play(tmp_path / "run", engine="stacked")
    for method in SMALL["baselines"]:
        expected, actual = (open_run(path, method, round=1).server for path in (run, stacked_run))
        assert torch.allclose(expected.rows, actual.rows, atol=1e-4)
        assert expected.state.keys() == actual.state.keys()


@pytest.mark.parametrize("call", [1, 4])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(call: int, run: Path, tmp_path: Path) -> None:
    stop(lambda: play(tmp_path / "run"), call)
    check_same_bits(resume(tmp_path / "run").path, run)


def test_models_of_one_size_run_beside_averaged_ones(tmp_path: Path) -> None:
    settings = {"model": "mlp:width=8", "baselines": ["fedavg", "hetero_tent"], "rounds": 1}
    path = play(tmp_path / "run", **settings)
    first = {record["method"]: record for record in read_rounds(path, number=-1)}
    assert first["fedavg"]["accuracy"] == first["hetero_tent"]["accuracy"]  # all begin with the same weights
    alone = play(tmp_path / "alone", **{**settings, "baselines": ["fedavg"], "overrides": {"training.steps": 3}})
    assert torch.equal(open_run(alone, "fedavg").server.rows, open_run(path, "fedavg").server.rows)


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        ({"partition": "shards"}, "learns from public images, and there are none; take a partition that keeps some"),
        ({"baselines": ["x=hetero_tent/objective=digest"]}, "nothing trains clients on their own; add an objective"),
        ({"partition": "shards:public=2"}, "public: Input should be less than 1"),
        ({"baselines": ["fedavg"]}, "models of 3 sizes cannot be averaged"),
        ({"baselines": ["hetero_fedtta/aggregator=fedavg"]}, "is for models that stay with their clients"),
        (
            {"baselines": ["hetero_fedtta/adaptation=learned:sizes=32+64"]},
            "has networks of 2 sizes, and the models are",
        ),
        ({"baselines": ["hetero_fedtta/adaptation=none"]}, "say which, such as adaptation learned"),
        ({"baselines": ["x=hetero_tent/objective=digest+proximal:to=source"]}, "have no source model"),
        ({"checkpoint": "model.safetensors"}, "leave --checkpoint out"),
        ({"model": "mlp:sizes=8+4"}, "widths in rising order are right"),
        ({"batch_norm": "local"}, "take mixed or pooled"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(layer: dict[str, Any], sentence: str) -> None:
    settings = {key: value for key, value in SMALL.items() if key not in ("preset", "batch_size")}
    with pytest.raises(UsageError) as caught:
        resolve_plan({**settings, **layer}, preset_name="upfl")
    assert sentence in str(caught.value)


def test_other_settings_have_no_public_images() -> None:
    for layer in ({"target": "neon"}, {"source": "photo"}):
        parts: dict[str, Any] = {"aggregator": "fedavg", "objectives": ["digest"], "adaptation": "entropy"}
        with pytest.raises(UsageError, match="learns from public images, and there are none"):
            resolve_plan({**layer, **parts, "baselines": [], "finish": []})
    with pytest.raises(UsageError, match="models of 2 sizes cannot be averaged"):
        resolve_plan({"source": "photo", "model": "mlp:sizes=4+8", "baselines": []})


def test_commands_show_models_of_several_sizes(run: Path, tmp_path: Path) -> None:
    assert "objectives: adapted, digest" in call("show", "baseline", "hetero-fedtta").out
    shown = call("runs", "show", str(run))
    assert (shown.code, "HeteroTENT" in shown.out) == (0, True)
    out = tmp_path / "model.safetensors"
    result = call("export", str(run), "--client", "1", "--out", str(out))
    assert result.code == 0, result.err


def test_pictures_have_a_row_for_each_client_that_trains(run: Path, tmp_path: Path) -> None:
    result = call("plot", str(run), "weights", "--to", str(tmp_path))
    assert (result.code, "clients of HeteroTENT start from their own models alone" in result.err) == (1, True)
    report = call("report", str(run), "--out", str(tmp_path / "page.html"))
    assert report.code == 0, report.err
    contents = read_run(run)
    names, _ = label_rows(contents.domains, {**contents.rounds("hetero_tent")[-1], "weights": [[1.0]] * 4})
    assert names == [f"training clients  {k}" for k in range(4)]


@pytest.mark.parametrize("method", SMALL["baselines"])
def test_whoever_joins_has_the_very_model_of_the_benchs_new_client(method: str, run: Path) -> None:
    opened = open_run(run, method)
    record = read_rounds(run, method)[-1]
    (new,) = opened.federation.newcomers
    sizes = draw_sizes(Keys(0), range(4, 9), 3).tolist()
    trained = load_federation(opened)
    for number, client in enumerate(new.clients):
        if len(client.test) < 2:
            continue
        joined = join(trained, client.test, size=sizes[number] if number else None)
        assert (joined.size, joined.choice.cluster, joined.choice.by) == (sizes[number], 4, "own")
        assert joined.steps is not None
        steps, first_entropy = record["adaptation"], joined.steps.entropies[0]
        assert [first_entropy, joined.steps.entropies[joined.steps.taken]] == steps["entropy"][4 + number]
        assert new.metrics.accuracy(number, joined.steps.classify().classes) == record["accuracy"][4 + number]
        assert torch.equal(classify(joined.network, client.test), joined.steps.classify().classes)
        first_layer = joined.network.state_dict()["backbone.layers.0.weight"]
        assert int((first_layer != 0).any(1).sum()) == (4, 6, 8)[sizes[number]]


def test_a_client_joins_with_what_others_say_of_public_images(run: Path, tmp_path: Path) -> None:
    client = open_run(run).federation.newcomers[0].clients[0]
    np.savez(tmp_path / "late.npz", images=client.test.permute(0, 2, 3, 1).numpy())
    arguments = ["join", str(run), "--method", "hetero_fedtta", "--data", str(tmp_path / "late.npz")]
    joined = call(*arguments, "--out", str(tmp_path / "new"))
    assert joined.code == 0, joined.err
    size = int(draw_sizes(Keys(0), range(4, 5), 3)[0])
    for part in (
        "Cluster 4, its own",
        f"nobody trained (size {size})",
        "Adapted by 1 step on learned",
        "in nats, by step",
    ):
        assert part in joined.out
    assert "learned what clients say of public images" in (tmp_path / "new" / "model.safetensors.md").read_text()
    options = ["--size", str(size), "--json", "--out", str(tmp_path / "again")]
    printed = PrintedJoin.model_validate_json(call(*arguments, *options).out)
    assert (printed.size, printed.by, printed.scores, set(printed.weights)) == (size, "own", [], {0.0})
    for name in ("model.safetensors", "predictions.csv"):
        assert (tmp_path / "new" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    for words, sentence in (
        (["--size", "3"], "no size 3: method 'hetero_fedtta' has models of sizes 0 to 2"),
        (["--adapt", "3"], "adapts by learned, not by epochs of training; leave --adapt out"),
        (["--adapt", "0"], "adapts by learned, not by epochs of training; leave --adapt out, or let `fedwca export`"),
        (["--adapt", "generated"], "adaptation 'generated' generates a model"),
    ):
        refused = call(*arguments, *words, "--out", str(tmp_path / "no"))
        assert (refused.code, "Traceback" in refused.err) == (2, False)
        assert sentence in " ".join(refused.err.split())
