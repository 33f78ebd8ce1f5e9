"""Options and checks that `fedwca deploy`, `fedwca server` and `fedwca client` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedwca.errors import UsageError

Folder = Annotated[Path, typer.Argument(help="Folder of the deployment.", show_default=False)]
Insecure = Annotated[bool, typer.Option("--insecure", help="No TLS and no node keys; for one machine alone.")]
PORT = 8000
LOCAL = f"127.0.0.1:{PORT}"
Server = Annotated[str, typer.Option("--server", help="Where the server listens, on this machine.")]


def check_flower() -> None:
    """Check that Flower is installed.

    Raises:
        UsageError: Flower is not installed.
    """
    import importlib.util

    if importlib.util.find_spec("flwr") is None:
        raise UsageError("this command needs Flower; pip install 'fedwca[flower]', best in an environment of its own")


def check_is_deployment(folder: Path) -> None:
    """Check that a folder holds a deployment.

    Raises:
        UsageError: it holds none.
    """
    from fedwca.core.deployment_files import is_deployment

    if not is_deployment(folder):
        raise UsageError(f"{folder}: holds no deployment; make one with fedwca deploy init")
