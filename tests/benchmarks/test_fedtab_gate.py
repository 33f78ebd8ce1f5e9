"""The gate of FedTAB: the study measures what a run's gate decides on, and its table follows the rule."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedwca import bench
from fedwca.results.read_run import read_run
from tests.conftest import SMALL_MODEL

from .scripts import script

gate = script("fedtab_gate")
tables = script("fedtab_gate_tables")
picture = script("fedtab_picture")


def test_distinct_pieces_are_counted() -> None:
    distinct = gate.distinct()
    assert len(distinct) == 20 + 25 + 12 + 20 + 20 + 25 + 12
    assert {"digits-usps-14", "embedded-neon-110", "pacs-sketch-12", "skewed-synth-10"} <= set(distinct)


def test_it_is_what_the_gate_of_a_run_decides_on(tmp_path: Path, private_cache: Path) -> None:
    chosen = gate.distinct()["embedded-handwritten-110"]
    small = {
        "model": SMALL_MODEL,
        "clients": 2,
        "samples": 60,
        "rounds": 1,
        "epochs": 1,
        "source_training": {"epochs": 2},
    }
    chosen = replace(chosen, settings={**chosen.settings, **small})
    bench(out=tmp_path / "run", keep="none", **{**chosen.runs()["main"], "baselines": ["fedtab", "fedavg"]})
    run = read_run(tmp_path / "run")
    (fedtab_round,) = (record for record in run.rounds("fedtab") if record["round"] == 0)
    (fedavg_round,) = (record for record in run.rounds("fedavg") if record["round"] == 0)
    measured = gate.measure(chosen, tmp_path, tmp_path)
    assert measured["domains"] == list(run.domains)
    assert torch.allclose(torch.tensor(measured["trust"]), torch.tensor(fedtab_round["trust"]), atol=1e-4)
    assert measured["right"] == fedavg_round["pseudo_label_accuracy"], "labels of the source model, of every client"
    assert measured["clusters"] == fedtab_round["labels"]


def test_pooled_information() -> None:
    # Two clients with one class each and confident outputs: pooled, the outputs carry all information on two classes.
    sure = [torch.tensor([[50.0, 0.0]] * 3), torch.tensor([[0.0, 50.0]]), torch.tensor([[0.0, 0.0]])]
    information = gate.pool_information(sure, [0, 0, 1])
    assert torch.allclose(torch.stack(information), torch.tensor([1.0, 1.0, 0.0]), atol=1e-6)


def piece(kind: str, source: str, trust: list[float], right: list[float]) -> dict[str, Any]:
    measured = {
        "kind": kind,
        "source": source,
        "seed": 10,
        "domains": ["x", "x", "y", "y"],
        "trust": trust,
        "right": right,
    }
    fixed = {
        "pooled": [1.0] * 4,
        "confidence": [0.0] * 4,
        "clusters": [0, 0, 1, 1],
        "predicted": [60.0, 70.0, 20.0, 70.0],
        "environment": {"cores": 2, "cpu": "another"},
    }
    return measured | fixed


def test_table_counts_wrong_decisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "RESULT", tmp_path / "gate.json")
    assert tables.gate() == tables.NOTHING
    first = results = {
        "a": piece("digits", "synth", [0.9, 0.4, 0.3, 0.2], [80.0, 70.0, 20.0, 60.0]),
        "b": piece("pacs", "photo", [0.1, 0.1, 0.6, 0.7], [80.0, 70.0, 20.0, 30.0]),
        "c": piece("skewed", "usps", [0.1] * 4, [90.0] * 4),
    }
    results["b"]["environment"] = {"cores": 1, "cpu": "a processor"}
    (tmp_path / "gate.json").write_text(json.dumps({"pieces": results}))
    page = tables.gate()
    machine = "Hardware: 2 cores of another (2 pieces); 1 core of a processor (1 piece)."
    assert page.count(machine) == 2, "under both tables"
    assert "| Digit-Five | I | 2 | 1 | 0 | 0 | 2 of 4 |" in page
    assert "| Digit-Five | I, pooled over clusters | 2 | 2 | 0 | 1 | 1 of 4 |" in page
    assert "| PACS | I | 2 | 1 | 1 | 1 | 4 of 4 |" in page
    assert "| PACS | confidence | 2 | 0 | 1 | 0 | 2 of 4 |" in page
    assert "| Digit-Five | 1.00 (1.00) | 1 of 1 | 1 of 1 |" in page, (
        "x is half trusted: 75 for 65 %; y is not: 40 for 45 %"
    )
    assert "| Digit-Five, classes by Dirichlet(0.3) | I | 2 | 0 | 2 | 0 | 4 of 4 |" in page
    assert "By I the gate is wrong in 2 of 4 pairs of domains, 50 %; more than 10 % would refute it." in page
    assert "55 of 57 source models are not measured yet." in page
    assert "On PACS with ResNet-18 it stops 1 of 2 pairs." in page
    # In the second test a client between 1/3 and 1/2 is neither trusted nor stopped.
    assert tables.gate(tables.SECOND) == tables.NOTHING
    results = {"d": piece("second-digits", "synth", [0.6, 0.7, 0.2, 0.1], [80.0, 40.0, 60.0, 70.0])}
    results |= {"e": piece("second-digits", "usps", [0.3, 0.4, 0.2, 0.45], [90.0, 90.0, 10.0, 80.0])}
    (tmp_path / "gate.json").write_text(json.dumps({"pieces": results}))
    page = tables.gate(tables.SECOND)
    assert "| Digit-Five | I | 4 | 1 | 1 | 0 | 4 of 8 |" in page
    assert "By I the gate is wrong in 1 of 4 pairs of domains, 25 %" in page
    assert tables.gate() == tables.NOTHING
    (tmp_path / "gate.json").write_text(json.dumps({"pieces": first}))
    picture.draw_trust(tables.measured(), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
