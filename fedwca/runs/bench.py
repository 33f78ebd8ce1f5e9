"""The bench: source models, splits, methods and rounds, each recorded as it comes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from fedwca.data.dataset import FederatedDataset
from fedwca.data.metrics import mean
from fedwca.data.partition import Federation, partition
from fedwca.engine.randomness import Keys, fold_key
from fedwca.runs.round_state import Checkpointer, NoCheckpointer, RoundState
from fedwca.config.run_config import RunConfig
from fedwca.runs.rounds import Trial, run_rounds
from fedwca.runs.progress import NOBODY
from fedwca.runs.progress import Progress as Progress
from fedwca.runs.record import WarnOnce, count_accuracies
from fedwca.runs.schedule import Schedule
from fedwca.results.checkpoints import Unit
from fedwca.federated.method import Method
from fedwca.federated.round import init_server
from fedwca.federated.source_model import TrainedSource


def split_trial(config: RunConfig, dataset: FederatedDataset, source: str, index: int, trial: int) -> Federation:
    """The clients of one trial; the same for every method.

    Raises:
        UsageError: more clients than images.
    """
    seed = fold_key([config.seed + index, trial, "partition"]) >> 1
    return partition(dataset, source, clients=config.clients, samples=config.samples, seed=seed)


def run_bench(
    config: RunConfig,
    methods: list[tuple[Method, int]],
    dataset: FederatedDataset,
    source: str,
    progress: Progress = NOBODY,
    keeper: Checkpointer | None = None,
    share: Schedule | None = None,
) -> Iterator[dict[str, Any]]:
    """Run every method for every source model and trial; one record a round, as it ends.

    Args:
        config: what to run.
        methods: with their rounds, see `fedwca.config.methods.compose`.
        dataset: see `fedwca.runs.setup.load`.
        source: name of the source domain.
        progress: told how far it is.
        keeper: keeps a point after each record was taken, and says where an earlier process stopped.
        share: what this process does of it; None: all.
    """
    keeper, share = keeper or NoCheckpointer(), share or Schedule()
    caution = WarnOnce(progress.warn, keeper.told)
    federations = [(index, trial) for index in range(config.source_models) for trial in range(config.trials)]
    left = {
        at: [(method, rounds) for method, rounds in methods if not keeper.finished(Unit(*at, method.name), rounds)]
        for at in federations
    }
    finished = len(federations) * sum(r for _, r in methods) - sum(r for some in left.values() for _, r in some)
    progress.earlier(finished, 0)
    if not any(left.values()):
        return
    models = share.models(config, dataset, source, progress.source)
    at_once = 1
    if len(federations) > 1:
        networks = [model.network for model in models]
        at_once = share.trials_at_once(config, networks, split_trial(config, dataset, source, 0, 0).clients)
    together = group_trials(federations, at_once)
    bundles = [
        {Unit(*at, method.name): rounds for at in group if (method, rounds) in left[at]}
        for group in together
        for method, rounds in methods
    ]
    mine = share.mine([bundle for bundle in bundles if bundle])
    for group in together:
        # What a group holds goes with the generator, before the next one's images and models are made.
        yield from _together(config, methods, dataset, source, group, federations, models, mine, progress, keeper,
                             share, caution)  # fmt: skip


def _together(
    config: RunConfig,
    methods: Sequence[tuple[Method, int]],
    dataset: FederatedDataset,
    source: str,
    group: Sequence[tuple[int, int]],
    federations: Sequence[tuple[int, int]],
    models: Sequence[TrainedSource],
    mine: set[Unit],
    progress: Progress,
    keeper: Checkpointer,
    share: Schedule,
    caution: WarnOnce,
) -> Iterator[dict[str, Any]]:
    """All methods on federations that go through rounds together; ``mine`` is what is to be done."""
    here = [at for at in group if any(Unit(*at, method.name) in mine for method, _ in methods)]
    if not here:
        return
    drawn = [split_trial(config, dataset, source, *at) for at in here]
    given = [(models[at[0]].network, federation.clients) for at, federation in zip(here, drawn, strict=True)]
    engines = share.engines(config, given)
    several = len(federations) > 1
    trials = [
        Trial(
            own.metrics, Keys(config.seed + index, trial), f"source model {index}, trial {trial}: " if several else ""
        )
        for (index, trial), own in zip(here, drawn, strict=True)
    ]
    for method, rounds in methods:
        units = {i: unit for i, at in enumerate(here) if (unit := Unit(*at, method.name)) in mine}
        if not units:
            continue
        label = f"{method.label}{_which(list(units.values()), federations)}"
        progress.begin(label, rounds, sum(len(drawn[i]) for i in units))
        points, accuracy = {}, dict.fromkeys(units, math.nan)
        for i, unit in units.items():
            model, engine = models[unit.source_model], engines.engines[i]
            point = keeper.restore(unit, engine, model.digest)
            if point is None:
                point = RoundState(-1, init_server(engine))
                first = count_accuracies(trials[i].metrics, engine)
                accuracy[i] = mean(first)
                home = {"source_accuracy": model.accuracy, "source_digest": model.digest}
                yield {**_tag(unit), "round": -1, "accuracy": first, **home}
                keeper.save(unit, point, engine, model.digest, last=rounds == 0)
            if point.round >= 0:
                progress.earlier(point.round + 1, len(drawn[i]))
            points[i] = point
        for i, record, after in run_rounds(config, method, rounds, engines, trials, points, caution, progress):
            unit, accuracy[i] = units[i], mean(record["accuracy"])
            yield {**_tag(unit), **record}
            # Who goes together keeps the point before the last until all have ended: it is where a run that is
            # stopped in between goes on with all of them.
            last = after.round == rounds - 1 and len(units) == 1
            keeper.save(unit, after, engines.engines[i], models[unit.source_model].digest, last)
        if len(units) > 1:
            for unit in units.values():
                keeper.end(unit)
        progress.end(label, mean(list(accuracy.values())))


def group_trials(federations: Sequence[tuple[int, int]], at_once: int) -> list[list[tuple[int, int]]]:
    """Federations (source model, trial) that go through rounds together.

    >>> group_trials([(0, 0), (0, 1), (1, 0)], 2)
    [[(0, 0), (0, 1)], [(1, 0)]]
    """
    return [list(federations[i : i + at_once]) for i in range(0, len(federations), at_once)]


def _tag(unit: Unit) -> dict[str, Any]:
    return {"method": unit.method, "source_model": unit.source_model, "trial": unit.trial}


def _which(units: Sequence[Unit], federations: Sequence[tuple[int, int]]) -> str:
    """Which runs of how many, for a progress line; nothing where there is only one."""
    numbers = [federations.index((unit.source_model, unit.trial)) + 1 for unit in units]
    if len(federations) == 1:
        return ""
    if len(numbers) == 1:
        return f", run {numbers[0]} of {len(federations)}"
    unbroken = numbers == list(range(numbers[0], numbers[-1] + 1))
    which = f"{numbers[0]} to {numbers[-1]}" if unbroken and len(numbers) > 2 else ", ".join(map(str, numbers))
    return f", runs {which} of {len(federations)}"
