"""Remove a run folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from fedwca.errors import FedwcaError
from fedwca.results import lock


def remove_run(run: Path) -> None:
    """Remove a run folder, and the link to it if ``run`` is one; the folder is locked meanwhile.

    ``config.json`` is removed first, so that what remains after an interruption is not a run.

    Raises:
        UsageError: a process is working in the folder.
        FedwcaError: a file in it cannot be removed.
    """
    folder = run.resolve()
    run_lock = lock.hold_lock(run)
    try:
        (folder / "config.json").unlink()
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != lock.NAME:
                entry.unlink()
        # Network file systems keep an open file under another name, so the lock file is removed after it is closed.
        run_lock.release()
        shutil.rmtree(folder)
        if run.is_symlink():
            run.unlink()
    except OSError as error:
        raise FedwcaError(f"{run}: cannot be removed ({error.strerror or error})") from None
    finally:
        run_lock.release()
