"""What a newcomer takes over from an opened run: its random numbers, and a last phase."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fedwca.aggregators.fedavg import FedAvg
from fedwca.config.run_config import RunConfig
from fedwca.core.training_settings import FinishTraining
from fedwca.engine.randomness import Keys
from fedwca.federated.method import Method
from fedwca.newcomers.load_federation import load_federation
from fedwca.objectives.cross_entropy import CrossEntropy
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.two_model import TwoModel


def opened(**last_phase: Any) -> Any:
    """What `load_federation` reads of a run with seed 5, of its source model 1 and trial 2."""
    return SimpleNamespace(
        config=RunConfig(seed=5, device="cpu"),
        unit=SimpleNamespace(source_model=1, trial=2),
        method=Method("made", "Made", FedAvg(), TwoModel(), (CrossEntropy(smoothing=0.1),), **last_phase),
        federation=SimpleNamespace(clients=[], public_images=None),
        network=None,
        server=None,
        labels=None,
        round=3,
    )


def test_random_numbers_are_of_the_units_source_model_and_trial() -> None:
    assert load_federation(opened()).keys == Keys(5 + 1, 2)


def test_a_newcomer_does_what_the_last_phase_does() -> None:
    finish_training = FinishTraining(epochs=2, lr=0.05, trains="classifier")
    federation = load_federation(opened(finish=(Shot(),), finish_training=finish_training))
    assert federation.training is finish_training
    assert federation.method.objectives == (Shot(),)
    rounds = opened()
    assert load_federation(rounds).training == rounds.config.training
    assert load_federation(rounds).method is rounds.method
