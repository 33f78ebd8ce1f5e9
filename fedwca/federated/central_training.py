"""Central training: one model from labelled sources and an unlabeled target at one place, cached by a hash.

The call is ``train_central(central, data, start, training, seed, device, progress) -> StartModel``::

    data = CentralImages(images=(source_1, …), labels=(labels_1, …), target=images_of_the_target)
    trained = train_central(central, data, start, CentralTraining(epochs=20), seed=0)

``start`` is the model that every method of the run begins with, and its digest; it is not changed. The result is a
model of the same architecture. Only the training parts of the domains are passed in, never test images. Only a method
whose ``oracle`` is set reads ``target_labels``, which are None for all others.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable

import torch
from torch import Tensor

from fedwca.component import code_digest
from fedwca.core.central import Central
from fedwca.core.plain_values import digest_plain_values
from fedwca.core.training_settings import CentralTraining
from fedwca.data.cache import cache_dir
from fedwca.errors import UsageError
from fedwca.federated.central_steps import CentralImages, CentralTrainer
from fedwca.federated.model_cache import TORCH, train_cached
from fedwca.federated.source_model import StartModel

RECIPE = 1
"""Increased whenever the procedure below changes, so that no cached model of an older procedure is used."""


def train_central(
    central: Central,
    data: CentralImages,
    start: StartModel,
    training: CentralTraining,
    seed: int,
    device: str = "cpu",
    progress: Callable[[int, int], None] = lambda epoch, epochs: None,
) -> StartModel:
    """The model that a central method trains, read from the cache if it is there.

    Args:
        central: the method.
        data: training parts of the domains.
        start: the model to begin with, and a hash of what determined it.
        training: hyper-parameters.
        seed: of the order of batches, crops, dropout, and the initial weights of the method's own parts.
        device: where to train.
        progress: called with (epochs done, epochs); not called if the model is in the cache.

    Returns:
        The model after the last epoch, in eval mode; its accuracy is NaN, since no images are held out.

    Raises:
        Diverged: an epoch gave a model that is not finite.
        UsageError: an oracle is given no target labels, or another method is given some; no number of epochs.
    """
    if central.oracle is not (data.target_labels is not None):
        right = "needs" if central.oracle else "may not see"
        raise UsageError(f"central method {central.name} {right} the labels of the target's training images")
    if training.epochs is None:
        raise UsageError(f"central method {central.name} needs a number of epochs, such as CentralTraining(epochs=20)")
    key = _digest(central, data, start, training, seed, device)
    path = cache_dir() / "centrals" / f"{central.name}-{key}.safetensors"
    network, epochs = copy.deepcopy(start.network).to(device), training.epochs

    def train() -> dict[str, Tensor]:
        CentralTrainer(network, central, data, training, epochs, seed).run(progress)
        return network.state_dict()

    train_cached(network, path, f"the central model {central.name}", device, train)
    return StartModel(network, float("nan"), key)


def _digest(
    central: Central, data: CentralImages, start: StartModel, training: CentralTraining, seed: int, device: str
) -> str:
    """Hash of everything that determines the model."""
    content = hashlib.sha256()
    for tensor in (*data.images, *data.labels, data.target, data.target_labels):
        content.update(b"-" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}".encode())
        if tensor is not None:
            content.update(tensor.cpu().contiguous().numpy().data)
    return digest_plain_values(
        {
            "recipe": RECIPE,
            "data": content.hexdigest(),
            "start": start.digest,
            "central": {"name": central.name, **central.model_dump(mode="json"), **code_digest(type(central))},
            "training": training.model_dump(mode="json"),
            "seed": seed,
            "torch": TORCH,
            "device": torch.device(device).type,
        }
    )
