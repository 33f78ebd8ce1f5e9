"""The server of a real federation: rounds that survive absent, late and hostile clients, and a restart."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch

from fedwca.core.network import Network
from fedwca.deploy.checks import require_consent, require_defences, require_deployable, require_thinnable
from fedwca.deploy.composition import Composition
from fedwca.deploy.context import ServerContext
from fedwca.deploy.messages import Parcel
from fedwca.deploy.next_state import next_state
from fedwca.deploy.robust import norm_outliers
from fedwca.deploy.rules import Rules, ServerState
from fedwca.deploy.single_client import refuse_single
from fedwca.deploy.slots import assign_slot, set_slot
from fedwca.deploy.tasks import final_models, task, unplaced
from fedwca.deploy.validation import Expected, read_upload, upload_problem
from fedwca.errors import UsageError
from fedwca.federated.round import Method, Server, offer_source, sample_clients
from fedwca.federated.validation import shared_uploads

log = logging.getLogger("fedwca.deploy")


@dataclass
class _Open:
    """A round under way."""

    expected: dict[int, Expected] = field(default_factory=dict)
    uploads: dict[int, Parcel] = field(default_factory=dict)


class Session:
    """One federation, round after round: `open` says what to send, `receive` takes answers, `close` ends the round.

    Args:
        method: what is played; `gather`, `offer`, `learn` and the clusterer are called as in `run_round`.
        network: the source model with its classifier.
        composition: what clients are told.
        rules: how clients are treated.

    Raises:
        UsageError: the method cannot be deployed, or a rule does not fit it; says why.
    """

    def __init__(self, method: Method, network: Network, composition: Composition, rules: Rules) -> None:
        require_deployable(method, 1, network)
        require_consent(rules, method)
        require_defences(rules, method, composition)
        require_thinnable(composition, network)
        self.setting = ServerContext(method, network, composition, rules)
        self.method, self.network, self.composition, self.rules = method, network, composition, rules
        self.layout = self.setting.layout
        source, clients = self.layout.read(network), rules.clients
        self.memory = ServerState(
            0,
            Server(source[None], {}, source),
            torch.zeros(1, clients, dtype=torch.float64),
            source[:0].view(0, 0),
            ("",) * clients,
            (0,) * clients,
        )
        self._informed: set[int] = set()
        self._open: _Open | None = None

    @property
    def asked(self) -> Mapping[int, Expected]:
        """By client, what is taken from it in the round under way."""
        return {} if self._open is None else self._open.expected

    def seat(self, name: str, wish: int | None = None) -> int | None:
        """The number of the client called ``name``, from now on its own; see `fedwca.deploy.slots.assign_slot`."""
        number = assign_slot(self.memory.seats, name, wish)
        if number is None:
            log.warning("client %s is turned away: no free place", name)
        else:
            self.memory = replace(self.memory, seats=set_slot(self.memory.seats, number, name))
        return number

    def release(self, number: int, online: set[str]) -> None:
        """Free a place whose holder cannot be reached; for nodes without keys, whose names change as they restart."""
        seats = self.memory.seats
        if 0 <= number < len(seats) and seats[number] not in online:
            self.memory = replace(self.memory, seats=set_slot(seats, number, ""))
            self._informed.discard(number)

    def open(self, available: Iterable[int]) -> dict[int, Parcel]:
        """Begin a round, or begin it again: what to send to whom.

        Args:
            available: numbers of the clients that can be reached.

        Raises:
            FedwcaError: a model of a single client would be handed on, and that is refused.
        """
        memory, rules, setting = self.memory, self.rules, self.setting
        round, server = memory.round, memory.server
        asked = set(sample_clients(round, rules.clients, rules.participation, setting.keys)) & set(available)
        aggregator = self.method.aggregator
        trained = server.rows[:, : self.layout.trained]
        begins = not round or not aggregator.travels
        offer = offer_source(rules.clients) if begins else aggregator.offer(server.state, round, trained)
        shared = setting.mixed(offer.shared, server.rows)
        beside = shared_uploads(self.method.objectives, server.state)
        self._open = _Open()
        reused = bool(aggregator.reports) and round > 0 and not aggregator.expected(round)
        parcels = {}
        for client in sorted(asked):
            first = not round or unplaced(setting, memory, client)
            if client in memory.waiting and reused:
                continue
            if not begins and not first:
                refuse_single(setting, memory, client, torch.cat([offer.personal[client], offer.shared]))
            told = client in self._informed
            parcels[client], self._open.expected[client] = task(
                setting, memory, client, offer, shared, beside, first, told
            )
        return parcels

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
            why = upload_problem(parcel, state.expected[client])
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
        memory, rules, width = self.memory, self.rules, self.layout.trained
        rows = {client: read_upload(upload, state.expected[client]) for client, upload in state.uploads.items()}
        moved = {client: float((row - state.expected[client].own)[:width].norm()) for client, row in rows.items()}
        for client, factor in norm_outliers(moved, rules.norm_bound).items():
            log.warning(
                "round %d: client %d (%s) refused: its update is %.3g times the norm bound",
                *(memory.round, client, self._name(client), factor),
            )
            del rows[client]
        late = {client for client in rows if unplaced(self.setting, memory, client)}
        if len(rows) - len(late) < min(rules.least, rules.clients):
            log.warning("round %d: %d uploads are too few; it is played again", memory.round, len(rows) - len(late))
            return False
        self.memory = next_state(self.setting, memory, state.uploads, rows, late)
        return True

    def finish(self) -> dict[int, Parcel]:
        """The model each client ends with; see `fedwca.deploy.tasks.final_models`."""
        return final_models(self.setting, self.memory)

    def resume(self, memory: ServerState) -> None:
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
