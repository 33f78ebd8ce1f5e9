"""The check that all ranks of a run have the same versions installed."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from fedwca._version import __version__
from fedwca.errors import FedwcaError

VERSIONS = {"fedwca": __version__, "torch": torch.__version__}
"""Installed versions of the packages that results depend on."""


def check_versions(leading: Mapping[str, str]) -> None:
    """Check that this rank has the same versions as rank 0.

    Args:
        leading: `VERSIONS` of rank 0.

    Raises:
        FedwcaError: a version differs.
    """
    for name, version in leading.items():
        if VERSIONS[name] != version:
            installed = f"{name} {VERSIONS[name]} is installed here"
            raise FedwcaError(f"{installed}, {version} on rank 0; all ranks need the same")
