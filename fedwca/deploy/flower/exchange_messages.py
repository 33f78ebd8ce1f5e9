"""What a server does with Flower's grid: waits for nodes, sends them messages and takes their replies."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence

import httpx
from flwr.app import Message
from flwr.serverapp import Grid

from fedwca.core.count_of import count_of
from fedwca.core.printable import printable
from fedwca.deploy.flower.polling import next_pause
from fedwca.errors import FedwcaError

log = logging.getLogger("fedwca.deploy")
POLL = 1.0
"""Seconds between two looks at which nodes are connected."""


def wait_for_nodes(
    grid: Grid, count: int, seconds: float, tell: Callable[[int], None] = lambda connected: None
) -> None:
    """Wait until ``count`` nodes are connected, or for so many seconds; ``tell`` is called with the present number."""
    until = time.monotonic() + seconds
    while True:
        connected = len(list(grid.get_node_ids()))
        tell(connected)
        if connected >= count or time.monotonic() >= until:
            return
        time.sleep(POLL)


def wait_for_other_nodes(grid: Grid, nodes: set[int], until: float) -> None:
    """Wait until the connected nodes are not just ``nodes``, or until ``time.monotonic()`` is ``until``."""
    while set(grid.get_node_ids()) == nodes and time.monotonic() < until:
        time.sleep(POLL)


class MessagesRefused(FedwcaError):
    """Flower takes none of some messages."""


def exchange_messages(grid: Grid, messages: Sequence[Message], seconds: float) -> Iterator[tuple[int, Message]]:
    """Send messages and yield (node, reply) as replies come, until all have come or the seconds are over.

    `Grid.send_and_receive` polls every 3 s and returns all replies at the end. If a node or its answer is lost, Flower
    replies with an error itself. A reply that cannot be read is logged and skipped.

    Raises:
        MessagesRefused: Flower takes no message at all, since together they are too large.
    """
    started = time.monotonic()
    # In the order of the messages; an id is empty if its node is gone, and the list is empty if messages are too large.
    message_ids = list(grid.push_messages(messages))
    if messages and not message_ids:
        raise MessagesRefused(
            f"Flower took none of {count_of(len(messages), 'message')}: they are too large for it, or for a proxy; "
            "a lower participation or a smaller model makes them smaller"
        )
    pending = {
        message_id: message.metadata.dst_node_id
        for message_id, message in zip(message_ids, messages, strict=False)
        if message_id
    }
    while pending and (waited := time.monotonic() - started) < seconds:
        for message_id, node in list(pending.items()):
            # One by one: reading a malformed reply fails, and replies pulled with it would be lost. The node is taken
            # from Flower's message id, not from the reply, whose metadata the node writes.
            try:
                replies = list(grid.pull_messages({message_id}))
            except httpx.HTTPError:  # the connection to the server itself failed
                raise
            except Exception as error:
                log.warning("node %d: its message cannot be read (%s)", node, type(error).__name__)
                del pending[message_id]
                continue
            for reply in replies[:1]:
                del pending[message_id]
                if reply.has_error() or reply.has_content():
                    yield node, reply
        if pending:
            time.sleep(next_pause(waited))


def describe_failure(reply: Message) -> str:
    """Why no answer came, as the error of a reply says; printable, and 500 characters at most."""
    return printable((reply.error.reason or "no reason given")[:500])
