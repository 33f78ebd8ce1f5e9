"""The images of a run that is there already: found from wherever it is opened, and refused where they are others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedwca.config.component_registries import registry_of
from fedwca.config.run_config import RunConfig
from fedwca.core.files import expand_home
from fedwca.data.dataset import FederatedDataset
from fedwca.errors import DataError, UsageError
from fedwca.results.read_run import Run
from fedwca.runs.load_data import load

DIGESTS = {"data_digest": "the images", "split_digest": "groups, units or parts"}
"""Digests in ``config.json``, each with what it is of; older runs lack the second, those of schema 1 both."""


def load_same_images(config: RunConfig, about: Mapping[str, Any], run: Path) -> tuple[FederatedDataset, str | None]:
    """The data set a run was made on, and the domain of it that is unlike the others; see `fedwca.runs.load_data.load`.

    Args:
        config: of the run, with its paths as they are found now.
        about: what its ``config.json`` holds.
        run: its folder.

    Raises:
        DataError: the images, or what says how they may be split, are others than those the run began with.
    """
    dataset, source = load(config)
    check_same_digest(dataset, about, run)
    return dataset, source


def check_same_digest(dataset: FederatedDataset, about: Mapping[str, Any], run: Path) -> None:
    """See that images are those a run began with, and may be split among clients as they might then.

    Raises:
        DataError: they are others, or have other groups, units or parts.
    """
    now = describe_images(dataset)
    for key, what in DIGESTS.items():
        if about.get(key) not in (None, now.get(key)):
            raise DataError(
                f"{run}: {what} of {dataset.name} are not those the run began with; put those back, or run it anew"
            )


def check_same_data(runs: Iterable[Run]) -> None:
    """See that runs were made on the same data, by what they say themselves.

    Raises:
        DataError: two of them were not.
    """
    first: dict[str, Run] = {}
    for run in runs:
        for key, what in DIGESTS.items():
            digest = run.about.get(key)
            if digest and digest != first.setdefault(key, run).about[key]:
                raise DataError(
                    f"{run.path}: was made on other data than {first[key].path} ({what} differ); remove one of "
                    "both, or name another folder with --out"
                )


def describe_images(dataset: FederatedDataset) -> dict[str, str]:
    """Digests as ``config.json`` has them: of the images, and of groups, units and parts where they have any."""
    splits = dataset.split_digest()
    return {"data_digest": dataset.digest(), **({} if splits is None else {"split_digest": splits})}


def describe_places(run: Path) -> dict[str, str]:
    """Where a run begins, so that its paths are found from elsewhere and after it was moved: the working directory, and
    the way there from the run folder.
    """
    here = Path.cwd()
    return {"directory": str(here), "from_run": os.path.relpath(here, run.resolve())}


def locate_paths(config: RunConfig, about: Mapping[str, Any], run: Path) -> RunConfig:
    """A run's configuration with its paths as they are found now; one that is found nowhere stays.

    A path is looked for where it was when the run began, then where it would be if run and files had been moved
    together, then from the working directory.

    Args:
        config: as the run folder says it.
        about: what ``config.json`` holds.
        run: its folder.
    """
    places = about.get("places")
    if places is None:  # a run of an earlier release
        return config

    def found(path: Path) -> Path:
        path = expand_home(path)
        began = Path(places["directory"]) / path
        if path.exists() and began.exists() and path.samefile(began):
            return path
        way = os.path.relpath(began, places["directory"])
        moved = Path(os.path.normpath(run.resolve() / places["from_run"] / way))
        return next((place for place in (began, moved, path) if place.exists()), path)

    given = {name: found(value) for name, value in config if isinstance(value, Path)}
    components = {kind: dict(names) for kind, names in config.components.items()}
    for kind, name in (("dataset", config.dataset), ("model", config.model)):
        fields = components.get(kind, {}).get(name, {})
        if fields:
            components[kind][name] = {**fields, **_located(kind, name, fields, found)}
    return config.model_copy(update={**given, "components": components})


def _located(kind: str, name: str, fields: Mapping[str, Any], found: Any) -> dict[str, str]:
    """Those of a component's fields that are paths, as they are found now."""
    try:
        built = registry_of(kind).build({"name": name, **fields})
    except UsageError:
        return {}  # said when it is needed
    return {key: str(found(value)) for key in fields if isinstance(value := getattr(built, key), Path)}
