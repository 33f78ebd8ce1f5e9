"""`fedwca client`: the long-lived process beside a client's images."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fedwca.cli.deployment_options import PORT, Insecure, check_flower
from fedwca.cli.shared_options import Device, check_finite, under_old_name
from fedwca.cli.terminal import say
from fedwca.errors import UsageError


def command(
    folder: Annotated[Path, typer.Argument(help="The client's own folder: key, ca.crt, and what it keeps.")],
    data: Annotated[Path, typer.Option("--data", help="Images without labels: a folder, or .npz.")],
    server: Annotated[str, typer.Option("--server", help="Where the server is.")] = f"127.0.0.1:{PORT}",
    number: Annotated[
        int | None, typer.Option("--number", min=0, help="Number of this client, where numbers matter.")
    ] = None,
    old_number: Annotated[int | None, typer.Option("--seat", min=0, hidden=True)] = None,
    device: Device = "cpu",
    clip: Annotated[
        float | None, typer.Option("--clip", min=0, callback=check_finite, help="Largest L2 norm of an update.")
    ] = None,
    noise: Annotated[
        float, typer.Option("--noise", min=0, callback=check_finite, help="Noise on updates, in units of --clip.")
    ] = 0.0,
    clip_moments: Annotated[
        float | None,
        typer.Option(
            "--clip-moments", min=0, callback=check_finite, help="Largest L2 norm of moments to be grouped by."
        ),
    ] = None,
    noise_moments: Annotated[
        float,
        typer.Option(
            "--noise-moments", min=0, callback=check_finite, help="Noise on them, in units of --clip-moments."
        ),
    ] = 0.0,
    tries: Annotated[
        int, typer.Option("--tries", min=1, max=1_000_000, help="Failed starts in a row before it gives up.")
    ] = 120,
    insecure: Insecure = False,
) -> None:
    """Start a client (Flower's SuperNode) until Ctrl-C. Its images never leave it: docs/security.md says what does."""
    number = under_old_name("--seat", old_number, "--number", number, None)
    check_clipping("", "an update", clip, noise)
    check_clipping("-moments", "moments", clip_moments, noise_moments)
    check_flower()
    from fedwca.core.file_locks import hold_alone
    from fedwca.deploy.flower.addresses import check_reachable
    from fedwca.deploy.flower.client_device import find_device
    from fedwca.deploy.flower.client_secret import identity, name_of
    from fedwca.deploy.flower.processes import client_command, flower_environment, run_with_restarts
    from fedwca.deploy.server_status import RUNNING

    settings: dict[str, Any] = {"device": find_device(device)}
    if number is not None:
        settings["number"] = number
    if clip:
        settings |= {"clip": clip, "noise": noise}
    if clip_moments:
        settings |= {"clip_moments": clip_moments, "noise_moments": noise_moments}
    arguments = client_command(folder, data, server, insecure, settings)
    env, report = flower_environment(folder / "flwr"), partial(say, err=True)
    problem = UsageError(f"a client runs in {folder} already; give each client a folder of its own")
    with hold_alone(folder / RUNNING, problem):
        images = count_images(data)
        report(f"The server's log calls this client {name_of(identity(folder))}; it has {images:,} images")
        run_with_restarts(arguments, env, tries, report, lambda: check_reachable(server))


def check_clipping(suffix: str, quantity: str, clip: float | None, noise: float) -> None:
    """Check that a clipping norm and the noise in units of it go together.

    Args:
        suffix: of the options' names, such as ``-moments``; may be empty.
        quantity: what is clipped, for the message.
        clip: the norm; None: no clipping.
        noise: in units of the norm.

    Raises:
        UsageError: the norm is 0, or there is noise and no norm.
    """
    if clip == 0:
        raise UsageError(
            f"--clip{suffix} 0 leaves nothing of {quantity}; a norm above 0 is needed, or none for no clipping"
        )
    if noise and not clip:
        raise UsageError(f"--noise{suffix} is in units of --clip{suffix}, which is not given")


def count_images(data: Path) -> int:
    """The number of images, counted in a subprocess so that this long-lived process does not keep what reading loads.

    Raises:
        DataError: there are no images, or they cannot be read.
    """
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_count_images, data).result()


def _count_images(data: Path) -> int:
    from fedwca.deploy.client_images import check_images

    return check_images(data)
