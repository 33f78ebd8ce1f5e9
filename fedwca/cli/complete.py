"""Shell completion: names come from listing folders, so that completing imports no torch; imports happen on demand."""

from __future__ import annotations

from collections.abc import Callable


def complete_names(kind: str) -> Callable[[str], list[str]]:
    """A completion function for the names of a kind of component."""

    def complete(incomplete: str) -> list[str]:
        from fedwca.config.component_registries import registry_of

        return _matching(registry_of(kind).names(), incomplete)

    return complete


def baselines(incomplete: str) -> list[str]:
    """Names of baselines that begin with what was typed."""
    from fedwca.config.baselines import every_baseline_name

    return _matching(every_baseline_name(), incomplete)


def presets(incomplete: str) -> list[str]:
    """Names of presets that begin with what was typed."""
    from fedwca.config.presets import preset_names

    return _matching(preset_names(), incomplete)


def reproductions(incomplete: str) -> list[str]:
    """Names of tables and figures of `fedwca reproduce` that begin with what was typed."""
    from fedwca.reproduce.definitions import reproduction_names

    return _matching(reproduction_names(), incomplete)


def pictures(incomplete: str) -> list[str]:
    """Names of pictures of `fedwca plot` that begin with what was typed."""
    from fedwca.results.pictures.catalogue import PICTURES

    return _matching(list(PICTURES), incomplete)


def _matching(names: list[str], incomplete: str) -> list[str]:
    # In the spelling that is typed, since shells leave out what does not begin with that.
    spelled = names if "_" in incomplete else [name.replace("_", "-") for name in names]
    return [name for name in spelled if name.startswith(incomplete)]
