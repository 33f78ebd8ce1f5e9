"""Counter-based random numbers: the i-th number of a key is a hash of the key and of i.

A key is made of (seed, trial, round, client, purpose). There is no generator state, so results do not depend on the
engine, on the number of workers, on the order of clients, or on the device.
The hash is the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedwca.engine.device_copy import to_device

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def _signed(value: int) -> int:
    """The same 64 bits as a signed integer, as int64 tensors hold them."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _hash(value: int) -> int:
    value = ((value ^ (value >> 30)) * _MIX[0]) & _MASK
    value = ((value ^ (value >> 27)) * _MIX[1]) & _MASK
    return value ^ (value >> 31)


def fold_key(parts: Iterable[int | str]) -> int:
    """Combine several integers and strings into one 64-bit key.

    >>> fold_key([0, 1, "dropout"]) != fold_key([1, 0, "dropout"])
    True
    """
    key = 0
    for part in parts:
        number = zlib.crc32(part.encode()) if isinstance(part, str) else part
        key = _hash((key + _GOLDEN + (number & _MASK)) & _MASK)
    return key


def random_integers(key: int | Tensor, counters: Tensor) -> Tensor:
    """Uniform integers in 0…2⁵³-1, one for each counter; `uniform` is 2⁻⁵³ times these.

    Args:
        key: 64-bit key, or int64 keys that broadcast against ``counters``.
        counters: int64, any shape, at least 0.

    Returns:
        int64 in the shape of ``counters``.
    """
    start = _signed(key + _GOLDEN) if isinstance(key, int) else key + _signed(_GOLDEN)
    z = counters * _signed(_GOLDEN) + start
    # Shifts of signed tensors copy the sign: the mask makes them logical.
    z = z.bitwise_xor_((z >> 30).bitwise_and_((1 << 34) - 1)).mul_(_signed(_MIX[0]))
    z = z.bitwise_xor_((z >> 27).bitwise_and_((1 << 37) - 1)).mul_(_signed(_MIX[1]))
    z = z.bitwise_xor_((z >> 31).bitwise_and_((1 << 33) - 1))
    return (z >> 11).bitwise_and_((1 << 53) - 1)


def uniform(key: int | Tensor, counters: Tensor) -> Tensor:
    """Uniform numbers in [0, 1), one for each counter.

    Args:
        key: 64-bit key, or int64 keys that broadcast against ``counters``.
        counters: int64, any shape, at least 0.

    Returns:
        float64 in the shape of ``counters``; a multiple of 2⁻⁵³.

    >>> [round(u, 4) for u in uniform(fold_key([0]), torch.arange(3)).tolist()]
    [0.6524, 0.7012, 0.3871]
    """
    return random_integers(key, counters).double() * 2.0**-53


def normal(key: int | Tensor, counters: Tensor) -> Tensor:
    """Standard normal numbers, one for each counter.

    Args:
        key: 64-bit key, or int64 keys that broadcast against ``counters``.
        counters: int64, any shape, at least 0.

    Returns:
        float64 in the shape of ``counters``, finite.

    >>> [round(x, 4) for x in normal(fold_key([0]), torch.arange(3)).tolist()]
    [0.3919, 0.5279, -0.2868]
    """
    # With one bit less a half can be added, so that ndtri is never called with 0 or 1, where it is infinite.
    middles = ((random_integers(key, counters) >> 1).double() + 0.5) * 2.0**-52
    numbers: Tensor = torch.special.ndtri(middles)
    return numbers


def keys_tensor(keys: Iterable[int], device: torch.device) -> Tensor:
    """Keys as a tensor ``[G]`` int64, for `uniform`."""
    return to_device([_signed(key) for key in keys], device)


def permutation(key: int, n: int) -> Tensor:
    """A random permutation of ``0..n-1`` ``[n]`` int64, on the CPU."""
    return uniform(key, torch.arange(n)).argsort(stable=True)


@dataclass(frozen=True)
class Keys:
    """Gives the keys of all random numbers of one trial."""

    seed: int
    """Seed of the run."""
    trial: int = 0
    """Number of the trial, from 0."""

    def __call__(self, round: int, client: int, purpose: str) -> int:
        """The key of one client's draws for one purpose in one round."""
        return fold_key([self.seed, self.trial, round, client, purpose])


def place_counters(count: int, step: int | Tensor, positions: Tensor, stride: int) -> Tensor:
    """Counters ``[…, B, count]`` for random numbers that belong to places in a step, all different.

    Args:
        count: random numbers per place.
        step: number of the step within the training; of G clients ``[G, 1]`` int64.
        positions: places in the step ``[B]`` or ``[G, B]`` int64.
        stride: places per step.
    """
    return (step * stride + positions)[..., None] * count + torch.arange(count, device=positions.device)


def draw_changes(models: int, width: int, dtype: torch.dtype) -> Tensor:
    """Artificial parameter changes ``[models, width]`` in [0, 1), to test components that read models before a run.

    Each row repeats a short random pattern: drawing as many numbers as a large model has would take seconds and
    gigabytes.
    """
    period = min(width, 4099)
    pattern = uniform(fold_key(["rehearsal"]), torch.arange(models * period)).view(models, -1).to(dtype)
    return pattern.repeat(1, -(-width // period))[:, :width]
