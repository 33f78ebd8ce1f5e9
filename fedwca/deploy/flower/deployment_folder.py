"""Writes the folder of a deployment: the app that is sent to clients, the server's files, and each client's folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedwca.core.deployment_files import CONFIG_NAME, SOURCE, is_deployment
from fedwca.core.files import write_text_atomically
from fedwca.core.network import Network
from fedwca.core.tensor_files import write_tensors
from fedwca.deploy.flower.config import DeploymentConfig
from fedwca.deploy.flower.processes import toml_string
from fedwca.errors import UsageError

PACKAGE = "fedwca_app"
PYPROJECT = """\
[project]
name = "fedwca-app"
version = "0.1.0"
description = "A fedwca federation; fedwca itself is installed at the server and at every client."
license = "MIT"
requires-python = ">=3.11"
dependencies = []

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.flwr.app]
publisher = "local"
fab-include = ["fedwca_app/*.py"]

[tool.flwr.app.components]
serverapp = "fedwca_app.server:app"
clientapp = "fedwca_app.client:app"

[tool.flwr.app.config]
folder = {folder}
"""
APP_FILES = {
    "__init__.py": '"""What a run sends to the server and the clients."""\n',
    "server.py": "from fedwca.deploy.flower.server_app import server_app\n\napp = server_app()\n",
    "client.py": "from fedwca.deploy.flower.client_app import client_app\n\napp = client_app()\n",
}


def write_deployment(
    folder: Path, deployment: DeploymentConfig, network: Network, hosts: Sequence[str], insecure: bool
) -> None:
    """Write all files of a deployment.

    Args:
        folder: a new folder; ``app/`` is sent to clients with a run, ``server/`` stays at the server, ``clients/<k>/``
            is for client k.
        deployment: the configuration.
        network: the source model.
        hosts: names and addresses of the server.
        insecure: no certificates and keys are made.

    Raises:
        UsageError: the folder holds a deployment already.
    """
    from fedwca.deploy.flower.keys import certify, make_key

    app, server = folder / "app", folder / "server"
    check_no_deployment(folder)
    point_app_here(folder)
    for name, text in APP_FILES.items():
        write_text_atomically(app / PACKAGE / name, text)
    write_tensors(server / SOURCE, network.state_dict())
    if not insecure:
        certify(server / "certs", hosts)
    for number in range(deployment.rules.clients):
        client = folder / "clients" / str(number)
        client.mkdir(parents=True, exist_ok=True)
        if not insecure:
            make_key(client / "key")
            write_text_atomically(server / "keys" / f"{number}.pub", (client / "key.pub").read_text())
            write_text_atomically(client / "ca.crt", (server / "certs" / "ca.crt").read_text())
    write_text_atomically(server / CONFIG_NAME, deployment.text())


def check_no_deployment(folder: Path) -> None:
    """Refuse a folder that holds a deployment.

    Raises:
        UsageError: it does.
    """
    if is_deployment(folder):
        raise UsageError(f"{folder} holds a deployment already; name another folder or remove it")


def point_app_here(folder: Path) -> None:
    """Write the present path of the server's files into the app, since the folder may have been moved or copied.

    Args:
        folder: the deployment's.
    """
    # An absolute path, since the server's process may be started in any directory.
    write_text_atomically(
        folder / "app" / "pyproject.toml", PYPROJECT.format(folder=toml_string(str((folder / "server").resolve())))
    )
