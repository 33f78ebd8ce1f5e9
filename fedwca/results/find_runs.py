"""Find runs on disk by path or name, and list them."""

from __future__ import annotations

import difflib
from pathlib import Path

from fedwca.core.deployment_files import is_deployment
from fedwca.core.files import expand_home, relative_path
from fedwca.errors import UsageError

ROOT = Path("runs")
"""Default folder of runs."""


def find_run(run: str | Path, root: Path | None = None) -> Path:
    """The folder of a run.

    Args:
        run: its path, or its name in ``runs/``.
        root: folder in which ``run`` is a name; None: ``run`` is a path or a name in ``runs/``.

    Raises:
        UsageError: there is no such run (the message suggests a similar name), the path is a deployment's or leads out
            of ``root``, or ``run`` is no path.
    """
    if not isinstance(run, str | Path):
        raise UsageError(f"a run is named by its folder, or by its name in {ROOT}/, not by {type(run).__name__}")
    # Links are not followed: a run in the folder may be a link to one elsewhere.
    if root is not None and ".." in (relative_path(root / run, root) or "..").split("/"):
        raise UsageError(f"{run}: not in {root}/, which --root names; for a run elsewhere leave --root out")
    candidates = [expand_home(run), ROOT / run] if root is None else [root / run]
    for path in candidates:
        if (path / "config.json").is_file():
            return path
    if is_deployment(candidates[0]):
        raise UsageError(
            f"{candidates[0]}: is a deployment, not a run; `fedwca deploy run` begins it or goes on with it, `fedwca "
            "export` writes its models, and a new client joins it by `fedwca client`"
        )
    if candidates[0].is_dir():
        inner_runs = run_folders(candidates[0])
        hint = f"; it is a folder of runs, so name one of them, such as {inner_runs[0]}" if inner_runs else ""
        raise UsageError(f"{candidates[0]}: holds no run (no config.json){hint}")
    folder = ROOT if root is None else root
    close_names = difflib.get_close_matches(str(run), [path.name for path in run_folders(folder)], 1)
    searched = f"as a path and in {folder}/" if root is None else f"in {folder}/"
    hint = f"did you mean {close_names[0]!r}?" if close_names else f"runs are looked for {searched}"
    raise UsageError(f"{run}: no such run; {hint}")


def run_folders(root: Path) -> list[Path]:
    """Folders directly in ``root`` that hold a run, sorted by path."""
    config_files = root.glob("*/config.json") if root.is_dir() else ()
    return sorted(file.parent for file in config_files if file.is_file())
