"""State files: the server's checkpoint, a client's state between rounds, and final models."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from fedwca.config.component_registries import registry_of
from fedwca.core.files import write_text_atomically
from fedwca.core.model_description import KEY
from fedwca.core.tensor_files import checksum, open_tensors, write_tensors
from fedwca.deploy.client import Client
from fedwca.deploy.composition import Composition
from fedwca.deploy.describe_deployed import describe_deployed
from fedwca.deploy.session import Session
from fedwca.deploy.session_state import ClusteredClients, SessionState
from fedwca.deploy.wire_messages import tensors_to_row
from fedwca.engine.parameter_layout import Layout
from fedwca.errors import CheckpointError, FedwcaError
from fedwca.export.card import model_card
from fedwca.federated.server import Server
from fedwca.registry import Registry

SESSION_FORMAT, CLIENT_FORMAT = "2", "1"
"""Format versions of the server's and the client's state file."""
FINAL = "model.safetensors"
"""Name of the file, in a client's folder, with the model that the client ends with."""


def write_state(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any], version: str) -> None:
    """Write tensors and plain values to one file, atomically."""
    write_tensors(path, tensors, {"format": version, "notes": json.dumps(dict(notes))}, private=True)


def read_state(path: Path, version: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and plain values that `write_state` wrote.

    Raises:
        CheckpointError: the file is missing, damaged, or of another version.
    """
    file = open_tensors(path)
    metadata = file.metadata
    if metadata.get("format") != version:
        raise CheckpointError(f"{path}: of version {metadata.get('format')!r}; this fedwca reads {version!r}")
    with _damage_named(path):
        return file.tensors(), dict(json.loads(metadata["notes"]))


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """Report missing entries and inconsistent values of a file as damage.

    Raises:
        CheckpointError: reading raised a LookupError, ValueError or TypeError; names the file.
    """
    try:
        yield
    except FedwcaError:
        raise
    except (LookupError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path}: is damaged ({type(error).__name__}: {error})") from None


def save_session(session: Session, path: Path) -> None:
    """Write a session's checkpoint; a server that crashes loses at most the current round."""
    state, clustered = session.state, session.state.clustered
    tensors = {
        "rows": state.server.rows,
        "source": state.server.source,
        "shares": state.shares,
        **{f"state/{name}": tensor for name, tensor in state.server.state.items()},
    }
    notes: dict[str, Any] = {
        "round": state.round,
        "seats": state.names,
        "samples": state.samples,
        "waiting": sorted(state.waiting),
        "composition": session.composition.model_dump_json(),
        "source checksum": checksum(session.context.source),
        "clusterer": _dump_clusterer(session),
    }
    if clustered is not None:
        tensors |= {"clustered/numbers": clustered.numbers, "clustered/vectors": clustered.vectors}
        notes["metric"] = clustered.metric
    write_state(path, tensors, notes, SESSION_FORMAT)


def resume_session(session: Session, path: Path) -> None:
    """Restore a session from a checkpoint.

    Raises:
        CheckpointError: the file is damaged, or of another composition, source model or clusterer.
        UsageError: the checkpoint is of a federation of another size.
    """
    tensors, notes = read_state(path, SESSION_FORMAT)
    with _damage_named(path):
        if differences := list(_find_differences(session, notes)):
            raise CheckpointError(
                f"{path}: of another {' and another '.join(differences)}; remove it, or run what it was made by"
            )
        state = {name.removeprefix("state/"): tensor for name, tensor in tensors.items() if name.startswith("state/")}
        clustered = None
        if "metric" in notes:
            clustered = ClusteredClients(tensors["clustered/numbers"], tensors["clustered/vectors"], notes["metric"])
        session.resume(
            SessionState(
                round=notes["round"],
                server=Server(tensors["rows"], state, tensors["source"]),
                shares=tensors["shares"],
                names=tuple(notes["seats"]),
                samples=tuple(notes["samples"]),
                clustered=clustered,
                waiting=frozenset(notes["waiting"]),
            ),
            Composition.read(notes["composition"]).stretch,
        )


def _find_differences(session: Session, notes: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs between a checkpoint's notes and a session, as words for a message.

    Checkpoints of earlier versions lack the source model's checksum and the clusterer; these then count as equal.
    """
    composition = Composition.read(notes["composition"])
    # Clients go on with the images they began with: those of 0.1.0 crop files that a new deployment stretches.
    if not composition.plays_as(session.composition.model_copy(update={"stretch": composition.stretch})):
        yield "composition or seed"
    source, clusterer = checksum(session.context.source), _dump_clusterer(session)
    if notes.get("source checksum", source) != source:
        yield "source model"
    stored = notes.get("clusterer", clusterer)
    # The stored clusterer may differ only in lacking a field that a later version added, with its default.
    if stored != clusterer and (
        None in (stored, clusterer) or registry_of("clusterer").build(stored) != session.method.clusterer
    ):
        yield "clusterer"


def _dump_clusterer(session: Session) -> dict[str, Any] | None:
    return None if session.method.clusterer is None else Registry.dump(session.method.clusterer)


def save_client(client: Client, path: Path) -> None:
    """Write a client's state, so that each round can run in a new process; nothing if the client is not set up."""
    if client.composition is None:
        return
    source = {f"source/{name}": tensor for name, tensor in client.engine.network.state_dict().items()}
    notes = {"client": client.index, "composition": client.composition.model_dump_json()}
    if client.trust is not None:
        notes["trust"] = client.trust
    optional_tensors = {"own": client.engine.bank[0], "left": client.residual}
    if client.round_start is not None:
        notes["began"], optional_tensors["began"], optional_tensors["left before"] = client.round_start
    own_tensors = {name: tensor for name, tensor in optional_tensors.items() if tensor is not None}
    write_state(path, {**source, **own_tensors}, notes, CLIENT_FORMAT)


def resume_client(client: Client, path: Path) -> None:
    """Restore a client from the file that `save_client` wrote.

    Raises:
        CheckpointError: the file is damaged.
        FedwcaError: see `Client.set_up`.
    """
    tensors, notes = read_state(path, CLIENT_FORMAT)
    source = {name.removeprefix("source/"): tensor for name, tensor in tensors.items() if name.startswith("source/")}
    with _damage_named(path):
        composition, index = Composition.read(notes["composition"]), int(notes["client"])
        model, residual = tensors["own"], tensors.get("left")
        round_start = (int(notes["began"]), tensors["began"], tensors.get("left before")) if "began" in notes else None
        trust = float(notes.get("trust", math.nan))  # files of an earlier release lack it; NaN: not measured again
    composition.build()  # fails here if a component is no longer installed
    client.set_up(composition, index, source)
    client.trust = trust
    bank = client.engine.bank
    if any(row.shape != bank[0].shape for row in (model, *([round_start[1]] if round_start else []))):
        client.composition = None  # as if it had never been asked: it needs the source model again
        raise CheckpointError(f"{path}: is damaged (a model in it is not of the size that its composition says)")
    bank[0], client.residual = model.to(bank), residual
    if round_start is not None:
        client.round_start = (round_start[0], round_start[1].to(bank), round_start[2])


def save_final(client: Client, folder: Path) -> None:
    """Write a client's final model and its card in the format of `fedwca export`.

    `fedwca predict`, `fedwca export` and ``--checkpoint`` read the file.
    """
    assert client.final is not None
    assert client.composition is not None
    # Written into a network, so that tensors that share memory under several names, of which a row has one, follow.
    network = copy.deepcopy(client.engine.network).cpu()
    client.engine.layout.write(network, client.final)
    tensors = network.state_dict()
    description = describe_deployed(client.composition, tensors, f"client {client.index}", client.final_rounds)
    write_tensors(folder / FINAL, tensors, {KEY: description.text()}, private=True)
    card = model_card(description, FINAL, "safetensors")
    write_text_atomically(folder / f"{FINAL}.md", card)


def read_final(folder: Path, layout: Layout) -> Tensor:
    """Return the model ``[P]`` that `save_final` wrote.

    Raises:
        CheckpointError: the file is missing, because the client was not connected at the end, or it is not readable.
    """
    if not (folder / FINAL).is_file():
        raise CheckpointError(f"{folder / FINAL} is missing: this client has no model of its own at the end")
    return tensors_to_row(open_tensors(folder / FINAL).tensors(), layout)
