"""The check that all ranks of a run have the same versions installed."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from fedwca._version import __version__
from fedwca.errors import FedwcaError
from fedwca.results.environment import plugin_versions


def installed_versions() -> dict[str, str]:
    """Installed versions of the packages that results depend on: fedwca, torch, and those that add components."""
    return {"fedwca": __version__, "torch": torch.__version__, **plugin_versions()}


def check_versions(leading: Mapping[str, str]) -> None:
    """Check that this rank has the same versions as rank 0.

    Args:
        leading: `installed_versions` of rank 0.

    Raises:
        FedwcaError: a version differs, or a package is installed on one of both alone.
    """
    own = installed_versions()
    for name in {**leading, **own}:
        if own.get(name) != leading.get(name):
            here = f"{name} {own[name]} is installed here" if name in own else f"{name} is not installed here"
            raise FedwcaError(f"{here}, {leading.get(name, 'not')} on rank 0; all ranks need the same")
