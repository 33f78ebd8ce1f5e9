"""`fedwca server`: the long-lived process that clients connect to."""

from __future__ import annotations

from typing import Annotated

import typer

from fedwca.cli.deploy import PORT, Folder, Insecure, need_flower


def command(
    folder: Folder,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; 0.0.0.0 for other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen on.")] = PORT,
    insecure: Insecure = False,
) -> None:
    """Start the server of a deployment (Flower's SuperLink) until Ctrl-C; with TLS and node keys unless --insecure."""
    need_flower()
    import subprocess

    from fedwca.deploy.flower.processes import environment, server_command

    arguments = server_command(folder / "server", host, port, insecure)
    raise typer.Exit(subprocess.call(arguments, env=environment(folder / "server" / "flwr")))
