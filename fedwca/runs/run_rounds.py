"""Runs the rounds of one method on several federations together; yields each round's record and the state after it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedwca.config.run_config import RunConfig
from fedwca.core.mean import mean
from fedwca.core.training_settings import Training
from fedwca.data.metrics import Metrics
from fedwca.engine.interface import Engine, TrialsInTurn
from fedwca.engine.randomness import Keys
from fedwca.errors import Diverged
from fedwca.federated.aggregator_weights import deliver_mixtures
from fedwca.federated.close_round import Outcome, close_round
from fedwca.federated.last_phase import close_last_phase, final_models, measure_shift, open_last_phase
from fedwca.federated.method import Method
from fedwca.federated.open_round import OpenRound, open_round
from fedwca.federated.public_images import learn_from_predictions, upload_predictions
from fedwca.federated.server import Server
from fedwca.federated.simulated_uploads import SimulatedUpload
from fedwca.results.diverged_runs import DIVERGED
from fedwca.runs.records.measure_delivered import (
    DeliveredModels,
    check_finite_outputs,
    describe_steps_made,
    list_accuracies,
    measure_delivered,
    step_size,
)
from fedwca.runs.records.measure_newcomers import Newcomers, describe_accuracies
from fedwca.runs.records.nearest_clients import nearest_clients
from fedwca.runs.records.round_diagnostics import cluster_by_probes, measure_evidence
from fedwca.runs.records.round_record import describe_last_phase, describe_predictions, describe_round, split_accuracies
from fedwca.runs.records.round_warnings import WarnOnce
from fedwca.runs.reporter import Progress
from fedwca.runs.resuming.checkpointer import RoundState
from fedwca.runs.watch_draws import watch_draws


@dataclass(frozen=True)
class Trial:
    """One federation without its engine."""

    metrics: Metrics
    keys: Keys
    """The federation's source of random numbers."""
    newcomers: Newcomers | None = None
    """Clients that join after training; None if there are none."""
    public: Engine | None = None
    """Engine that holds the public images for each client; None if the method does not use them."""

    def test_images(self) -> list[int]:
        """Number of test images of each client, newcomers last."""
        return self.metrics.test_images() + (self.newcomers.metrics.test_images() if self.newcomers else [])

    def record_divergence(self, round: int, error: Diverged) -> dict[str, Any]:
        """The record of a round in which training diverged."""
        return {"round": round, "accuracy": [math.nan] * len(self.test_images()), DIVERGED: str(error)}

    def describe(
        self,
        delivered: DeliveredModels,
        method: Method,
        server: Server,
        lr: float | None,
        training: Training,
        round: int = 0,
    ) -> dict[str, Any]:
        """The record's entries on test predictions and on test-time adaptation.

        Args:
            delivered: models delivered to the engine's clients.
            method: the method.
            server: gives the newcomers' models.
            lr: learning rate of adaptation steps; None: no adaptation.
            training: the run's training settings, unless the method has its own.
            round: the round whose learning rates are used.
        """
        if self.newcomers is None:
            counted = {k: predicted for k, predicted in enumerate(delivered.predictions) if self.metrics.counted[k]}
            accuracies = split_accuracies(self.metrics, list_accuracies(self.metrics, delivered.predictions))
            return {**accuracies, **describe_predictions(self.metrics, counted), **describe_steps_made(delivered)}
        newcomer_models = self.newcomers.measure(method, server, lr, training, round, self.keys)
        newcomer_metrics = self.newcomers.metrics
        accuracies = describe_accuracies(
            list_accuracies(self.metrics, delivered.predictions),
            list_accuracies(newcomer_metrics, newcomer_models.predictions),
        )
        counted = dict(enumerate(newcomer_models.predictions))
        return {
            **accuracies,
            **describe_predictions(newcomer_metrics, counted),
            **describe_steps_made(delivered, newcomer_models),
        }


def run_rounds(
    config: RunConfig,
    method: Method,
    rounds: int,
    engines: TrialsInTurn,
    trials: Sequence[Trial],
    states: Mapping[int, RoundState],
    caution: WarnOnce,
    progress: Progress,
) -> Iterator[tuple[int, dict[str, Any], RoundState | None]]:
    """Run the remaining rounds; federations that are behind the others catch up first.

    Args:
        config: training settings and participation.
        method: the method.
        rounds: number of rounds.
        engines: one for each federation.
        trials: one for each federation.
        states: state of each federation after its last finished round, by index.
        caution: checks every record and warns.
        progress: called after every round.

    Yields:
        (index of the federation, record, state after the round). The state is None in the record of a federation that
        diverged; it is run no further, while the others continue.
    """
    states, subject = dict(states), f"{method.label}: a part of it"
    while waiting := [i for i, state in states.items() if state.round < rounds - 1]:
        number = min(states[i].round for i in waiting) + 1
        active = [i for i in waiting if states[i].round == number - 1]
        started = time.perf_counter()
        last_phase = method.is_last_phase(number, rounds)
        with watch_draws(subject, caution.told):
            opened = {
                i: begin_round(
                    config, number, last_phase, states[i].server, method, engines.engines[i], trials[i], progress
                )
                for i in active
            }
            uploads = engines.run(opened)
        # The joint time is divided evenly, so that the seconds of all records add up to the elapsed time.
        joint_seconds = (time.perf_counter() - started) / len(active)
        mean_accuracies: list[float] = []
        for i in active:
            trial_started = time.perf_counter()
            try:
                with watch_draws(subject, caution.told):
                    server, outcome = end_round(opened[i], uploads.pop(i), trials[i])
                    # Contiguous, as when read from a checkpoint: the order of a sum may depend on strides.
                    server_state = {name: value.contiguous() for name, value in server.state.items()}
                    server = Server(server.rows.contiguous(), server_state, server.source)
                    round_seconds = joint_seconds + time.perf_counter() - trial_started
                    clients = len(opened[i].engine.images)
                    delivery = deliver_mixtures(method.aggregator, server.state, len(server.rows), clients)
                    record = record_round(config, rounds, opened[i], server, delivery, outcome, trials[i])
            except Diverged as error:
                del states[i]
                progress.skipped_rounds(rounds - number, 0)  # these rounds are not run
                yield i, trials[i].record_divergence(number, error), None
                continue
            record["seconds"]["round"] = round_seconds
            caution(record, outcome, method, trials[i].metrics.domains)
            states[i] = RoundState(
                number, server, outcome.labels, delivery, opened[i].unlabeled if last_phase else None
            )
            mean_accuracies.append(mean(record["accuracy"]))
            yield i, record, states[i]
        if mean_accuracies:
            progress.other_rounds(len(mean_accuracies) - 1)
            progress.round_done(number + 1, mean(mean_accuracies))


def measure_start(
    trial: Trial, engine: Engine, method: Method, server: Server, training: Training, rounds: int
) -> dict[str, Any]:
    """The record's entries on test predictions before the first round.

    For a method without rounds, its test-time adaptation is applied first.

    Raises:
        Diverged: outputs of a model are not finite.
    """
    lr = None if rounds else step_size(method, training, 0)
    if lr is None:
        predictions = engine.predict_tests()
        # A source model that is trained here is checked on held-out images; other ones, nothing here makes better.
        option = "central_training.lr" if method.central is not None else None
        check_finite_outputs(predictions, "the model before the first round", option)
        return trial.describe(DeliveredModels(predictions), method, server, None, training)
    weights = torch.ones(len(engine.images), 1, dtype=torch.float64)
    delivered = measure_delivered(method, engine, trial.metrics, weights, server.rows, lr)
    return trial.describe(delivered, method, server, lr, training)


def begin_round(
    config: RunConfig,
    number: int,
    last_phase: bool,
    server: Server,
    method: Method,
    engine: Engine,
    trial: Trial,
    progress: Progress,
) -> OpenRound:
    """Open a round on the server, or the last phase in its place."""
    domains = trial.metrics.domain_labels()
    if last_phase:
        return open_last_phase(number, server, method, engine, trial.keys, domains, progress.client_done)
    training = method.training_in(config.training)
    round_args = (server, method, engine, training, trial.keys, domains, config.participation)
    opened = open_round(number, *round_args, done=progress.client_done)
    return opened if trial.public is None else learn_from_predictions(opened, trial.public)


def end_round(opened: OpenRound, uploads: Sequence[SimulatedUpload], trial: Trial) -> tuple[Server, Outcome]:
    """Close a round, or the last phase, on the server; returns its new state and the outcome.

    Raises:
        Diverged: a client's model or a server row has values that are not finite.
    """
    if trial.public is not None:
        uploads = upload_predictions(opened, trial.public, uploads)
    return close_last_phase(opened, uploads) if opened.last_phase else close_round(opened, uploads)


def record_round(
    config: RunConfig,
    rounds: int,
    opened: OpenRound,
    server: Server,
    delivery: Tensor,
    outcome: Outcome,
    trial: Trial,
) -> dict[str, Any]:
    """The record of a round: accuracies of the models in ``delivery [K, R]``, training, communication, diagnostics.

    Raises:
        Diverged: outputs of a delivered model are not finite.
    """
    number, method, engine = opened.round, opened.method, opened.engine
    metrics, started = trial.metrics, time.perf_counter()
    participants = list(outcome.uploads)
    local_predictions = dict(zip(participants, engine.predict_tests(clients=participants), strict=True))
    lr = step_size(method, config.training, number)
    delivered = measure_delivered(method, engine, metrics, delivery, server.rows, lr)
    if opened.last_phase:  # clients that adapted end with their own model
        check_finite_outputs(list(local_predictions.values()), "a client's model", "finish_training.lr")
        delivered = DeliveredModels([local_predictions.get(k, own) for k, own in enumerate(delivered.predictions)])
    test_results = trial.describe(delivered, method, server, lr, config.training, number)
    evaluated_at = time.perf_counter()
    described = describe_round(outcome, method, metrics, engine, first=number == 0)
    record = {
        "round": number,
        **test_results,
        "accuracy_local": [
            metrics.accuracy(k, local_predictions[k].classes) if k in local_predictions else math.nan
            for k in range(len(metrics))
        ],
        **(describe_last_phase(described, measure_shift(opened), opened.trusted) if opened.last_phase else described),
    }
    if number == 0 and method.aggregator.grouping.needs_clusterer:
        record["clustering"] |= nearest_clients(method, engine, server.source)
    if number == 0 and config.probes:
        record["probes"] = cluster_by_probes(config.probes, engine, server.source, metrics, trial.keys)
    if number == rounds - 1 and config.evidence:
        models = final_models(method, server, engine) if opened.last_phase else None
        record["evidence"] = measure_evidence(server, method, engine, config.training, models)
    record["seconds"] |= {"evaluate": evaluated_at - started, "record": time.perf_counter() - evaluated_at}
    return record
