"""`fedwca deploy init`: write a composed method as a folder for real machines."""

from __future__ import annotations

import ipaddress
import re
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedwca.cli.deployment_options import Folder, Insecure, check_flower
from fedwca.cli.options import RunOptions, run_options
from fedwca.cli.shared_options import under_old_name
from fedwca.cli.terminal import say
from fedwca.core.printable import quote_path
from fedwca.errors import UsageError

WAIT = 600.0
"""Seconds that ``--wait`` waits unless others are given."""
NOT_DEPLOYED = ("participation", "source_models", "trials", "trials_at_once", "engine", "kernels", "workers")
"""Run options that say how clients are simulated or how many take part; a deployment has ``--rule`` for the latter."""
REFUSED = ("target", "new_clients", "validation", "adaptation", "finish")
"""Run options that deployments do not support yet."""


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
