"""Files that outlive a process: the server's memory, a client's, and models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fedwca.core.tensor_files import open_tensors, write_tensors
from fedwca.deploy.client import Client
from fedwca.deploy.composition import Composition
from fedwca.deploy.messages import row_to_tensors, tensors_to_row
from fedwca.deploy.rules import ServerState
from fedwca.deploy.session import Session
from fedwca.engine.layout import Layout
from fedwca.errors import CheckpointError
from fedwca.federated.round import Server

FORMAT = "1"
"""Version of these files."""
FINAL = "model.safetensors"
"""The model a client ends with, in its folder."""


def write_state(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
    """Tensors and plain values in one file, whole or not at all."""
    write_tensors(path, tensors, {"format": FORMAT, "notes": json.dumps(dict(notes))}, private=True)


def read_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `write_state` wrote.

    Raises:
        CheckpointError: the file is missing, damaged, or of another version.
    """
    file = open_tensors(path)
    about = file.metadata
    if about.get("format") != FORMAT:
        raise CheckpointError(f"{path}: of version {about.get('format')!r}; this fedwca reads {FORMAT!r}")
    return file.tensors(), json.loads(about["notes"])


def save_session(session: Session, path: Path) -> None:
    """Keep a session's memory, so that a server that dies loses at most the round it is in."""
    memory = session.memory
    tensors = {
        "rows": memory.server.rows,
        "source": memory.server.source,
        "shares": memory.shares,
        "anchors": memory.anchors,
        **{f"state/{name}": tensor for name, tensor in memory.server.state.items()},
    }
    notes = {
        "round": memory.round,
        "seats": memory.seats,
        "samples": memory.samples,
        "waiting": sorted(memory.waiting),
        "composition": session.composition.model_dump_json(),
    }
    write_state(path, tensors, notes)


def resume_session(session: Session, path: Path) -> None:
    """Go on where a server stopped.

    Raises:
        CheckpointError: the file is damaged, or of another composition.
        UsageError: it is of a federation of another size.
    """
    tensors, notes = read_state(path)
    if notes["composition"] != session.composition.model_dump_json():
        raise CheckpointError(f"{path}: of another composition or seed; remove it, or run what it was made by")
    state = {name.removeprefix("state/"): t for name, t in tensors.items() if name.startswith("state/")}
    server = Server(tensors["rows"], state, tensors["source"])
    seats, samples = tuple(notes["seats"]), tuple(notes["samples"])
    waiting = frozenset(notes["waiting"])
    session.resume(ServerState(notes["round"], server, tensors["shares"], tensors["anchors"], seats, samples, waiting))


def save_client(client: Client, path: Path) -> None:
    """Keep what a client was told and its own model, so that each round may be a process of its own."""
    if client.composition is None:
        return
    source = {f"source/{name}": tensor for name, tensor in client.loop.network.state_dict().items()}
    notes = {"client": client.index, "composition": client.composition.model_dump_json()}
    held = {"own": client.loop.bank[0], "left": client.left}
    if client.began is not None:
        notes["began"], held["began"], held["left before"] = client.began
    write_state(path, {**source, **{name: tensor for name, tensor in held.items() if tensor is not None}}, notes)


def resume_client(client: Client, path: Path) -> None:
    """Take up what `save_client` kept.

    Raises:
        CheckpointError: the file is damaged.
    """
    tensors, notes = read_state(path)
    source = {name.removeprefix("source/"): t for name, t in tensors.items() if name.startswith("source/")}
    client.learn(Composition.read(notes["composition"]), notes["client"], source)
    client.loop.bank[0] = tensors["own"].to(client.loop.device)
    client.left = tensors.get("left")
    if "began" in notes:
        client.began = (notes["began"], tensors["began"].to(client.loop.device), tensors.get("left before"))


def save_final(client: Client, folder: Path) -> None:
    """The model a client ends with, with the classifier: a state dict that `fedwca bench --checkpoint` reads too."""
    assert client.final is not None
    parts = row_to_tensors(client.final.cpu(), client.loop.layout)
    write_tensors(folder / FINAL, {**client.loop.network.state_dict(), **parts}, private=True)


def read_final(folder: Path, layout: Layout) -> Tensor:
    """The row ``[P]`` of what `save_final` wrote.

    Raises:
        CheckpointError: there is none: the client was not there at the end.
    """
    if not (folder / FINAL).is_file():
        raise CheckpointError(f"{folder / FINAL} is missing: this client has no model of its own at the end")
    return tensors_to_row(open_tensors(folder / FINAL).tensors(), layout)
