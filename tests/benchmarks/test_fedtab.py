"""The test of FedTAB: its pieces compose, its stress deals few classes, and its tables follow the rules."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedwca.config.compose_methods import compose
from fedwca.config.run_config import RunConfig
from fedwca.partitions import partitions

from .scripts import script

pieces = script("fedtab_pieces")
tables = script("fedtab_tables")
picture = script("fedtab_picture")
test = script("fedtab")


def test_every_row_can_be_composed() -> None:
    methods = compose(RunConfig(baselines=(*pieces.MAIN, *pieces.ABLATIONS), composed=False))
    assert len({method.label for method, _ in methods}) == len(methods) == 20
    gated = {method.label for method, _ in methods if method.pseudo_labeler.selects_clients}
    assert {"FedTAB", "gated FedAvg", "gated WCA", "gated FedSCAl", "Source + AdaBN"} <= gated
    assert "no gate" not in gated


def test_pieces() -> None:
    every = [piece.name for piece in pieces.pieces()]
    assert len(set(every)) == len(every) == 40 + 25 + 12 + 20
    assert {"digits-usps-14-0.001", "embedded-neon-110", "pacs-sketch-12", "skewed-synth-10"} <= set(every)
    (piece,) = (piece for piece in pieces.pieces() if piece.name == "digits-synth-10-0.003")
    runs = piece.runs()
    assert tuple(runs) == pieces.RUNS
    assert [(name, run["epochs"], run.get("batch_norm")) for name, run in runs.items()] == [
        ("main", 5, None),
        ("ablations", 5, None),
        ("recalibrated", 5, "recalibrated"),
        ("twice", 10, None),
    ]


def test_clients_of_few_classes() -> None:
    (piece,) = (piece for piece in pieces.pieces() if piece.name == "skewed-synth-10")
    deal = partitions.build(piece.runs()["main"]["partition"])
    assert (deal.name, deal.alpha, deal.by, deal.least) == ("skewed_domains", 0.3, "class", 20)


def test_right_labels_are_those_that_the_gate_decides_on() -> None:
    def rounds(name: str) -> list[dict[str, Any]]:
        first = {"round": 0, "accuracy": [50.0, 40.0], "bytes_up": 3, "pseudo_label_accuracy": [81.0, 12.0]}
        if name == "fedtab":
            first |= {"trust": [0.8, 0.2], "trusted": [True, False], "pseudo_label_accuracy": [81.0, None]}
        return [
            {"round": -1, "accuracy": [30.0, 30.0]},
            first,
            {**first, "round": 1, "pseudo_label_accuracy": [99.0, 2.0]},
        ]

    run = SimpleNamespace(
        domains=["x", "y"], environment={}, labels={"fedtab": "FedTAB", "fedavg": "FedAvg"}, rounds=rounds
    )
    found: dict[str, Any] = {"methods": {}}
    test.add_results(run, found)
    assert (found["trust"], found["trusted"], found["right"]) == ([0.8, 0.2], [True, False], [81.0, 12.0])
    assert found["methods"]["FedAvg"] == {"accuracy": [50.0, 40.0], "bytes": 6, "seconds": 0.0}
    methods = {method.name: method for method, _ in compose(RunConfig(baselines=pieces.MAIN, composed=False))}
    gate, whole = methods["fedtab"].pseudo_labeler.model_dump(), methods["fedavg"].pseudo_labeler.model_dump()
    assert {field: gate[field] for field in whole} == whole, "the same labels, of all clients"
    assert gate["labels"] == "prototypes"


def write(folder: Path, own: float, rival: float) -> None:
    for piece in pieces.pieces():
        if piece.kind != "digits" or piece.settings["lr"] != 0.003:
            continue
        accuracy = {"FedTAB": own, "Source + AdaBN": 50.0, "FedWCA": rival, "FedSCAl": 40.0}
        accuracy |= {"FedWCA twice the epochs": rival, "One-hot twice the epochs": 41.0}
        wobble = piece.seed / 100
        methods = {
            label: {"accuracy": [mean + (label == "FedTAB") * wobble, mean], "bytes": 2e6, "seconds": 3.0}
            for label, mean in accuracy.items()
        }
        found = {"kind": "digits", "source": piece.source, "seed": piece.seed, "lr": 0.003, "methods": methods}
        found |= {"domains": ["x", "y"], "trusted": [True, False], "right": [80.0, 60.0], "trust": [0.7, 0.3]}
        (folder / f"{piece.name}.json").write_text(json.dumps(found))


def test_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert tables.results() == tables.NOTHING
    write(tmp_path, 60.0, 55.0)
    page = tables.results()
    assert "**Digits, learning rate 0.003**, n = 5 seeds" in page
    assert "| FedWCA | 55.0 | +5.1 (+5.1 to +5.1) | 55.0 | 0 | 2 | 3 |" in page
    assert "Primary comparison: above FedWCA and FedSCAl, both intervals exclude 0." in page
    assert "within a point or above: none." in page
    assert "The gate is wrong in 20 of 40 pairs of domains, and stops 20." in page
    assert "below Source + AdaBN in 0 of 5 seeds." in page
    picture.draw(tables.every_piece(), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    write(tmp_path, 47.0, 46.5)
    page = tables.results()
    assert "within a point or above: FedWCA twice the epochs." in page
    assert "below Source + AdaBN in 5 of 5 seeds." in page
    write(tmp_path, 45.0, 46.0)
    assert "not shown to be above both." in tables.results()
    first = tmp_path / "digits-synth-10-0.003.json"
    found = json.loads(first.read_text())
    del found["methods"]["FedWCA twice the epochs"]
    first.write_text(json.dumps(found))
    page = tables.results()
    assert "FedWCA twice the epochs |" not in page
    assert "Twice the epochs: not run yet." in page
    first.unlink()
    assert "(seeds are missing)" in tables.results()
