"""Shell completion: names by listing folders, so that a keystroke imports no torch; imports wait for one."""

from __future__ import annotations

from collections.abc import Callable


def complete_names(kind: str) -> Callable[[str], list[str]]:
    """Completion for the names of a kind."""

    def complete(incomplete: str) -> list[str]:
        from fedwca.config.component_registries import registry_of

        return _matching(registry_of(kind).names(), incomplete)

    return complete


def baselines(incomplete: str) -> list[str]:
    """Completion for baselines."""
    from fedwca.config.baselines import every_baseline_name

    return _matching(every_baseline_name(), incomplete)


def presets(incomplete: str) -> list[str]:
    """Completion for presets."""
    from fedwca.config.presets import preset_names

    return _matching(preset_names(), incomplete)


def pictures(incomplete: str) -> list[str]:
    """Completion for pictures of `fedwca plot`."""
    from fedwca.results.pictures.catalogue import PICTURES

    return _matching(list(PICTURES), incomplete)


def _matching(known: list[str], incomplete: str) -> list[str]:
    dashed = [name.replace("_", "-") for name in known]
    return [name for name in dashed if name.startswith(incomplete.replace("_", "-"))]
