"""Notes on a last phase: by accuracy, which needs labels, and by predicted classes, which do not."""

from __future__ import annotations

from typing import Any

import pytest

from fedwca.results.last_phase_notes import last_phase_notes
from fedwca.results.table_rows import summarise, table_rows


def records(before: float, after: float, classes: tuple[list[int], list[int]]) -> list[dict[str, Any]]:
    unit = {"method": "own", "source_model": 0, "trial": 0}
    shift = {"agreement": {"1": 0.6}, "before": {"1": classes[0]}, "after": {"1": classes[1]}}
    nothing = float("nan")
    return [
        {**unit, "round": 0, "accuracy": [nothing, before]},
        {**unit, "round": 1, "accuracy": [nothing, after], "phase": "finish", "shift": shift},
    ]


@pytest.mark.parametrize(
    ("after", "classes", "said"),
    [
        (50.0, [9, 1], "the target's unlabeled images tell so: 90 % of them are given one class (50 % before"),
        (50.0, [5, 5], "nothing in the target's unlabeled images tells so"),
        (70.0, [9, 1], "is to be doubted without labels"),
        (70.0, [5, 5], ""),
        (70.0, [6, 4], ""),  # entropies 0.693 and 0.673: a fall of 0.02, as it varies by chance
    ],
)
def test_harm_is_said_with_what_could_be_known_of_it(after: float, classes: list[int], said: str) -> None:
    notes = last_phase_notes(records(60.0, after, ([5, 5], classes)), {"own": "Own"})
    assert [said in note for note in notes] == ([True] if said else [])


def test_evidence_is_the_mean_of_all_runs() -> None:
    # Entropies of classes are log 2 before, 0.325 and log 2 after; the larger class has 90 % and 50 %.
    before, after = records(60.0, 50.0, ([5, 5], [9, 1]))
    unchanged = {**after["shift"], "agreement": {"1": 1.0}, "after": {"1": [5, 5]}}
    second = [{**before, "trial": 1}, {**after, "trial": 1, "shift": unchanged}]
    (note,) = last_phase_notes([before, after, *second], {"own": "Own"})
    assert note == (
        "Own: the last phase harmed, 60.0 % before and 50.0 % after, and the target's unlabeled images tell so: 70 % "
        "of them are given one class (50 % before; entropy of classes 0.69 → 0.51 nats), and 20 % changed theirs"
    )


def test_no_harm_is_said_where_accuracies_differ_by_rounding_alone() -> None:
    before, after = records(60.0, 60.0, ([5, 5], [5, 5]))
    rights = ([6, 0, 0, 4, 0], [1, 1, 5, 0, 3])  # of 6 images each; sums of the percents differ in the last digit
    before["accuracy"], after["accuracy"] = ([100 * right / 6 for right in clients] for clients in rights)
    assert not last_phase_notes([before, after], {"own": "Own"})


def test_a_table_has_both_and_only_who_is_counted() -> None:
    (row,) = table_rows(records(60.0, 70.0, ([5, 5], [5, 5])), {"own": "Own"}, ["source", "target"])
    assert (row.mean, dict(row.before), list(row.domains)) == (70.0, {(0, 0): 60.0}, ["target"])
    assert summarise([row])["own"]["before"] == {"mean": 60.0, "std": None}
