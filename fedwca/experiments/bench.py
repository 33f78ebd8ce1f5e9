"""The bench: source models, splits, methods and rounds, each recorded as it comes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fedwca.data.dataset import FederatedDataset
from fedwca.data.metrics import Metrics, mean
from fedwca.data.partition import Federation, partition
from fedwca.engine.loop import Loop
from fedwca.engine.randomness import Keys, fold
from fedwca.experiments.config import RunConfig
from fedwca.experiments.record import Cautions, accuracies, describe
from fedwca.experiments.setup import resolve_device, source_models
from fedwca.round import Method, Server, begin, play


@dataclass(frozen=True)
class Progress:
    """Where a bench tells how far it is; any of these may be replaced, none must be."""

    source: Callable[[int, int, float], None] = lambda epoch, epochs, accuracy: None
    """(epochs done, epochs, held-out accuracy in percent) of the source model."""
    begin: Callable[[str, int, int], None] = lambda label, rounds, clients: None
    """(method, rounds, clients) when a method starts."""
    client: Callable[[int], None] = lambda client: None
    """After each client's round."""
    round: Callable[[int, float], None] = lambda done, accuracy: None
    """(rounds done, mean accuracy in percent)."""
    warn: Callable[[str], None] = lambda message: None
    """A sentence for the user."""


def draw(config: RunConfig, dataset: FederatedDataset, source: str, index: int, trial: int) -> Federation:
    """The clients of one trial; the same for every method.

    Raises:
        UsageError: more clients than images.
    """
    seed = fold([config.seed + index, trial, "partition"]) >> 1
    return partition(dataset, source, clients=config.clients, samples=config.samples, seed=seed)


def bench(
    config: RunConfig,
    methods: list[tuple[Method, int]],
    dataset: FederatedDataset,
    source: str,
    progress: Progress = Progress(),
) -> Iterator[dict[str, Any]]:
    """Run every method for every source model and trial; one record a round, as it ends.

    Args:
        config: what to run.
        methods: with their rounds, see `fedwca.experiments.compose.compose`.
        dataset: see `fedwca.experiments.setup.load`.
        source: name of the source domain.
        progress: told how far it is.
    """
    caution = Cautions(progress.warn)
    for index, model in enumerate(source_models(config, dataset, source, progress.source)):
        for trial in range(config.trials):
            federation = draw(config, dataset, source, index, trial)
            device, statistics = resolve_device(config.device), config.batch_norm
            engine = Loop(model.network, federation.clients, device, config.workers, statistics)
            keys = Keys(config.seed + index, trial)
            for method, rounds in methods:
                tag = {"method": method.name, "source_model": index, "trial": trial}
                progress.begin(method.label, rounds, len(federation))
                home = {"source_accuracy": model.accuracy, "source_digest": model.digest}
                server = begin(engine)
                yield {**tag, "round": -1, "accuracy": accuracies(federation.metrics, engine), **home}
                for record in federate(
                    config, method, rounds, engine, federation.metrics, server, keys, caution, progress
                ):
                    yield {**tag, **record}


def federate(
    config: RunConfig,
    method: Method,
    rounds: int,
    engine: Loop,
    metrics: Metrics,
    server: Server,
    keys: Keys,
    caution: Cautions,
    progress: Progress,
) -> Iterator[dict[str, Any]]:
    """One method on one federation, from the server before round 0: a record a round."""
    for number in range(rounds):
        started = time.perf_counter()
        domains, share = metrics.domain_labels(), config.participation
        server, outcome = play(number, server, method, engine, config.training, keys, domains, share, progress.client)
        trained = time.perf_counter()
        local = [a if k in outcome.uploads else math.nan for k, a in enumerate(accuracies(metrics, engine))]
        accuracy = accuracies(metrics, engine, method.aggregator.deliver(server.state, len(server.rows)), server.rows)
        evaluated = time.perf_counter()
        record = {
            "round": number,
            "accuracy": accuracy,
            "accuracy_local": local,
            **describe(outcome, method, metrics, engine, first=number == 0),
        }
        if number == 0 and method.aggregator.partition == "given":
            record["clustering"] = metrics.clustering(outcome.labels)
        ended = time.perf_counter()
        record["seconds"] |= {
            "round": trained - started,
            "evaluate": evaluated - trained,
            "record": ended - evaluated,
        }
        caution(record, outcome, method)
        progress.round(number + 1, mean(accuracy))
        yield record
