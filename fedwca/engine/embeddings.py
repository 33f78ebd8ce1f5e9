"""What a frozen backbone makes of plain images: it never changes, so it is computed once and kept."""

from __future__ import annotations

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
from fedwca.engine.cpu_cores import count_cores, limit_to_one_thread
from fedwca.errors import FedwcaError

LARGEST_IN_MEMORY = 2**30
"""Bytes; what is larger is kept in a file without a name in the cache folder, which is gone with the process."""


def count_embedding_bytes(network: Network, images: int) -> int:
    """Bytes of what a frozen backbone makes of so many images; 0 where it is trained."""
    return images * network.backbone.width * network.class_vectors.element_size() * network.backbone.frozen


def embed_images(network: Network, images: Sequence[Tensor]) -> list[Tensor]:
    """What `Network.extract` reads of each client's plain images: the images where the backbone is trained, else
    ``[N, width]``, once for clients that have the very same images.

    Args:
        network: on its device.
        images: of each client, uint8 ``[N, 3, H, W]``, on the same device.

    Raises:
        FedwcaError: there is no room for them on the disk.
    """
    if not network.backbone.frozen:
        return list(images)
    by_id = {id(client_images): client_images for client_images in images}
    whole = _make_room(network, sum(map(len, by_id.values())))
    pieces = dict(zip(by_id, whole.split([len(client_images) for client_images in by_id.values()]), strict=True))
    chunks = [
        pair
        for name, client_images in by_id.items()
        if len(client_images)
        for pair in zip(client_images.split(network.chunk), pieces[name].split(network.chunk), strict=True)
    ]

    def embed(pair: tuple[Tensor, Tensor]) -> None:
        pair[1].copy_(network.show(pair[0]))

    workers = count_cores() if network.class_vectors.device.type == "cpu" else 1
    # One thread each, so that sums have one order.
    with (
        limit_to_one_thread(),
        ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        for _ in pool.map(embed, chunks):
            pass
    return [pieces[id(client_images)] for client_images in images]


def place_embeddings(network: Network, images: int) -> tuple[int, int]:
    """Bytes of what a frozen backbone makes of so many images: in memory, on the disk."""
    size = count_embedding_bytes(network, images)
    return (size, 0) if size <= LARGEST_IN_MEMORY else (0, size)


def _make_room(network: Network, images: int) -> Tensor:
    """``[images, width]``, in memory or, where there is too much of it, in a file."""
    like, shape = network.class_vectors, (images, network.backbone.width)
    memory, size = place_embeddings(network, images)
    if memory or not size:
        return torch.empty(shape, dtype=like.dtype, device=like.device)
    folder = cache_dir() / "embeddings"
    make_folder(folder)
    if (free := shutil.disk_usage(folder).free) < size:
        raise FedwcaError(f"{folder}: features of images take {size:,} bytes, and {free:,} are free there")
    kind = torch.empty(0, dtype=like.dtype).numpy().dtype
    with name_unwritable(folder), tempfile.TemporaryFile(dir=folder) as file:
        return torch.from_numpy(np.memmap(file, kind, "w+", shape=shape))
