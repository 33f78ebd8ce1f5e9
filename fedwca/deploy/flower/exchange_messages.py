"""What a server does with Flower's grid: waits for nodes, sends them messages and takes their replies."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from threading import Thread

import httpx
from flwr.app import DEFAULT_TTL, Message
from flwr.serverapp import Grid

from fedwca.core.count_of import count_of
from fedwca.core.printable import printable
from fedwca.deploy.flower.polling import next_pause
from fedwca.errors import FedwcaError

log = logging.getLogger("fedwca.deploy")
POLL = 1.0
"""Seconds between two looks at which nodes are connected."""
PATIENCE = 0.5
"""Seconds that all wait for one reply to be pulled; it is pulled further while others are looked for."""
GRACE = 10.0
"""Seconds after the deadline for the replies whose pull has begun, together."""


def wait_for_nodes(
    connected_nodes: Callable[[], int], count: int, seconds: float, tell: Callable[[int], None] = lambda connected: None
) -> None:
    """Wait until ``count`` nodes are connected, or for so many seconds; ``tell`` is called with the present number."""
    until = time.monotonic() + seconds
    while True:
        connected = connected_nodes()
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


def exchange_messages(grid: Grid, messages: Sequence[Message], seconds: float) -> Iterator[tuple[int, Message | None]]:
    """Send messages and yield (node, reply) as replies come, until all have come or the seconds are over.

    `Grid.send_and_receive` polls every 3 s and returns all replies at the end. If a node or its answer is lost, Flower
    replies with an error itself. The reply is None, and this logged, where it cannot be read or the node is gone. Those
    that are with the server when the seconds are over are taken still, for at most `GRACE` seconds more.

    Raises:
        MessagesRefused: Flower takes no message at all, since together they are too large.
    """
    started = time.monotonic()
    for message in messages:
        # Flower drops what is older; hours more than the wait, since the clocks of client and server may differ.
        message.metadata.ttl = seconds + DEFAULT_TTL
    # In the order of the messages; an id is empty if its node is gone, and the list is empty if messages are too large.
    message_ids = list(grid.push_messages(messages))
    if messages and not message_ids:
        raise MessagesRefused(
            f"Flower took none of {count_of(len(messages), 'message')}: they are too large for it, or for a proxy; "
            "a lower participation or a smaller model makes them smaller"
        )
    nodes = [message.metadata.dst_node_id for message in messages]
    for message_id, node in zip(message_ids, nodes, strict=False):
        if not message_id:
            log.warning("node %d: is gone, so nothing was sent to it", node)
            yield node, None
    replies = _PendingReplies(grid, {one: node for one, node in zip(message_ids, nodes, strict=False) if one})
    while replies.nodes:
        waited = time.monotonic() - started
        yield from replies.take()
        if waited >= seconds:
            yield from replies.take_begun()
            return
        if replies.nodes:
            time.sleep(min(next_pause(waited), seconds - waited))


class _PendingReplies:
    """Pulls replies one by one, each in a thread of its own.

    One by one, since reading a malformed reply fails, and replies pulled with it would be lost. In threads, since
    Flower waits for the rest of a reply whose upload has begun, for minutes if its client is gone: the others would
    miss their deadline.

    Args:
        grid: Flower's interface for messages to nodes.
        nodes: the node that each message was sent to, by Flower's id of the message; taken from there, not from the
            reply, whose metadata the node writes.
    """

    def __init__(self, grid: Grid, nodes: dict[str, int]) -> None:
        self.grid, self.nodes = grid, nodes
        self._begun: dict[str, Future[list[Message]]] = {}

    def take(self) -> Iterator[tuple[int, Message | None]]:
        """Look for each reply; one that takes long to pull is taken by a later call."""
        for message_id in list(self.nodes):
            if message_id not in self._begun:
                self._begun[message_id] = _begin_pull(self.grid, message_id)
                wait([self._begun[message_id]], PATIENCE)
            yield from self._take_one(message_id)

    def take_begun(self) -> Iterator[tuple[int, Message | None]]:
        """Take the replies whose pull has begun and ends within `GRACE` seconds."""
        wait(self._begun.values(), GRACE)
        for message_id in list(self._begun):
            yield from self._take_one(message_id)

    def _take_one(self, message_id: str) -> Iterator[tuple[int, Message | None]]:
        if not self._begun[message_id].done():
            return
        node = self.nodes[message_id]
        try:
            replies = self._begun.pop(message_id).result()
        except httpx.TransportError:  # the connection to the server itself failed
            raise
        except Exception as error:
            log.warning("node %d: its message cannot be read (%s)", node, type(error).__name__)
            del self.nodes[message_id]
            yield node, None
            return
        for reply in replies[:1]:
            del self.nodes[message_id]
            if reply.has_error() or reply.has_content():
                yield node, reply


def _begin_pull(grid: Grid, message_id: str) -> Future[list[Message]]:
    """Begin to pull the reply to a message; the thread does not keep the program from ending."""
    future: Future[list[Message]] = Future()

    def pull() -> None:
        try:
            future.set_result(list(grid.pull_messages({message_id})))
        except Exception as error:
            future.set_exception(error)

    Thread(target=pull, daemon=True).start()
    return future


def describe_failure(reply: Message) -> str:
    """Why no answer came, as the error of a reply says; printable, and 500 characters at most."""
    return printable((reply.error.reason or "no reason given")[:500])
