"""Worst client, spread, F1 and calibration of a round by hand, and in tables over runs and flat tables of rounds."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fedwca.results.rounds_as_table import flatten_records
from fedwca.results.run_schemas import SCHEMA, RoundRecord
from fedwca.results.shown_records import accuracy_of_all, last_records
from fedwca.results.table_rows import count_numbers, mean_of_classes, summarise, table_rows


def record(trial: int, confusion: list[list[int]], *accuracy: float) -> dict[str, Any]:
    tag = {
        "schema": SCHEMA,
        "method": "wca",
        "source_model": 0,
        "trial": trial,
        "round": 0,
        "labels": [0] * len(accuracy),
    }
    return {**tag, "accuracy": list(accuracy), "confusion": confusion, "calibration_error": 5.0 + trial}


FIRST = record(0, [[0, 0, 3], [0, 1, 1], [1, 1, 2]], 90.0, math.nan, 80.0, 100.0)
SECOND = record(1, [[0, 0, 1], [0, 3, 3]], 40.0, math.nan, math.nan, math.nan)


def test_numbers_of_a_round() -> None:
    numbers = count_numbers(FIRST)
    assert numbers["f1"] == pytest.approx(100 * (6 / 7 + 4 / 5) / 2)
    assert (numbers["worst"], numbers["client_std"], numbers["calibration_error"]) == (80.0, 10.0, 5.0)
    assert set(count_numbers(SECOND)) == {"f1", "worst", "calibration_error"}, "no spread over one client"
    assert count_numbers({"accuracy": [math.nan], "confusion": [], "calibration_error": None}).keys() == {"f1"}


def test_a_table_has_means_over_runs() -> None:
    (row,) = table_rows([FIRST, SECOND], {"wca": "FedWCA"}, ["a", "a", "b", "b"])
    assert mean_of_classes(row) == {0: 50.0, 1: 100.0}
    entry = summarise([row])["wca"]
    assert entry["worst"]["mean"] == 60.0
    assert entry["client_std"] == {"mean": 10.0, "std": None}
    assert entry["calibration_error"] == {"mean": 5.5, "std": pytest.approx(0.5**0.5)}
    assert entry["runs"][1]["worst"] == 40.0
    assert "client_std" not in entry["runs"][1]


def test_the_last_record_is_that_of_the_last_round_wherever_it_stands() -> None:
    later = {**FIRST, "round": 1, "accuracy": [10.0, math.nan, 20.0, 30.0]}
    assert last_records([later, FIRST, SECOND])["wca"] == {(0, 0): later, (0, 1): SECOND}


def test_accuracies_of_clients_that_are_not_counted_are_those_of_sources_or_of_validation() -> None:
    accuracy, others = [math.nan, 70.0], [60.0, math.nan]
    assert accuracy_of_all({"accuracy": accuracy, "accuracy_sources": others}) == [60, 70]
    assert accuracy_of_all({"accuracy": accuracy, "accuracy_validation": others}) == [60, 70]


def test_a_run_from_before_there_were_counts() -> None:
    old = {key: value for key, value in FIRST.items() if key not in ("confusion", "calibration_error")}
    entry = summarise(table_rows([old], {"wca": "FedWCA"}, ["a", "a", "b", "b"]))["wca"]
    assert entry["worst"]["mean"] == 80.0
    assert not {"f1", "calibration_error", "class_accuracy"} & set(entry)
    assert not [name for name in flatten_records([old])[0] if name.startswith("round_")]


def test_images_of_training_clients_beside_new_clients_stay_in_a_flat_table() -> None:
    start = {key: value for key, value in FIRST.items() if key not in ("labels", "confusion")}
    rows = flatten_records([{**start, "round": -1, "train_images": [30, 40]}])
    assert [row["train_images"] for row in rows] == [30, 40, None, None]


def test_a_flat_table_has_the_numbers_of_a_round() -> None:
    rows = flatten_records([FIRST, SECOND], ["a", "a", "b", "b"], ["zero", "one"])
    assert len(rows) == 8
    assert rows[0]["round_worst"] == 80.0
    assert (rows[0]["round_accuracy_of_zero"], rows[7]["round_accuracy_of_zero"]) == (75.0, 25.0)
    assert rows[7]["round_accuracy_of_one"] is None
    assert rows[4]["round_calibration_error"] == 6.0


def test_a_flat_table_has_all_lists_with_a_value_for_each_client() -> None:
    steps = {"accuracy_before": [1.0, 2.0, 3.0], "steps": [4, 5, 6], "entropy": [[1.0, 0.5]] * 3}
    groups = {"ari": 1.0, "nearest": [1, 0], "sizes": [1, 1], "levels": [2, 1, 1]}
    base = {"method": "wca", "source_model": 0, "trial": 0, "round": 0, "accuracy": [90.0, 80.0, 70.0]}
    trained = {"labels": [0, 1], "accuracy_local": [50.0, 60.0], "weights": [[1.0, 0.0], [0.0, 1.0]]}
    moved = {"agreement": {"1": 0.5}, "after": {"1": [3, 2, 1]}}
    rows = flatten_records([{**base, **trained, "adaptation": steps, "clustering": groups, "shift": moved}], "aab")
    assert [row["adaptation_accuracy_before"] for row in rows] == [1.0, 2.0, 3.0]
    assert [row["adaptation_steps"] for row in rows] == [4, 5, 6]
    assert [(row["labels"], row["accuracy_local"]) for row in rows] == [(0, 50.0), (1, 60.0), (None, None)]
    assert [row["clustering_nearest"] for row in rows] == [1, 0, None]
    assert [row["round_clustering_ari"] for row in rows] == [1.0] * 3
    not_by_client = ("weights", "adaptation_entropy", "clustering_sizes", "clustering_levels", "shift_after_1")
    assert not set(not_by_client) & set(rows[0])


@pytest.mark.parametrize(
    ("field", "value"),
    [("confusion", [[0, 1]]), ("confusion", [[0, -1, 2]]), ("pseudo_label_counts", [[1, 2, 3]]), ("confusion", 3)],
)
def test_counts_that_are_none_are_refused(field: str, value: Any) -> None:
    valid = {**SECOND, "accuracy": [40.0, None, None, None]}
    RoundRecord.model_validate({**valid, "pseudo_label_counts": [[1, 2]]})
    with pytest.raises(ValueError, match=field):
        RoundRecord.model_validate({**valid, field: value})
