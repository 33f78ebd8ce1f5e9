"""Everything that determines later rounds, converted to the tensors and plain values of a checkpoint, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from fedwca.engine.interface import Engine
from fedwca.errors import CheckpointError
from fedwca.federated.server import Server
from fedwca.federated.source_model import StartModel
from fedwca.results.saved_checkpoint import SavedCheckpoint, SelectedRound
from fedwca.results.shown_records import is_best_so_far
from fedwca.results.unit import Unit
from fedwca.runs.resuming.resume_checks import check_same_source_model

OUTSIDE_ROW = "network."
"""Begins the names of a checkpoint's tensors that are in no row, such as the classifier's."""


@dataclass(frozen=True)
class RoundState:
    """State between two rounds: together with the engine's bank, everything the next round depends on."""

    round: int
    """The last finished round; -1 before round 0."""
    server: Server
    labels: Tensor | None = None
    """Cluster of each client ``[K]`` in that round; None before round 0."""
    delivery: Tensor | None = None
    """The model each client would end with, as a mixture of the server's rows ``[K, R]``; None before round 0."""
    adapted: Tensor | None = None
    """Mask ``[K]`` bool of clients that end with their own model from the bank instead; None before the last phase."""


class CheckpointStore(Protocol):
    """Destination of a state's tensors: a run's `Checkpoints`, or a sender to the rank that writes them."""

    def save(self, unit: Unit, round: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], last: bool) -> None:
        """Store the tensors and facts of a unit after a round; ``last``: no round follows."""

    def end(self, unit: Unit) -> None:
        """Drop checkpoints that are not needed once a unit, and all trials run together with it, have ended."""


class Checkpointer:
    """Saves the state after each round, and restores the state that an earlier process saved.

    Args:
        store: where states are saved; None: nowhere.
        begun: last checkpoint of each unit that an earlier process started; None for a unit that needs none, because it
            is finished or diverged.
        sources: by index of the source model, a record of a method that an earlier process started from it.
    """

    def __init__(
        self,
        store: CheckpointStore | None = None,
        begun: Mapping[Unit, SavedCheckpoint | None] | None = None,
        sources: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> None:
        self.store, self.begun, self.sources = store, begun or {}, sources or {}
        self.selected = {unit: saved.selected for unit, saved in self.begun.items() if saved}
        self.told = {str(kind) for saved in self.begun.values() if saved for kind in saved.facts["told"]}

    def check_sources(self, models: Sequence[StartModel]) -> None:
        """Check that the source models are the ones an earlier process started its methods from.

        Raises:
            CheckpointError: a source model differs.
        """
        for number, record in self.sources.items():
            check_same_source_model(f"source model {number} of this run", record, models[number])

    def restore(self, unit: Unit, engine: Engine, model: StartModel) -> RoundState | None:
        """The state in a unit's last checkpoint, or None without one; its bank is copied into the engine.

        Raises:
            CheckpointError: the unit started from another source model, or has other clients.
        """
        saved = self.begun.get(unit)
        if saved is None:
            return None
        check_same_source_model(saved.path, saved.facts, model)
        state, bank = read_round_state(saved, len(engine.bank), engine.layout.width, engine.device)
        engine.bank.copy_(bank)
        return state

    def save(
        self,
        unit: Unit,
        state: RoundState,
        engine: Engine,
        model: StartModel,
        last: bool,
        validation: float = math.nan,
    ) -> None:
        """Save a state after its record was written; ``validation``: percent, which selects the round to report."""
        if self.store is None:
            return
        selected = self.selected.get(unit)
        if is_best_so_far(validation, None if selected is None else selected.validation):
            selected = self.selected[unit] = SelectedRound(round=state.round, validation=validation)
        tensors, devices = state_to_tensors(state, engine)
        issued_warnings = sorted(kind for kind in self.told if kind == "trust" or kind.endswith(f" {unit.method}"))
        facts: dict[str, Any] = {
            "source_digest": model.digest,
            "source_weights": model.weights,
            "told": issued_warnings,
            "devices": devices,
            "device": engine.device.type,
        }
        if selected:
            facts["selected"] = selected.model_dump()
        self.store.save(unit, state.round, tensors, facts, last)

    def end(self, unit: Unit) -> None:
        """Drop the unit's checkpoints that need not stay after its last round."""
        if self.store is not None:
            self.store.end(unit)


def state_to_tensors(state: RoundState, engine: Engine) -> tuple[dict[str, Tensor], dict[str, str]]:
    """A state as tensors by name, and the device type of each; the bank is left out before round 0."""
    server, others = state.server, engine.layout.read_others(engine.network)
    tensors = {
        "rows": server.rows,
        "source": server.source,
        **({"bank": engine.bank} if state.round >= 0 else {}),
        **({} if state.labels is None else {"labels": state.labels}),
        **({} if state.delivery is None else {"delivery": state.delivery}),
        **({} if state.adapted is None else {"adapted": state.adapted.byte()}),
        **{f"state.{name}": value for name, value in server.state.items()},
        # With the classifier, say, a model is complete without the source model's file.
        **{f"{OUTSIDE_ROW}{name}": value for name, value in others.items()},
    }
    # Sorted, so that the same state gives the same file.
    tensors = dict(sorted(tensors.items()))
    return tensors, {name: tensor.device.type for name, tensor in tensors.items()}


def read_round_state(
    saved: SavedCheckpoint, clients: int, width: int, device: torch.device | str
) -> tuple[RoundState, Tensor]:
    """The state a checkpoint holds, and every client's own model ``[K, P]``.

    Args:
        saved: the checkpoint.
        clients: K, number of clients of the run.
        width: P, values of a model.
        device: device of the models.

    Raises:
        CheckpointError: it lacks a tensor, or is of another number of clients or another architecture.
    """
    tensors = saved.tensors()

    def on_device(name: str) -> Tensor:
        return tensors[name] if saved.facts["devices"][name] == "cpu" else tensors[name].to(device)

    if missing := [name for name in ("rows", "source", *["bank"][saved.round < 0 :]) if name not in tensors]:
        raise CheckpointError(f"{saved.path}: lacks {missing[0]!r}; it is no checkpoint of a run")
    rows, source = (tensors[name].to(device) for name in ("rows", "source"))
    initial_bank = rows if len(rows) == clients else source.expand(clients, -1)
    bank = initial_bank if saved.round < 0 else tensors["bank"].to(device)
    if bank.shape != (clients, width):
        raise CheckpointError(
            f"{saved.path}: holds {tuple(bank.shape)} values of clients' models; this run needs {(clients, width)}"
        )
    server_state = {name.removeprefix("state."): on_device(name) for name in tensors if name.startswith("state.")}
    adapted = tensors["adapted"].bool() if "adapted" in tensors else None
    server = Server(rows, server_state, source)
    return RoundState(saved.round, server, tensors.get("labels"), tensors.get("delivery"), adapted), bank
