"""Files that outlive a process: the server's state, a client's, and models."""

from __future__ import annotations

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
from fedwca.deploy.wire_messages import row_to_tensors, tensors_to_row
from fedwca.engine.parameter_layout import Layout
from fedwca.errors import CheckpointError, FedwcaError
from fedwca.export.card import model_card
from fedwca.federated.server import Server
from fedwca.registry import Registry

SESSION_FORMAT, CLIENT_FORMAT = "2", "1"
"""Versions of these files."""
FINAL = "model.safetensors"
"""The model a client ends with, in its folder."""


def write_state(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any], version: str) -> None:
    """Tensors and plain values in one file, whole or not at all."""
    write_tensors(path, tensors, {"format": version, "notes": json.dumps(dict(notes))}, private=True)


def read_state(path: Path, version: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `write_state` wrote.

    Raises:
        CheckpointError: the file is missing, damaged, or of another version.
    """
    file = open_tensors(path)
    about = file.metadata
    if about.get("format") != version:
        raise CheckpointError(f"{path}: of version {about.get('format')!r}; this fedwca reads {version!r}")
    with _damage_named(path):
        return file.tensors(), dict(json.loads(about["notes"]))


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """A file that lacks something, or whose values do not fit one another, is damaged.

    Raises:
        CheckpointError: names the file.
    """
    try:
        yield
    except FedwcaError:
        raise
    except (LookupError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path}: is damaged ({type(error).__name__}: {error})") from None


def save_session(session: Session, path: Path) -> None:
    """Keep a session's state, so that a server that dies loses at most the round it is in."""
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
    """Go on where a server stopped.

    Raises:
        CheckpointError: the file is damaged, or of another composition, source model or clusterer.
        UsageError: it is of a federation of another size.
    """
    tensors, notes = read_state(path, SESSION_FORMAT)
    with _damage_named(path):
        if differs := list(_find_differences(session, notes)):
            raise CheckpointError(
                f"{path}: of another {' and another '.join(differs)}; remove it, or run what it was made by"
            )
        state = {name.removeprefix("state/"): t for name, t in tensors.items() if name.startswith("state/")}
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
            )
        )


def _find_differences(session: Session, notes: Mapping[str, Any]) -> Iterator[str]:
    """What a checkpoint is of another one of; earlier versions noted no source model and no clusterer."""
    if not Composition.read(notes["composition"]).plays_as(session.composition):
        yield "composition or seed"
    source, clusterer = checksum(session.context.source), _dump_clusterer(session)
    if notes.get("source checksum", source) != source:
        yield "source model"
    kept = notes.get("clusterer", clusterer)
    # One that differs may only lack a field that a later version has, with its default.
    if kept != clusterer and (
        None in (kept, clusterer) or registry_of("clusterer").build(kept) != session.method.clusterer
    ):
        yield "clusterer"


def _dump_clusterer(session: Session) -> dict[str, Any] | None:
    return None if session.method.clusterer is None else Registry.dump(session.method.clusterer)


def save_client(client: Client, path: Path) -> None:
    """Keep what a client was told and its own model, so that each round may be a process of its own."""
    if client.composition is None:
        return
    source = {f"source/{name}": tensor for name, tensor in client.engine.network.state_dict().items()}
    notes = {"client": client.index, "composition": client.composition.model_dump_json()}
    if client.trust is not None:
        notes["trust"] = client.trust
    held = {"own": client.engine.bank[0], "left": client.residual}
    if client.round_start is not None:
        notes["began"], held["began"], held["left before"] = client.round_start
    kept = {name: tensor for name, tensor in held.items() if tensor is not None}
    write_state(path, {**source, **kept}, notes, CLIENT_FORMAT)


def resume_client(client: Client, path: Path) -> None:
    """Take up what `save_client` kept.

    Raises:
        CheckpointError: the file is damaged.
    """
    tensors, notes = read_state(path, CLIENT_FORMAT)
    source = {name.removeprefix("source/"): t for name, t in tensors.items() if name.startswith("source/")}
    with _damage_named(path):
        composition, index = Composition.read(notes["composition"]), int(notes["client"])
        own, left = tensors["own"], tensors.get("left")
        began = (int(notes["began"]), tensors["began"], tensors.get("left before")) if "began" in notes else None
        trust = float(notes.get("trust", math.nan))  # an earlier release did not ask
    client.set_up(composition, index, source)
    client.trust = trust
    bank = client.engine.bank
    if any(row.shape != bank[0].shape for row in (own, *([began[1]] if began else []))):
        raise CheckpointError(f"{path}: is damaged (a model in it is not of the size that its composition says)")
    bank[0], client.residual = own.to(bank), left
    if began is not None:
        client.round_start = (began[0], began[1].to(bank), began[2])


def save_final(client: Client, folder: Path) -> None:
    """The model a client ends with, and its card, as `fedwca export` writes them: `predict`, `export` and
    ``--checkpoint`` read it.
    """
    assert client.final is not None
    assert client.composition is not None
    parts = row_to_tensors(client.final.cpu(), client.engine.layout)
    tensors = {**client.engine.network.state_dict(), **parts}
    about = describe_deployed(client.composition, tensors, f"client {client.index}", client.final_rounds)
    write_tensors(folder / FINAL, tensors, {KEY: about.text()}, private=True)
    card = model_card(about, FINAL, "safetensors")
    write_text_atomically(folder / f"{FINAL}.md", card)


def read_final(folder: Path, layout: Layout) -> Tensor:
    """The row ``[P]`` of what `save_final` wrote.

    Raises:
        CheckpointError: there is none: the client was not there at the end.
    """
    if not (folder / FINAL).is_file():
        raise CheckpointError(f"{folder / FINAL} is missing: this client has no model of its own at the end")
    return tensors_to_row(open_tensors(folder / FINAL).tensors(), layout)
