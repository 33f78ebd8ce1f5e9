"""The ServerApp: carries a session's parcels to nodes and their answers back."""

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

log = logging.getLogger("fedwca.deploy")
POLL = 1.0
HELLO = 30.0
"""Seconds that a node has to say who it is, while those that have said it are enough for a round."""
DELIVERIES = 3
"""Times that a client is sent the model it ends with, until it says that it has it."""


def server_app() -> ServerApp:
    """The app; the server's folder is named by ``folder`` of the run's configuration."""
    app = ServerApp()
    app.main()(lambda grid, context: _main(grid, context))
    return app


def _main(grid: Grid, context: Context) -> None:
    folder = Path(str(context.run_config["folder"]))
    with hold_alone(folder / RUNNING) as alone:
        if not alone:
            raise UsageError(f"another run of {folder} goes on")  # its log is not written to
        _play(grid, folder)


def _play(grid: Grid, folder: Path) -> None:
    """One run, and a log of it: Flower keeps what an app prints to itself."""
    handler = logging.FileHandler(folder / LOG)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        FlowerServer(grid, DeploymentConfig.read(folder / CONFIG_NAME), folder).run()
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:  # as Flower ends an app whose run is stopped
            log.warning("%s; another one goes on after its last finished round", STOPPED)
        else:
            log.error("%s: %s: %s", FAILED, type(error).__name__, printable(str(error)))
        raise
    finally:
        log.removeHandler(handler)
        handler.close()


def wait_for(grid: Grid, count: int, seconds: float, tell: Callable[[int], None] = lambda found: None) -> None:
    """Wait until ``count`` nodes can be reached, or until the seconds are over; ``tell`` is told how many can be."""
    until = time.monotonic() + seconds
    while True:
        found = len(list(grid.get_node_ids()))
        tell(found)
        if found >= count or time.monotonic() >= until:
            return
        time.sleep(POLL)


def exchange(grid: Grid, messages: Sequence[Message], seconds: float) -> Iterator[tuple[int, Message]]:
    """Send, and give each reply as it comes with the node that was asked, until all are there or the seconds are over.

    As `Grid.send_and_receive`, which asks for replies every 3 s and gives them all at the end. Where a node or its
    answer is lost, Flower replies itself, with an error. A reply that cannot be read is logged.
    """
    began = time.monotonic()
    numbers = grid.push_messages(messages)  # in order; an empty one for who is gone, none at all if they are too large
    asked = {name: message.metadata.dst_node_id for name, message in zip(numbers, messages, strict=False) if name}
    while asked and (waited := time.monotonic() - began) < seconds:
        for name, node in list(asked.items()):
            # One by one: what a node sends may be such that reading it fails, and others' replies would go with it.
            # Flower knows whose reply this is; what the reply says of that is the node's word.
            try:
                replies = list(grid.pull_messages({name}))
            except httpx.HTTPError:  # of the server itself
                raise
            except Exception as error:
                log.warning("node %d: its message cannot be read (%s)", node, type(error).__name__)
                del asked[name]
                continue
            for reply in replies[:1]:
                del asked[name]
                if reply.has_error() or reply.has_content():
                    yield node, reply
        if asked:
            time.sleep(next_pause(waited))


class FlowerServer:
    """One run of a federation.

    Args:
        grid: Flower's way to the nodes.
        deployment: what is played.
        folder: of the server, with ``source.safetensors``; checkpoint and wire counts are written there.
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
        """Play what is left of the rounds, then deliver.

        Raises:
            FedwcaError: a round got too few answers too often.
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
        """Nodes by client, and what to send to whom, once enough of them are there, or the deadline is over.

        A try counts against clients that are there and do not answer, not against a network that is away.
        """
        until = time.monotonic() + self.deployment.deadline
        while True:
            wait_for(self.grid, self.deployment.rules.least, until - time.monotonic(), self._say_connected)
            nodes = self._present()
            parcels = self.session.open(nodes)
            if self.session.everybody or self.session.asks_enough or time.monotonic() >= until:
                return nodes, parcels
            self._wait_for_others(set(self.grid.get_node_ids()), min(until, time.monotonic() + HELLO))

    def _wait_for_others(self, online: set[int], until: float) -> None:
        """Wait until other nodes can be reached than those that were, or until then."""
        while set(self.grid.get_node_ids()) == online and time.monotonic() < until:
            time.sleep(POLL)

    def _deliver(self) -> None:
        """Give each client the model it ends with, once more to who was away for a moment or has lost its folder."""
        missing = set(self.session.final_parcels())
        for _ in range(DELIVERIES):
            if not missing:
                break
            until = time.monotonic() + HELLO
            while missing.isdisjoint(self._present()) and time.monotonic() < until:
                self._wait_for_others(set(self.grid.get_node_ids()), until)
            nodes, parcels = self._present(), self.session.final_parcels()
            last = {client: (nodes[client], parcels[client]) for client in missing & set(nodes)}
            if not last:
                break
            missing -= self._exchange(last, self.deployment.rounds)
        if missing:
            log.warning("clients %s have not got their model; another run gives it to them", sorted(missing))
        if without := sorted(set(self._present()) - set(self.session.final_parcels())):
            log.warning("clients %s took part in no round, so there is no model for them", without)

    def _say(self, **changes: int) -> None:
        """Let who watches the folder know."""
        status = replace(self.status, **changes)
        if status != self.status:
            self.status = status
            write_status(self.folder, status)

    def _say_connected(self, count: int) -> None:
        if count != self.status.connected:
            log.info("%d of %d clients are connected", count, self.status.clients)
        self._say(connected=count)

    def _present(self) -> dict[int, int]:
        """Client → node of those that can be reached; nodes not seen before are asked which place they wish."""
        online = sorted(self.grid.get_node_ids())
        self._say_connected(len(online))
        self._forget_nodes(online)
        fresh = [node for node in online if node not in self._numbers]
        asked = [Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY) for node in fresh]
        wishes: dict[int, int | None] = {}
        names: dict[int, str] = {}
        silent = set(fresh)
        seconds = self.deployment.deadline
        # A node that never says it is asked in each round anew; without enough others there is nothing to get on with.
        if sum(self._numbers.get(node) is not None for node in online) >= self.deployment.rules.least:
            seconds = min(seconds, HELLO)
        for node, reply in exchange(self.grid, asked, seconds) if asked else ():
            silent.discard(node)
            if reply.has_error():
                log.warning("node %d does not say who it is: %s", node, printable(reply.error.reason[:500]))
                continue
            about = reply.content.config_records.get("hello", ConfigRecord({}))
            given = about.get("seat", -1)
            wishes[node] = given if isinstance(given, int) and given >= 0 else None
            names[node] = name_of(str(about.get("identity", node)))
            if (version := str(about.get(VERSION, "of an earlier version"))) != __version__:
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
                self.session.release(wish, {self._names[other] for other in online if other in self._names})
            number = self.session.admit(names[node], wish)
            # Two nodes by one name would answer for one client; the later one counts, from now on.
            for other in [other for other, taken in self._numbers.items() if taken == number is not None]:
                self._numbers[other] = None
                if other in online:
                    log.warning(
                        "client %d is connected twice, anew or from a copied folder; the later one counts", number
                    )
            self._numbers[node] = number
        here = {node: self._numbers.get(node) for node in online}
        return {client: node for node, client in here.items() if client is not None}

    def _forget_nodes(self, online: Sequence[int]) -> None:
        """Where places become free as nodes go, ask those again that were turned away before."""
        left = self._numbers.keys() - set(online)
        if not (self.deployment.rejoin and left):
            return
        served = {self._names[node] for node in online if self._numbers.get(node) is not None}
        for node, number in list(self._numbers.items()):
            # An older node of a client that is connected anew stays turned away.
            if node in left or (number is None and self._names[node] not in served):
                del self._numbers[node]

    def _exchange(self, parcels: dict[int, tuple[int, Parcel]], number: int) -> set[int]:
        """Send, wait until the deadline, hand the answers to the session. Returns who is done."""
        done: set[int] = set()
        owners = {node: client for client, (node, _) in parcels.items()}
        messages, down = [], {}
        contents = to_records([parcel for _, parcel in parcels.values()])
        for (client, (node, _)), content in zip(parcels.items(), contents, strict=True):
            down[client] = count_bytes(content)
            messages.append(Message(content, dst_node_id=node, message_type=MessageType.TRAIN, group_id=str(number)))
        if not messages:
            return done
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
                done.add(client)
            else:
                self.session.receive(client, answer)
        for client in sorted(silent):
            log.warning("round %d: %s did not answer in time", number, self._call(client))
        self._say(asked=0)
        self._count(number, down, up)
        return done

    def _call(self, client: int) -> str:
        """How the log calls a client: by its number and the name that it says at its start."""
        return f"client {client} ({self.session.state.names[client]})"

    def _count(self, number: int, down: dict[int, int], up: dict[int, int]) -> None:
        """Append what went over the wire, by client and direction, to ``wire.jsonl``."""
        line: dict[str, Any] = {"round": number, "down": down, "up": up}
        with (self.folder / "wire.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
