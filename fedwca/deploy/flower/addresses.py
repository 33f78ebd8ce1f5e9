"""Addresses of servers: their form, and whether a server can listen or listens there.

Nothing here imports torch: see `fedwca.deploy.flower.processes`.
"""

from __future__ import annotations

import re
import socket

from fedwca.errors import FedwcaError, UsageError


def free_port() -> int:
    """Return a port of the loopback interface on which nothing listens, for a client's local interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def check_can_listen(host: str, port: int) -> None:
    """Check that a server can listen at an address; Flower says so in the midst of other lines, or too late.

    Raises:
        FedwcaError: it cannot, for example because another program does; gives the reason.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        socket.create_server(address, family=family).close()
    except (OSError, UnicodeError) as error:
        reason = str(getattr(error, "strerror", None) or error).partition(" (")[0]  # the rest repeats the address
        raise FedwcaError(
            f"--host {host} --port {port}: no server can listen there ({reason}); "
            "right are an address of this machine and a port on which nothing listens"
        ) from None


def local_host(host: str) -> str:
    """Return the host at which this machine reaches its own server, which may listen on all addresses."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def local_address(host: str, port: int) -> str:
    """Return HOST:PORT at which this machine reaches its own server, which may listen on all addresses.

    >>> local_address("0.0.0.0", 8000), local_address("::", 8000), local_address("fe80::1", 8000)
    ('127.0.0.1:8000', '[::1]:8000', '[fe80::1]:8000')
    """
    reachable = local_host(host)
    return f"[{reachable}]:{port}" if ":" in reachable else f"{reachable}:{port}"


def parse_address(server: str) -> tuple[str, int]:
    """Split HOST:PORT into host and port.

    Raises:
        UsageError: the text does not have that form.
    """
    host, colon, port = server.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65_535 or "/" in host:
        raise UsageError(f"--server {server}: not of the form HOST:PORT, such as 127.0.0.1:8000")
    return host.strip("[]"), int(port)


def check_reachable(server: str) -> None:
    """Check that a server listens at an address; Flower's own program would retry for ever.

    Raises:
        UsageError: the address does not have the form HOST:PORT.
        FedwcaError: nothing listens there.
    """
    try:
        socket.create_connection(parse_address(server), timeout=10).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise FedwcaError(f"--server {server}: no server can be reached there ({error})") from None
