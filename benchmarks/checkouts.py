"""Other commits of this repository, checked out for as long as they are measured."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def checked_out(*commits: str) -> Iterator[list[Path]]:
    """A folder for each commit: a temporary work tree, or the folder itself where a checked-out one is given.

    Raises:
        SystemExit: there is no such commit.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folders = [Path(temporary) / str(index) for index in range(len(commits))]
        try:
            yield [_check_out(commit, folder) for commit, folder in zip(commits, folders, strict=True)]
        finally:
            for folder in folders:
                if folder.exists():
                    subprocess.run(["git", "worktree", "remove", "--force", str(folder)], cwd=ROOT, check=False)


def _check_out(commit: str, folder: Path) -> Path:
    if (Path(commit) / "fedwca").is_dir():
        return Path(commit).resolve()
    completed = subprocess.run(
        ["git", "worktree", "add", "--detach", "--quiet", str(folder), commit],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode:
        raise SystemExit(f"no commit {commit!r} in this repository: {completed.stderr.strip()}")
    return folder
