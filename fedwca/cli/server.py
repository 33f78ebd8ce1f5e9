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
    from fedwca.deploy.flower.flwr_cli import answers, connect, register, retry
    from fedwca.deploy.flower.processes import environment, keep, server_command

    arguments = server_command(folder / "server", host, port, insecure)

    def begun() -> None:
        if not insecure:
            here = "127.0.0.1" if host == "0.0.0.0" else host
            env = connect(folder, f"{here}:{port}", insecure)

            def let_in() -> None:
                answers(env)
                count = register(folder, env)
                typer.echo(f"{count} client keys are let in; add one to {folder}/server/keys and start again for more")

            retry(let_in)

    raise typer.Exit(keep(arguments, environment(folder / "server" / "flwr"), begun))
