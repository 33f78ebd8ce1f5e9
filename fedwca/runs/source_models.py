"""Source models of a run: trained in parallel threads, read from the cache, or loaded from a checkpoint."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from fedwca.config.build_component import architecture, partition_of
from fedwca.config.run_config import RunConfig
from fedwca.data.dataset import FederatedDataset
from fedwca.engine.cpu_cores import count_cores, limit_to_one_thread
from fedwca.federated.source_model import StartModel, initial_model, load_source, pretrain
from fedwca.runs.resources.choose_device import resolve_device

Tell = Callable[[int, int, float], None]


def source_models(
    config: RunConfig,
    dataset: FederatedDataset,
    domain: str | None,
    progress: Tell,
    chosen: Sequence[int] | None = None,
) -> list[StartModel]:
    """The source models in order, trained in parallel with at most one thread per core.

    Args:
        config: number of source models and their training settings.
        dataset: holds the source domain, if there is one.
        domain: name of the source or target domain; None if there is none.
        progress: called with (epochs done, epochs, held-out accuracy in percent); epochs are summed over source models.
        chosen: indices of the source models; None: all.
    """
    chosen = range(config.source_models) if chosen is None else chosen
    count, total = config.source_models, config.source_models * config.source_training.epochs
    epochs_done, stop = [0] * count, threading.Event()

    def train(index: int) -> StartModel:
        def report(epoch: int, epochs: int, accuracy: float) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            epochs_done[index] = epoch
            progress(sum(epochs_done), total, accuracy)

        return source_model(config, dataset, domain, index, report)

    # On a GPU, training in parallel saves no time and only needs more memory.
    workers = min(len(chosen), count_cores()) if resolve_device(config.device) == "cpu" else 1
    with limit_to_one_thread(), ThreadPoolExecutor(max(1, workers)) as pool:
        try:
            return list(pool.map(train, chosen))
        except BaseException:
            # Ctrl-C or a failure: the other threads stop after their current epoch.
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def source_model(
    config: RunConfig,
    dataset: FederatedDataset,
    domain: str | None,
    index: int,
    progress: Tell = lambda epoch, epochs, accuracy: None,
) -> StartModel:
    """The index-th source model: trained, read from the cache, or loaded from the user's checkpoint.

    If clients train the whole network, it is an untrained model or the user's checkpoint.
    """
    model = architecture(config)
    device, trains_classifier = resolve_device(config.device), partition_of(config).trains_classifier
    if config.checkpoint is not None:
        return load_source(config.checkpoint, dataset.classes, model, device, trains_classifier)
    seed = config.seed + index
    if trains_classifier:
        return initial_model(dataset.classes, model, seed, device)
    assert domain is not None
    return pretrain(dataset.domains[domain], dataset.classes, model, config.source_training, seed, device, progress)
