"""`fedwca bench` end to end, on images that take seconds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from fedwca.config.run_config import RunConfig, validate
from fedwca.results.class_scores import macro_f1
from fedwca.results.phase_seconds import OF_FEW_METHODS, PHASES
from fedwca.runs.load_data import load
from fedwca.runs.reporter import SILENT
from fedwca.runs.run_request import RunRequest
from fedwca.runs.split_trials import split_trial
from fedwca.runs.start_run import check_run
from tests.read_rounds import read_rounds

from ..conftest import SMALL_MODEL
from .conftest import SIZE, Run, call

Bench = Callable[..., Run]
METHODS = ["source_only", "local", "fedavg", "wca"]


def test_bench_prints_progress_and_a_table(plain: Run) -> None:
    assert plain.code == 0, plain.err
    lines = [line for line in plain.err.splitlines() if not line.startswith("Warning: ")]
    assert any(line.startswith("Local: round 1 of 2, ") and line.endswith(" s left") for line in lines)
    assert [line.partition(":")[0] for line in lines if ": done" in line] == [
        "Source Only",
        "Local",
        "FedAvg",
        "FedWCA, moments",
    ]
    for part in ("Source Only", "Local", "FedAvg", "FedWCA", "brass", "coral", "mean", "to FedAvg", "n = 1 run"):
        assert part in plain.out
    assert "source amber; targets brass, coral; 2 clients each; on cpu" in plain.out
    assert "From CLI: " in plain.out
    assert "training.lr = 0.01" in plain.out
    assert "±" not in plain.out
    assert str(plain.folder) in plain.out


def test_the_run_folder_holds_these_files(plain: Run) -> None:
    names = {file.name for file in plain.folder.iterdir()}
    assert names == {
        *("config.json", "environment.json", "rounds.jsonl", "summary.json", "overview.png"),
        *("checkpoints", "memory.json", ".lock"),
    }
    assert (plain.folder / "overview.png").read_bytes().startswith(b"\x89PNG")
    config = json.loads((plain.folder / "config.json").read_text())
    assert config["config"]["source"] == "amber"
    assert config["config"]["model"] == "convnet"
    fields = {"side": 8, "width": 4, "head": "bottleneck", "bottleneck": 16, "dropout": 0.5}
    assert config["config"]["components"] == {"model": {"convnet": fields}}
    assert list(config["methods"]) == METHODS
    assert config["origins"]["training.lr"] == "CLI"
    parts = config["methods"]["wca"]["components"]
    assert {"kind": "clusterer", "name": "ada_bn"}.items() <= parts[0].items()
    environment = json.loads((plain.folder / "environment.json").read_text())
    assert environment["device"] == "cpu"
    assert {"time", "python", "cpu", "cores", "versions"} <= set(environment)
    assert environment["versions"]["torch"] != "not installed"
    assert {"command", "commit"} <= set(environment)


def test_a_line_for_every_round(plain: Run) -> None:
    rounds = plain.rounds
    expected = [("source_only", -1), *((m, r) for m in METHODS[1:] for r in (-1, 0, 1))]
    assert [(line["method"], line["round"]) for line in rounds] == expected
    models, values = (3 * 25 + 1) * 4 + (4 * 25 + 1) * 8 + (32 + 1) * 16 + 32 + 32, 4
    for line in rounds:
        assert line["schema"] == 2
        assert len(line["accuracy"]) == 4
        assert all(0 <= value <= 100 for value in line["accuracy"])
        right = sum(images for true, predicted, images in line["confusion"] if true == predicted)
        tests = next(record["test_images"] for record in rounds if record["method"] == line["method"])
        assert sum(images for *_, images in line["confusion"]) == sum(tests)
        assert right == round(sum(a * n for a, n in zip(line["accuracy"], tests, strict=True)) / 100)
        assert 0 <= line["calibration_error"] <= 100
        if line["round"] < 0:
            assert 0 <= line["source_accuracy"] <= 100
            continue
        for key in ("labels", "pseudo_label_accuracy", "accuracy_local", "agreement", "label_entropy"):
            assert len(line[key]) == 4, key
        from_own = line["method"] == "local" and line["round"] > 0
        assert len(line.get("weights", ())) == (0 if from_own else 4)
        assert set(line["seconds"]) == {*PHASES, "round"} - {*OF_FEW_METHODS}
        assert all(sum(weights) == pytest.approx(1) for weights in line.get("weights", ()))
        later = line["round"] > 0
        wca = later and line["method"] == "wca"
        sent = 1 + max(line["labels"]) + 1 if wca else 1
        classifier = 0 if later else 2 * 16 + 2
        reported = max(line["labels"]) + 1 + 2 if wca else 0
        moments = 2 * 16 * len(line["labels"]) if line["method"] == "wca" and not later else 0
        travels = line["method"] != "local"
        assert line["bytes_down"] == 4 * values * (sent * models + classifier) * (travels or not later)
        assert line["bytes_up"] == 4 * (values * (models + reported) + moments) * travels
        assert ("alpha" in line) == wca
        pseudo_labels, true_labels = map(sum, zip(*line["pseudo_label_counts"], strict=True))
        assert pseudo_labels == true_labels > 0
    assert {line["method"] for line in rounds if "clustering" in line} == {"wca"}
    local, fedavg, wca = [line for line in rounds if line["round"] == 0]
    assert fedavg["labels"] == [0, 0, 0, 0]
    assert local["labels"] == [0, 1, 2, 3]
    # Round 0 is the same for all methods that label alike: same start, same draws.
    assert fedavg["accuracy_local"] == wca["accuracy_local"]


def test_the_summary_is_of_the_last_round(plain: Run) -> None:
    summary = plain.summary
    assert set(summary) == {"methods", "config", "timing", "complete"}
    assert summary["complete"] is True
    assert list(summary["methods"]) == METHODS
    for name, entry in summary["methods"].items():
        last = read_rounds(plain.folder, name)[-1]["accuracy"]
        assert entry["mean"] == pytest.approx(statistics.fmean(last))
        assert entry["domains"] == pytest.approx(
            {"brass": statistics.fmean(last[:2]), "coral": statistics.fmean(last[2:])}
        )
        assert entry["std"] is None
        assert entry["n"] == 1
    difference = summary["methods"]["wca"]["difference"]
    assert difference["to"] == "fedavg"
    assert difference["mean"] == pytest.approx(summary["methods"]["wca"]["mean"] - summary["methods"]["fedavg"]["mean"])
    assert "difference" not in summary["methods"]["fedavg"]
    last = plain.rounds[-1]
    wca = summary["methods"]["wca"]
    assert wca["worst"] == {"mean": min(last["accuracy"]), "std": None}
    assert wca["client_std"]["mean"] == pytest.approx(statistics.stdev(last["accuracy"]))
    assert wca["calibration_error"]["mean"] == last["calibration_error"]
    assert wca["runs"][0]["f1"] == wca["f1"]["mean"] == pytest.approx(macro_f1(last["confusion"]))
    images = {label: sum(n for true, _, n in last["confusion"] if true == label) for label, *_ in last["confusion"]}
    right = sum(wca["class_accuracy"][str(label)] * n for label, n in images.items()) / 100
    assert round(right) == sum(n for true, predicted, n in last["confusion"] if true == predicted)
    assert {"total_seconds", "setup_seconds", "run_seconds", "methods"} == set(summary["timing"])
    assert summary["config"]["source"] == "amber"


def accuracies(run: Run) -> list[Any]:
    return [(line["method"], line["trial"], line["round"], line["accuracy"]) for line in run.rounds]


def test_the_same_again_with_another_number_of_workers(bench: Bench, plain: Run) -> None:
    again = bench("--workers", "1", "--json")
    assert again.code == 0
    assert accuracies(again) == accuracies(plain)
    assert [line.get("alpha") for line in again.rounds] == [line.get("alpha") for line in plain.rounds]
    assert json.loads(again.out)["methods"] == plain.summary["methods"]
    assert json.loads(again.out) == again.summary


def test_a_dry_run_says_what_it_would_be_and_leaves_nothing(bench: Bench, tmp_path: Path) -> None:
    run = bench("--dry-run", "--keep", "all", "--tag", "a", "--note", "b", out=tmp_path / "runs/new")
    assert run.code == 0, run.err
    for part in ("Methods: Source Only", "Memory: about", "Disk: checkpoints about", "(--keep all)", "Cost: 4 runs"):
        assert part in run.out
    assert "round 1" not in run.err
    assert not (tmp_path / "runs").exists()
    assert "--backend" in bench("--dry-run", "--backend", "flower").err
    (tmp_path / "trials.toml").write_text("trials = 2")
    refused = bench("--backend", "flower", "--config", str(tmp_path / "trials.toml"))
    assert (refused.code, "--trials has no effect with --backend flower" in refused.err) == (2, True)
    # A run's own file names all fields, with their defaults.
    (tmp_path / "config.json").write_text(json.dumps({"config": RunConfig().model_dump(mode="json"), "origins": {}}))
    taken = bench("--backend", "flower", "--config", str(tmp_path / "config.json"), "--dataset", "nothing")
    assert "has no effect" not in taken.err
    for name, line in {"probes": 'probes = ["each"]', "evidence": "evidence = true"}.items():
        (tmp_path / f"{name}.toml").write_text(line)
        refused = bench("--backend", "flower", "--config", str(tmp_path / f"{name}.toml"))
        assert f"Error: {name} of the configuration has no effect with --backend flower" in refused.err
    for words in (
        *(["--kernels", "graphs"], ["--workers", "3"], ["--engine", "stacked"], ["--quiet"]),
        *(["--device", "cuda"], ["--device", "cuda:1"]),
    ):
        refused = bench("--backend", "flower", *words)
        assert (refused.code, f"{words[0]} has no effect with --backend flower" in refused.err) == (2, True)
    interrupted = Mock(wraps=SILENT, planned=Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        check_run(RunRequest({"rounds": 1, "device": "cpu"}, out=tmp_path / "runs/new"), interrupted)
    assert not (tmp_path / "runs").exists()
    occupied = tmp_path / "mine"
    occupied.mkdir()
    (occupied / "notes.json").write_text("of something else")
    assert bench("--dry-run", out=occupied).code == 0
    assert [file.name for file in occupied.iterdir()] == ["notes.json"]


def test_ones_own_images_take_the_place_of_those_that_come_with_fedwca(shades: Path, tmp_path: Path) -> None:
    """The config.json of the default bench names digits-mini, which reads no folder."""
    for name in ("digits_mini", "digits-plain"):
        file = tmp_path / "run.toml"
        file.write_text(f'[config]\ndataset = "{name}"\nrounds = 2\n')
        files = sorted(shades.iterdir())
        planned = call("bench", "--config", str(file), "--data", str(shades), "--clients", "1", "--dry-run")
        assert planned.out.startswith("shades: source amber"), planned.err
        assert sorted(shades.iterdir()) == files
    misplaced = tmp_path / "misplaced.toml"
    misplaced.write_text("[config]\nrounds = 2\n[trainig]\nlr = 5\n")
    refused = call("bench", "--config", str(misplaced), "--dry-run")
    assert (refused.code, "'trainig' stands beside the table config; put it into it" in refused.err) == (2, True)


def test_a_written_config_repeats_the_run(bench: Bench, plain: Run, tmp_path: Path) -> None:
    again = bench("--config", str(plain.folder / "config.json"), small=False)
    assert again.code == 0, again.err
    assert accuracies(again) == accuracies(plain)
    assert again.summary["config"] == plain.summary["config"]
    assert "From config: " in again.out


def test_trials_are_averaged_and_seeds_change_numbers(bench: Bench) -> None:
    two_trials = bench("--trials", "2", "--baseline", "fedavg", "--name", "mine", "--rounds", "1", "--json")
    methods = json.loads(two_trials.out)["methods"]
    assert list(methods) == ["fedavg", "mine"]
    for entry in methods.values():
        runs = [run["mean"] for run in entry["runs"]]
        assert [run["trial"] for run in entry["runs"]] == [0, 1]
        assert entry["std"] == pytest.approx(statistics.stdev(runs))
        assert entry["mean"] == pytest.approx(statistics.fmean(runs))
    pairs = zip(methods["mine"]["runs"], methods["fedavg"]["runs"], strict=True)
    paired = [a["mean"] - b["mean"] for a, b in pairs]
    assert methods["mine"]["difference"]["mean"] == pytest.approx(statistics.fmean(paired))
    assert methods["mine"]["difference"]["std"] == pytest.approx(statistics.stdev(paired))
    lines = read_rounds(two_trials.folder, number=0)
    first, second = (line["accuracy_local"] for line in lines if line["method"] == "mine")
    assert first != second
    accuracies_of_mine = [line["accuracy"] for line in read_rounds(two_trials.folder, "mine")]
    table = bench("--trials", "2", "--baseline", "none", "--rounds", "1", "--name", "mine")
    assert "mean ± std (ddof 1) over n = 2 runs" in table.out
    assert [line["accuracy"] for line in table.rounds] == accuracies_of_mine
    other_seed = bench("--seed", "5", "--baseline", "none", "--rounds", "1", "--json")
    assert list(json.loads(other_seed.out)["methods"]) == ["wca"]
    assert other_seed.rounds[-1]["accuracy_local"] != first
    assert "difference" not in json.loads(other_seed.out)["methods"]["wca"]


def test_every_source_model_is_a_run(bench: Bench) -> None:
    run = bench("--source-models", "2", "--baseline", "source-only", "--aggregator", "local", "--rounds", "1", "--json")
    assert run.summary["methods"]["local"]["n"] == 2
    assert len({line["source_digest"] for line in run.rounds if "source_digest" in line}) == 2


def test_clients_with_one_image_have_no_accuracy(bench: Bench) -> None:
    run = bench("--samples", "1", "--json", "--rounds", "1")
    assert run.code == 0, run.err
    summary = json.loads(run.out, parse_constant=pytest.fail)
    assert {entry["mean"] for entry in summary["methods"].values()} == {None}
    assert run.rounds[-1]["accuracy"] == [None] * 4
    printed = bench("--samples", "1", "--rounds", "1", "--baseline", "none")
    assert printed.code == 0
    assert "–" in printed.out


def test_one_client_of_one_target_domain_runs(bench: Bench, tmp_path: Path, shades: Path) -> None:
    for name in ("amber", "brass"):
        (tmp_path / "two").mkdir(exist_ok=True)
        (tmp_path / "two" / f"{name}.npz").write_bytes((shades / f"{name}.npz").read_bytes())
    run = bench("--data", str(tmp_path / "two"), "--clients", "1", "--source", "Brass", "--json")
    assert run.code == 0, run.err
    assert list(run.summary["methods"]["wca"]["domains"]) == ["amber"]


def test_an_oracle_is_marked(bench: Bench) -> None:
    run = bench("--clusterer", "true", "--baseline", "none", "--rounds", "1")
    assert "FedWCA, True (ORACLE)" in run.out
    assert run.rounds[-1]["labels"] == [0, 0, 1, 1]
    assert run.rounds[-1]["clustering"]["ari"] == 1


def test_a_checkpoint_of_ones_own(bench: Bench, plain: Run, private_cache: Path) -> None:
    digest = plain.rounds[0]["source_digest"]
    file = private_cache / "sources" / f"amber-convnet-{digest}.safetensors"
    small = [*SIZE.split(), "--model", SMALL_MODEL, "--checkpoint", str(file)]
    run = bench(*small, "--json", small=False)
    assert run.code == 0, run.err
    assert accuracies(run) == accuracies(plain)
    again = bench("--config", str(run.folder / "config.json"), "--json", small=False)
    assert accuracies(again) == accuracies(plain)
    refused = bench("--checkpoint", str(file))
    assert refused.code == 2
    assert "source_training.epochs is given, but with a checkpoint no source model is trained" in refused.err


def test_the_published_split_needs_parts_in_the_archives(bench: Bench, shades: Path, tmp_path: Path) -> None:
    refused = bench("--split", "published")
    assert refused.code == 2
    assert "published parts (key 'part' of an archive" in refused.err
    for file in shades.glob("*.npz"):
        with np.load(file) as arrays:
            count = len(arrays["labels"])
            np.savez(tmp_path / file.name, **arrays, part=np.arange(count, dtype=np.int64) % 4 // 3)
    run = bench("--data", str(tmp_path), "--split", "published", "--clients", "1", "--baseline", "source-only")
    assert run.code == 0, run.err
    config = validate(json.loads((run.folder / "config.json").read_text())["config"])
    dataset, source = load(config)
    assert [len(client.test) for client in split_trial(config, dataset, source, 0, 0).clients] == [count // 4] * 2
