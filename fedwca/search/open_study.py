"""A study of Optuna in a journal file: opened as a killed process left it, and refused where it is another search's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedwca.config.resolve_config import type_components
from fedwca.config.run_config import validate
from fedwca.core.files import mend_lines
from fedwca.errors import UsageError

JOURNAL = "study.journal"
"""File of the study, in the folder of a search."""
NAME = "fedwca"


def open_study(optuna: Any, folder: Path, about: Mapping[str, Any], direction: str) -> Any:
    """The study in the folder, or a new one.

    Args:
        optuna: the module.
        folder: its lock is held, so nobody else is at work on the journal.
        about: what the search is of: ``config``, ``criterion``, ``params``, ``images``.
        direction: which way is better.

    Raises:
        UsageError: it is of another search, or its tries were made on other images.
    """
    mend_lines(folder / JOURNAL, folder / f"{JOURNAL}.lock")
    study = optuna.create_study(
        storage=_storage(optuna, folder), study_name=NAME, direction=direction, load_if_exists=True
    )
    check_same_search(study, folder, about)
    study.set_user_attr("about", dict(about))
    return study


def read_tried_values(optuna: Any, folder: Path, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Values that have been tried in a folder; nothing is written.

    Raises:
        UsageError: as `open_study`.
    """
    if not (folder / JOURNAL).exists():
        return []
    try:
        study = optuna.load_study(storage=_storage(optuna, folder), study_name=NAME)
    except KeyError:  # it was killed before there was a study in it
        return []
    check_same_search(study, folder, about)
    return tried_values(optuna, study)


def check_same_search(study: Any, folder: Path, about: Mapping[str, Any]) -> None:
    """See that a study is of this search.

    Raises:
        UsageError: it is not.
    """
    began = {**about, **study.user_attrs.get("about", {})}  # one of an earlier release does not say all of it
    if began.get("checkpoint_digest") != about.get("checkpoint_digest"):
        raise UsageError(
            f"--out {folder}: its tries began from another model than the checkpoint holds now; put that one back or "
            "name another folder"
        )
    if _typed({**began, "images": None}) != _typed({**about, "images": None}):
        raise UsageError(f"--out {folder}: holds a search with other settings; name another folder or remove it")
    if began["images"] != about["images"]:
        raise UsageError(f"--out {folder}: its tries were made on other images; put those back or name another folder")


def complete_trials(optuna: Any, study: Any) -> list[Any]:
    """Tries with a value."""
    found: list[Any] = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
    return found


def tried_values(optuna: Any, study: Any) -> list[dict[str, Any]]:
    """Values of tries that are over: judged, or left out since they do not go together."""
    states = optuna.trial.TrialState
    ended = study.get_trials(deepcopy=False, states=[states.COMPLETE, states.PRUNED])
    return [trial.params for trial in ended]


def _storage(optuna: Any, folder: Path) -> Any:
    # Optuna's lock is a link to the path as it is given, which a relative one would not be found by.
    backend = optuna.storages.journal.JournalFileBackend(str((folder / JOURNAL).absolute()))
    return optuna.storages.JournalStorage(backend)


def _typed(about: Mapping[str, Any]) -> dict[str, Any]:
    """What a study is of, its components' fields in their types: one of an earlier release may hold them as text."""
    return {**about, "config": type_components(validate(dict(about["config"]))).model_dump(mode="json")}
