"""What decides the rounds to come, as tensors and plain values that a checkpoint can hold, and back."""

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
from fedwca.results.checkpoints import SavedCheckpoint, SelectedRound, Unit
from fedwca.runs.resume_checks import check_same_source_model


@dataclass(frozen=True)
class RoundState:
    """Between two rounds: with the engine's bank, all that the next one depends on."""

    round: int
    """The round that has ended; -1 before round 0."""
    server: Server
    labels: Tensor | None = None
    """Cluster of each client ``[K]`` in that round; None before round 0."""
    delivery: Tensor | None = None
    """The model each client would end with, as mixtures of the server's rows ``[K, R]``; None before round 0."""
    adapted: Tensor | None = None
    """Clients ``[K]`` bool that end with a model of their own instead, in the bank; None before the last phase."""


class CheckpointStore(Protocol):
    """Where the tensors of a state go: a run's `Checkpoints`, or the rank that writes them."""

    def save(self, unit: Unit, round: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], last: bool) -> None:
        """Keep them."""

    def end(self, unit: Unit) -> None:
        """Let go of those that need not stay now that a unit and all that went with it have ended."""


class Checkpointer:
    """Keeps the state after each round, and finds that of an earlier process.

    Args:
        store: where; None: nothing is kept.
        begun: the last checkpoint of each unit that an earlier process left; None for a unit it finished.
        sources: by number of a source model, a record of a method that an earlier process began from it.
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

    def finished(self, unit: Unit, rounds: int) -> bool:
        """Whether its last point is there, or was not to be kept."""
        return is_finished(self.begun, unit, rounds)

    def check_sources(self, models: Sequence[StartModel]) -> None:
        """See that methods yet to begin start from the source models that those of an earlier process started from.

        Raises:
            CheckpointError: one is another.
        """
        for number, record in self.sources.items():
            check_same_source_model(f"source model {number} of this run", record, models[number])

    def restore(self, unit: Unit, engine: Engine, model: StartModel) -> RoundState | None:
        """The point in its newest checkpoint.

        Raises:
            CheckpointError: it began from another source model, or has other clients.
        """
        saved = self.begun.get(unit)
        if saved is None:
            return None
        check_same_source_model(saved.path, saved.facts, model)
        return state_from_tensors(saved, engine)

    def save(
        self,
        unit: Unit,
        point: RoundState,
        engine: Engine,
        model: StartModel,
        last: bool,
        validation: float = math.nan,
    ) -> None:
        """Keep a state, after its record was written down; ``validation``: what the round is selected by, percent."""
        if self.store is None:
            return
        if not math.isnan(validation):
            best = self.selected.get(unit) or SelectedRound(round=point.round, validation=validation)
            self.selected[unit] = best.better(point.round, validation)
        tensors, devices = state_to_tensors(point, engine)
        told = sorted(kind for kind in self.told if kind.endswith(f" {unit.method}"))
        facts: dict[str, Any] = {
            "source_digest": model.digest,
            "source_weights": model.weights,
            "told": told,
            "devices": devices,
            "device": engine.device.type,
        }
        if selected := self.selected.get(unit):
            facts["selected"] = selected.model_dump()
        self.store.save(unit, point.round, tensors, facts, last)

    def end(self, unit: Unit) -> None:
        """Let go of checkpoints that need not stay."""
        if self.store is not None:
            self.store.end(unit)


def is_finished(begun: Mapping[Unit, SavedCheckpoint | None], unit: Unit, rounds: int) -> bool:
    """Whether an earlier process did all rounds of a unit, as a `Checkpointer` is told of them."""
    saved = begun.get(unit)
    return unit in begun and (saved is None or saved.round == rounds - 1)


def state_to_tensors(point: RoundState, engine: Engine) -> tuple[dict[str, Tensor], dict[str, str]]:
    """A point as tensors by name, and the kind of device of each; the bank is left out before round 0."""
    server, network = point.server, engine.network.state_dict()
    row = {slot.name for slot in engine.layout.slots}
    tensors = {
        "rows": server.rows,
        "source": server.source,
        **({"bank": engine.bank} if point.round >= 0 else {}),
        **({} if point.labels is None else {"labels": point.labels}),
        **({} if point.delivery is None else {"delivery": point.delivery}),
        **({} if point.adapted is None else {"adapted": point.adapted.byte()}),
        **{f"state.{name}": value for name, value in server.state.items()},
        # What is not in a row, such as the classifier: with it a model is whole without the source model's file.
        **{f"network.{name}": value for name, value in network.items() if name not in row},
    }
    # In one order, whatever order a state was made in: the same point gives the same file.
    tensors = dict(sorted(tensors.items()))
    return tensors, {name: tensor.device.type for name, tensor in tensors.items()}


def state_from_tensors(saved: SavedCheckpoint, engine: Engine) -> RoundState:
    """The point a checkpoint holds; its bank is put on the engine.

    Raises:
        CheckpointError: see `read_round_state`.
    """
    point, bank = read_round_state(saved, len(engine.bank), engine.layout.width, engine.device)
    engine.bank.copy_(bank)
    return point


def read_round_state(
    saved: SavedCheckpoint, clients: int, width: int, device: torch.device | str
) -> tuple[RoundState, Tensor]:
    """The point a checkpoint holds, and every client's own model ``[K, P]``.

    Args:
        saved: the checkpoint.
        clients: K, that the run has.
        width: P, values of a model.
        device: where models live.

    Raises:
        CheckpointError: it has other clients or another architecture.
    """
    tensors = saved.tensors()

    def placed(name: str) -> Tensor:
        return tensors[name] if saved.facts["devices"][name] == "cpu" else tensors[name].to(device)

    if lacks := [name for name in ("rows", "source", *["bank"][saved.round < 0 :]) if name not in tensors]:
        raise CheckpointError(f"{saved.path}: lacks {lacks[0]!r}; it is no checkpoint of a run")
    rows, source = (tensors[name].to(device) for name in ("rows", "source"))
    begun = rows if len(rows) == clients else source.expand(clients, -1)
    bank = begun if saved.round < 0 else tensors["bank"].to(device)
    if bank.shape != (clients, width):
        raise CheckpointError(
            f"{saved.path}: holds {tuple(bank.shape)} values of clients' models; this run needs {(clients, width)}"
        )
    state = {name.removeprefix("state."): placed(name) for name in tensors if name.startswith("state.")}
    adapted = tensors["adapted"].bool() if "adapted" in tensors else None
    server = Server(rows, state, source)
    return RoundState(saved.round, server, tensors.get("labels"), tensors.get("delivery"), adapted), bank
