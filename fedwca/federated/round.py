"""One communication round: the server opens it, the engine runs the clients, the server closes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from fedwca._deprecated import forward_names
from fedwca.core.check_type import check_type
from fedwca.core.network import Network
from fedwca.core.training_settings import Training
from fedwca.engine.interface import Engine
from fedwca.engine.precision import matmul_precision
from fedwca.engine.randomness import Keys
from fedwca.errors import UsageError
from fedwca.federated.check_training import check_networks_are_there, check_training_fits
from fedwca.federated.close_round import Outcome, close_round
from fedwca.federated.method import Method
from fedwca.federated.open_round import open_round
from fedwca.federated.server import Server

_RENAMED = {
    "OpenRound": "fedwca.federated.open_round.OpenRound",
    "sample_clients": "fedwca.federated.participation.sample_clients",
}
if not TYPE_CHECKING:  # type checkers would otherwise accept any name
    __getattr__ = forward_names(__name__, _RENAMED)


def init_server(engine: Engine, start: Network | None = None, own: Tensor | None = None) -> Server:
    """The server before round 0, which holds the source model only; every client's own model is the source model.

    Args:
        engine: has the bank.
        start: the network to use as the source model; None: the engine's.
        own: the model each client begins with ``[K, P]``, also a row of the server; None: the source model for all.

    Raises:
        UsageError: ``start`` is no network.
    """
    if start is not None:
        check_type("start", start, Network, "the network of fedwca.pretrain(...)")
    source = engine.layout.read(engine.network if start is None else start)
    rows = source[None] if own is None else own.to(engine.bank)
    engine.bank.copy_(rows.expand_as(engine.bank))
    return Server(rows, {}, source)


def run_round(
    round: int,
    server: Server,
    method: Method,
    engine: Engine,
    training: Training,
    keys: Keys,
    domains: Tensor,
    participation: float = 1.0,
    done: Callable[[int], None] = lambda client: None,
) -> tuple[Server, Outcome]:
    """One round: send, adapt at the clients, group, average, remember.

    Args:
        round: r, counted from 0.
        server: what the server holds.
        method: the components.
        engine: owns the clients' images and the bank.
        training: epochs and optimiser, where the method has none of its own.
        keys: where random numbers come from.
        domains: true domains ``[K]``, passed on to oracles only.
        participation: share of the clients that take part in a round after the first, above 0 and at most 1.
        done: called after each client.

    Returns:
        What the server holds next, and the `Outcome` of the round.

    Raises:
        Diverged: a client's model or a row of the server has values that are not finite.
        UsageError: ``method``, ``server`` or ``training`` is none; in round 0, parts cannot be trained as ``training``
            says, or not on this model; or in a later one, ``server`` has no round behind it.
        FedwcaError: a client's report does not fit what the aggregator declares, or a component's answer is invalid.
    """
    check_type("method", method, Method, "fedwca.Method('mine', 'Mine', WCA(), TwoModel(), (Shot(),))")
    check_type("server", server, Server, "that of fedwca.init_server(engine)")
    check_type("training", training, Training, "fedwca.Training(epochs=5)")
    training = method.training_in(training)
    if not round:
        if (objective := method.public_objective) is not None:
            raise UsageError(f"objective {objective.name!r} trains on public images, which a round alone does not do")
        check_training_fits(method, training)
        check_networks_are_there(method, engine.network)
    elif "labels" not in server.state:
        raise UsageError(f"round {round} needs the server that round {round - 1} returned; the first round is 0")
    with matmul_precision(engine.precision, engine.device):
        opened = open_round(round, server, method, engine, training, keys, domains, participation, done)
        return close_round(opened, engine.run(opened))
