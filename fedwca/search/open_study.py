"""An Optuna study in a journal file, which survives a killed process and is refused if it is of another search."""

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
    """The study in a folder, or a new one.

    Args:
        optuna: the module.
        folder: of the search; its lock is held, so no other process uses the journal.
        about: what identifies the search: ``config``, ``criterion``, ``params``, ``images``.
        direction: ``maximize`` or ``minimize``.

    Raises:
        UsageError: the study is of another search, or its tries used other images or began from another model.
    """
    mend_lines(folder / JOURNAL, folder / f"{JOURNAL}.lock")
    study = optuna.create_study(
        storage=_storage(optuna, folder), study_name=NAME, direction=direction, load_if_exists=True
    )
    check_same_search(study, folder, about)
    study.set_user_attr("about", dict(about))
    return study


def read_tried_values(optuna: Any, folder: Path, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Values that were tried in the study of a folder, without writing to it.

    Raises:
        UsageError: as `open_study`.
    """
    if not (folder / JOURNAL).exists():
        return []
    try:
        study = optuna.load_study(storage=_storage(optuna, folder), study_name=NAME)
    except KeyError:  # the process was killed before it had made the study
        return []
    check_same_search(study, folder, about)
    return tried_values(optuna, study)


def check_same_search(study: Any, folder: Path, about: Mapping[str, Any]) -> None:
    """Check that a study is of this search.

    Raises:
        UsageError: it is not.
    """
    recorded = {**about, **study.user_attrs.get("about", {})}  # a study of an earlier release lacks some of it
    for key, file in {"checkpoint_digest": "the checkpoint", "weights_digest": "the file of weights"}.items():
        if recorded.get(key) != about.get(key):
            raise UsageError(
                f"--out {folder}: its tries began from another model than {file} holds now; put that one back or name "
                "another folder"
            )
    if _typed({**recorded, "images": None}) != _typed({**about, "images": None}):
        raise UsageError(f"--out {folder}: holds a search with other settings; name another folder or remove it")
    if recorded["images"] != about["images"]:
        raise UsageError(f"--out {folder}: its tries were made on other images; put those back or name another folder")


def complete_trials(optuna: Any, study: Any) -> list[Any]:
    """Finished tries with a value."""
    trials: list[Any] = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
    return trials


def tried_values(optuna: Any, study: Any) -> list[dict[str, Any]]:
    """Values of finished tries: judged, or pruned since the values cannot be run together or on these images."""
    states = optuna.trial.TrialState
    finished = study.get_trials(deepcopy=False, states=[states.COMPLETE, states.PRUNED])
    return [trial.params for trial in finished]


def _storage(optuna: Any, folder: Path) -> Any:
    journal, path = optuna.storages.journal, str(folder / JOURNAL)
    # Optuna's other lock, the default, is a symbolic link, which cannot be made everywhere.
    lock = journal.JournalFileOpenLock(path)
    return optuna.storages.JournalStorage(journal.JournalFileBackend(path, lock))


def _typed(about: Mapping[str, Any]) -> dict[str, Any]:
    """``about`` with typed fields of components, which a study of an earlier release may hold as text."""
    return {**about, "config": type_components(validate(dict(about["config"]))).model_dump(mode="json")}
