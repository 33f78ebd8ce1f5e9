"""Settings and component fields that were added since a run began: the run has them at their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedwca.config.component_registries import registry_of
from fedwca.config.run_config import validate
from fedwca.core.plain_values import to_plain


def with_added_settings(about: Mapping[str, Any]) -> dict[str, Any]:
    """Configuration and methods of a run, with settings that were added since it began at their defaults.

    Args:
        about: content of its ``config.json``.

    Raises:
        UsageError: the configuration is not valid here, for example since a plugin is not installed.
    """
    config = validate(about["config"]).model_dump(mode="json")
    return {"config": config, "methods": with_added_fields(about["methods"])}


def with_added_fields(methods: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """A run's methods by name, with component fields that were added since it began at their defaults.

    Defaults of new fields are chosen so that results stay the same.
    """
    return {
        name: {**method, "components": [_whole_component(part) for part in method["components"]]}
        for name, method in methods.items()
    }


def _whole_component(stored: Mapping[str, Any]) -> dict[str, Any]:
    registry = registry_of(stored["kind"])
    if stored["name"] not in registry.names():
        return dict(stored)  # a plugin that is not installed; its entry stays as it is
    fields = registry.get(stored["name"]).model_fields
    optional = {name: field for name, field in fields.items() if not field.is_required()}
    return {
        **{name: to_plain(field.get_default(call_default_factory=True)) for name, field in optional.items()},
        **stored,
    }
