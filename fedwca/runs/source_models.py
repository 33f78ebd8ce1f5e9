"""Source models of a run: pre-trained, each on a thread of its own, or loaded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from fedwca.config.compose_methods import partition_of
from fedwca.config.run_config import RunConfig
from fedwca.data.dataset import FederatedDataset
from fedwca.engine.cpu_cores import count_cores, limit_to_one_thread
from fedwca.engine.precision import matmul_precision
from fedwca.federated.source_model import StartModel, initial_model, load_source, pretrain
from fedwca.runs.choose_device import resolve_device
from fedwca.runs.load_data import architecture

Tell = Callable[[int, int, float], None]


def source_models(
    config: RunConfig,
    dataset: FederatedDataset,
    domain: str | None,
    progress: Tell,
    chosen: Sequence[int] | None = None,
) -> list[StartModel]:
    """Source models in order, each trained on a thread of its own as far as there are cores.

    Args:
        config: says how many and how.
        dataset: holds the source domain, where there is one.
        domain: its name; None where there is none.
        progress: told (epochs done, epochs, held-out accuracy in percent), over all of them.
        chosen: which of them; None: all.
    """
    chosen = range(config.source_models) if chosen is None else chosen
    count, total = config.source_models, config.source_models * config.source_training.epochs
    done, stop = [0] * count, threading.Event()

    def train(index: int) -> StartModel:
        def tell(epoch: int, epochs: int, accuracy: float) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            done[index] = epoch
            progress(sum(done), total, accuracy)

        return source_model(config, dataset, domain, index, tell)

    # In full float32 whatever clients compute in: source models are kept for runs of any precision.
    device = resolve_device(config.device)
    full = matmul_precision("fp32", device)
    # A GPU has no cores to share out; side by side they would only need their memory at the same time.
    workers = min(len(chosen), count_cores()) if device == "cpu" else 1
    with limit_to_one_thread(), full, ThreadPoolExecutor(max(1, workers)) as pool:
        try:
            return list(pool.map(train, chosen))
        except BaseException:
            # Ctrl-C or a failure: the others stop after the epoch they are in.
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
    """The index-th source model: pre-trained, from the cache, or the user's own checkpoint.

    Where clients train the whole network it is one that nobody has trained, or the user's own.
    """
    model = architecture(config)
    device, whole = resolve_device(config.device), partition_of(config).whole
    if config.checkpoint is not None:
        return load_source(config.checkpoint, dataset.classes, model, device, whole)
    seed = config.seed + index
    if whole:
        return initial_model(dataset.classes, model, seed, device)
    assert domain is not None
    return pretrain(dataset.domains[domain], dataset.classes, model, config.source_training, seed, device, progress)
