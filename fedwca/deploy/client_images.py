"""A client's own images: any folder of image files, or an archive; labels are neither needed nor read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedwca.data.archives import read_arrays
from fedwca.data.dataset import resize_images
from fedwca.data.decode_folders import is_hidden
from fedwca.data.image_files import SUFFIXES, decode_image
from fedwca.errors import DataError


def read_images(path: Path, side: int) -> Tensor:
    """Images uint8 ``[N, 3, side, side]``, files in the order of their paths, however deep they lie.

    Args:
        path: a folder of image files, or ``.npz`` with ``images`` uint8 ``[N, H, W]`` (grey) or ``[N, H, W, 3]``.
        side: height and width in pixels.

    Raises:
        DataError: there is no image, or one does not decode; says which.
    """
    if path.suffix == ".npz":
        if not path.is_file():
            raise DataError(f"{path} does not exist; --data takes a folder of images or an .npz file")
        images = read_arrays(path, ("images",))["images"]
        if images.dtype == np.uint8 and images.ndim == 3:
            images = np.repeat(images[..., None], 3, axis=3)
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3 or not len(images):
            raise DataError(
                f"{path}: images must be uint8 [N, H, W] or [N, H, W, 3], not {images.dtype} {list(images.shape)}"
            )
    else:
        if not path.is_dir():
            raise DataError(f"the folder {path} does not exist; --data takes a folder of images or an .npz file")
        files = sorted(
            file
            for file in path.rglob("*")
            if file.suffix.lower() in SUFFIXES and file.is_file() and not is_hidden(file)
        )
        if not files:
            raise DataError(f"{path} holds no images; any of {', '.join(sorted(SUFFIXES))} would do")
        images = np.stack([decode_image(file, side) for file in files])
    return torch.from_numpy(resize_images(images, side)).permute(0, 3, 1, 2).contiguous()
