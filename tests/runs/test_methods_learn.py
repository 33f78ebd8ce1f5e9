"""Every method for new clients learns: its models after some rounds are better than its first ones, by a margin."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from fedwca.config.baselines import baseline_names
from fedwca.core.mean import mean
from fedwca.runs.python_api import bench
from tests.read_rounds import read_rounds

METHODS = baseline_names("upfl")
MARGIN = 30.0
"""Points of accuracy that a method has to gain over its untrained first models (about 10 %, by guessing)."""
PUBLIC_MARGIN = 10.0
"""The same for new clients with a model of their own that learns from public images alone."""
FOR_TRAINING_CLIENTS = {"pfl_sampled", "pfl_ensemble"}
"""Methods for clients that train: new clients stay near guessing in the paper, and at 9 and 45 % on MNIST here."""
HETERO = {"hetero_fedtta", "hetero_tent"}


def gains(method: str, out: Path, settings: dict[str, Any], hetero: dict[str, Any]) -> dict[str, float]:
    """Points of accuracy gained from the first models to the last, by group of clients.

    ``training``: on validation images of training clients. ``new``: on images of new clients. ``before``: as ``new``,
    without the step of an adaptation, if the method has one.
    """
    hetero_settings = hetero if method in HETERO else {}
    overrides = {**settings.get("overrides", {}), **hetero_settings.get("overrides", {})}
    defaults = {"preset": "upfl", "composed": False, "source_models": 1, "device": "cpu"}
    bench(**{**defaults, **settings, **hetero_settings, "overrides": overrides}, baselines=[method], out=out)
    records = read_rounds(out)
    points = {}
    for group, key in (("training", "accuracy_validation"), ("new", "accuracy")):
        points[group] = known_mean(records[-1][key]) - known_mean(records[0][key])
    if steps := records[-1].get("adaptation"):
        accuracies_before = steps["accuracy_before"][-len(records[0]["accuracy"]) :]
        points["before"] = known_mean(accuracies_before) - known_mean(records[0]["accuracy"])
    return points


def known_mean(values: list[float | None]) -> float:
    """Mean over clients that have test images; the others have None."""
    return mean(math.nan if value is None else value for value in values)


def refuse_to_stand_still(method: str, points: dict[str, float]) -> None:
    """Check that both groups gain more than their margin; new clients only where the method is for them."""
    assert points["training"] > MARGIN
    if method not in FOR_TRAINING_CLIENTS:
        assert points["new"] > (PUBLIC_MARGIN if method in HETERO else MARGIN)


DIGITS_PLAIN: dict[str, Any] = {"rounds": 20}
DIGITS_PLAIN_HETERO: dict[str, Any] = {
    "partition": "shards:public=0.1",
    "model": "mlp:sizes=25+50+100",
    "engine": "stacked",
    "rounds": 5,
}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_method_learns_on_digits_plain_with_the_rates_of_the_preset(method: str, tmp_path: Path) -> None:
    refuse_to_stand_still(method, gains(method, tmp_path / "run", DIGITS_PLAIN, DIGITS_PLAIN_HETERO))


# 12 clients of 300 digits each. The learning rate is that of FedAvg in Table 4. With 0.3, which the table has for some
# methods, the mean of six clients of two classes each learns little (FedAvg itself gains 26 points, and 52 with 0.1).
# The passes over public images give the paper's 60 and 120 steps.
MNIST: dict[str, Any] = {"dataset": "mnist", "clients": 6, "samples": 300, "rounds": 6, "lr": 0.1}
MNIST_HETERO: dict[str, Any] = {
    "partition": "shards:public=0.1",
    "model": "mlp:sizes=50+100+200",
    "engine": "stacked",
    "rounds": 3,
    "overrides": {"objective.digest.passes": 5, "objective.digest.new_passes": 10},
}
# As in docs/new-clients.md: a learned adaptation needs longer training to be of use, and with six clients FedADG
# soon diverges.
MNIST_LONGER: dict[str, Any] = {"clients": 10, "samples": 150, "rounds": 12, "model": "mlp:width=64"}
LONGER = {"fedadg", "fedtta_prox", "fedtta_pp"}
MNIST_HETERO_LEARNED: dict[str, Any] = {
    **MNIST_HETERO,
    **{"clients": 10, "samples": 150, "partition": "shards:public=0.05", "model": "mlp:sizes=25+50+100"},
    "overrides": {"objective.digest.batch_size": 20, "objective.digest.passes": 1, "objective.digest.new_passes": 4},
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fedwca.data.dataset.DatasetWarning")  # the file has only 12,000 of MNIST's images
@pytest.mark.parametrize("method", METHODS)
def test_a_method_learns_on_mnist_digits(method: str, shared_data: Path, tmp_path: Path) -> None:
    if not (shared_data / "digit_five" / "mnist.npz").is_file():
        pytest.skip("no real files")
    settings = {**MNIST, **(MNIST_LONGER if method in LONGER else {}), "data": shared_data / "digit_five"}
    learned = method == "hetero_fedtta"
    points = gains(method, tmp_path / "run", settings, MNIST_HETERO_LEARNED if learned else MNIST_HETERO)
    if learned:  # new clients learn from public images; the adaptation step after it harms at this size
        points["new"] = points["before"]
    refuse_to_stand_still(method, points)
