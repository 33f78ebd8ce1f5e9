"""Predictions of a run's final models, from which its pictures are drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from fedwca.core.count_of import count_of
from fedwca.core.messages import Predictions
from fedwca.engine.class_predictions import classify_logits
from fedwca.engine.cpu_cores import limit_to_one_thread
from fedwca.engine.precision import matmul_precision
from fedwca.engine.sequential.replica import Replica
from fedwca.errors import FedwcaError
from fedwca.results.describe_run import data_and_domain
from fedwca.results.pictures.final_models import Models
from fedwca.results.trial_key import TrialKey
from fedwca.runs.open_run import open_run
from fedwca.runs.opened_run import OpenedRun
from fedwca.runs.records.measure_delivered import step_size
from fedwca.runs.resources.select_engine import choose_engine, config_of_method


def predict_for_pictures(
    run: Path, method: str | None = None, source_model: int = 0, trial: int = 0, *, download: bool = True
) -> Models:
    """Test images of every client, with the outputs of the source model and of the client's final model.

    Args:
        run: run folder, or its name in ``runs/``.
        method: name of a method of the run; None: the composed one.
        source_model: index of the source model, from 0.
        trial: index of the trial, from 0.
        download: as for `fedwca.runs.open_run.open_run`.

    Raises:
        FedwcaError: see `fedwca.runs.open_run.open_run` and `evaluated_models`.
    """
    opened = open_run(run, method, source_model, trial, download=download)
    metrics, clients = opened.federation.metrics, opened.federation.clients
    replica = Replica(opened.network.to(opened.bank.device), opened.layout)

    def predict(row: Tensor, images: Tensor) -> Predictions:
        if not len(images):
            return Predictions(torch.zeros(0, len(opened.classes)), torch.zeros(0, opened.network.features))
        replica.bind(row)
        return replica.predict(images.to(row.device))

    with limit_to_one_thread(), matmul_precision("fp32", opened.bank.device):
        source_predictions = [predict(opened.server.source, client.test) for client in clients]
        final_predictions = [
            predict(row, client.test) for row, client in zip(evaluated_models(opened), clients, strict=True)
        ]
    config, classified = opened.config, [classify_logits(outputs.logits) for outputs in final_predictions]
    dataset_text = data_and_domain(config.model_dump(), opened.dataset_name)
    rounds = count_of(opened.round + (not opened.in_last_phase), "round")
    rounds += " and the last phase" if opened.in_last_phase else ""
    title = (
        f"{opened.label} after {rounds}: {dataset_text}, seed {config.seed}; source model {source_model}, trial {trial}"
    )
    image_kind = "test image"
    if opened.about.get("newcomers"):
        image_kind = "validation image"
        title += "; training clients' validation images"
    return Models(
        title=title,
        classes=opened.classes,
        domains=metrics.domains,
        labels=opened.labels.tolist(),
        images=[client.test.permute(0, 2, 3, 1).numpy() for client in clients],
        truth=[metrics.test_truth(k).numpy() for k in range(len(clients))],
        predicted=[predictions.classes.numpy() for predictions in classified],
        confidences=[predictions.confidences.numpy() for predictions in classified],
        before=[p.features.cpu().numpy() for p in source_predictions],
        after=[p.features.cpu().numpy() for p in final_predictions],
        image_kind=image_kind,
    )


def evaluated_models(opened: OpenedRun) -> Iterator[Tensor]:
    """The model ``[P]`` of each client that tables evaluate: as delivered, or after the method's test-time adaptation.

    Raises:
        FedwcaError: images or components that the adaptation needs are missing.
    """
    parts = opened.about["methods"][opened.unit.method]["components"]
    unfinished_start = opened.round < 0 < opened.rounds
    if unfinished_start or all(part["kind"] != "adaptation" for part in parts):
        yield from opened.delivered
        return
    method, config, clients = opened.method, opened.config, opened.federation.clients
    adaptation, lr = method.adaptation, step_size(method, config.training, max(0, opened.round))
    assert adaptation is not None
    assert lr is not None
    engine = choose_engine(config_of_method(config, method), opened.network, clients)
    engine.bank.copy_(opened.delivered)
    for client in range(len(clients)):
        (adapted,) = engine.adapt(adaptation, lr, clients=[client])
        yield adapted.model


def lazy_predictions(run: Path, method: str | None, trial: TrialKey, *, download: bool = True) -> Callable[[], Models]:
    """A function that returns the models of a run's pictures, see `predict_for_pictures`.

    The run is opened once, at the first call. An error at that call is raised again at every later one.
    """

    @cache
    def load() -> Models | FedwcaError:
        try:
            return predict_for_pictures(run, method, *trial, download=download)
        except FedwcaError as error:
            return error

    def load_or_raise() -> Models:
        result = load()
        if isinstance(result, FedwcaError):
            raise result
        return result

    return load_or_raise
