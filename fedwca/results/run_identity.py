"""Which run a checkpoint belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedwca.core.plain_values import digest_plain_values, to_plain


def run_identity(configuration: Mapping[str, Any]) -> str:
    """Hash of what determines a run's numbers: its methods, and its configuration without settings that have no effect.

    Checkpoints store this hash, so each run folder records which settings its hash leaves out. Older folders do not
    record it; they left out only ``workers``.
    """
    left_out = configuration.get("identity_without", ("workers",))
    config = {key: value for key, value in configuration["config"].items() if key not in left_out}
    return digest_plain_values(to_plain({"config": config, "methods": configuration["methods"]}))
