"""What must be there before a run begins: a device, the images, a source model."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch

from fedwca.config.registries import registry_of
from fedwca.config.run_config import RunConfig
from fedwca.core.network import Architecture
from fedwca.data.dataset import FederatedDataset
from fedwca.datasets import find_dataset
from fedwca.engine.distributed.process_group import expected_ranks
from fedwca.engine.layout import Layout
from fedwca.engine.precision import check_precision, matmul_precision
from fedwca.engine.randomness import fold_key, uniform
from fedwca.engine.sequential.engine import count_cores, limit_to_one_thread
from fedwca.engine.signatures import BankSignatures
from fedwca.errors import UsageError
from fedwca.federated.method import Method
from fedwca.federated.source_model import TrainedSource, load_source, pretrain


def resolve_device(name: str) -> str:
    """``auto`` as a GPU where there is one; under ``torchrun`` a GPU of each rank's own.

    Raises:
        UsageError: a device is asked for that is not there, or by several ranks.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"--device {name}: no such device; take auto, cpu, cuda or cuda:1") from None
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"--device {name}: only cpu and cuda are supported")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"--device {name}: this machine has {torch.cuda.device_count()} CUDA devices; take --device cpu"
        )
    return _own_device(device) if device.type == "cuda" and expected_ranks()[1] > 1 else name


def _own_device(device: torch.device) -> str:
    """The GPU of this rank."""
    beside, there = int(os.environ.get("LOCAL_WORLD_SIZE", expected_ranks()[1])), torch.cuda.device_count()
    if device.index is not None and beside > 1:
        raise UsageError(f"--device {device}: {beside} ranks cannot share it; take --device cuda, one device a rank")
    if beside > there:
        raise UsageError(
            f"{beside} ranks need {beside} CUDA devices, and this machine has {there}; take --nproc-per-node {there} "
            "or --device cpu"
        )
    return str(device) if device.index is not None else f"cuda:{os.environ.get('LOCAL_RANK', expected_ranks()[0])}"


def load(config: RunConfig) -> tuple[FederatedDataset, str]:
    """The data set at the model's image size, and the source domain's name.

    Raises:
        DatasetMissing, DataError: see `fedwca.data`.
        CheckpointError: the model's pre-trained weights are not there or do not fit.
        UsageError: the source is not a domain of it.
    """
    component = find_dataset(config.dataset, config.data, config.components.get("dataset", {}).get(config.dataset))
    model = architecture(config)
    # Weights that are not there or do not fit are better known before minutes of decoding.
    model.build(1, pretrained=config.checkpoint is None)
    dataset = component.load(model.stored).resized(model.stored)
    name = config.source or component.default_source or next(iter(dataset.domains))
    return dataset, dataset.domain(name).name


def rehearse_components(config: RunConfig, methods: list[tuple[Method, int]], dataset: FederatedDataset) -> None:
    """Find out before any training what would fail after it: a checkpoint or a signature that does not fit.

    Raises:
        CheckpointError: the user's own source model is missing or does not fit the architecture.
        InvalidConfig: a clusterer asks for a layer that the model does not have.
        UsageError: the device cannot compute in the precision that is asked for.

    Warns:
        UserWarning: a clusterer asks for a layer of a frozen backbone.
    """
    model = architecture(config)
    network = model.build(len(dataset.classes), pretrained=config.checkpoint is None)
    check_precision(config.precision, network.class_vectors.dtype, torch.device(resolve_device(config.device)))
    if config.checkpoint is not None:
        load_source(config.checkpoint, dataset.classes, model)
    # Probes are clusterers like any other; what they are put into does not matter here.
    probes = map(registry_of("clusterer").build, config.probes)
    methods = [*methods, *((replace(methods[0][0], clusterer=probe), 1) for probe in probes)]
    layout = Layout.of(network)
    source, few = layout.read(network), 4
    # A pattern that repeats: as many random numbers as a large model has would take seconds and gigabytes.
    period = min(layout.width, 4099)
    steps = uniform(fold_key(["rehearsal"]), torch.arange(few * period)).view(few, -1).to(source.dtype)
    bank = source + 1e-3 * steps.repeat(1, -(-layout.width // period))[:, : layout.width]
    truth = torch.zeros(few, dtype=torch.int64)
    images = torch.arange(few).view(-1, 1, 1, 1, 1).expand(few, 2, 3, model.stored, model.stored).to(torch.uint8)
    clusterers = [method.clusterer for method, rounds in methods if rounds and method.clusterer is not None]
    if network.backbone.frozen and any(clusterer.layer_number is not None for clusterer in clusterers):
        warnings.warn(
            "the backbone is frozen, so layers are counted from the bottleneck on: signature 1 is the bottleneck",
            stacklevel=2,
        )
    for method, rounds in methods:
        if method.clusterer is not None and rounds:
            shown = truth if method.clusterer.oracle else None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                method.clusterer(BankSignatures(bank, layout, source, shown, list(images)))


def architecture(config: RunConfig) -> Architecture:
    """The architecture with the fields given for it."""
    fields = config.components.get("model", {}).get(config.model, {})
    built: Architecture = registry_of("model").build({"name": config.model, **fields})
    return built


Tell = Callable[[int, int, float], None]


def source_models(
    config: RunConfig, dataset: FederatedDataset, source: str, progress: Tell, chosen: Sequence[int] | None = None
) -> list[TrainedSource]:
    """Source models in order, each trained on a thread of its own as far as there are cores.

    Args:
        config: says how many and how.
        dataset: holds the source domain.
        source: its name.
        progress: told (epochs done, epochs, held-out accuracy in percent), over all of them.
        chosen: which of them; None: all.
    """
    chosen = range(config.source_models) if chosen is None else chosen
    count, total = config.source_models, config.source_models * config.source_training.epochs
    done, stop = [0] * count, threading.Event()

    def train(index: int) -> TrainedSource:
        def tell(epoch: int, epochs: int, accuracy: float) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            done[index] = epoch
            progress(sum(done), total, accuracy)

        return source_model(config, dataset, source, index, tell)

    # In full float32 whatever clients compute in: source models are kept for runs of any precision.
    full = matmul_precision("fp32", resolve_device(config.device))
    with limit_to_one_thread(), full, ThreadPoolExecutor(max(1, min(len(chosen), count_cores()))) as pool:
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
    source: str,
    index: int,
    progress: Tell = lambda epoch, epochs, accuracy: None,
) -> TrainedSource:
    """The index-th source model: pre-trained, from the cache, or the user's own checkpoint."""
    model = architecture(config)
    device = resolve_device(config.device)
    if config.checkpoint is not None:
        return load_source(config.checkpoint, dataset.classes, model, device)
    domain, seed = dataset.domains[source], config.seed + index
    return pretrain(domain, dataset.classes, model, config.source_training, seed, device, progress)
