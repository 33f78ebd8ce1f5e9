"""`fedwca deploy`: write a composed method as a folder for real machines, and run it there."""

from __future__ import annotations

import ipaddress
import re
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedwca.cli.options import RunOptions, run_options
from fedwca.cli.shared_options import check_finite, under_old_name
from fedwca.cli.terminal import say
from fedwca.core.printable import quote_path
from fedwca.errors import FedwcaError, UsageError

app = typer.Typer(help="Run a composition on real machines, over Flower.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="Folder of the deployment.", show_default=False)]
Insecure = Annotated[bool, typer.Option("--insecure", help="No TLS and no node keys; for one machine alone.")]
PORT = 8000
WAIT = 600.0
"""Seconds that ``--wait`` waits unless others are given."""
LOCAL = f"127.0.0.1:{PORT}"
Server = Annotated[str, typer.Option("--server", help="Where the server listens, on this machine.")]
NOT_DEPLOYED = ("participation", "source_models", "trials", "trials_at_once", "engine", "kernels", "workers")
"""Run options that say how clients are simulated or how many take part; a deployment has ``--rule`` for the latter."""
REFUSED = ("target", "new_clients", "validation", "adaptation", "finish")
"""Run options that deployments do not support yet."""


def check_flower() -> None:
    """Check that Flower is installed.

    Raises:
        UsageError: Flower is not installed.
    """
    import importlib.util

    if importlib.util.find_spec("flwr") is None:
        raise UsageError("this command needs Flower; pip install 'fedwca[flower]', best in an environment of its own")


@app.command("init")
@partial(run_options, without=NOT_DEPLOYED, refused=REFUSED)
def init(
    asked: RunOptions,
    folder: Folder,
    clients: Annotated[
        int | None, typer.Option("--clients", min=1, max=100_000, help="Clients in all; needed without --deal.")
    ] = None,
    baseline: Annotated[str | None, typer.Option("--baseline", help="Deploy this baseline as it is.")] = None,
    deal: Annotated[
        int | None,
        typer.Option(
            "--deal", min=1, help="Write the images of so many simulated clients per target domain, to try it out."
        ),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option("--rule", help="least=2, alone=warn, norm_bound=3, robust=median, participation=0.5; repeat."),
    ] = None,
    half: Annotated[bool, typer.Option("--half", help="Models travel in half precision.")] = False,
    top: Annotated[
        float | None, typer.Option("--top", help="Share of an update's numbers that is uploaded, the largest.")
    ] = None,
    feedback: Annotated[
        bool, typer.Option("--feedback", help="With --top: clients add what they left out to their next update.")
    ] = False,
    deadline: Annotated[float, typer.Option("--deadline", help="Seconds a round waits for answers.")] = 600.0,
    wait: Annotated[float, typer.Option("--wait", help="Seconds to wait for all clients before round 0.")] = WAIT,
    old_wait: Annotated[float | None, typer.Option("--join", hidden=True)] = None,
    host: Annotated[list[str] | None, typer.Option("--host", help="Name or address of the server; repeat.")] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", help="Where the source model trains, default auto; each client has its own --device."),
    ] = None,
    insecure: Insecure = False,
) -> None:
    """Write a deployment: source model, app, certificates and client keys.

    For example: fedwca deploy init trial --aggregator wca --deal 2 --rounds 3
    """
    if deal is not None and clients is not None:
        raise UsageError("--clients and --deal both say how many clients there are; leave one of them out")
    if deal is None and "samples" in asked.layer:
        raise UsageError("--samples is of the images that --deal writes; clients train on all images of their own")
    rules = [_rule(text) for text in rule or []]
    if repeated_keys := [key for number, (key, _) in enumerate(rules) if key in dict(rules[:number])]:
        raise UsageError(f"--rule {repeated_keys[0]} is given twice")
    for name in host or []:
        _check_host(name)
    if insecure and host:
        raise UsageError("--host is for the certificate, which --insecure leaves out; leave out one of both")
    check_flower()
    from fedwca.cli.progress_bars import show_progress
    from fedwca.deploy.make_deployment import DeployRequest, make_deployment

    own = {"clients": deal, "device": device}
    layer = {**asked.layer, **{key: value for key, value in own.items() if value is not None}}
    request = DeployRequest(
        folder,
        asked.request(layer=layer),
        baseline,
        clients,
        deal is not None,
        rules,
        {
            **{"transport": "half" if half else "full", "top": top, "feedback": feedback},
            **{"deadline": deadline, "rejoin": insecure},
            "wait": under_old_name("--join", old_wait, "--wait", wait, WAIT),
        },
        host or [],
        insecure,
    )
    with show_progress("epochs of the source model") as on_progress:
        count = make_deployment(request, on_progress)
    say(next_steps(folder, count, deal is not None, insecure))


def next_steps(folder: Path, count: int, dealt: bool, insecure: bool) -> str:
    """The commands that follow `init`, as lines to paste: the server, the first client, the run."""
    flag = " --insecure" if insecure else ""
    other_clients = f"clients 1 to {count - 1}" if count > 2 else "client 1"
    images = quote_path(folder / "data/client-0.npz") if dealt else "IMAGES"
    notes = [f"{other_clients} likewise"] if count > 1 else []
    notes += [] if dealt else ["IMAGES is the folder of a client's own images"]
    notes_text = f" ({'; '.join(notes)})" if notes else ""
    return (
        f"Wrote {folder} for {count} clients. Next, each in a terminal of its own{notes_text}:\n"
        f"  fedwca server {quote_path(folder)}{flag}\n"
        f"  fedwca client {quote_path(folder / 'clients/0')} --data {images} --number 0{flag}\n"
        f"  fedwca deploy run {quote_path(folder)}{flag}"
    )


def _rule(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not value.strip():
        raise UsageError(f"--rule {text}: not of the form name=value, such as robust=median")
    return key.strip().replace("-", "_"), value.strip()


def _check_host(name: str) -> None:
    """Check that a name is a host name or an IP address.

    Raises:
        UsageError: it is neither.
    """
    try:
        ipaddress.ip_address(name)
    except ValueError:
        if len(name) > 253 or not all(re.fullmatch(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)", part) for part in name.split(".")):
            raise UsageError(
                f"--host {name!r}: neither a name nor an address, such as fl.example.org or 10.0.0.5"
            ) from None


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
    from fedwca.deploy.server_status import RUNNING, SUBMITTED

    check_is_deployment(folder)
    problem = UsageError(f"a run of {folder} goes on already: {folder}/server/federation.log; wait until it has ended")
    if is_held(folder / "server" / RUNNING):  # by the server's process
        raise problem
    with hold_alone(folder / "server" / SUBMITTED, problem):
        _submit_and_watch(folder, server, timeout, insecure)


def _submit_and_watch(folder: Path, server: str, timeout: float, insecure: bool) -> None:
    from fedwca.cli.federation_progress import FederationProgress
    from fedwca.deploy.flower.deployment_folder import point_app_here
    from fedwca.deploy.flower.flwr_cli import (
        check_answers,
        register_clients,
        retry,
        submit_run,
        watch_run,
        write_connection,
    )
    from fedwca.deploy.server_status import STATUS

    env = write_connection(folder, server, insecure)
    retry(lambda: check_answers(env), lambda sentence: say(sentence, err=True))
    if not insecure:
        register_clients(folder, env, partial(say, err=True))
    (folder / "server" / STATUS).unlink(missing_ok=True)  # of an earlier run
    progress = FederationProgress(folder / "server")
    point_app_here(folder)
    number = submit_run(folder, env)
    say(f"Run {number} is submitted; what happens is logged in {folder}/server/federation.log")
    try:
        with progress:
            status, bytes_in, bytes_out = watch_run(number, env, timeout, progress.wait, lambda: bool(progress.last))
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
    from fedwca.deploy.flower.flwr_cli import stop_runs, write_connection

    check_is_deployment(folder)
    run_numbers = stop_runs(write_connection(folder, server, insecure))
    say(f"Stopped run {', '.join(run_numbers)}" if run_numbers else "No run goes on")


def check_is_deployment(folder: Path) -> None:
    """Check that a folder holds a deployment.

    Raises:
        UsageError: it holds none.
    """
    from fedwca.core.deployment_files import is_deployment

    if not is_deployment(folder):
        raise UsageError(f"{folder}: holds no deployment; make one with fedwca deploy init")


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
