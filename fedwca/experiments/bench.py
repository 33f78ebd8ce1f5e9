"""The bench: source models, splits, methods and rounds, each recorded as it comes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

from fedwca.data.dataset import FederatedDataset
from fedwca.data.metrics import Metrics, mean
from fedwca.data.partition import Federation, partition
from fedwca.engine.protocol import Engine
from fedwca.engine.randomness import Keys, fold
from fedwca.experiments.checkpoint import Keeper, Nothing, Point
from fedwca.experiments.config import RunConfig
from fedwca.experiments.probe import clusterings, evidence
from fedwca.experiments.progress import NOBODY
from fedwca.experiments.progress import Progress as Progress
from fedwca.experiments.record import Cautions, accuracies, describe, neighbours
from fedwca.experiments.share import Share
from fedwca.results.checkpoints import Unit
from fedwca.round import Method, Server, begin, play


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
    progress: Progress = NOBODY,
    keeper: Keeper | None = None,
    share: Share | None = None,
) -> Iterator[dict[str, Any]]:
    """Run every method for every source model and trial; one record a round, as it ends.

    Args:
        config: what to run.
        methods: with their rounds, see `fedwca.experiments.compose.compose`.
        dataset: see `fedwca.experiments.setup.load`.
        source: name of the source domain.
        progress: told how far it is.
        keeper: keeps a point after each record was taken, and says where an earlier process stopped.
        share: what this process does of it; None: all.
    """
    keeper, share = keeper or Nothing(), share or Share()
    caution = Cautions(progress.warn, keeper.told)
    federations = [(index, trial) for index in range(config.source_models) for trial in range(config.trials)]
    left = {
        at: [(method, rounds) for method, rounds in methods if not keeper.finished(Unit(*at, method.name), rounds)]
        for at in federations
    }
    progress.earlier(len(federations) * sum(r for _, r in methods) - sum(r for some in left.values() for _, r in some))
    models = share.models(config, dataset, source, progress.source) if any(left.values()) else []
    mine = share.mine({Unit(*at, method.name): rounds for at, some in left.items() for method, rounds in some})
    for number, ((index, trial), some) in enumerate(left.items(), 1):
        if not any(Unit(index, trial, method.name) in mine for method, _ in some):
            continue
        model, federation = models[index], draw(config, dataset, source, index, trial)
        engine, keys = share.engine(config, model.network, federation.clients), Keys(config.seed + index, trial)
        for method, rounds in some:
            if (unit := Unit(index, trial, method.name)) not in mine:
                continue
            tag = {"method": method.name, "source_model": index, "trial": trial}
            label = method.label if len(left) == 1 else f"{method.label}, run {number} of {len(left)}"
            progress.begin(label, rounds, len(federation))
            point, accuracy = keeper.restore(unit, engine, model.digest), math.nan
            if point is None:
                point = Point(-1, begin(engine))
                first = accuracies(federation.metrics, engine)
                accuracy = mean(first)
                home = {"source_accuracy": model.accuracy, "source_digest": model.digest}
                yield {**tag, "round": -1, "accuracy": first, **home}
                keeper.save(unit, point, engine, model.digest, last=rounds == 0)
            if point.round >= 0:
                progress.earlier(point.round + 1)
            for record, after in federate(
                config, method, rounds, engine, federation.metrics, point, keys, caution, progress
            ):
                accuracy = mean(record["accuracy"])
                yield {**tag, **record}
                keeper.save(unit, after, engine, model.digest, last=after.round == rounds - 1)
            progress.end(label, accuracy)


def federate(
    config: RunConfig,
    method: Method,
    rounds: int,
    engine: Engine,
    metrics: Metrics,
    point: Point,
    keys: Keys,
    caution: Cautions,
    progress: Progress,
) -> Iterator[tuple[dict[str, Any], Point]]:
    """One method on one federation, from a point on: a record a round, and the point after it."""
    server = point.server
    for number in range(point.round + 1, rounds):
        started = time.perf_counter()
        domains, share = metrics.domain_labels(), config.participation
        server, outcome = play(number, server, method, engine, config.training, keys, domains, share, progress.client)
        # Laid out as a checkpoint gives them back: a sum's order may depend on strides.
        state = {name: value.contiguous() for name, value in server.state.items()}
        server = Server(server.rows.contiguous(), state, server.source)
        trained = time.perf_counter()
        local = accuracies(metrics, engine, clients=list(outcome.uploads))
        accuracy = accuracies(metrics, engine, method.aggregator.deliver(server.state, len(server.rows)), server.rows)
        evaluated = time.perf_counter()
        record = {
            "round": number,
            "accuracy": accuracy,
            "accuracy_local": local,
            **describe(outcome, method, metrics, engine, first=number == 0),
        }
        if number == 0 and method.aggregator.partition == "given":
            record["clustering"] |= neighbours(method, engine, server.source)
        if number == 0 and config.probes:
            record["probes"] = clusterings(config.probes, engine, server.source, metrics, keys)
        if number == rounds - 1 and config.evidence:
            record["evidence"] = evidence(server, method, engine, config.training)
        ended = time.perf_counter()
        record["seconds"] |= {
            "round": trained - started,
            "evaluate": evaluated - trained,
            "record": ended - evaluated,
        }
        caution(record, outcome, method)
        progress.round(number + 1, mean(accuracy))
        yield record, Point(number, server, outcome.labels)
