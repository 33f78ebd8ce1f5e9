"""Embeddings of plain images by a frozen backbone; they never change, so they are computed once and kept."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from fedwca.core.files import name_unwritable
from fedwca.core.network import Network
from fedwca.data.cache import cache_dir, make_folder
from fedwca.data.federation import ClientImages
from fedwca.engine.cpu_cores import count_cores, limit_to_one_thread
from fedwca.errors import FedwcaError

LARGEST_IN_MEMORY = 2**30
"""Most bytes of a federation's embeddings that are kept in memory; larger ones are in an unnamed file in the cache
folder, which disappears when the process ends."""


def count_embedding_bytes(network: Network, images: int) -> int:
    """Bytes of a frozen backbone's embeddings of ``images`` images; 0 if the backbone is trained."""
    return images * network.backbone.out_features * network.class_vectors.element_size() * network.backbone.frozen


def embed_images(network: Network, images: Sequence[Tensor], federations: int = 1) -> list[Tensor]:
    """Each client's plain images as `Network.extract` reads them.

    These are the images themselves if the backbone is trained, else their embeddings ``[N, out_features]``; clients
    with the same image tensor share one tensor of embeddings.

    Args:
        network: on its device.
        images: of each client, uint8 ``[N, 3, H, W]``, on the same device.
        federations: number of federations, such as trials, whose images these are; each may take `LARGEST_IN_MEMORY`.

    Raises:
        FedwcaError: there is not enough space for them on the disk.
    """
    if not network.backbone.frozen:
        return list(images)
    unique_images = {id(client_images): client_images for client_images in images}
    embeddings = _make_room(network, sum(map(len, unique_images.values())), federations)
    by_image_id = dict(zip(unique_images, embeddings.split([len(x) for x in unique_images.values()]), strict=True))
    size = network.eval_batch_size
    chunks = [
        pair
        for image_id, client_images in unique_images.items()
        if len(client_images)
        for pair in zip(client_images.split(size), by_image_id[image_id].split(size), strict=True)
    ]

    def embed(pair: tuple[Tensor, Tensor]) -> None:
        pair[1].copy_(network.plain_inputs(pair[0]))

    workers = count_cores() if network.class_vectors.device.type == "cpu" else 1
    # One thread per worker, so that sums are always added in the same order.
    with (
        limit_to_one_thread(),
        ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        for _ in pool.map(embed, chunks):
            pass
    return [by_image_id[id(client_images)] for client_images in images]


def place_embeddings(network: Network, images: int, federations: int = 1) -> tuple[int, int]:
    """Bytes of a frozen backbone's embeddings of ``images`` images, in memory and on the disk; one of them is 0."""
    size = count_embedding_bytes(network, images)
    return (size, 0) if size <= LARGEST_IN_MEMORY * federations else (0, size)


def place_client_embeddings(network: Network, clients: Sequence[ClientImages]) -> tuple[int, int]:
    """Bytes of a frozen backbone's embeddings of an engine's clients, in memory and on the disk.

    Those of training images and of test images have a place each.
    """
    images = sum(len(client.train) for client in clients), sum(len(client.test) for client in clients)
    in_memory, on_disk = zip(*(place_embeddings(network, count) for count in images), strict=True)
    return sum(in_memory), sum(on_disk)


def _make_room(network: Network, images: int, federations: int) -> Tensor:
    """A tensor ``[images, out_features]`` for embeddings, in memory or, if it is too large, in a file."""
    like, shape = network.class_vectors, (images, network.backbone.out_features)
    in_memory, on_disk = place_embeddings(network, images, federations)
    if in_memory or not on_disk:
        return torch.empty(shape, dtype=like.dtype, device=like.device)
    folder = cache_dir() / "embeddings"
    make_folder(folder)
    if (free := shutil.disk_usage(folder).free) < on_disk:
        raise FedwcaError(f"{folder}: features of images take {on_disk:,} bytes, and {free:,} are free there")
    dtype = torch.empty(0, dtype=like.dtype).numpy().dtype
    with name_unwritable(folder), tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):  # a disk that fills up later would end the process without a message
            os.posix_fallocate(file.fileno(), 0, on_disk)
        return torch.from_numpy(np.memmap(file, dtype, "w+", shape=shape))
