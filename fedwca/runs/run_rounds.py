"""One method on federations that go through its rounds together: a record a round of each, and the point after it."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from fedwca.config.run_config import RunConfig
from fedwca.core.mean import mean
from fedwca.core.training_settings import Training
from fedwca.data.metrics import Metrics
from fedwca.engine.interface import Engine, TrialsInTurn
from fedwca.engine.randomness import Keys
from fedwca.errors import Diverged
from fedwca.federated.aggregator_weights import deliver_mixtures
from fedwca.federated.last_phase import close_last_phase, final_models, measure_shift, open_last_phase
from fedwca.federated.method import Method
from fedwca.federated.public_images import learn_from_predictions, upload_predictions
from fedwca.federated.round import OpenRound, Outcome, close_round, open_round
from fedwca.federated.server import Server
from fedwca.federated.simulated_uploads import SimulatedUpload
from fedwca.federated.upload_checks import finite_models
from fedwca.results.diverged_runs import DIVERGED
from fedwca.runs.checkpointer import RoundState
from fedwca.runs.measure_delivered import (
    DeliveredModels,
    describe_steps_made,
    list_accuracies,
    measure_delivered,
    step_size,
)
from fedwca.runs.measure_newcomers import Newcomers, describe_accuracies
from fedwca.runs.nearest_clients import nearest_clients
from fedwca.runs.reporter import Progress
from fedwca.runs.round_diagnostics import cluster_layers, measure_evidence
from fedwca.runs.round_record import describe_last_phase, describe_predictions, describe_round, split_accuracies
from fedwca.runs.round_warnings import WarnOnce


@dataclass(frozen=True)
class Trial:
    """What belongs to one federation besides its engine."""

    metrics: Metrics
    keys: Keys
    """Where its random numbers come from."""
    newcomers: Newcomers | None = None
    """Clients that come when training is over; None where there are none."""
    public: Engine | None = None
    """Has the public images for each client, where the method learns from them."""

    def test_images(self) -> list[int]:
        """Images that each client is measured on, newcomers last."""
        return self.metrics.test_images() + (self.newcomers.metrics.test_images() if self.newcomers else [])

    def record_divergence(self, round: int, error: Diverged) -> dict[str, Any]:
        """What is written down of a round in which training diverged: that it did."""
        return {"round": round, "accuracy": [math.nan] * len(self.test_images()), DIVERGED: str(error)}

    def describe(
        self,
        own: DeliveredModels,
        method: Method,
        server: Server,
        lr: float | None,
        training: Training,
        round: int = 0,
    ) -> dict[str, Any]:
        """What predictions of test images are like, as a record has it, and what an adaptation's steps did.

        Args:
            own: of the clients in the engine.
            method: what was played.
            server: whose models newcomers get.
            lr: size of an adaptation's steps; None: none are made.
            training: how clients train, unless the method says it.
            round: in whose learning rates.
        """
        if self.newcomers is None:
            counted = {k: said for k, said in enumerate(own.said) if self.metrics.counted[k]}
            accuracies = split_accuracies(self.metrics, list_accuracies(self.metrics, own.said))
            return {**accuracies, **describe_predictions(self.metrics, counted), **describe_steps_made(own)}
        new, later = self.newcomers.measure(method, server, lr, training, round, self.keys), self.newcomers.metrics
        accuracies = describe_accuracies(list_accuracies(self.metrics, own.said), list_accuracies(later, new.said))
        counted = dict(enumerate(new.said))
        return {**accuracies, **describe_predictions(later, counted), **describe_steps_made(own, new)}


def run_rounds(
    config: RunConfig,
    method: Method,
    rounds: int,
    engines: TrialsInTurn,
    trials: Sequence[Trial],
    points: Mapping[int, RoundState],
    caution: WarnOnce,
    progress: Progress,
) -> Iterator[tuple[int, dict[str, Any], RoundState | None]]:
    """Play the rounds that are left; those that are behind catch up first.

    Args:
        config: how clients train and how many take part.
        method: what is played.
        rounds: how many.
        engines: one for each federation.
        trials: by federation.
        points: where each of them stands.
        caution: looks at every record.
        progress: told of every round.

    Yields:
        (federation, record, point after it); no point after the last record of one that diverged, whose rounds end
        there while the others' go on.
    """
    points, told = dict(points), set[str]()
    while waiting := [i for i, point in points.items() if point.round < rounds - 1]:
        number = min(points[i].round for i in waiting) + 1
        here = [i for i in waiting if points[i].round == number - 1]
        started = time.perf_counter()
        last_phase = method.is_last_phase(number, rounds)
        with watch_draws(method, told):
            opened = {
                i: begin_round(
                    config, number, last_phase, points[i].server, method, engines.engines[i], trials[i], progress
                )
                for i in here
            }
            uploads = engines.run(opened)
        # What they did together is shared out evenly, so that the seconds of all records add up to the clock's.
        spent = (time.perf_counter() - started) / len(here)
        accuracies_here: list[float] = []
        for i in here:
            began = time.perf_counter()
            try:
                with watch_draws(method, told):
                    server, outcome = end_round(opened[i], uploads.pop(i), trials[i])
            except Diverged as error:
                del points[i]
                progress.earlier(rounds - number, 0)  # nobody does them
                yield i, trials[i].record_divergence(number, error), None
                continue
            # Laid out as a checkpoint gives them back: a sum's order may depend on strides.
            state = {name: value.contiguous() for name, value in server.state.items()}
            server = Server(server.rows.contiguous(), state, server.source)
            spent_here = spent + time.perf_counter() - began
            record = record_round(config, rounds, opened[i], server, outcome, trials[i])
            record["seconds"]["round"] = spent_here
            caution(record, outcome, method)
            delivery = deliver_mixtures(method.aggregator, server.state, len(server.rows))
            points[i] = RoundState(
                number, server, outcome.labels, delivery, opened[i].unlabeled if last_phase else None
            )
            accuracies_here.append(mean(record["accuracy"]))
            yield i, record, points[i]
        if accuracies_here:
            progress.elsewhere(len(accuracies_here) - 1)
            progress.round(number + 1, mean(accuracies_here))


@contextmanager
def watch_draws(method: Method, told: set[str]) -> Iterator[None]:
    """Say once that a method is not decided by the seed; of draws on the CPU, others are not looked for.

    Args:
        method: is at work inside.
        told: names of methods of which it has been said.

    Warns:
        UserWarning: names the method.
    """
    before = torch.get_rng_state()
    yield
    if method.name not in told and not torch.equal(torch.get_rng_state(), before):
        told.add(method.name)
        warnings.warn(
            f"{method.label}: a part of it draws from torch's own random numbers, which --seed does not decide, so the "
            "same command may give other numbers; use the draws that parts are given",
            stacklevel=3,
        )


def measure_start(
    trial: Trial, engine: Engine, method: Method, server: Server, training: Training, rounds: int
) -> dict[str, Any]:
    """What predictions are like before the first round, as a record has it; where there is none, after the steps of the
    method's adaptation.
    """
    lr = None if rounds else step_size(method, training, 0)
    if lr is None:
        return trial.describe(DeliveredModels(engine.predict_tests()), method, server, None, training)
    everybody = torch.ones(len(engine.images), 1, dtype=torch.float64)
    own = measure_delivered(method, engine, trial.metrics, everybody, server.rows, lr)
    return trial.describe(own, method, server, lr, training)


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
    """A round as the server begins it, or the last phase in the place of one."""
    domains = trial.metrics.domain_labels()
    if last_phase:
        return open_last_phase(number, server, method, engine, trial.keys, domains, progress.client)
    training = method.training_in(config.training)
    given = (server, method, engine, training, trial.keys, domains, config.participation)
    opened = open_round(number, *given, done=progress.client)
    return opened if trial.public is None else learn_from_predictions(opened, trial.public)


def end_round(opened: OpenRound, uploads: Sequence[SimulatedUpload], trial: Trial) -> tuple[Server, Outcome]:
    """A round, or the last phase, as the server ends it.

    Raises:
        Diverged: a client's model, or the server's, has values that are not finite.
    """
    if trial.public is not None:
        uploads = upload_predictions(opened, trial.public, uploads)
    server, outcome = close_last_phase(opened, uploads) if opened.last_phase else close_round(opened, uploads)
    if not bool(finite_models(server.rows).all()):
        raise Diverged("the server's model has values that are not finite; a lower --lr may help")
    return server, outcome


def record_round(
    config: RunConfig, rounds: int, opened: OpenRound, server: Server, outcome: Outcome, trial: Trial
) -> dict[str, Any]:
    """What is written down of a round: accuracies, what was done, and looks that decide nothing."""
    number, method, engine = opened.round, opened.method, opened.engine
    metrics, began = trial.metrics, time.perf_counter()
    asked = list(outcome.uploads)
    local = dict(zip(asked, engine.predict_tests(clients=asked), strict=True))
    delivery, lr = (
        deliver_mixtures(method.aggregator, server.state, len(server.rows), len(engine.images)),
        step_size(method, config.training, number),
    )
    own = measure_delivered(method, engine, metrics, delivery, server.rows, lr)
    if opened.last_phase:  # who adapted has a model of its own
        own = DeliveredModels([local.get(k, said) for k, said in enumerate(own.said)])
    shown = trial.describe(own, method, server, lr, config.training, number)
    evaluated = time.perf_counter()
    described = describe_round(outcome, method, metrics, engine, first=number == 0)
    record = {
        "round": number,
        **shown,
        "accuracy_local": [
            metrics.accuracy(k, local[k].classes) if k in local else math.nan for k in range(len(metrics))
        ],
        **(describe_last_phase(described, measure_shift(opened)) if opened.last_phase else described),
    }
    if number == 0 and method.aggregator.grouping.needs_clusterer:
        record["clustering"] |= nearest_clients(method, engine, server.source)
    if number == 0 and config.probes:
        record["probes"] = cluster_layers(config.probes, engine, server.source, metrics, trial.keys)
    if number == rounds - 1 and config.evidence:
        models = final_models(method, server, engine, True) if opened.last_phase else None
        record["evidence"] = measure_evidence(server, method, engine, config.training, models)
    record["seconds"] |= {"evaluate": evaluated - began, "record": time.perf_counter() - evaluated}
    return record
