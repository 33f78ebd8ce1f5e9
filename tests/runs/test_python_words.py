"""Errors and warnings of the Python interface name its arguments, not the command line's options."""

from __future__ import annotations

import pytest

import fedwca
from fedwca.errors import FedwcaError, RankFailed
from fedwca.runs.python_words import errors_in_python_words, in_python_words
from fedwca.runs.reporter import RunReporter


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("--out runs/x: holds a run; continue it with --resume", "out runs/x: holds a run; continue it with resume"),
        ("lower --clients or --new-clients, (--trials-at-once)", "lower clients or new_clients, (trials_at_once)"),
        ("--baseline none beside --objective", "baselines none beside objectives"),
        (
            "take --set model.weights=PATH or --set a.b=x.npz.",
            "take overrides={'model.weights': PATH} or overrides={'a.b': 'x.npz'}.",
        ),
        ("(--set a.b-c=0.5); --set a.b=true", "(overrides={'a.b-c': 0.5}); overrides={'a.b': True}"),
        ("--set a.b=none, --set a.b=5:", "overrides={'a.b': None}, overrides={'a.b': 5}:"),
        ("get it with `fedwca data get x --data y`", "get it with `fedwca data get x --data y`"),
        ("take `--data y`", "take `data y`"),
        (
            "--keep last, or continue with: fedwca resume r --keep all",
            "keep last, or continue with: fedwca resume r --keep all",
        ),
        ("--debug, --data-set and x--data", "--debug, --data-set and x--data"),
    ],
)
def test_options_become_arguments(message: str, expected: str) -> None:
    assert in_python_words(message) == expected


def test_errors_keep_their_class_and_code() -> None:
    with pytest.raises(RankFailed, match=r"^take clients 2$") as caught, errors_in_python_words():
        raise RankFailed("take --clients 2", 7)
    assert caught.value.exit_code == 7


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(ValueError, match=r"^--clients$"), errors_in_python_words():
        raise ValueError("--clients")


def test_the_interface_speaks_so() -> None:
    with pytest.raises(FedwcaError, match=r"; clients \d+ is the most"):
        fedwca.bench(dataset="digits_mini", clients=100_000)
    with pytest.warns(UserWarning, match=r"^take samples 3$"):
        RunReporter().warn("take --samples 3")
