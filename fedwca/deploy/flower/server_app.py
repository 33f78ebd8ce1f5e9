"""The ServerApp: sends a session's parcels to nodes and gives their answers to the session."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedwca._version import __version__
from fedwca.core.file_locks import hold_alone
from fedwca.core.printable import printable
from fedwca.deploy.flower.client_secret import name_of
from fedwca.deploy.flower.config import DeploymentConfig
from fedwca.deploy.flower.polling import next_pause
from fedwca.deploy.flower.records import count_bytes, from_record, to_records
from fedwca.deploy.folder_names import CHECKPOINT, CONFIG_NAME, SOURCE
from fedwca.deploy.server_status import COMPLETE, FAILED, LOG, RUNNING, STOPPED, ServerStatus, write_status
from fedwca.deploy.session import Session
from fedwca.deploy.state_files import resume_session, save_session
from fedwca.deploy.wire_messages import VERSION, Parcel
from fedwca.errors import FedwcaError, UsageError
from fedwca.results.describe_run import count_of

log = logging.getLogger("fedwca.deploy")
POLL = 1.0
HELLO = 30.0
"""Seconds that a node has to identify itself, while enough nodes for a round have done so."""
DELIVERIES = 3
"""How often a client is sent its final model at most, until it confirms that it has it."""


def server_app() -> ServerApp:
    """Return the app; ``folder`` in the run's configuration is the path of the server's folder."""
    app = ServerApp()
    app.main()(lambda grid, context: _main(grid, context))
    return app


def _main(grid: Grid, context: Context) -> None:
    folder = Path(str(context.run_config["folder"]))
    with hold_alone(folder / RUNNING) as locked:
        if not locked:
            raise UsageError(f"another run of {folder} goes on")  # before the log is opened, which that run writes
        _play(grid, folder)


def _play(grid: Grid, folder: Path) -> None:
    """Run the federation and write its log to a file, since Flower does not show what an app prints."""
    handler = logging.FileHandler(folder / LOG)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        FlowerServer(grid, DeploymentConfig.read(folder / CONFIG_NAME), folder).run()
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:  # how Flower ends the app of a run that is stopped
            log.warning("%s; another one goes on after its last finished round", STOPPED)
        else:
            log.error("%s: %s: %s", FAILED, type(error).__name__, printable(str(error)))
        raise
    finally:
        log.removeHandler(handler)
        handler.close()


def wait_for(grid: Grid, count: int, seconds: float, tell: Callable[[int], None] = lambda connected: None) -> None:
    """Wait until ``count`` nodes are connected, or for so many seconds; ``tell`` is called with the present number."""
    until = time.monotonic() + seconds
    while True:
        connected = len(list(grid.get_node_ids()))
        tell(connected)
        if connected >= count or time.monotonic() >= until:
            return
        time.sleep(POLL)


class MessagesRefused(FedwcaError):
    """Flower takes none of some messages."""


def exchange(grid: Grid, messages: Sequence[Message], seconds: float) -> Iterator[tuple[int, Message]]:
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


class FlowerServer:
    """One run of a federation.

    Args:
        grid: Flower's interface for messages to nodes.
        deployment: the configuration.
        folder: the server's, with ``source.safetensors``; the checkpoint and byte counts are written there.
    """

    def __init__(self, grid: Grid, deployment: DeploymentConfig, folder: Path) -> None:
        self.grid, self.deployment, self.folder = grid, deployment, folder
        self.session: Session = deployment.session(folder / SOURCE)
        self.checkpoint = folder / CHECKPOINT
        if self.checkpoint.exists():
            resume_session(self.session, self.checkpoint)
            log.info("goes on at round %d from %s", self.session.state.round, self.checkpoint)
        self.status = ServerStatus(deployment.rounds, deployment.rules.clients, done=self.session.state.round)
        write_status(folder, self.status)
        self._numbers: dict[int, int | None] = {}
        self._names: dict[int, str] = {}

    def run(self) -> None:
        """Run the remaining rounds, then send clients their final models.

        Raises:
            FedwcaError: a round got too few answers more often than ``patience`` allows.
        """
        session, deployment, tries = self.session, self.deployment, 0
        wait_for(self.grid, deployment.rules.clients, deployment.join, self._say_connected)
        while session.state.round < deployment.rounds:
            number = session.state.round
            nodes, parcels = self._open_round()
            self._exchange({client: (nodes[client], parcel) for client, parcel in parcels.items()}, number)
            if session.close():
                save_session(session, self.checkpoint)
                log.info("round %d is done", number)
                self._say(done=session.state.round)
                tries = 0
                continue
            tries += 1
            if tries > deployment.patience:
                raise FedwcaError(f"round {number} got too few answers {tries} times; see the log for who was refused")
            time.sleep(POLL)
        self._deliver()
        log.info("%s after %d rounds", COMPLETE, session.state.round)

    def _open_round(self) -> tuple[dict[int, int], dict[int, Parcel]]:
        """Return nodes by client, and parcels by client, once enough clients are connected or the deadline is over.

        Waiting here keeps a network outage from counting as a try, which is meant for connected clients that do not
        answer.
        """
        until = time.monotonic() + self.deployment.deadline
        while True:
            wait_for(self.grid, self.deployment.rules.least, until - time.monotonic(), self._say_connected)
            nodes = self._present()
            parcels = self.session.open(nodes)
            if self.session.everybody or self.session.can_close or time.monotonic() >= until:
                return nodes, parcels
            self._wait_for_others(set(self.grid.get_node_ids()), min(until, time.monotonic() + HELLO))

    def _wait_for_others(self, online: set[int], until: float) -> None:
        """Wait until the set of connected nodes differs from ``online``, or until the time ``until``."""
        while set(self.grid.get_node_ids()) == online and time.monotonic() < until:
            time.sleep(POLL)

    def _deliver(self) -> None:
        """Send each client its final model, again to those that were disconnected for a moment or lost their folder."""
        missing = set(self.session.final_parcels())
        for _ in range(DELIVERIES):
            if not missing:
                break
            until = time.monotonic() + HELLO
            while missing.isdisjoint(self._present()) and time.monotonic() < until:
                self._wait_for_others(set(self.grid.get_node_ids()), until)
            nodes, parcels = self._present(), self.session.final_parcels()
            final_parcels = {client: (nodes[client], parcels[client]) for client in missing & set(nodes)}
            if not final_parcels:
                break
            missing -= self._send_final(final_parcels)
        if missing:
            log.warning("clients %s have not got their model; another run gives it to them", sorted(missing))
        if without_model := sorted(set(self._present()) - set(self.session.final_parcels())):
            log.warning("clients %s took part in no round, so there is no model for them", without_model)

    def _send_final(self, parcels: dict[int, tuple[int, Parcel]]) -> set[int]:
        """Send final models and return the clients that confirmed theirs; one by one if together they are too large."""
        try:
            return self._exchange(parcels, self.deployment.rounds)
        except MessagesRefused as error:
            if len(parcels) == 1:
                log.warning("%s", error)
                return set()
            return set().union(*(self._send_final({client: parcel}) for client, parcel in parcels.items()))

    def _say(self, **changes: int) -> None:
        """Update the status file."""
        status = replace(self.status, **changes)
        if status != self.status:
            self.status = status
            write_status(self.folder, status)

    def _say_connected(self, count: int) -> None:
        if count != self.status.connected:
            log.info("%d of %d clients are connected", count, self.status.clients)
        self._say(connected=count)

    def _present(self) -> dict[int, int]:
        """Return node by client of the connected ones; nodes not seen before are asked for their name and seat."""
        online = sorted(self.grid.get_node_ids())
        self._say_connected(len(online))
        self._forget_nodes(online)
        new_nodes = [node for node in online if node not in self._numbers]
        queries = [Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY) for node in new_nodes]
        wishes: dict[int, int | None] = {}
        names: dict[int, str] = {}
        silent = set(new_nodes)
        seconds = self.deployment.deadline
        # A node that does not answer is asked again in each round. If too few others are known, no round can begin, and
        # the wait is longer.
        if sum(self._numbers.get(node) is not None for node in online) >= self.deployment.rules.least:
            seconds = min(seconds, HELLO)
        for node, reply in exchange(self.grid, queries, seconds) if queries else ():
            silent.discard(node)
            if reply.has_error():
                log.warning("node %d does not say who it is: %s", node, printable(reply.error.reason[:500]))
                continue
            hello = reply.content.config_records.get("hello", ConfigRecord({}))
            place = hello.get("seat", -1)
            wishes[node] = place if isinstance(place, int) and place >= 0 else None
            names[node] = name_of(str(hello.get("identity", node)))
            if (version := str(hello.get(VERSION, "of an earlier version"))) != __version__:
                log.warning(
                    "client %s has fedwca %s, this server %s; one version everywhere is what is tested",
                    names[node],
                    printable(version[:50]),
                    __version__,
                )
        for node in sorted(silent):
            log.warning("node %d did not say in time who it is", node)
        for node in sorted(wishes):
            wish = wishes[node]
            self._names[node] = names[node]
            if wish is not None and self.deployment.rejoin:
                self.session.release(wish, {self._names[present] for present in online if present in self._names})
            number = self.session.admit(names[node], wish)
            # Two nodes of one name would answer for one client: only the later one is used from now on.
            for older in [older for older, assigned in self._numbers.items() if assigned == number is not None]:
                self._numbers[older] = None
                if older in online:
                    log.warning(
                        "client %d is connected twice, anew or from a copied folder; the later one counts", number
                    )
            self._numbers[node] = number
        numbers = {node: self._numbers.get(node) for node in online}
        return {client: node for node, client in numbers.items() if client is not None}

    def _forget_nodes(self, online: Sequence[int]) -> None:
        """With ``rejoin``, forget nodes that are gone, and nodes that were turned away so that they are asked again."""
        gone = self._numbers.keys() - set(online)
        if not (self.deployment.rejoin and gone):
            return
        served = {self._names[node] for node in online if self._numbers.get(node) is not None}
        for node, number in list(self._numbers.items()):
            # An older node of a client that is connected anew stays turned away.
            if node in gone or (number is None and self._names[node] not in served):
                del self._numbers[node]

    def _exchange(self, parcels: dict[int, tuple[int, Parcel]], number: int) -> set[int]:
        """Send parcels, wait until the deadline, and give the answers to the session.

        Returns the clients that confirmed their final model.
        """
        delivered: set[int] = set()
        owners = {node: client for client, (node, _) in parcels.items()}
        messages, down = [], {}
        contents = to_records([parcel for _, parcel in parcels.values()])
        for (client, (node, _)), content in zip(parcels.items(), contents, strict=True):
            down[client] = count_bytes(content)
            messages.append(Message(content, dst_node_id=node, message_type=MessageType.TRAIN, group_id=str(number)))
        if not messages:
            return delivered
        up: dict[int, int] = {}
        silent = set(down)
        self._say(asked=len(messages))
        for node, reply in exchange(self.grid, messages, self.deployment.deadline):
            client = owners[node]
            silent.discard(client)
            if reply.has_error():
                log.warning("round %d: %s failed: %s", number, self._call(client), printable(reply.error.reason[:500]))
                continue
            up[client] = count_bytes(reply.content)
            try:
                answer = from_record(reply.content, self.session.context.max_answer_bytes)
            except FedwcaError as error:
                log.warning("round %d: %s refused: %s", number, self._call(client), printable(str(error)[:500]))
                continue
            if answer.kind == "done" and parcels[client][1].kind == "final":
                delivered.add(client)
            else:
                self.session.receive(client, answer)
        for client in sorted(silent):
            log.warning("round %d: %s did not answer in time", number, self._call(client))
        self._say(asked=0)
        self._count(number, down, up)
        return delivered

    def _call(self, client: int) -> str:
        """Return how the log names a client: its number, and the name that `fedwca client` prints at its start."""
        return f"client {client} ({self.session.state.names[client]})"

    def _count(self, number: int, down: dict[int, int], up: dict[int, int]) -> None:
        """Append the bytes sent and received, by client, to ``wire.jsonl``."""
        line: dict[str, Any] = {"round": number, "down": down, "up": up}
        with (self.folder / "wire.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
