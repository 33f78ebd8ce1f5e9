"""`fedwca list`: names of components, baselines and presets."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import Annotated

import typer

from fedwca.cli.shared_options import PlainJson
from fedwca.cli.terminal import say
from fedwca.config.component_registries import PLURALS, registry_of
from fedwca.errors import FedwcaError, UsageError
from fedwca.registry import canonical_name


def list_command(
    kind: Annotated[str | None, typer.Argument(help="A kind, such as aggregators; all kinds if left out.")] = None,
    pattern: Annotated[str, typer.Argument(help="Only names like this, such as 'wca*'.")] = "*",
    as_json: PlainJson = False,
) -> None:
    """List the names of all components, baselines and presets; of one kind with what each is.

    For example: fedwca list aggregators, or fedwca list models 'timm:vit*'
    """
    finders: dict[str, Callable[[str], list[str]]] = {
        **{plural: registry_of(plural).matching for plural in PLURALS.values()},
        **{setting: partial(_like, find) for setting, find in {**_baselines(), "presets": _presets}.items()},
    }
    if kind is not None:
        plural = {**PLURALS, "baseline": "baselines", "preset": "presets"}.get(
            canonical_name(kind), canonical_name(kind)
        )
        if plural not in finders:
            registry_of(kind)
        finders = {key: find for key, find in finders.items() if plural in (key, key.partition("_of_")[0])}
    listing = {plural: find(pattern) for plural, find in finders.items()}
    if as_json:
        say(json.dumps(listing, indent=2))
        return
    from fedwca.cli.wide_tables import align_heads

    if kind is None:
        say("\n".join(align_heads(list(listing), [", ".join(names) for names in listing.values()])))
    if kind is not None and pattern != "*" and not any(listing.values()):
        raise UsageError(f"no {kind} like {pattern!r}; fedwca list {kind} names all")
    for plural, names in {} if kind is None else listing.items():
        if not names:
            continue
        if len(listing) > 1:
            say(f"{plural}:")
        say("\n".join(align_heads(names, [_describe(plural, name) for name in names])))


def _describe(plural: str, name: str) -> str:
    """One sentence about a listed name; empty for names such as timm's, which only another library could describe."""
    from fedwca.config.baselines import baseline

    if plural.startswith("baselines"):
        setting = plural.partition("_of_")[2]
        entry = baseline(name, *([setting] if setting else []))
        return f"{entry.label}: {entry.paper}"
    if plural == "presets":
        from fedwca.config.presets import read_preset

        comment = takewhile(lambda line: line.startswith("#"), read_preset(name)[0].splitlines())
        return _first_sentence(" ".join(line.lstrip("# ") for line in comment))
    if ":" in name:
        return ""
    try:
        component = registry_of(plural).get(name)
    except FedwcaError as error:  # a broken plugin must not keep the others from being listed
        return f"({error})"
    return _first_sentence((component.__doc__ or "").partition("\n\n")[0])


def _first_sentence(text: str) -> str:
    """The text up to the first full stop that ends a sentence and not an abbreviation.

    >>> _first_sentence("FedWCA, sec. 5, App. C.1 and Table 9. What else there is.")
    'FedWCA, sec. 5, App. C.1 and Table 9.'
    """
    return re.split(r"(?<!App\.)(?<!\bal\.)(?<=\.) (?=[A-Z])", " ".join(text.split()))[0]


def _like(find: Callable[[], list[str]], pattern: str) -> list[str]:
    return fnmatch.filter(find(), canonical_name(pattern))


def _baselines() -> dict[str, Callable[[], list[str]]]:
    """Key → function that lists names: the default setting's baselines, and others as ``baselines_of_<setting>``."""
    from fedwca.config.baselines import baseline_names, settings
    from fedwca.partitions.domains import Domains

    other_settings = [setting for setting in settings() if setting != Domains.setting]
    return {
        "baselines": baseline_names,
        **{f"baselines_of_{setting}": partial(baseline_names, setting) for setting in other_settings},
    }


def _presets() -> list[str]:
    from fedwca.config.presets import preset_names

    return preset_names()
