"""Flower's SuperLink, with what is not for clients kept to its own machine: ``flower-superlink``'s arguments.

Flower 1.41 serves three interfaces on one port: Fleet for clients, Control for who submits runs, Runtime for the
process that plays them. Node keys guard the first alone. The other two ask for nothing, and clients must be able to
reach the port; so here they are refused to whoever comes from another machine.

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
"""Flower's version of which it was read which ports it opens, and that nothing but Fleet is under `FLEET`."""
FLEET = re.compile(r"/v1/fleet/[a-z]+(-[a-z]+)*")
"""Paths that clients ask, each letter as Flower's own client writes it: nothing that could be read in two ways."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class FleetForOthers:
    """An ASGI application of which other machines see the Fleet interface alone; the rest is answered 403.

    Args:
        app: the application.
    """

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a connection on, or refuse it."""
        if scope["type"] == "lifespan" or is_fleet(scope) or is_same_machine(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            # Flower's own command prints what stands in detail.
            body = json.dumps({"detail": ELSEWHERE}).encode()
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": body})


def is_fleet(scope: Scope) -> bool:
    """Whether a request is one of a client's."""
    path, raw = scope.get("path", ""), scope.get("raw_path")
    as_written = raw is None or raw == path.encode()
    return scope["type"] == "http" and as_written and FLEET.fullmatch(path) is not None


def is_same_machine(scope: Scope) -> bool:
    """Whether a connection comes from this machine: from a loopback address, or from the address that it goes to.

    The second is how a machine reaches itself by its own name, and the only way where ``--host`` is that name. A peer
    whose address is unknown counts as another machine.
    """
    peer, here = _address(scope.get("client")), _address(scope.get("server"))
    return peer is not None and (peer.is_loopback or peer == here)


def _address(end: tuple[str, int | None] | None) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(end[0]) if end else None
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


class GuardedUvicorn:
    """``uvicorn``, as far as the SuperLink needs it: everything that it serves is behind `FleetForOthers`.

    Args:
        uvicorn: the module.
    """

    def __init__(self, uvicorn: Any) -> None:
        self._run = uvicorn.run

    def run(self, app: Application, **settings: Any) -> None:
        """As ``uvicorn.run``. The peer's address is the connection's own, whatever a header says."""
        if not callable(app):
            raise FedwcaError(refusal_of_version())
        self._run(FleetForOthers(app), **{**settings, "proxy_headers": False})

    def __getattr__(self, name: str) -> Any:
        # Another way to serve would go round what is here.
        raise FedwcaError(refusal_of_version())


def refusal_of_version() -> str:
    """Why a server is not started."""
    return (
        f"in Flower {version('flwr')} it is not known how to keep the server's control to its own machine, "
        f"so it is not started; install Flower {READ}x"
    )


def guard(command: Any) -> None:
    """Put `FleetForOthers` around what Flower's command serves.

    It is put where the finished application is handed over: nothing of Flower is outside it then, and where that place
    is not found nothing is served. Flower's hook for middleware is left alone, because a version that no longer asks it
    would serve all the same.

    Args:
        command: the module of ``flower-superlink``.

    Raises:
        FedwcaError: this version of Flower is not known, or has no such place.
    """
    found = getattr(command, "uvicorn", None)
    if not version("flwr").startswith(READ) or not callable(getattr(found, "run", None)):
        raise FedwcaError(refusal_of_version())
    command.uvicorn = GuardedUvicorn(found)
    # Each would open Flower's former interface on a port of its own, the first without any keys.
    for name in ("FLWR_INTERNAL_GRPC_CONTROL_API", "FLWR_INTERNAL_GRPC_FLEET_API"):
        os.environ.pop(name, None)


def find_command() -> Any:
    """The module of ``flower-superlink``.

    Raises:
        FedwcaError: this version of Flower has none.
    """
    try:
        return import_module("flwr.superlink.cli.flower_superlink")
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("flwr."):
            raise
        raise FedwcaError(refusal_of_version()) from None


def run_superlink() -> None:
    """Run until stopped."""
    try:
        command = find_command()
        guard(command)
        command.flower_superlink()
    except FedwcaError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    run_superlink()
