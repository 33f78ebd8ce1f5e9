"""Finds the images of an existing run, wherever it is opened from, and checks that they have not changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedwca.config.component_registries import registry_of
from fedwca.config.run_config import RunConfig
from fedwca.core.files import expand_home, relative_path
from fedwca.data.dataset import FederatedDataset
from fedwca.errors import DataError, UsageError
from fedwca.results.read_run import Run
from fedwca.runs.load_data import load

DIGESTS = {"data_digest": "the images", "split_digest": "groups, units or parts"}
"""Digests in ``config.json``, and what each covers; older runs lack the second one."""


def load_same_images(
    config: RunConfig, about: Mapping[str, Any], run: Path, *, pretrained: bool, download: bool = True
) -> tuple[FederatedDataset, str | None]:
    """The data set a run was made on, and its source or target domain; see `fedwca.runs.load_data.load`.

    Args:
        config: the run's configuration, with its paths as they are found now.
        about: contents of its ``config.json``.
        run: its folder.
        pretrained: as for `load`; False where all weights come from the run's checkpoints.
        download: as for `load`; False where the run folder need not be trusted.

    Raises:
        DataError: the images, or their groups, units or parts, differ from those the run began with; or as for `load`.
    """
    dataset, domain = load(config, pretrained=pretrained, download=download)
    check_same_digest(dataset, about, run)
    return dataset, domain


def check_same_digest(dataset: FederatedDataset, about: Mapping[str, Any], run: Path) -> None:
    """Check that images, and their groups, units and parts, are those a run began with.

    Raises:
        DataError: they differ.
    """
    digests = describe_images(dataset)
    for key, subject in DIGESTS.items():
        if about.get(key) not in (None, digests.get(key)):
            raise DataError(
                f"{run}: {subject} of {dataset.name} are not those the run began with; put those back, or run it anew"
            )


def check_same_data(runs: Iterable[Run]) -> None:
    """Check that runs were made on the same data, by the digests they store.

    Raises:
        DataError: two runs were made on different data.
    """
    first_runs: dict[str, Run] = {}
    for run in runs:
        for key, subject in DIGESTS.items():
            digest = run.about.get(key)
            if digest and digest != first_runs.setdefault(key, run).about[key]:
                raise DataError(
                    f"{run.path}: was made on other data than {first_runs[key].path} ({subject} differ); remove one of "
                    "both, or name another folder with --out"
                )


def describe_images(dataset: FederatedDataset) -> dict[str, str]:
    """Digests for ``config.json``: of the images, and of their groups, units and parts if there are any."""
    splits = dataset.split_digest()
    return {"data_digest": dataset.digest(), **({} if splits is None else {"split_digest": splits})}


def describe_places(run: Path) -> dict[str, str | None]:
    """The working directory, and its path relative to the run folder, if there is one.

    With them, the run's paths can be resolved from another directory and after the run was moved.
    """
    directory = Path.cwd()
    return {"directory": str(directory), "from_run": relative_path(directory, run.resolve())}


def locate_paths(config: RunConfig, about: Mapping[str, Any], run: Path) -> RunConfig:
    """A run's configuration with its paths as they are found now; a path that is not found is left as it is.

    A path is looked for where it was when the run began, then where it would be if run and files were moved together,
    then relative to the working directory.

    Args:
        config: the configuration stored in the run folder.
        about: contents of ``config.json``.
        run: its folder.
    """
    places = about.get("places")
    if places is None:  # a run of an earlier release
        return config

    def locate(path: Path) -> Path:
        path = expand_home(path)
        original = Path(places["directory"]) / path
        if path.exists() and original.exists() and path.samefile(original):
            return path
        candidates, relative = [original, path], relative_path(original, Path(places["directory"]))
        if places["from_run"] is not None and relative is not None:
            candidates.insert(1, Path(os.path.normpath(run.resolve() / places["from_run"] / relative)))
        return next((candidate for candidate in candidates if candidate.exists()), path)

    located_paths = {name: locate(value) for name, value in config if isinstance(value, Path)}
    components = {kind: dict(names) for kind, names in config.components.items()}
    for kind, name in (("dataset", config.dataset), ("model", config.model)):
        fields = components.get(kind, {}).get(name, {})
        if fields:
            components[kind][name] = {**fields, **_located(kind, name, fields, locate)}
    return config.model_copy(update={**located_paths, "components": components})


def _located(kind: str, name: str, fields: Mapping[str, Any], locate: Any) -> dict[str, str]:
    """The fields of a component that are paths, as they are found now."""
    try:
        component = registry_of(kind).build({"name": name, **fields})
    except UsageError:
        return {}  # reported when the component is needed
    return {key: str(locate(value)) for key in fields if isinstance(value := getattr(component, key), Path)}
