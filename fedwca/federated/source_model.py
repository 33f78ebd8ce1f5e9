"""The source model: trained once on the labelled source domain, cached by a hash of everything that determines it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedwca._deprecated import forward_names
from fedwca.core.architecture import Architecture
from fedwca.core.check_type import check_type
from fedwca.core.files import expand_home
from fedwca.core.model_description import KEY, ModelDescription
from fedwca.core.network import Network
from fedwca.core.plain_values import digest_plain_values
from fedwca.core.tensor_files import checksum, file_digest, fill_module, open_tensors, read_tensors
from fedwca.core.training_settings import SourceTraining
from fedwca.data.cache import cache_dir
from fedwca.data.dataset import Domain
from fedwca.engine.augmentation import weak_views
from fedwca.engine.device_copy import to_device
from fedwca.engine.dropout import dropout_masks
from fedwca.engine.embeddings import embed_images
from fedwca.engine.randomness import fold_key, permutation
from fedwca.engine.sgd import SGD
from fedwca.errors import DataError, Diverged
from fedwca.federated.model_cache import TORCH, train_cached

_RENAMED = {"TrainedSource": "fedwca.federated.source_model.StartModel"}
if not TYPE_CHECKING:  # type checkers would otherwise accept any name
    __getattr__ = forward_names(__name__, _RENAMED)

RECIPE = 3
"""Increased whenever the procedure below changes, so that no cached model of an older procedure is used."""


@dataclass(frozen=True)
class StartModel:
    """A model that clients begin with, trained or not, and its accuracy on the source domain."""

    network: Network
    accuracy: float
    """Percent on the held-out part of the source domain; NaN where that is not known."""
    digest: str
    """Hash of everything that determined the model, or of the checkpoint file."""

    @cached_property
    def weights(self) -> str:
        """Checksum of its values, 8 hex digits: different CPUs may train different models of one `digest`."""
        return f"{checksum({name: value.cpu() for name, value in self.network.state_dict().items()}):08x}"


def split_source(domain: Domain, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Indices (training, held out) of a source domain; variants of one base image stay together."""
    groups = torch.arange(len(domain.labels)) if domain.groups is None else torch.from_numpy(domain.groups)
    group_ids, inverse = groups.unique(return_inverse=True)
    if len(group_ids) < 2:
        raise DataError(f"source domain {domain.name}: all images are variants of one, so none can be held out")
    order = permutation(fold_key([seed, "source split"]), len(group_ids))
    group_held_out = torch.zeros(len(group_ids), dtype=torch.bool)
    group_held_out[order[: min(max(1, round(share * len(group_ids))), len(group_ids) - 1)]] = True
    held_out = group_held_out[inverse]
    return (~held_out).nonzero()[:, 0], held_out.nonzero()[:, 0]


def source_digest(
    domain: Domain, classes: tuple[str, ...], model: Architecture, training: SourceTraining, seed: int, device: str
) -> str:
    """Hash of everything that determines the source model."""
    content = hashlib.sha256()
    for part in (domain.images, domain.labels, domain.groups):
        content.update(b"-" if part is None else np.ascontiguousarray(part).data)
    recipe = {
        "recipe": RECIPE,
        "images": content.hexdigest(),
        "classes": classes,
        "model": model.identity(),
        "training": training.model_dump(mode="json"),
        "seed": seed,
        "torch": TORCH,
        "device": torch.device(device).type,
    }
    return digest_plain_values(recipe)


def pretrain(
    domain: Domain,
    classes: tuple[str, ...],
    model: Architecture,
    training: SourceTraining,
    seed: int,
    device: str = "cpu",
    progress: Callable[[int, int, float], None] = lambda epoch, epochs, accuracy: None,
) -> StartModel:
    """The source model for a domain, read from the cache if it is there.

    Args:
        domain: the labelled source domain.
        classes: names of the M classes.
        model: architecture.
        training: hyper-parameters.
        seed: of the initial weights, the split, the order of batches and dropout.
        device: where to train.
        progress: called with (epochs done, epochs, held-out accuracy in percent); not if the model is in the cache.

    Raises:
        Diverged: an epoch gave a model that is not finite.
        DataError: there are fewer than four images, all are variants of one, or fewer than two are left to train on.
        CheckpointError: the architecture's pre-trained weights are not there or do not fit.
        UsageError: ``model`` is no architecture, reads larger images, or gives no right backbone, or ``training`` is
            that of clients.
    """
    check_type("model", model, Architecture, "LeNet()")
    check_type("training", training, SourceTraining, "fedwca.SourceTraining(epochs=20)")
    if len(domain.labels) < 4:
        raise DataError(f"source domain {domain.name}: {len(domain.labels)} images are too few to train on; need 4")
    key = source_digest(domain, classes, model, training, seed, device)
    path = cache_dir() / "sources" / f"{domain.name}-{model.name}-{key}.safetensors"
    network = model.build(len(classes), pretrained=False).to(device)

    def train() -> dict[str, Tensor]:
        initial = model.build(len(classes), seed=fold_key([seed, "weights"]) >> 1, pretrained=True).to(device)
        best, state = _fit(initial, domain, training, seed, device, progress)
        return {**state, "accuracy": best}

    tensors = train_cached(network, path, "the source model", device, train)
    return StartModel(network, _accuracy_of(tensors), key)


def _fit(
    network: Network,
    domain: Domain,
    training: SourceTraining,
    seed: int,
    device: str,
    progress: Callable[[int, int, float], None],
) -> tuple[Tensor, dict[str, Tensor]]:
    """Best held-out accuracy (percent) and the state that reached it; the later one of equals."""
    images = torch.from_numpy(domain.images).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
    images, labels = images.to(device), torch.from_numpy(domain.labels).to(device)
    embed_once = network.backbone.frozen and not network.augments
    inputs = embed_images(network, [images])[0] if embed_once else images
    train, held_out = split_source(domain, training.held_out, seed)
    if len(train) < 2:
        problem = f"of {len(labels)} images {len(held_out)} are held out, where variants of one image stay together"
        raise DataError(f"source domain {domain.name}: {problem}, so one is left to train on; need 2")
    crops = fold_key([seed, "source crop"])
    optimiser = SGD(network.parameters(), training.lr, training.momentum, training.weight_decay)
    loss = torch.nn.CrossEntropyLoss(label_smoothing=training.smoothing)
    best, state = torch.tensor(-1.0), {}
    step = 0
    for epoch in range(training.epochs + 1):
        accuracy = _accuracy(network, inputs, labels, held_out)
        if accuracy >= best:
            best, state = accuracy, {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
        progress(epoch, training.epochs, float(accuracy))
        if epoch == training.epochs or accuracy < 0:
            break
        network.train()
        for indices in train[permutation(fold_key([seed, "source order", epoch]), len(train))].split(
            training.batch_size
        ):
            # BatchNorm over a handful of images would spoil the running statistics just before they are used.
            if len(indices) < 2 or 2 * len(indices) < min(training.batch_size, len(train)):
                continue
            positions = torch.arange(len(indices), device=device)
            masks = dropout_masks(
                network.drops, fold_key([seed, "source dropout"]), step, positions, training.batch_size
            )
            batch = to_device(indices, images.device)
            if embed_once:
                embedded = network.plain_inputs(inputs[batch.to(inputs.device)])  # a file, where features are many
            else:
                embedded = network.embed(
                    weak_views(network, images[batch], crops, step, positions, training.batch_size)
                )
            logits, _ = network.classify(network.extract(embedded, masks), network.classifier, masks)
            optimiser.zero_grad()
            loss(logits, labels[batch]).backward()
            optimiser.step()
            step += 1
    if accuracy < 0:
        raise Diverged("source training gave values that are not finite; a lower source_training.lr may help")
    return best, state


@torch.no_grad()
def _accuracy(network: Network, inputs: Tensor, labels: Tensor, held_out: Tensor) -> Tensor:
    """Percent of the held-out images classified right; -1 if the outputs are not finite.

    ``inputs`` are images, or embeddings of them, as `Network.plain_inputs` takes.
    """
    network.eval()
    indices = held_out.to(inputs.device)
    features = [
        network.extract(network.plain_inputs(inputs[chunk])) for chunk in indices.split(network.eval_batch_size)
    ]
    logits = torch.cat([network.classify(x, network.classifier)[0] for x in features])
    if not bool(torch.isfinite(logits).all()):
        return torch.tensor(-1.0)
    return 100 * (logits.argmax(1) == labels[indices]).float().mean().cpu()


def _accuracy_of(tensors: Mapping[str, Tensor]) -> float:
    """The accuracy stored with a model's tensors; NaN if there is none."""
    return float(tensors.get("accuracy", torch.tensor(float("nan"))))


def initial_model(classes: tuple[str, ...], model: Architecture, seed: int, device: str = "cpu") -> StartModel:
    """The initial network where no source model is trained: it is whole, its weights are random or pre-trained.

    Args:
        classes: names of the M classes.
        model: architecture.
        seed: of the initial weights, as for `pretrain`.
        device: where the network is placed.
    """
    network = model.build(len(classes), seed=fold_key([seed, "weights"]) >> 1, trains_classifier=True).to(device).eval()
    recipe = {"classes": classes, "model": model.identity(), "seed": seed, "torch": TORCH}
    return StartModel(network, float("nan"), digest_plain_values(recipe))


def load_source(
    path: str | Path,
    classes: tuple[str, ...],
    model: Architecture,
    device: str = "cpu",
    trains_classifier: bool = False,
) -> StartModel:
    """A user's own source model: a state dict as .safetensors, or as a .pt file without pickled objects.

    Args:
        path: of the file.
        classes: names of the M classes, in the order of the classifier's outputs.
        model: the architecture that the state dict is of.
        device: where the network is placed.
        trains_classifier: clients train the classifier too, as in SFDA and UPFL.

    Raises:
        CheckpointError: the file is missing, damaged, or does not fit the architecture; or `fedwca export` wrote it for
            other classes or another architecture.
        UsageError: ``model`` is no architecture.
    """
    check_type("model", model, Architecture, "LeNet()")
    path = expand_home(path)
    network = model.build(len(classes), pretrained=False, trains_classifier=trains_classifier).to(device)
    tensors = read_tensors(path, "--checkpoint takes")
    if path.suffix == ".safetensors" and (text := open_tensors(path).metadata.get(KEY)) is not None:  # exported
        ModelDescription.read(text, path).check_is_of(model.name, classes, path)
    accuracy = _accuracy_of(tensors)
    tensors.pop("accuracy", None)
    fill_module(network, tensors, path)
    return StartModel(network.eval(), accuracy, file_digest(path))
