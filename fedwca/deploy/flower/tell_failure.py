"""Logs a client's failure in full at the client, and reports it to the server without local details."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from fedwca.errors import DataError, FedwcaError, describe_os_error

log = logging.getLogger("fedwca.deploy")
OWN_LOG = "its own log says why"


def tell_failure(error: Exception, node_config: Mapping[str, Any]) -> str:
    """Log an error and return the message for the server, which names no file of this client.

    Args:
        error: why this client does not take part.
        node_config: the node's configuration; ``data`` and ``state`` are the paths of its images and its folder.
    """
    if isinstance(error, FedwcaError | OSError):
        # The message is a full sentence; a traceback would add nothing.
        sentence = describe_os_error(error, "a system error") if isinstance(error, OSError) else error
        log.error("this client does not take part: %s", sentence)
    else:
        log.error("this client does not take part", exc_info=error)
    if isinstance(error, OSError) and error.errno:
        return f"{os.strerror(error.errno)}; {OWN_LOG}"
    if not isinstance(error, FedwcaError):
        return f"{type(error).__name__}; {OWN_LOG}"
    if isinstance(error, DataError):
        return f"its images cannot be used; {OWN_LOG}"
    # The message may quote a library's, such as that of a failed import, which may name any file.
    path_parts = ("/", "\\", *(str(node_config[key]) for key in ("data", "state") if key in node_config))
    return OWN_LOG if any(part in str(error) for part in path_parts) else str(error)
