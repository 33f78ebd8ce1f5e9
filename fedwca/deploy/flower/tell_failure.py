"""What a client's own log says of a failure, and the less that the server is told."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fedwca.errors import DataError, FedwcaError

log = logging.getLogger("fedwca.deploy")
OWN_LOG = "its own log says why"


def tell_failure(error: Exception, given: Mapping[str, Any]) -> str:
    """Log what went wrong; returns what the server is told of it, which names no file of this client.

    Args:
        error: why this client does not take part.
        given: the node's configuration; ``data`` and ``state`` name its images and its folder.
    """
    if not isinstance(error, FedwcaError):
        log.error("this client does not take part", exc_info=error)
        return f"{type(error).__name__}; {OWN_LOG}"
    # A sentence; a traceback would say no more.
    log.error("this client does not take part: %s", error)
    if isinstance(error, DataError):
        return f"its images cannot be used; {OWN_LOG}"
    # A library's words, as of an import that failed, may name files that nobody here knows of.
    named = ("/", "\\", *(str(given[place]) for place in ("data", "state") if place in given))
    return OWN_LOG if any(part in str(error) for part in named) else str(error)
