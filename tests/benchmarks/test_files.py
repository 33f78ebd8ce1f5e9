"""Every committed result file can be read and names the machine it was measured on."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fedwca.core.tensor_files import checksum, open_tensors
from fedwca.engine.stacked.tuning.benchmark import pick_kernels
from fedwca.runs.resources.select_engine import ENGINES

from .scripts import BENCHMARKS, script

RESULTS = BENCHMARKS / "results"
run = script("peers/run")
keep = script("keep")
FILES = sorted(RESULTS.rglob("*"))
MEASURED = [file for file in FILES if file.suffix == ".json" and file.parent == RESULTS]
ids = [str(file.relative_to(RESULTS)) for file in FILES]


def refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [x for item in value.values() for x in numbers(item)]
    if isinstance(value, list):
        return [x for item in value for x in numbers(item)]
    return [value] if isinstance(value, int | float) else []


@pytest.mark.parametrize("file", FILES, ids=ids)
def test_a_file_is_of_a_known_kind_and_can_be_read(file: Path) -> None:
    if file.is_dir():
        assert any(file.iterdir())
        return
    assert file.stat().st_size < 8_000_000
    match file.suffix:
        case ".json":
            values = json.loads(file.read_text(), parse_constant=refuse)
            assert values
            assert all(map(math.isfinite, numbers(values)))
        case ".jsonl":
            lines = [json.loads(line, parse_constant=refuse) for line in file.read_text().splitlines()]
            assert lines
            assert all({"schema", "method", "round"} <= set(line) for line in lines)
        case ".png":
            assert file.read_bytes().startswith(b"\x89PNG")
        case ".safetensors":  # a source model that pieces continue from; they name it by the checksum of its values
            tensors = open_tensors(file).tensors()
            assert 0 <= float(tensors.pop("accuracy")) <= 100
            texts = [piece.read_text() for piece in file.parents[1].glob("*.json")]
            assert any(f'"source_weights": "{checksum(tensors):08x}"' in text for text in texts)
        case _:
            assert file.suffix in {".md", ".svg", ".csv", ".log"}, "a new kind of file: say here how it is read"


@pytest.mark.parametrize("file", MEASURED, ids=lambda file: file.name)
def test_a_measurement_says_where_it_was_made(file: Path) -> None:
    values = json.loads(file.read_text())
    environment = values["environment"]
    assert {"time", "python", "system", "cpu", "cores", "device", "versions"} <= set(environment)
    assert {"fedwca", "torch", "numpy"} <= set(environment["versions"])


def test_what_is_kept_names_no_folder_of_the_machine(tmp_path: Path) -> None:
    environment = {"cpu": "one", "command": "fedtab.py --data /here/data"}
    record = {"places": {"directory": "/here"}, "config": {"places": {}, "seed": 0}, "environment": environment}
    keep.keep(tmp_path / "x.json", record | {"rounds": [{"places": 0.4}]})
    saved = json.loads((tmp_path / "x.json").read_text())
    assert saved == {"config": {"seed": 0}, "environment": {"cpu": "one"}, "rounds": [{"places": 0.4}]}


def test_finch_meets_its_target() -> None:
    result = json.loads((RESULTS / "finch_scale.json").read_text())
    target = result["target"]
    large = [case for case in result["cases"] if case["clients"] == target["clients"]]
    assert {case["signatures"] for case in large} == {"synthetic", "tiled"}
    for case in large:
        assert case["backend"] == "hnsw"
        assert case["seconds"] <= target["seconds"]
        assert case["recall"] >= target["recall"]
    exact = [case for case in result["cases"] if case["backend"] == "faiss"]
    assert max(case["clients"] for case in exact) >= 10_000
    assert all(case["recall"] == 1 for case in exact)


def test_cpu_targets_are_judged_by_their_numbers() -> None:
    result = json.loads((RESULTS / "cpu_targets.json").read_text())
    for name, entry in result["targets"].items():
        assert entry.get("met") == (entry["ratio"] <= entry["target"] if "target" in entry else None), name
        assert len(entry["base_seconds"]) == len(entry["seconds"])
    assert 0 < result["share of the peak"]["share"] < 1


def test_the_gate_alarms_at_losses_alone() -> None:
    result = json.loads((BENCHMARKS / "gate.json").read_text())
    assert set(result["engines"]) == set(ENGINES)
    for kind, part in result["engines"].items():
        assert part["environment"]["cpu"]
        for half in ("beside the hand-written loop", "beside the engine of a commit"):
            assert part[half]["as it is"]["runs"] >= 50
            assert part[half]["as it is"]["alarms"] == 0, (kind, half)
            slowed = part[half]["a fifth more CPU seconds"]
            assert slowed["runs"] - slowed["alarms"] <= 0.1 * slowed["runs"], (kind, half)


def test_the_page_shows_the_measured_numbers() -> None:
    page = (BENCHMARKS.parent / "docs" / "internals" / "performance.md").read_text()
    for name, entry in json.loads((RESULTS / "cpu_targets.json").read_text())["targets"].items():
        assert f"| {name} | {entry.get('target', '–')} | {entry['ratio']} |" in page
    for case in json.loads((RESULTS / "finch_scale.json").read_text())["cases"]:
        if case["clients"] == 100_000:
            assert all(str(case[key]) in page for key in ("recall", "cpu_seconds", "seconds", "mb_peak"))


def test_many_clients_cost_what_the_file_says() -> None:
    result = json.loads((RESULTS / "many_clients.json").read_text())
    assert [case["clients"] for case in result["cases"]] == [100, 500, 2000]
    for case in result["cases"]:
        assert case["present"] == 100
        assert {"round", "evaluate", "record"} == set(case["seconds"])
        assert case["cpu_seconds_a_round"] > 0
        assert case["bank_mb"] <= case["peak_mb"]
        assert case["load_average"] >= 0
    assert result["environment"]["commit"]


def test_peers_did_the_same_work_in_turn() -> None:
    if not (RESULTS / "peers.json").exists():
        pytest.skip("not measured yet")
    result = json.loads((RESULTS / "peers.json").read_text())
    assert (result["sizes"]["clients"], result["sizes"]["images"]) == (32, 640)
    assert set(result["rounds"]) | set(result["absent"]) == set(run.PEERS)
    assert {"plain", "fedwca", "flower", "pfl"} <= set(result["rounds"])
    for rounds in result["rounds"].values():
        assert len(rounds) == result["repeats"] * result["sizes"]["rounds"]
        assert all(seconds["cpu"] > 0 and seconds["wall"] > 0 and "load_average" in seconds for seconds in rounds)
    assert result["environment"]["commit"]


def test_kernels_were_chosen_by_their_numbers() -> None:
    result = json.loads((RESULTS / "kernels.json").read_text())
    assert {case["model"].partition(":")[0] for case in result["cases"]} == {"lenet", "resnet18"}
    for case in result["cases"]:
        assert pick_kernels(case["candidates"]) == case["best"]
        assert {"eager", "channels-last"} <= set(case["candidates"])


def test_kernels_that_were_dropped_were_slower_than_what_is_left() -> None:
    result, dropped = json.loads((RESULTS / "kernels.json").read_text()), {"products", "compile"}
    for case in result["cases"]:
        seconds = {name: measurement["seconds"] for name, measurement in case["candidates"].items()}
        assert min(seconds[name] for name in dropped) > min(seconds[name] for name in set(seconds) - dropped)


def test_places_for_mixed_images_are_between_those_mixed_and_all() -> None:
    result = json.loads((RESULTS / "mixed.json").read_text())
    for measurement in result["rounds"]:
        assert 0 <= measurement["mixed"] <= measurement["places"] <= 1
        assert measurement["all_places_over_counted"] == pytest.approx(2 / (1 + measurement["places"]), abs=2e-3)
    assert result["environment"]["commit"]


def test_batching_by_hand_is_worth_it() -> None:
    result = json.loads((RESULTS / "by_hand.json").read_text())
    for case in result["cases"]:
        assert case["apart"] < 1e-3
        assert case["first_over_last"]["median"] < 1
        assert min(case["seconds"], key=case["seconds"].get) == "by hand, channels-last"
