"""Which client each connected node is; a server asks a node that it has not seen before."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedwca._version import __version__
from fedwca.core.printable import printable
from fedwca.deploy.client_numbers import why_no_number
from fedwca.deploy.flower.client_secret import name_of
from fedwca.deploy.flower.config import DeploymentConfig
from fedwca.deploy.flower.exchange_messages import describe_failure, exchange_messages
from fedwca.deploy.session import Session
from fedwca.deploy.wire_messages import TURNED_AWAY, VERSION

log = logging.getLogger("fedwca.deploy")
HELLO = 30.0
"""Seconds that a node has to identify itself, while enough nodes for a round have done so."""


class _Hello(NamedTuple):
    """What a node says of itself: the client's name, and the number that it asks for."""

    name: str
    wish: int | None


class ConnectedClients:
    """Knows which client each connected node is.

    Args:
        grid: Flower's interface for messages to nodes.
        session: gives clients their numbers.
        deployment: the configuration.
        tell: called with the number of connected nodes, without those that are turned away.
    """

    def __init__(self, grid: Grid, session: Session, deployment: DeploymentConfig, tell: Callable[[int], None]) -> None:
        self.grid, self.session, self.deployment, self.tell = grid, session, deployment, tell
        self._numbers: dict[int, int | None] = {}  # by node; None if it was turned away
        self._names: dict[int, str] = {}
        self._late: set[int] = set()  # nodes that may still be at a task of an earlier round

    def find(self) -> dict[int, int]:
        """Return node by client of the connected ones; nodes not seen before are asked who they are."""
        online = sorted(self.grid.get_node_ids())
        self._forget_nodes(online)
        hellos = self._ask(online)
        self._names |= {node: hello.name for node, hello in hellos.items()}  # all before the first number is given
        for node, hello in sorted(hellos.items()):
            self._give_number(node, hello, online)
        self.tell(self._count(online))
        numbers = {node: self._numbers.get(node) for node in online}
        return {client: node for node, client in numbers.items() if client is not None}

    def count(self) -> int:
        """Return how many nodes are connected, without those that are turned away."""
        return self._count(self.grid.get_node_ids())

    def _count(self, online: Iterable[int]) -> int:
        return sum(self._numbers.get(node, node) is not None for node in online)

    def find_idle(self) -> dict[int, int]:
        """Return node by client as `find` does, without nodes that are still at a task of an earlier round.

        A node takes one message after the other, so a further task would only wait behind that one, and the tasks of a
        client slower than the deadline would pile up. Such nodes are asked again who they are: they answer after the
        task, and at once if they were restarted and lost it.
        """
        nodes = self.find()
        self._late &= set(nodes.values())
        self._late -= self._query(sorted(self._late), len(nodes) - len(self._late)).keys()
        for client, node in nodes.items():
            if node in self._late:
                log.warning("client %d is still at an earlier task; it gets no other one", client)
        return {client: node for client, node in nodes.items() if node not in self._late}

    def note_late(self, nodes: Collection[int]) -> None:
        """Note nodes that did not answer a task in time."""
        self._late |= set(nodes)

    def _ask(self, online: Sequence[int]) -> dict[int, _Hello]:
        """Ask the nodes not seen before who they are, and return the answers by node.

        A node that does not answer is asked again in each round.
        """
        unknown = [node for node in online if node not in self._numbers]
        replies = self._query(unknown, sum(self._numbers.get(node) is not None for node in online))
        hellos = {}
        for node, reply in replies.items():
            if reply is None:
                continue
            if reply.has_error():
                log.warning("node %d does not say who it is: %s", node, describe_failure(reply))
            else:
                hellos[node] = _read_hello(node, reply)
        for node in unknown:
            if node not in replies:
                log.warning("node %d did not say in time who it is", node)
        return hellos

    def _query(self, nodes: Sequence[int], others: int) -> dict[int, Message | None]:
        """Ask nodes who they are and return the replies by node, None where one cannot be read.

        Args:
            nodes: to be asked.
            others: how many clients are known to be free; if too few for a round, the wait is longer.
        """
        queries = [Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY) for node in nodes]
        if not queries:
            return {}
        seconds = self.deployment.deadline
        if others >= self.deployment.rules.least:
            seconds = min(seconds, HELLO)
        return dict(exchange_messages(self.grid, queries, seconds))

    def _give_number(self, node: int, hello: _Hello, online: Sequence[int]) -> None:
        """Let the session give a node's client its number."""
        all_known = all(present in self._names for present in online)  # one that has said nothing may have that number
        may_release = self.deployment.rejoin and all_known and hello.name not in self.session.state.names
        if hello.wish is not None and may_release:
            self.session.release(hello.wish, {self._names[present] for present in online})
        number = self.session.admit(hello.name, hello.wish)
        if number is None and self.deployment.rejoin and not all_known:
            return  # asked again in the next round
        # Two nodes of one name would answer for one client: only the later one is used from now on.
        for older in [older for older, assigned in self._numbers.items() if assigned == number is not None]:
            self._numbers[older] = None
            if older in online:
                log.warning("client %d is connected twice, anew or from a copied folder; the later one counts", number)
                self._turn_away(older, "another client has connected as this one, perhaps from a copy of its folder")
        self._numbers[node] = number
        if number is None:
            self._turn_away(node, why_no_number(self.session.state.names, hello.wish))

    def _turn_away(self, node: int, reason: str) -> None:
        """Tell a node, in a message whose answer is not read, that it takes no part, for its own log."""
        content = RecordDict({TURNED_AWAY: ConfigRecord({"reason": reason})})
        self.grid.push_messages([Message(content, dst_node_id=node, message_type=MessageType.QUERY)])

    def _forget_nodes(self, online: Sequence[int]) -> None:
        """Forget nodes that were turned away and are gone, so that they are asked again when they return.

        With ``rejoin``, forget all that are gone, and those that are still turned away, since a number may be free.
        """
        gone, rejoin = self._numbers.keys() - set(online), self.deployment.rejoin
        if not gone:
            return
        served = {self._names[node] for node in online if self._numbers.get(node) is not None}
        for node, number in list(self._numbers.items()):
            # An older node of a client that is connected anew stays turned away.
            turned_away = number is None and self._names[node] not in served
            if (turned_away and (rejoin or node in gone)) or (rejoin and node in gone):
                del self._numbers[node]


def _read_hello(node: int, reply: Message) -> _Hello:
    """Read what a node says of itself, and warn of another version of fedwca."""
    hello = reply.content.config_records.get("hello", ConfigRecord({}))
    name = name_of(str(hello.get("identity", node)))
    wish = hello.get("number", hello.get("seat", -1))  # "seat" is from earlier versions
    if (version := str(hello.get(VERSION, "of an earlier version"))) != __version__:
        sentence = "client %s has fedwca %s, this server %s; one version everywhere is what is tested"
        log.warning(sentence, name, printable(version[:50]), __version__)
    return _Hello(name, wish if isinstance(wish, int) and wish >= 0 else None)
