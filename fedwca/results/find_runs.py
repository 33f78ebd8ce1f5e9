"""Runs on disk: looked up by path or by name, and listed."""

from __future__ import annotations

import difflib
from pathlib import Path

from fedwca.core.files import expand_home
from fedwca.errors import UsageError

ROOT = Path("runs")
"""Where runs go that are given no folder."""


def find_run(given: str | Path, root: Path | None = None) -> Path:
    """The folder of a run.

    Args:
        given: its path, or its name in ``runs/``.
        root: the folder whose runs alone are meant, by name; None: ``given`` is a path or a name in ``runs/``.

    Raises:
        UsageError: there is no such run; says which one comes near.
    """
    places = [expand_home(given), ROOT / given] if root is None else [root / given]
    for path in places:
        if (path / "config.json").is_file():
            return path
    if places[0].is_dir():
        raise UsageError(f"{places[0]}: holds no run (no config.json)")
    near = ROOT if root is None else root
    close = difflib.get_close_matches(str(given), [path.name for path in run_folders(near)], 1)
    where = f"as a path and in {near}/" if root is None else f"in {near}/"
    hint = f"did you mean {close[0]!r}?" if close else f"runs are looked for {where}"
    raise UsageError(f"{given}: no such run; {hint}")


def run_folders(root: Path) -> list[Path]:
    """Folders in ``root`` that hold a run, wherever they came from."""
    found = root.glob("*/config.json") if root.is_dir() else ()
    return sorted(file.parent for file in found if file.is_file())
