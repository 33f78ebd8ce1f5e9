"""The ServerApp: sends a session's parcels to nodes and gives their answers to the session."""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from flwr.app import Context, Message, MessageType
from flwr.serverapp import Grid, ServerApp

from fedwca.core.deployment_files import CHECKPOINT, CONFIG_NAME, SOURCE
from fedwca.core.file_locks import hold_alone
from fedwca.core.printable import printable
from fedwca.deploy.flower.config import DeploymentConfig
from fedwca.deploy.flower.connected_clients import HELLO, ConnectedClients
from fedwca.deploy.flower.exchange_messages import (
    POLL,
    MessagesRefused,
    describe_failure,
    exchange_messages,
    wait_for_nodes,
    wait_for_other_nodes,
)
from fedwca.deploy.flower.follow_parent import watch_parent
from fedwca.deploy.flower.records import count_bytes, from_record, to_records
from fedwca.deploy.server_status import (
    COMPLETE,
    FAILED,
    LOG,
    RUNNING,
    STOPPED,
    ServerStatus,
    read_status,
    write_status,
)
from fedwca.deploy.session import Session
from fedwca.deploy.state_files import resume_session, save_session
from fedwca.deploy.wire_messages import Parcel
from fedwca.errors import FedwcaError, UsageError

log = logging.getLogger("fedwca.deploy")
RECONNECTION = 120.0
"""Seconds that a run which continues waits at most for all clients; they reconnect by themselves in less."""
DELIVERIES = 3
"""How often a client is sent its final model at most, until it confirms that it has it."""


GOES_ON = "another run goes on after the last finished round"


def server_app() -> ServerApp:
    """Return the app; ``folder`` in the run's configuration is the path of the server's folder."""
    app = ServerApp()
    app.main()(_main)
    return app


def _main(grid: Grid, context: Context) -> None:
    folder = Path(str(context.run_config["folder"]))
    # Before the log is opened, which the other run writes.
    with hold_alone(folder / RUNNING, UsageError(f"another run of {folder} goes on")):
        _play(grid, folder)


def _play(grid: Grid, folder: Path) -> None:
    """Run the federation and write its log to a file, since Flower does not show what an app prints."""
    handler = logging.FileHandler(folder / LOG, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with watch_parent(partial(_end_with_server, folder)):
            FlowerServer(grid, DeploymentConfig.read(folder / CONFIG_NAME), folder).run()
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:  # how Flower ends the app of a run that is stopped
            log.warning("%s; %s", STOPPED, GOES_ON)
        else:
            log.error("%s: %s: %s", FAILED, type(error).__name__, printable(str(error)))
        raise
    finally:
        log.removeHandler(handler)
        handler.close()


def _end_with_server(folder: Path) -> NoReturn:
    """End this process at once, and say so in the log and the status.

    Flower would have the main thread end by a signal, but that thread may wait for a request that is repeated for ever.
    """
    log.warning("%s: the server has ended; start it again, and %s", STOPPED, GOES_ON)
    if (status := read_status(folder)) is not None:
        write_status(folder, replace(status, asked=0, connected=0))
    os._exit(1)


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
        self.clients = ConnectedClients(grid, self.session, deployment, self._say_connected)

    def run(self) -> None:
        """Run the remaining rounds, then send clients their final models.

        Raises:
            FedwcaError: a round got too few answers more often than ``repeats`` allows.
        """
        session, deployment, tries = self.session, self.deployment, 0
        wait = min(deployment.wait, RECONNECTION) if session.state.round else deployment.wait
        wait_for_nodes(self.clients.count, deployment.rules.clients, wait, self._say_connected)
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
            if tries > deployment.repeats:
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
            wait_for_nodes(
                self.clients.count, self.deployment.rules.least, until - time.monotonic(), self._say_connected
            )
            nodes = self.clients.find_idle()
            parcels = self.session.open(nodes)
            if self.session.needs_all_answers or self.session.can_close or time.monotonic() >= until:
                return nodes, parcels
            wait_for_other_nodes(self.grid, set(self.grid.get_node_ids()), min(until, time.monotonic() + HELLO))

    def _deliver(self) -> None:
        """Send each client its final model, again to those that were disconnected for a moment or lost their folder."""
        missing = self.session.participants
        for _ in range(DELIVERIES):
            if not missing:
                break
            until = time.monotonic() + HELLO
            while missing.isdisjoint(self.clients.find()) and time.monotonic() < until:
                wait_for_other_nodes(self.grid, set(self.grid.get_node_ids()), until)
            nodes = self.clients.find()
            parcels = self.session.final_parcels(missing & nodes.keys())
            if not parcels:
                break
            missing -= self._send_final({client: (nodes[client], parcel) for client, parcel in parcels.items()})
        if missing and self.session.method.aggregator.sends_models:
            log.warning("clients %s have not got their model; another deploy run sends it to them", sorted(missing))
        elif missing:
            log.warning("clients %s did not say that they have their model; no one else has it", sorted(missing))
        if without_model := sorted(self.clients.find().keys() - self.session.participants):
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
        count = min(count, self.status.clients)  # more nodes are there until some are turned away
        if count != self.status.connected:
            log.info("%d of %d clients are connected", count, self.status.clients)
        self._say(connected=count)

    def _exchange(self, parcels: dict[int, tuple[int, Parcel]], number: int) -> set[int]:
        """Send parcels, wait until the deadline, and give the answers to the session.

        Returns the clients that confirmed their final model.
        """
        delivered: set[int] = set()
        name = f"round {number}" if number < self.deployment.rounds else "final models"
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
        try:
            for node, reply in exchange_messages(self.grid, messages, self.deployment.deadline):
                client = owners[node]
                silent.discard(client)
                if reply is None:
                    continue
                if reply.has_error():
                    log.warning("%s: %s failed: %s", name, self._call(client), describe_failure(reply))
                    continue
                up[client] = count_bytes(reply.content)
                try:
                    answer = from_record(reply.content, self.session.context.max_answer_bytes)
                except FedwcaError as error:
                    log.warning("%s: %s refused: %s", name, self._call(client), printable(str(error)[:500]))
                    continue
                if answer.kind == "done" and parcels[client][1].kind == "final":
                    delivered.add(client)
                else:
                    self.session.receive(client, answer)
        finally:
            self._say(asked=0)
        for client in sorted(silent):
            log.warning("%s: %s did not answer in time", name, self._call(client))
        self.clients.note_late([parcels[client][0] for client in silent])
        self._count(number, down, up)
        return delivered

    def _call(self, client: int) -> str:
        """Return how the log names a client: its number, and the name that `fedwca client` prints at its start."""
        return f"client {client} ({self.session.state.names[client]})"

    def _count(self, number: int, down: dict[int, int], up: dict[int, int]) -> None:
        """Append the bytes sent and received, by client, to ``wire.jsonl``."""
        line: dict[str, Any] = {"round": number, "down": down, "up": up}
        with suppress(OSError), (self.folder / "wire.jsonl").open("a") as file:  # a full disk must not end the round
            file.write(json.dumps(line) + "\n")
