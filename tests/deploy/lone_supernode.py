"""A client's real SuperNode with its apps, against a server that this process stands in for.

``python -m tests.deploy.lone_supernode FOLDER [kill]``. There are four clients: the first is behind the SuperNode, the
others answer within this process. At the end FOLDER holds ``report.json``, with an entry for each message (process ids
of the apps, seconds, CPU seconds), and ``rows.safetensors``, the server's models. With ``kill``, the process that apps
are forked from is killed after round 0.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Message, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.app.metadata import Metadata
from flwr.cli.build import build_fab_from_disk
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, no_object_id_recompute
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import Run
from flwr.supernode import start_client_internal
from safetensors.torch import save_file

from fedwca.deploy.flower import supernode
from fedwca.deploy.flower.addresses import free_port
from fedwca.deploy.flower.deployment_folder import APP_FILES, PACKAGE, PYPROJECT
from fedwca.deploy.flower.records import from_record, to_record

from ..conftest import a_network, some_images
from .conftest import Federation, composed

ROUNDS, RUN, NODE = 3, 7, 5


def toy() -> Federation:
    return Federation(composed("wca:ta=1,tb=1"), a_network(), some_images(), {})


def children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def spent() -> float:
    """CPU seconds that all descendants of this process have used so far."""
    processes = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split() if entry.name.isdigit() else []
            if fields:
                processes[int(entry.name)] = (int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"))
    tree = {os.getpid()}
    while next_generation := {pid for pid, (parent, _) in processes.items() if parent in tree} - tree:
        tree |= next_generation
    return sum(processes[pid][1] for pid in tree - {os.getpid()})


class LoneServer:
    """The server's end of a SuperNode's connection, for one node."""

    def __init__(self, folder: Path, kill: bool) -> None:
        self.folder, self.kill = folder, kill
        federation = toy()
        self.session, self.clients = federation.session(), federation.clients()
        for number in range(4):
            self.session.admit(f"client-{number}", number)
        for name, text in (("pyproject.toml", PYPROJECT.format(folder='"x"')), *APP_FILES.items()):
            path = folder / "app" / (name if name == "pyproject.toml" else f"{PACKAGE}/{name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.fab = build_fab_from_disk(folder / "app")
        self.replies: dict[str, bytes] = {}
        self.reply = ""
        self.told: list[dict[str, Any]] = []
        self.script = self.play()
        self.next: Message | None = next(self.script)

    def play(self) -> Iterator[Message]:
        """Yield what the node is sent; its answer must be in ``self.replies`` when the next message is asked for."""
        yield self.message("query", RecordDict())
        while self.session.state.round < ROUNDS:
            parcels = self.session.open(range(4))
            for number in (1, 2, 3):
                self.session.receive(number, self.clients[number].handle(parcels[number]))
            yield self.message("train", to_record(parcels[0]))
            answer = inflate_object_from_contents(self.reply, dict(self.replies))
            assert isinstance(answer, Message)
            assert not answer.has_error(), answer.error
            assert self.session.receive(0, from_record(answer.content)) == ""
            self.session.close()
            if self.kill and self.session.state.round == 1:
                os.kill(children()[0], signal.SIGKILL)
        yield self.message("train", to_record(self.session.final_parcels([0])[0]))

    def message(self, kind: str, content: RecordDict) -> Message:
        metadata = Metadata(RUN, "", 1, NODE, "", "", time.time(), 3600.0, kind)
        return make_message(metadata=metadata, content=content)

    def receive(self) -> tuple[Message, Any] | None:
        if self.reply:
            seconds = round(time.monotonic() - self.begun, 2)
            self.told.append({"apps": children(), "seconds": seconds, "cpu_seconds": spent()})
            self.next, self.reply = next(self.script, None), ""
            if self.next is None:
                self.end()
        if self.next is None:
            return None
        message, self.next = self.next, None
        with no_object_id_recompute():
            message.metadata.__dict__["_message_id"] = message.object_id
            tree = get_object_tree(message)
            self.contents = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
        self.begun = time.monotonic()
        return remove_content_from_message(message), tree

    def end(self) -> None:
        save_file({"rows": self.session.state.server.rows}, str(self.folder / "rows.safetensors"))
        (self.folder / "report.json").write_text(json.dumps(self.told))
        signal.raise_signal(signal.SIGTERM)

    def send(self, message: Message, tree: Any, seconds: float) -> tuple[set[str], str]:
        names: set[str] = set()
        todo = [tree]
        while todo:
            part = todo.pop()
            names.add(part.object_id)
            todo += part.children
        self.replies, self.reply = {}, message.metadata.message_id
        return names, ""

    def get_run(self, number: int) -> Run:
        run = Run.create_empty(number)
        run.fab_id, run.fab_version, run.fab_hash = "local/fedwca-app", "0.1.0", hashlib.sha256(self.fab).hexdigest()
        return run

    @contextmanager
    def connection(self, **_: Any) -> Iterator[tuple[Any, ...]]:
        yield (
            NODE,
            self.receive,
            self.send,
            self.get_run,
            lambda name, run: Fab(name, self.fab, {}),
            lambda run, name: self.contents[name],
            lambda run, session, name, content: self.replies.__setitem__(name, content),
            lambda run, name: None,
        )


def main(folder: Path, *flags: str) -> None:
    images = toy().images[0].train.permute(0, 2, 3, 1).contiguous().numpy()
    np.savez(folder / "images.npz", images=images)
    os.environ["FLWR_HOME"] = str(folder / "flwr")
    (folder / "flwr").mkdir()
    (folder / "state").mkdir()
    node_config = {"data": str(folder / "images.npz"), "state": str(folder / "state"), "number": 0}
    config_text = " ".join(f"{key}={json.dumps(value)}" for key, value in node_config.items())
    sys.argv = ["flower-supernode", "--insecure", "--port", str(free_port()), "--node-config", config_text]
    start_client_internal._init_connection = LoneServer(folder, "kill" in flags).connection
    supernode.run_supernode()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
