"""Flower's SuperLink with all interfaces but the clients' limited to its own machine; ``flower-superlink``'s arguments.

Flower 1.41 serves three interfaces on one port: Fleet for clients, Control for submitting runs, Runtime for the process
that executes them. Node keys protect only the first. The other two have no authentication, and clients must be able to
reach the port, so requests for them from other machines are refused here.

Nothing here imports torch.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from importlib import import_module
from importlib.metadata import version
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from fedwca.deploy.flower.processes import ELSEWHERE
from fedwca.errors import FedwcaError

READ = "1.41."
"""The version of Flower whose source was checked: which ports it opens, and that only Fleet is under `FLEET`."""
FLEET = re.compile(r"/v1/fleet/[a-z]+(-[a-z]+)*")
"""Paths of clients' requests, exactly as Flower's own client writes them, so that no path can be interpreted in two
ways."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class FleetForOthers:
    """An ASGI application of which other machines can use only the Fleet interface; other requests get status 403.

    Args:
        app: the application to protect.
    """

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a connection to the application, or refuse it."""
        if scope["type"] == "lifespan" or is_fleet(scope) or is_same_machine(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            # Flower's own command prints the field "detail".
            body = json.dumps({"detail": ELSEWHERE}).encode()
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": body})


def is_fleet(scope: Scope) -> bool:
    """Return whether a request is for the Fleet interface."""
    path, raw = scope.get("path", ""), scope.get("raw_path")
    as_written = raw is None or raw == path.encode()
    return scope["type"] == "http" and as_written and FLEET.fullmatch(path) is not None


def is_same_machine(scope: Scope) -> bool:
    """Return whether a connection comes from this machine: from a loopback address, or from its own target address.

    A machine that connects to itself by its own name uses the same address at both ends, and has no other way if
    ``--host`` is that name. A peer whose address is unknown counts as another machine.
    """
    peer, local = _address(scope.get("client")), _address(scope.get("server"))
    return peer is not None and (peer.is_loopback or peer == local)


def _address(endpoint: tuple[str, int | None] | None) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(endpoint[0]) if endpoint else None
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


class GuardedUvicorn:
    """Replaces the module ``uvicorn`` in the SuperLink: applications are served behind `FleetForOthers`.

    Args:
        uvicorn: the module.
    """

    def __init__(self, uvicorn: Any) -> None:
        self._run = uvicorn.run

    def run(self, app: Application, **settings: Any) -> None:
        """Call ``uvicorn.run``; headers that claim another address of the peer are ignored."""
        if not callable(app):
            raise FedwcaError(refusal_of_version())
        self._run(FleetForOthers(app), **{**settings, "proxy_headers": False})

    def __getattr__(self, name: str) -> Any:
        # Any other function of uvicorn could serve without the protection.
        raise FedwcaError(refusal_of_version())


def refusal_of_version() -> str:
    """Return the message for an unknown version of Flower, for which the server is not started."""
    return (
        f"in Flower {version('flwr')} it is not known how to keep the server's control to its own machine, "
        f"so it is not started; install Flower {READ}x"
    )


def guard(command: Any) -> None:
    """Make Flower's command serve its application behind `FleetForOthers`.

    The module's ``uvicorn``, which is given the finished application, is replaced: then nothing of Flower is outside
    the protection, and without that name nothing is served. Flower's hook for middleware is not used, because a version
    that no longer calls it would serve without protection.

    Args:
        command: the module of ``flower-superlink``.

    Raises:
        FedwcaError: this version of Flower is not the checked one, or its command does not use ``uvicorn.run``.
    """
    uvicorn = getattr(command, "uvicorn", None)
    if not version("flwr").startswith(READ) or not callable(getattr(uvicorn, "run", None)):
        raise FedwcaError(refusal_of_version())
    command.uvicorn = GuardedUvicorn(uvicorn)
    # Each of these would open Flower's former interface on another port, the first without any authentication.
    for name in ("FLWR_INTERNAL_GRPC_CONTROL_API", "FLWR_INTERNAL_GRPC_FLEET_API"):
        os.environ.pop(name, None)


def find_command() -> Any:
    """Import the module of ``flower-superlink``.

    Raises:
        FedwcaError: this version of Flower has no such module.
    """
    try:
        return import_module("flwr.superlink.cli.flower_superlink")
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("flwr."):
            raise
        raise FedwcaError(refusal_of_version()) from None


def run_superlink() -> None:
    """Run Flower's SuperLink until it is stopped."""
    try:
        command = find_command()
        guard(command)
        command.flower_superlink()
    except FedwcaError as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:  # while Flower is imported; then it handles signals itself
        sys.exit(130)


if __name__ == "__main__":
    run_superlink()
