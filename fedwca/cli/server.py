"""`fedwca server`: the long-lived process that clients connect to."""

from __future__ import annotations

import subprocess
from functools import partial
from typing import Annotated

import typer

from fedwca.cli.deployment_options import PORT, Folder, Insecure, check_flower, check_is_deployment
from fedwca.cli.terminal import WAITING, say


def command(
    folder: Folder,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; 0.0.0.0 or :: for other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65_535, help="Port to listen on.")] = PORT,
    insecure: Insecure = False,
) -> None:
    """Start the server of a deployment (Flower's SuperLink) until Ctrl-C; with TLS and node keys unless --insecure."""
    check_flower()
    from fedwca.deploy.flower.addresses import check_can_listen, local_address
    from fedwca.deploy.flower.flwr_cli import connect
    from fedwca.deploy.flower.processes import flower_environment, run_until_stopped, server_command
    from fedwca.deploy.flower.server_control import check_answers, forget_registered, register_clients, retry

    check_is_deployment(folder)
    arguments = server_command(folder / "server", host, port, insecure)
    check_can_listen(host, port)
    forget_registered(folder)

    def on_start(process: subprocess.Popen[bytes]) -> None:
        if insecure:
            return
        with connect(folder, local_address(host, port), insecure) as flwr:

            def check_server() -> None:
                if process.poll() is not None:
                    raise typer.Exit(process.returncode or 1)  # the process has printed why
                check_answers(flwr)

            retry(check_server)
            count = register_clients(folder, flwr, partial(say, err=True))
        say(f"{count} client keys are let in; deploy run lets in those that are added to {folder}/server/keys")

    WAITING.end()  # from here on the server prints
    raise typer.Exit(run_until_stopped(arguments, flower_environment(folder / "server" / "flwr"), on_start))
