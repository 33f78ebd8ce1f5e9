"""A warning of components that draw random numbers which the seed does not decide."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from fedwca.warn_caller import warn_caller

# rich draws a number when this is first imported: no component's fault, and none of the user's numbers.
_before_rich = random.getstate()
import rich.style  # noqa: E402, F401

random.setstate(_before_rich)


@contextmanager
def watch_draws(
    subject: str,
    warned: set[str] | None = None,
    right: str = "use the draws that parts are given, or a generator seeded by a field",
) -> Iterator[None]:
    """Warn if the body draws from a global random generator, so that the seed does not fix results.

    Of torch's generators only the CPU's is watched.

    Args:
        subject: what runs in the body, for the warning.
        warned: subjects that were already warned of; extended in place.
        right: what it should do instead.

    Warns:
        UserWarning: the body advanced a generator.
    """
    states = _states()
    yield
    if (warned is None or subject not in warned) and _states() != states:
        if warned is not None:
            warned.add(subject)
        warn_caller(
            f"{subject} draws from the global random numbers of torch, numpy or Python, which --seed does not decide, "
            f"so the same command may give other numbers; {right}",
        )


def _states() -> tuple[object, ...]:
    return torch.get_rng_state().numpy().tobytes(), pickle.dumps(np.random.get_state()), random.getstate()
