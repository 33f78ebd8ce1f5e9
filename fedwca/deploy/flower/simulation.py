"""Runs a deployment in Flower's simulation: real messages and records, clients as Ray actors on this machine."""

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
    """Write the training images of simulated clients to ``client-<k>.npz``, without labels."""
    for number, client in enumerate(clients):
        images = client.train.permute(0, 2, 3, 1).contiguous().numpy()
        write_atomically(folder / f"client-{number}.npz", partial(np.savez, images=images))


def simulate(deployment: DeploymentConfig, folder: Path, data: Path) -> Session:
    """Run a deployment with `flwr.simulation.run_simulation`, one CPU core per client; return the session at its end.

    Args:
        deployment: the deployment's configuration.
        folder: the server's folder, see `fedwca.deploy.flower.server_app.FlowerServer`; the clients' folders are made
            in it.
        data: the folder of the clients' images, see `write_client_images`.

    Raises:
        FedwcaError: the run failed; it fails if any client fails, as in `fedwca bench`.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation

    from fedwca.deploy.flower.client_app import client_app
    from fedwca.deploy.flower.server_app import FlowerServer

    def settings(node_config: dict[str, Any]) -> dict[str, Any]:
        number = int(node_config["partition-id"])
        return {"number": number, "data": str(data / f"client-{number}.npz"), "state": str(folder / f"client-{number}")}

    sessions: list[Session] = []
    errors: list[BaseException] = []

    def main(grid: Grid, context: Context) -> None:
        try:
            server = FlowerServer(grid, deployment, folder)
            server.session.needs_all_answers = True
            server.run()
            sessions.append(server.session)
        except BaseException as error:
            errors.append(error)
            raise

    app = ServerApp()
    app.main()(main)
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    try:
        with warnings.catch_warnings(action="ignore"):
            run_simulation(app, client_app(settings), deployment.rules.clients, backend_config=resources)
    except Exception as error:
        raise (errors or [FedwcaError(f"Flower's simulation failed: {error}")])[0] from error
    if not sessions:
        raise (errors or [FedwcaError("Flower's simulation ended before the federation did")])[0]
    return sessions[0]
