"""Which engine runs a configuration, with the clients' images on it."""

from __future__ import annotations

from collections.abc import Sequence

from fedwca.config.run_config import RunConfig
from fedwca.core.network import Network
from fedwca.data.federation import ClientImages
from fedwca.engine.interface import Engine, TrialsInTurn
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine, StackedTrials, can_share_step
from fedwca.federated.method import Method
from fedwca.runs.choose_device import resolve_device
from fedwca.runs.clients_at_once import clients_at_once
from fedwca.runs.engine_names import engine_name, named_kernels

ENGINES: dict[str, type[SequentialEngine] | type[StackedEngine]] = {"loop": SequentialEngine, "stacked": StackedEngine}
"""Engines by the name that `RunConfig.engine` gives them."""


def config_of_method(config: RunConfig, method: Method) -> RunConfig:
    """The configuration that a method's engines are chosen by: the loop, where it works client by client."""
    alone = method.adaptation is not None and method.adaptation.by_client
    return config.model_copy(update={"engine": "loop", "kernels": "auto"}) if alone else config


def choose_engine(config: RunConfig, network: Network, clients: Sequence[ClientImages]) -> Engine:
    """The engine a configuration asks for, with the clients' images; see `engine_name`.

    Args:
        config: names engine, device, workers and precision, and says what becomes of BatchNorm statistics.
        network: the source model.
        clients: their images.

    Raises:
        UsageError: the device is not there, or cannot compute in that precision.
    """
    engine, workers = ENGINES[engine_name(config)], clients_at_once(config, network, clients)
    given = (network, clients, resolve_device(config.device), workers, config.batch_norm, config.precision)
    return engine(*given, kernels=named_kernels(config)) if issubclass(engine, StackedEngine) else engine(*given)


def choose_engines(config: RunConfig, given: Sequence[tuple[Network, Sequence[ClientImages]]]) -> TrialsInTurn:
    """Engines for federations that go through rounds together, in one step where they can.

    Args:
        config: as for `choose_engine`.
        given: source model and images of each federation.

    Raises:
        UsageError: see `choose_engine`.
    """
    networks, clients = [network for network, _ in given], [own for _, own in given]
    if len(given) > 1 and engine_name(config) == "stacked" and can_share_step(networks):
        device, how = resolve_device(config.device), named_kernels(config)
        return StackedTrials(networks, clients, device, config.batch_norm, config.precision, how)
    return TrialsInTurn([choose_engine(config, network, own) for network, own in given])
