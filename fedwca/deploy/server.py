"""The server of a real federation: rounds that survive absent, late and hostile clients, and a restart."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedwca.deploy.composition import Composition, require_deployable
from fedwca.deploy.protocol import Expected, Parcel, flaw, packed, unpacked
from fedwca.deploy.rounds import contributions, gathered, lonely, nearest, partition, too_far
from fedwca.deploy.rules import Memory, Rules
from fedwca.engine.bank import Layout, mix, pooled
from fedwca.engine.randomness import Keys
from fedwca.errors import FedwcaError, UsageError
from fedwca.network import Network
from fedwca.round import Method, Server, attendance, source_for
from fedwca.types import Offer

log = logging.getLogger("fedwca.deploy")


@dataclass
class _Open:
    """A round under way."""

    offer: Offer
    expected: dict[int, Expected] = field(default_factory=dict)
    own: dict[int, Tensor] = field(default_factory=dict)
    uploads: dict[int, Parcel] = field(default_factory=dict)


class Session:
    """One federation, round after round: `open` says what to send, `receive` takes answers, `close` ends the round.

    Args:
        method: what is played; `gather`, `offer`, `learn` and the clusterer are called as in `fedwca.round.play`.
        network: the source model with its classifier.
        composition: what clients are told.
        rules: how clients are treated.

    Raises:
        UsageError: the method cannot be deployed; says why.
    """

    def __init__(self, method: Method, network: Network, composition: Composition, rules: Rules) -> None:
        require_deployable(method, 1, network)
        self.method, self.network, self.composition, self.rules = method, network, composition, rules
        self.layout, self.keys = Layout.of(network), Keys(composition.seed, composition.trial)
        source, clients = self.layout.read(network), rules.clients
        self.memory = Memory(
            0,
            Server(source[None], {}, source),
            torch.zeros(1, clients, dtype=torch.float64),
            source[:0].view(0, 0),
            ("",) * clients,
            (0,) * clients,
        )
        self._informed: set[int] = set()
        self._open: _Open | None = None

    def seat(self, name: str, wish: int | None = None) -> int | None:
        """The number of the client called ``name``: the one it has, the one it wishes, or the first free one.

        Returns:
            None where all places, or the one it wishes, are taken by others.
        """
        seats = self.memory.seats
        if name in seats:
            return seats.index(name)
        free = [number for number, taken in enumerate(seats) if not taken]
        if wish is not None:
            free = [number for number in free if number == wish]
        if not free:
            log.warning("client %s is turned away: no free place", name)
            return None
        number = free[0]
        self.memory = replace(self.memory, seats=(*seats[:number], name, *seats[number + 1 :]))
        return number

    def release(self, number: int, online: set[str]) -> None:
        """Free a place whose holder cannot be reached; for nodes without keys, whose names change as they restart."""
        seats = self.memory.seats
        if 0 <= number < len(seats) and seats[number] not in online:
            self.memory = replace(self.memory, seats=(*seats[:number], "", *seats[number + 1 :]))
            self._informed.discard(number)

    def open(self, available: Iterable[int]) -> dict[int, Parcel]:
        """Begin a round, or begin it again: what to send to whom.

        Args:
            available: numbers of the clients that can be reached.

        Raises:
            FedwcaError: a model of a single client would be handed on, and that is refused.
        """
        memory, rules = self.memory, self.rules
        round, server = memory.round, memory.server
        asked = set(attendance(round, rules.clients, rules.participation, self.keys)) & set(available)
        aggregator = self.method.aggregator
        trained = server.rows[:, : self.layout.trained]
        offer = aggregator.offer(server.state, round, trained) if round else source_for(rules.clients)
        shared = self._mixed(offer.shared)
        self._open = _Open(offer)
        reused = bool(aggregator.reports) and round > 0 and not aggregator.expected(round)
        parcels = {}
        for client in sorted(asked):
            late = self._unplaced(client)
            if client in memory.waiting and reused:
                continue
            if not late and round:
                self._guard(client, torch.cat([offer.personal[client], offer.shared]))
            parcels[client] = self._task(client, offer, shared, first=late or not round)
        return parcels

    def _unplaced(self, client: int) -> bool:
        """Whether a client joins so late that it must be placed in a cluster first."""
        memory = self.memory
        return bool(memory.round and not memory.samples[client] and self.method.aggregator.partition == "given")

    def _mixed(self, weights: Tensor) -> Tensor:
        rows = self.memory.server.rows
        pools = self.composition.batch_norm == "pooled"
        return pooled(weights, rows, self.layout) if pools else mix(weights, rows)

    def _guard(self, client: int, sent: Tensor) -> None:
        """Refuse, or warn of, sending models that are one client's own."""
        if not bool(lonely(sent @ self.memory.shares).any()):
            return
        sentence = f"round {self.memory.round}: a model sent to client {client} is a single client's own"
        if self.rules.alone == "refuse":
            raise FedwcaError(f"{sentence}; let clusters be larger, or allow it with alone = 'warn'")
        log.warning("%s", sentence)

    def _task(self, client: int, offer: Offer, shared: Tensor, first: bool) -> Parcel:
        memory, aggregator = self.memory, self.method.aggregator
        token = secrets.token_hex(8)
        notes: dict[str, int | float | str] = {"token": token, "first": int(first), "personal": 1}
        models: dict[str, Mapping[str, Tensor]] = {}
        if client not in self._informed:
            models["source"] = {name: tensor.cpu() for name, tensor in self.network.state_dict().items()}
            notes |= {"composition": self.composition.model_dump_json(), "client": client}
        own, transport = memory.server.source, self.composition.transport
        if not first:
            sent = torch.cat([self._mixed(offer.personal[client]), shared])
            models |= {f"sent-{i}": unpacked(row, self.layout, transport) for i, row in enumerate(sent)}
            notes["personal"], own = offer.personal.shape[1], sent[0]
        assert self._open is not None
        self._open.own[client] = own
        self._open.expected[client] = Expected(
            memory.round,
            token,
            self.layout,
            transport,
            {} if first else aggregator.expected(memory.round),
            0 if first else offer.shared.shape[0],
            0 if first or aggregator.partition != "self" else len(memory.server.rows),
            memory.samples[client],
        )
        return Parcel("train", memory.round, models, {}, notes)

    def receive(self, client: int, parcel: Parcel) -> str:
        """Take one answer; returns why it is refused, or an empty string."""
        state = self._open
        if parcel.kind == "lost":
            self._informed.discard(client)
            why = "does not know the source model; it is sent again"
        elif state is None or client not in state.expected:
            why = "was not asked in this round"
        elif client in state.uploads:
            why = "has answered this round already"
        else:
            why = flaw(parcel, state.expected[client])
        if why:
            log.warning("round %d: client %d (%s) refused: %s", self.memory.round, client, self._name(client), why)
            return why
        assert state is not None
        self._informed.add(client)
        state.uploads[client] = parcel
        return ""

    def _name(self, client: int) -> str:
        seats = self.memory.seats
        return seats[client] if 0 <= client < len(seats) else "?"

    def close(self) -> bool:
        """End the round with what has come; False where that is too little and the round is to be played again.

        Raises:
            FedwcaError: round 0 left a client alone in its cluster, and that is refused.
        """
        state, self._open = self._open, None
        assert state is not None
        memory, rules = self.memory, self.rules
        rows = {client: packed(upload.models["model"], self.layout) for client, upload in state.uploads.items()}
        width = self.layout.trained
        moved = {client: float((row - state.own[client])[:width].norm()) for client, row in rows.items()}
        for client, share in too_far(moved, rules.norm_bound).items():
            log.warning(
                "round %d: client %d (%s) refused: its update is %.3g times the norm bound",
                *(memory.round, client, self._name(client), share),
            )
            del rows[client]
        late = {client for client in rows if self._unplaced(client)}
        if len(rows) - len(late) < min(rules.least, rules.clients):
            log.warning("round %d: %d uploads are too few; it is played again", memory.round, len(rows) - len(late))
            return False
        self._advance(state, rows, late)
        return True

    def _advance(self, state: _Open, rows: Mapping[int, Tensor], late: set[int]) -> None:
        memory, rules, aggregator = self.memory, self.rules, self.method.aggregator
        round, server, clients = memory.round, memory.server, rules.clients
        bank = server.source.repeat(clients, 1)
        for client, row in rows.items():
            bank[client] = row
        present = torch.tensor([client in rows and client not in late for client in range(clients)])
        samples = list(memory.samples)
        for client in rows:
            samples[client] = int(state.uploads[client].notes["samples"])
        choices = {k: int(state.uploads[k].report["label"][0]) for k in rows if "label" in state.uploads[k].report}
        labels = partition(round, server, self.method, self.layout, bank, present, choices, self.keys)
        for client in late:
            labels[client] = nearest(rows[client], memory.anchors, server.source, self.layout)
        sizes = torch.tensor([max(1, number) for number in samples])
        weights = self._companied(aggregator.gather(server.state, labels, sizes, present, len(server.rows)))
        gathers = gathered(weights, server.rows, bank, self.layout, self.composition.batch_norm, rules.robust)
        learned = aggregator.learn(server.state, labels, self._report(state, present), present)
        waiting = memory.waiting | late
        if aggregator.expected(round) or not aggregator.reports:
            waiting -= {client for client in rows if client not in late or not aggregator.reports}
        self.memory = replace(
            memory,
            round=round + 1,
            server=Server(gathers, learned, server.source),
            shares=contributions(weights, memory.shares),
            anchors=memory.anchors if round else gathers,
            samples=tuple(samples),
            waiting=frozenset(waiting),
        )

    def _companied(self, weights: Tensor) -> Tensor:
        """`gather`'s weights, where a mean of one client is left undone: its row stays as it is."""
        kept = len(self.memory.server.rows)
        alone = lonely(weights[:, kept:])
        if self.method.aggregator.partition == "each" or not bool(alone.any()):
            return weights
        clusters = alone.nonzero()[:, 0].tolist()
        sentence = f"round {self.memory.round}: of clusters {clusters} a single client was heard"
        if self.rules.alone == "warn":
            log.warning("%s; its model is handed on", sentence)
            return weights
        if not self.memory.round:
            raise FedwcaError(f"{sentence}; take another clusterer or more clients, or allow it with alone = 'warn'")
        log.warning("%s; the cluster keeps its model", sentence)
        weights = weights.clone()
        weights[alone] = torch.eye(kept, weights.shape[1], dtype=weights.dtype)[alone]
        return weights

    def _report(self, state: _Open, present: Tensor) -> dict[str, Tensor]:
        """What clients reported ``{name: [K, …]}``; NaN for absent clients, as in `fedwca.round.Outcome.report`."""
        here = present.nonzero()[:, 0].tolist()
        names = self.method.aggregator.expected(self.memory.round) if self.memory.round else {}
        stacked = {}
        for name in names:
            values = {client: state.uploads[client].report[name].double() for client in here}
            missing = torch.full_like(next(iter(values.values())), torch.nan)
            stacked[name] = torch.stack([values.get(client, missing) for client in range(len(present))])
        return stacked

    def finish(self) -> dict[int, Parcel]:
        """The model each client ends with.

        Raises:
            FedwcaError: it is another client's own, and that is refused.
        """
        memory = self.memory
        weights = self.method.aggregator.deliver(memory.server.state, len(memory.server.rows))
        parcels = {}
        for client, row in enumerate(self._mixed(weights)):
            if not memory.samples[client]:
                continue
            others = (weights[client] @ memory.shares).clone()
            if others[client] < 1 - 1e-9:
                self._guard(client, weights[client][None])
            model = unpacked(row, self.layout, self.composition.transport)
            parcels[client] = Parcel("final", memory.round, {"sent-0": model})
        return parcels

    def resume(self, memory: Memory) -> None:
        """Go on from a checkpoint.

        Raises:
            UsageError: it is of a federation of another size or model.
        """
        if len(memory.seats) != self.rules.clients or memory.server.rows.shape[1] != self.layout.width:
            raise UsageError(
                f"the checkpoint is of {len(memory.seats)} clients and models of {memory.server.rows.shape[1]} values; "
                f"this federation has {self.rules.clients} and {self.layout.width}"
            )
        # Nobody is taken to know the source model: clients that do lose nothing but a download.
        self.memory, self._informed, self._open = memory, set(), None
