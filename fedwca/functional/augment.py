"""Strong views of images: random distortions of whole batches, from uniform numbers that the caller draws."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Operation = Callable[[Tensor, Tensor], Tensor]


def strong_augment(images: Tensor, draws: Tensor) -> Tensor:
    """Distort each image by randomly drawn operations in turn, each with a random strength s in [0, 1).

    The operations, all equally likely, with the ranges of FixMatch:

    - nothing; autocontrast (each channel stretched to the whole range);
    - brightness, contrast, saturation and sharpness, reduced to a factor 0.05 + 0.9·s of what they are;
    - posterize to 4 + floor(5·s) bits a channel; solarize (values from s on are inverted);
    - rotation by up to 30 degrees, shear by up to 0.3, translation by up to 0.3 of the side, in x or y, either way (the
      sign is that of s - 1/2); bilinear, black beyond the border.

    RandAugment's histogram equalisation and FixMatch's cut-out are not among them.

    Source: Cubuk et al. (RandAugment), NeurIPS 2020; Sohn et al. (FixMatch), NeurIPS 2020, Table 12.

    Args:
        images: ``[B, 3, H, W]``, uint8, or floating in [0, 1].
        draws: ``[B, 2·L]`` in [0, 1): for each of L operations in turn, which one and how strong.

    Returns:
        ``[B, 3, H, W]`` in the same dtype and range.

    >>> image = torch.full((1, 3, 2, 2), 200, dtype=torch.uint8)
    >>> strong_augment(image, torch.tensor([[2.5 / 13, 0.5]])).unique()  # brightness, factor 1/2
    tensor([100], dtype=torch.uint8)
    """
    if not images.is_floating_point():
        return (strong_augment(images.float() / 255, draws) * 255).round().to(images.dtype)
    augment = augment_by_rows if images.device.type == "cpu" else augment_by_selection
    out = images
    for pair in draws.unflatten(1, (-1, 2)).unbind(1):
        out = augment(out, (pair[:, 0] * len(OPERATIONS)).long(), pair[:, 1].to(out.dtype).view(-1, 1, 1, 1))
    return out


def augment_by_rows(images: Tensor, chosen: Tensor, strength: Tensor) -> Tensor:
    """Distort each image by its operation alone: the least work, but the calls depend on the values of ``chosen``.

    Args:
        images: ``[B, 3, H, W]``, floating in [0, 1].
        chosen: number of each image's operation ``[B]`` int64.
        strength: ``[B, 1, 1, 1]`` in [0, 1).
    """
    out = images.clone()
    for number, operation in enumerate(OPERATIONS.values()):
        rows = (chosen == number).nonzero()[:, 0]
        if len(rows):
            out[rows] = operation(images[rows], strength[rows]).clamp(0, 1)
    return out


def augment_by_selection(images: Tensor, chosen: Tensor, strength: Tensor) -> Tensor:
    """Do the same by all operations on all images: the calls do not depend on values, so nothing waits for a GPU."""
    out = images
    for number, operation in enumerate(OPERATIONS.values()):
        mask = (chosen == number).view(-1, 1, 1, 1)
        out = torch.where(mask, operation(images, strength).clamp(0, 1), out)
    return out


def _factor(s: Tensor) -> Tensor:
    return 0.05 + 0.9 * s


def _signed(s: Tensor) -> Tensor:
    return 2 * s[:, 0, 0, 0] - 1


def _grey(x: Tensor) -> Tensor:
    # Plain factors: a tensor of them would be copied to the device at every call.
    red, green, blue = x.unbind(1)
    return (0.299 * red + 0.587 * green + 0.114 * blue)[:, None]


def _blur(x: Tensor) -> Tensor:
    """The 3x3 mean with weight 5 in the middle, as Pillow's SMOOTH."""
    kernel = torch.ones(3, 3, dtype=x.dtype, device=x.device)
    kernel[1, 1].fill_(5)  # assigning a number would copy it to the device and wait for that
    padded = F.pad(x, (1, 1, 1, 1), mode="replicate")
    return F.conv2d(padded, (kernel / kernel.sum()).expand(3, 1, 3, 3), groups=3)


def _autocontrast(x: Tensor, s: Tensor) -> Tensor:
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(high > low, (x - low) / torch.where(high > low, high - low, 1), x)


def _posterize(x: Tensor, s: Tensor) -> Tensor:
    step = 2 ** (4 - (5 * s).floor())
    return ((x * 255 / step + 1e-4).floor() * step) / 255


def _warp(x: Tensor, *rows: tuple[Tensor | float, Tensor | float, Tensor | float]) -> Tensor:
    """Show at each output position (x, y) in [-1, 1] the input at matrix · (x, y, 1); ``rows`` are the matrix's."""
    entries = [v if isinstance(v, Tensor) else x.new_full((len(x),), v) for row in rows for v in row]
    grid = F.affine_grid(torch.stack(entries, 1).view(-1, 2, 3), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _rotate(x: Tensor, s: Tensor) -> Tensor:
    angle = math.radians(30) * _signed(s)
    return _warp(x, (angle.cos(), -angle.sin(), 0), (angle.sin(), angle.cos(), 0))


OPERATIONS: dict[str, Operation] = {
    "identity": lambda x, s: x,
    "autocontrast": _autocontrast,
    "brightness": lambda x, s: _factor(s) * x,
    "contrast": lambda x, s: torch.lerp(_grey(x).mean((1, 2, 3), keepdim=True).expand_as(x), x, _factor(s)),
    "saturation": lambda x, s: torch.lerp(_grey(x).expand_as(x), x, _factor(s)),
    "sharpness": lambda x, s: torch.lerp(_blur(x), x, _factor(s)),
    "posterize": _posterize,
    "solarize": lambda x, s: torch.where(x < s, x, 1 - x),
    "rotate": _rotate,
    "shear_x": lambda x, s: _warp(x, (1, 0.3 * _signed(s), 0), (0, 1, 0)),
    "shear_y": lambda x, s: _warp(x, (1, 0, 0), (0.3 * _signed(s), 1, 0)),
    "translate_x": lambda x, s: _warp(x, (1, 0, 0.6 * _signed(s)), (0, 1, 0)),
    "translate_y": lambda x, s: _warp(x, (1, 0, 0), (0, 1, 0.6 * _signed(s))),
}
"""Operations by name: images ``[B, 3, H, W]`` in [0, 1] and strengths ``[B, 1, 1, 1]`` to distorted images."""
