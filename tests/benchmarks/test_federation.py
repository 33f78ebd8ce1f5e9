"""Committed measurements of federations: the predicted bytes were sent, and smaller uploads keep the clusters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .scripts import BENCHMARKS


def read(name: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((BENCHMARKS / "results" / f"{name}.json").read_text())
    return values


UPLOADS = read("uploads")
LINES = {(line["aggregator"], line["what"]): line for line in UPLOADS["lines"]}


@pytest.mark.parametrize("aggregator", [name for name, what in LINES if what == "full precision"])
def test_the_bench_predicts_what_is_sent(aggregator: str) -> None:
    line, predicted = LINES[aggregator, "full precision"], UPLOADS["predicted"][aggregator]
    assert line["bytes_up"] == predicted["bytes_up"]
    # 8 bytes for BatchNorm's counter in the source model, which no method uses.
    assert line["bytes_down"][0] == predicted["bytes_down"][0] + 8
    assert line["bytes_down"][1:] == predicted["bytes_down"][1:]


def test_models_that_travel_are_counted() -> None:
    model_bytes = UPLOADS["predicted"]["fedavg"]["bytes_down"][1]
    clusters = LINES["wca", "full precision"]["clusters"]
    sent = {
        name: [size / model_bytes for size in predicted["bytes_down"][1:]]
        for name, predicted in UPLOADS["predicted"].items()
    }
    assert sent["fedavg"] == [1, 1, 1]
    assert sent["wca"] == [clusters + 1] * 3
    assert sent["revised_wca:u=2"] == [clusters + 1, 2, clusters + 1]


def test_smaller_uploads_keep_the_clusters() -> None:
    expected = UPLOADS["clusterings"]["whole"]["labels"]
    for (aggregator, variant), line in LINES.items():
        if aggregator != "fedavg":
            assert line["labels"] == expected, variant
        if variant != "full precision":
            assert sum(line["bytes_up"]) < 0.51 * sum(LINES[aggregator, "full precision"]["bytes_up"])
    # With the first layer rounded or thinned like the others, the clusters would differ.
    assert all(
        clustering["labels"] != expected for name, clustering in UPLOADS["clusterings"].items() if name != "whole"
    )


def test_what_a_client_costs_is_whole() -> None:
    lines = read("client_cost")["lines"]
    assert [(line["model"], line["round"]) for line in lines] == [
        *(("lenet", 0), ("lenet", 1)),
        *(("resnet18", 0), ("resnet18", 1)),
    ]
    assert all(line["peak_mb"] > line["libraries_mb"] > 0 for line in lines)
