"""Runs a bench: all methods on all source models and trials, with one record per round."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedwca.config.build_component import architecture, partition_of
from fedwca.config.run_config import RunConfig
from fedwca.core.mean import mean
from fedwca.core.network import Network
from fedwca.data.federation import Federation
from fedwca.engine.interface import Engine, TrialsInTurn
from fedwca.engine.randomness import Keys, fold_key
from fedwca.errors import Diverged
from fedwca.federated.extra_networks import changes_network, grow_network
from fedwca.federated.method import Method
from fedwca.federated.model_sizes import draw_sizes, untrained_rows
from fedwca.federated.public_images import holders_of
from fedwca.federated.round import init_server
from fedwca.federated.source_model import StartModel
from fedwca.results.diverged_runs import divergence_notes, find_divergences
from fedwca.results.shown_records import VALIDATION
from fedwca.results.trial_key import TrialKey
from fedwca.results.unit import Unit
from fedwca.runs.bench_units import group_trials, remaining_units, units_of
from fedwca.runs.central_models import central_model
from fedwca.runs.records.measure_newcomers import Newcomers, number_newcomers, prepare_fresh_models
from fedwca.runs.records.round_warnings import WarnOnce
from fedwca.runs.reporter import NO_PROGRESS, Progress
from fedwca.runs.resources.select_engine import config_of_method
from fedwca.runs.resuming.checkpointer import Checkpointer, RoundState
from fedwca.runs.run_rounds import Trial, measure_start, run_rounds
from fedwca.runs.split_trials import TrialSplits
from fedwca.runs.watch_draws import watch_draws
from fedwca.runs.work_schedule import Schedule


@dataclass(frozen=True)
class _Bench:
    """Everything that the methods, trials and rounds of a bench share."""

    config: RunConfig
    methods: Sequence[tuple[Method, int]]
    splits: TrialSplits
    trial_keys: Sequence[TrialKey]
    models: Sequence[StartModel]
    mine: set[Unit]
    """The units that this process runs."""
    progress: Progress
    checkpointer: Checkpointer
    schedule: Schedule
    caution: WarnOnce

    def run_group(self, group: Sequence[TrialKey]) -> Iterator[dict[str, Any]]:
        """Run all methods on trials that go through each round together; yields their records."""
        active_keys = [
            trial_key
            for trial_key in group
            if any(Unit(*trial_key, method.name) in self.mine for method, _ in self.methods)
        ]
        if not active_keys:
            return
        federations = [self.splits.take(*trial_key) for trial_key in active_keys]
        engines: TrialsInTurn | None = None
        trials: list[Trial] = []
        current_extras: Any = None
        for method, rounds in self.methods:
            units = {
                i: unit
                for i, trial_key in enumerate(active_keys)
                if (unit := Unit(*trial_key, method.name)) in self.mine
            }
            if not units:
                continue
            extras = ([part for part in method.trained if changes_network(part)], method.public_objective is not None)
            if engines is None or extras != current_extras:
                engines, trials, current_extras = None, [], extras  # frees the old engines before new ones are built
                networks = [self.grow(index, method) for index, _ in active_keys]
                config = config_of_method(self.config, method)
                clients = [federation.clients for federation in federations]
                engines = self.schedule.engines(config, list(zip(networks, clients, strict=True)))
                trials = [
                    self.trial(config, method, *parts) for parts in zip(active_keys, networks, federations, strict=True)
                ]
            yield from self.run_method(method, rounds, units, engines, trials)

    def trial(
        self, config: RunConfig, method: Method, trial_key: TrialKey, network: Network, federation: Federation
    ) -> Trial:
        """Build a trial, without its engine."""
        index = trial_key.source_model
        keys, clients = Keys(self.config.seed + index, trial_key.trial), len(federation.clients)
        fresh_models, public = None, None
        if method.public_objective is not None and (images := federation.public_images) is not None:
            new = number_newcomers(federation.newcomers)
            fresh_models = prepare_fresh_models(config, method, network, images, keys, clients, new)
            public = self.schedule.engines(config, [(network, holders_of(images, clients))]).engines[0]
        newcomers = Newcomers.of(config, network, federation.newcomers, fresh_models)
        return Trial(federation.metrics, keys, newcomers, public)

    def grow(self, index: int, method: Method, start: Network | None = None) -> Network:
        """The source model, or ``start`` in its place, with a method's extra networks."""
        network = self.models[index].network if start is None else start
        sizes = len(architecture(self.config).size_variants)
        return grow_network(network, method.trained, self.config.seed + index, sizes=sizes)

    def start_of(self, method: Method, label: str, unit: Unit, engine: Engine, trial: Trial) -> StartModel:
        """The model a method starts from: the run's, or one trained centrally, with ``label`` shown as its progress."""
        model = self.models[unit.source_model]
        if method.central is None:
            return model
        seed = fold_key([self.config.seed + unit.source_model, unit.trial, "central"]) >> 1
        report = partial(self.progress.central_epoch, label)
        return central_model(method.central, self.config, engine, trial.metrics, model, seed, report)

    def begin(
        self,
        method: Method,
        rounds: int,
        unit: Unit,
        engine: Engine,
        trial: Trial,
        model: StartModel,
        seconds: Mapping[str, float],
    ) -> tuple[RoundState, dict[str, Any]]:
        """The state of a unit before its first round, and the record of it with the ``seconds`` that passed so far."""
        start, initial_rows = self.grow(unit.source_model, method, model.network), None
        rows = untrained_rows(architecture(self.config), method.trained, start, self.config.seed + unit.source_model)
        clients = len(trial.metrics)
        if len(rows) > 1:  # one of each size
            initial_rows = rows[draw_sizes(trial.keys, range(clients), len(rows))]
        state = RoundState(-1, init_server(engine, start, initial_rows))
        with watch_draws(f"{method.label}: a part of it", self.caution.told):
            measured = measure_start(trial, engine, method, state.server, self.config.training, rounds)
        record = {
            **_tag(unit),
            "round": -1,
            **measured,
            "test_images": trial.test_images(),
            "train_images": engine.sizes.tolist(),
            "source_accuracy": model.accuracy,
            "source_digest": model.digest,
            "source_weights": model.weights,
        }
        if seconds:
            record["seconds"] = dict(seconds)
        if partition_of(self.config).has_skewed_clients:
            record["class_counts"] = trial.metrics.class_counts(len(self.splits.dataset.classes))
        return state, record

    def end_diverged(self, method: Method, unit: Unit, record: Mapping[str, Any]) -> dict[str, Any]:
        """The last record of a unit that diverged; also warns the user."""
        tagged = {**_tag(unit), **record}
        (sentence,) = divergence_notes({method.label: find_divergences([tagged])[method.name]})
        self.progress.warn(sentence)
        return tagged

    def run_method(
        self,
        method: Method,
        rounds: int,
        units: Mapping[int, Unit],
        engines: TrialsInTurn,
        trials: Sequence[Trial],
    ) -> Iterator[dict[str, Any]]:
        """Run one method; ``units`` are those to be run, by the index of their trial. Yields their records."""
        label = f"{method.label}{_which(list(units.values()), self.trial_keys)}"
        client_counts = {i: len(trials[i].metrics) for i in units}
        self.progress.method_start(label, rounds, sum(client_counts.values()))
        states, accuracy, models = {}, dict.fromkeys(units, math.nan), {}
        for i, unit in units.items():
            engine = engines.engines[i]
            start_record, started = None, time.perf_counter()
            try:
                models[i] = self.start_of(method, label, unit, engine, trials[i])
                central = {} if method.central is None else {"central": time.perf_counter() - started}
                state = self.checkpointer.restore(unit, engine, models[i])
                if state is None:
                    state, start_record = self.begin(method, rounds, unit, engine, trials[i], models[i], central)
            except Diverged as error:
                self.progress.skipped_rounds(rounds, 0)  # these rounds are not run
                yield self.end_diverged(method, unit, trials[i].record_divergence(-1, error))
                continue
            if start_record is not None:
                accuracy[i] = mean(start_record["accuracy"])
                yield start_record
                self.checkpointer.save(unit, state, engine, models[i], last=rounds == 0)
            if state.round >= 0:
                self.progress.skipped_rounds(state.round + 1, client_counts[i])
            states[i] = state
        results = run_rounds(self.config, method, rounds, engines, trials, states, self.caution, self.progress)
        for i, record, new_state in results:
            unit, accuracy[i] = units[i], mean(record["accuracy"])
            if new_state is None:
                yield self.end_diverged(method, unit, record)
                continue
            yield {**_tag(unit), **record}
            # Trials that run together keep their last but one checkpoint until all of them have ended, so that a run
            # that is stopped in between can resume all of them from there.
            last = new_state.round == rounds - 1 and len(units) == 1
            validation = mean(record.get(VALIDATION, ()))
            self.checkpointer.save(unit, new_state, engines.engines[i], models[i], last, validation)
        for unit in units.values():
            self.checkpointer.end(unit)
        self.progress.method_end(label, mean(list(accuracy.values())))


def run_bench(
    config: RunConfig,
    methods: Sequence[tuple[Method, int]],
    splits: TrialSplits,
    progress: Progress = NO_PROGRESS,
    checkpointer: Checkpointer | None = None,
    schedule: Schedule | None = None,
) -> Iterator[dict[str, Any]]:
    """Run every method for every source model and trial; yields one record per round as soon as the round ends.

    Args:
        config: what to run.
        methods: methods with their number of rounds, see `fedwca.config.compose_methods.compose`.
        splits: the clients of each trial.
        progress: callbacks for progress.
        checkpointer: saves the state after each record was consumed, and restores an earlier process's; None: neither.
        schedule: the part of the bench that this process runs; None: all of it.
    """
    checkpointer, schedule = checkpointer or Checkpointer(), schedule or Schedule()
    trial_keys = TrialKey.all_of(config.source_models, config.trials)
    remaining = remaining_units(config, methods, checkpointer.begun)
    progress.skipped_rounds(sum(units_of(config, methods).values()) - sum(remaining.values()), 0)
    if not remaining:
        return
    models = schedule.models(config, splits.dataset, splits.domain, progress.source_epoch)
    checkpointer.check_sources(models)
    at_once = 1
    if len(trial_keys) > 1:
        networks = [model.network for model in models]
        at_once = schedule.trials_at_once(config, networks, splits.first().clients)
    groups = group_trials(trial_keys, at_once)
    bundles = [
        {unit: rounds for trial_key in group if (unit := Unit(*trial_key, method.name)) in remaining}
        for group in groups
        for method, rounds in methods
    ]
    assigned_units = schedule.mine([bundle for bundle in bundles if bundle])
    if not any((unit.source_model, unit.trial) == trial_keys[0] for unit in assigned_units):
        splits.forget()
    caution = WarnOnce(progress.warn, checkpointer.told)
    bench = _Bench(
        config, methods, splits, trial_keys, models, assigned_units, progress, checkpointer, schedule, caution
    )
    for group in groups:
        # A group's images and models are freed with its generator, before the next group's are built.
        yield from bench.run_group(group)


def _tag(unit: Unit) -> dict[str, Any]:
    return {"method": unit.method, "source_model": unit.source_model, "trial": unit.trial}


def _which(units: Sequence[Unit], trial_keys: Sequence[TrialKey]) -> str:
    """Text for a progress label, such as ``, run 1 of 3``; empty if there is a single run."""
    numbers = [trial_keys.index((unit.source_model, unit.trial)) + 1 for unit in units]
    if len(trial_keys) == 1:
        return ""
    if len(numbers) == 1:
        return f", run {numbers[0]} of {len(trial_keys)}"
    consecutive = numbers == list(range(numbers[0], numbers[-1] + 1))
    numbers_text = (
        f"{numbers[0]} to {numbers[-1]}" if consecutive and len(numbers) > 2 else ", ".join(map(str, numbers))
    )
    return f", runs {numbers_text} of {len(trial_keys)}"
