"""Builds the engine that a configuration selects, with the clients' images."""

from __future__ import annotations

from collections.abc import Sequence

from fedwca.config.run_config import RunConfig
from fedwca.core.network import Network
from fedwca.data.federation import ClientImages
from fedwca.engine.interface import Engine, TrialsInTurn
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine, StackedTrials, can_share_step
from fedwca.federated.method import Method
from fedwca.runs.resources.choose_device import resolve_device
from fedwca.runs.resources.clients_at_once import clients_at_once
from fedwca.runs.resources.engine_names import engine_name, named_kernels

ENGINES: dict[str, type[SequentialEngine] | type[StackedEngine]] = {"loop": SequentialEngine, "stacked": StackedEngine}
"""Engines by the name that `RunConfig.engine` gives them."""


def config_of_method(config: RunConfig, method: Method) -> RunConfig:
    """The configuration for a method's engines: the loop if its adaptation generates a model per client."""
    client_by_client = method.adaptation is not None and method.adaptation.generates_models
    return config.model_copy(update={"engine": "loop", "kernels": "auto"}) if client_by_client else config


def choose_engine(config: RunConfig, network: Network, clients: Sequence[ClientImages]) -> Engine:
    """Build the engine that a configuration selects, see `engine_name`.

    Args:
        config: names engine, device, workers, precision and the policy for BatchNorm statistics.
        network: the source model.
        clients: the clients' images.

    Raises:
        UsageError: the device does not exist, or does not support the precision.
    """
    engine, workers = ENGINES[engine_name(config)], clients_at_once(config, network, clients)
    engine_args = (network, clients, resolve_device(config.device), workers, config.batch_norm, config.precision)
    return (
        engine(*engine_args, kernels=named_kernels(config))
        if issubclass(engine, StackedEngine)
        else engine(*engine_args)
    )


def choose_engines(config: RunConfig, trial_inputs: Sequence[tuple[Network, Sequence[ClientImages]]]) -> TrialsInTurn:
    """Build engines for federations that go through each round together, in one joint step if possible.

    Args:
        config: as for `choose_engine`.
        trial_inputs: source model and clients' images of each federation.

    Raises:
        UsageError: see `choose_engine`.
    """
    networks, clients = [network for network, _ in trial_inputs], [images for _, images in trial_inputs]
    if len(trial_inputs) > 1 and engine_name(config) == "stacked" and can_share_step(networks):
        device, kernels = resolve_device(config.device), named_kernels(config)
        return StackedTrials(networks, clients, device, config.batch_norm, config.precision, kernels)
    return TrialsInTurn([choose_engine(config, network, images) for network, images in trial_inputs])
