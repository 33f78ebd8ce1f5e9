"""A model that diverged by a component's own values, and by the learning rate."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedwca.aggregators.fedavg import FedAvg
from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch
from fedwca.errors import Diverged, FedwcaError
from fedwca.federated.aggregator_weights import deliver_mixtures, newcomer_mixtures
from tests.engine.test_adaptation import clients, network
from tests.federated.test_aggregator_answers import Changed
from tests.federated.test_server_rules import ENGINES, SIZES, TRAINING, engines, make, method, play


@pytest.mark.parametrize("part", ["infinite", "no number"])
def test_weights_that_are_not_finite_are_left_to_the_model_that_diverged_unless_nobody_checks_it(part: str) -> None:
    with pytest.raises(Diverged, match="aggregator 'changed': gather gave weights that are not finite"):
        play(make("loop"), method(Changed(at="gather", part=part)))
    server, _ = play(make("loop"), method(Changed()))
    with pytest.raises(FedwcaError, match="aggregator 'changed': deliver gave weights that are not finite"):
        deliver_mixtures(Changed(at="deliver", part=part), server.state, 1, 4)
    with pytest.raises(FedwcaError, match="aggregator 'changed': deliver_new gave weights that are not finite"):
        newcomer_mixtures(Changed(at="deliver_new", part=part), 2, torch.zeros(3))


@engines
def test_a_model_diverged_by_a_components_own_values(name: str) -> None:
    engine, mine = make(name), method(Changed(), Undefined())
    with pytest.raises(Diverged) as error:
        play(engine, mine)
    assert str(error.value) == (
        "client 0's model has values that are not finite; the loss of 'cross_entropy', 'undefined' is nan on the "
        "model that it started from, whose outputs are finite"
    )
    with pytest.raises(Diverged, match="not finite; aggregator 'changed': blend gave it weights that are not finite"):
        play(make(name), method(Changed(at="start", part="no number")))


@engines
def test_statistics_that_stay_with_a_client_do_not_hide_a_components_own_values(name: str) -> None:
    """After a step to no number, a second one spoils the client's own BatchNorm statistics, too."""
    engine = ENGINES[name](network(None), clients(SIZES), batch_norm="local")
    with pytest.raises(Diverged, match="the loss of 'cross_entropy', 'undefined' is nan on the model that it started"):
        play(engine, method(FedAvg(), Undefined()))


@engines
def test_a_loss_that_cannot_be_looked_at_again_hides_nothing(name: str) -> None:
    class Trained(Undefined):
        """Raises where nothing is trained."""

        name = "trained"

        def __call__(self, batch: Batch) -> Tensor:
            """Nothing without a gradient."""
            assert torch.is_grad_enabled()
            return super().__call__(batch)

    with pytest.raises(Diverged, match="client 0's model has values that are not finite; a lower --lr may help"):
        play(make(name), method(FedAvg(), Trained()))


@engines
def test_a_model_diverged_by_the_learning_rate(name: str) -> None:
    with pytest.raises(Diverged, match="client 0's model has values that are not finite; a lower --lr may help"):
        play(make(name), method(FedAvg()), training=TRAINING.model_copy(update={"lr": 1e300}))


class Undefined(Objective):
    """No number, whatever the model says."""

    name = "undefined"

    def __call__(self, batch: Batch) -> Tensor:
        """The root of a negative number."""
        return batch.logits.square().mean().neg().sub(1).sqrt()
