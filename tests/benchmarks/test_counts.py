"""Exact counts of a round, against the committed ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from .scripts import script

counts = script("counts")
COMMITTED = json.loads(counts.FILE.read_text())
HOW = "the counts changed; if that is meant: python benchmarks/counts.py --write, and commit benchmarks/counts.json"
same_torch = pytest.mark.skipif(
    torch.__version__.partition("+")[0] != COMMITTED["torch"], reason=f"counted with torch {COMMITTED['torch']}"
)


def check(now: Any, then: Any) -> None:
    assert now == then, f"{HOW}\nnow:  {now}\nthen: {then}"


@same_torch
@pytest.mark.parametrize("name", ["fedavg", "wca"])
def test_calls_and_the_largest_tensor_of_a_round(name: str) -> None:
    check(counts.calls(name), COMMITTED["round"][name])


@same_torch
def test_flops_of_a_client_and_the_price_of_wca() -> None:
    costs = {name: counts.flops(name) for name in ("fedavg", "wca")}
    check(costs, COMMITTED["flops_per_client"])
    price = COMMITTED["wca_in_fedavg_rounds"]
    assert price["formula"] == pytest.approx(counts.formula(price["epochs"], price["clusters"]), abs=1e-4)
    assert price["measured"] == pytest.approx(costs["wca"] / costs["fedavg"], abs=1e-4)
    # A backward pass costs a little less than two forward passes: images need no gradient, the classifier is frozen.
    assert price["formula"] < price["measured"] < price["formula"] * 1.05


@pytest.mark.parametrize("name", ["fedavg", "wca"])
def test_calls_grow_in_proportion_to_clients(name: str) -> None:
    few, medium, many = (COMMITTED["round"][name]["aten_calls"][str(k)] for k in counts.CLIENTS)
    assert (many - medium) / (medium - few) == pytest.approx(2, abs=0.01)


@same_torch
@pytest.mark.parametrize("name", ["fedavg", "wca"])
def test_the_stacked_engine_makes_the_same_calls_for_any_number_of_clients(name: str) -> None:
    now = counts.stacked_calls(name)
    check(now, COMMITTED["stacked_calls"][name])
    assert len(set(now.values())) == 1


@same_torch
@pytest.mark.parametrize("name", ["fedavg", "wca"])
def test_training_makes_the_same_calls_for_any_number_of_trials(name: str) -> None:
    now = counts.training_calls(name)
    check(now, COMMITTED["training_calls_of_trials"][name])
    assert len(set(now.values())) == 1


def test_help_loads_no_torch() -> None:
    now = counts.imported()
    assert not {"torch", "numpy", "faiss", "sklearn", "matplotlib"} & set(now)
    if torch.__version__.partition("+")[0] == COMMITTED["torch"]:
        check(now, COMMITTED["help_imports"])


def test_the_script_names_what_differs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = {**COMMITTED, "flops_per_client": {**COMMITTED["flops_per_client"], "wca": 1}}
    monkeypatch.setattr(counts, "counts", lambda: now)
    assert counts.main([]) == 1
    then = COMMITTED["flops_per_client"]["wca"]
    assert capsys.readouterr().err == f"flops_per_client.wca: 1, in counts.json {then}\n"
    monkeypatch.setattr(counts, "counts", lambda: COMMITTED)
    assert counts.main([]) == 0
    assert capsys.readouterr().err == ""
