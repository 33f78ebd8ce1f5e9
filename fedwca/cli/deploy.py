"""`fedwca deploy`: its subcommands, of which `init` is in a module of its own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedwca.cli.deploy_init import init
from fedwca.cli.deployment_options import LOCAL, Folder, Insecure, Server, check_flower, check_is_deployment
from fedwca.cli.shared_options import check_finite
from fedwca.cli.terminal import say
from fedwca.core.printable import quote_path
from fedwca.errors import FedwcaError, UsageError

if TYPE_CHECKING:
    from fedwca.deploy.flower.flwr_cli import FlwrCli

app = typer.Typer(help="Run a composition on real machines, over Flower.", no_args_is_help=True)
app.command("init")(init)


@app.command("run")
def run_deployment(
    folder: Folder,
    server: Server = LOCAL,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, callback=check_finite, help="Seconds after which it is given up.")
    ] = 86_400.0,
    insecure: Insecure = False,
) -> None:
    """Submit the deployment to the running server, show its progress until it ends, and fail if it fails."""
    check_flower()
    from fedwca.core.file_locks import hold_alone, is_held
    from fedwca.deploy.flower.flwr_cli import connect
    from fedwca.deploy.server_status import RUNNING, SUBMITTED

    check_is_deployment(folder)
    problem = UsageError(f"a run of {folder} goes on already: {folder}/server/federation.log; wait until it has ended")
    if is_held(folder / "server" / RUNNING):  # by the server's process
        raise problem
    with hold_alone(folder / "server" / SUBMITTED, problem), connect(folder, server, insecure) as flwr:
        _submit_and_watch(folder, flwr, server, timeout, insecure)


def _submit_and_watch(folder: Path, flwr: FlwrCli, server: str, timeout: float, insecure: bool) -> None:
    from fedwca.cli.federation_progress import FederationProgress
    from fedwca.deploy.flower.deployment_folder import point_app_here
    from fedwca.deploy.flower.server_control import check_answers, register_clients, retry, submit_run, watch_run
    from fedwca.deploy.server_status import STATUS

    retry(lambda: check_answers(flwr), partial(say, err=True))
    if not insecure:
        register_clients(folder, flwr, partial(say, err=True))
    (folder / "server" / STATUS).unlink(missing_ok=True)  # of an earlier run
    progress = FederationProgress(folder / "server")
    point_app_here(folder)
    number = submit_run(folder, flwr)
    say(f"Run {number} is submitted; what happens is logged in {folder}/server/federation.log")
    try:
        with progress:
            status, bytes_in, bytes_out = watch_run(number, flwr, timeout, progress.wait, lambda: bool(progress.last))
    except KeyboardInterrupt as interrupt:
        flags = ("" if server == LOCAL else f" --server {server}") + (" --insecure" if insecure else "")
        interrupt.args = (
            f"Run {number} goes on at the server; fedwca deploy watch {quote_path(folder)} shows it, and "
            f"fedwca deploy stop {quote_path(folder)}{flags} ends it",
        )
        raise
    if status == "stopped":
        raise FedwcaError(f"run {number} was stopped; another one goes on after its last finished round")
    if status != "completed":
        raise FedwcaError(f"run {number} has {status}; {folder}/server/federation.log says why")
    say(f"{bytes_in:,} bytes came into the server and {bytes_out:,} went out of it, as Flower counts them")
    say(f"Run {number} is complete; each client that got its model has model.safetensors and its card in its folder")


@app.command("watch")
def watch(folder: Folder) -> None:
    """Show the progress of the run that goes on until it ends, and fail if it fails; on the server's machine.

    Ctrl-C ends the display alone.
    """
    from fedwca.cli.federation_progress import LOOK, FederationProgress
    from fedwca.core.file_locks import is_held
    from fedwca.deploy.server_status import COMPLETE, RUNNING

    check_is_deployment(folder)
    server = folder / "server"
    if not is_held(server / RUNNING):
        raise UsageError(f"no run of {folder} goes on; fedwca deploy run {quote_path(folder)} begins one")
    with FederationProgress(server) as progress:
        while not progress.last and is_held(server / RUNNING):
            progress.wait(LOOK)
    if not progress.last.startswith(COMPLETE):
        raise FedwcaError(f"the run has not completed; {server}/federation.log says why")


@app.command("stop")
def stop(
    folder: Folder,
    server: Server = LOCAL,
    insecure: Insecure = False,
) -> None:
    """End the run that goes on; another `deploy run` takes it up after its last finished round."""
    check_flower()
    from fedwca.deploy.flower.flwr_cli import connect
    from fedwca.deploy.flower.server_control import stop_runs

    check_is_deployment(folder)
    with connect(folder, server, insecure) as flwr:
        run_numbers = stop_runs(flwr)
    say(f"Stopped run {', '.join(run_numbers)}" if run_numbers else "No run goes on")


@app.command("key")
def key(path: Annotated[Path, typer.Argument(help="File of the private key; the public one gets .pub.")]) -> None:
    """Make a client's key pair where the client is, so that the private key never travels."""
    check_flower()
    from fedwca.deploy.flower.keys import make_key

    if path.is_dir():
        raise UsageError(f"{path} is a folder; name the key's file in it")
    for file in (path, path.with_name(f"{path.name}.pub")):
        if file.exists():
            raise UsageError(f"{file} exists; a key is not overwritten")
    make_key(path)
    say(f"Wrote {path} and {path}.pub; give the second to the server, into its folder server/keys")
