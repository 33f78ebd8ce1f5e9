"""A federation in Flower's own simulation: real messages and records, nodes as Ray actors on this machine."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedwca.core.files import write_atomically
from fedwca.data.federation import ClientImages
from fedwca.deploy.flower.config import DeploymentConfig
from fedwca.deploy.flower.processes import QUIET
from fedwca.deploy.session import Session
from fedwca.errors import FedwcaError


def write_client_images(clients: Sequence[ClientImages], folder: Path) -> None:
    """The training images of simulated clients as ``client-<k>.npz``; labels are not in them."""
    for number, client in enumerate(clients):
        images = client.train.permute(0, 2, 3, 1).contiguous().numpy()
        write_atomically(folder / f"client-{number}.npz", partial(_save, images=images))


def _save(file: Path, images: Any) -> None:
    np.savez(file, images=images)


def simulate(deployment: DeploymentConfig, folder: Path, data: Path) -> Session:
    """Play a federation with `flwr.simulation.run_simulation`, one node a core; returns the session as it ended.

    Args:
        deployment: what is played.
        folder: as of `fedwca.deploy.flower.server_app.FlowerServer`; the clients' folders are made in it.
        data: see `write_client_images`.

    Raises:
        FedwcaError: the run failed; so it does when a client does, as in `fedwca bench`.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation

    from fedwca.deploy.flower.client_app import client_app
    from fedwca.deploy.flower.server_app import FlowerServer

    def settings(given: dict[str, Any]) -> dict[str, Any]:
        number = int(given["partition-id"])
        return {"seat": number, "data": str(data / f"client-{number}.npz"), "state": str(folder / f"client-{number}")}

    ended: list[Session] = []
    failed: list[BaseException] = []

    def main(grid: Grid, context: Context) -> None:
        try:
            served = FlowerServer(grid, deployment, folder)
            served.session.everybody = True
            served.run()
            ended.append(served.session)
        except BaseException as error:
            failed.append(error)
            raise

    app = ServerApp()
    app.main()(main)
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    try:
        with warnings.catch_warnings(action="ignore"):
            run_simulation(app, client_app(settings), deployment.rules.clients, backend_config=resources)
    except Exception as error:
        raise (failed or [FedwcaError(f"Flower's simulation failed: {error}")])[0] from error
    if not ended:
        raise (failed or [FedwcaError("Flower's simulation ended before the federation did")])[0]
    return ended[0]
