"""The server of a deployment: rounds that tolerate absent, late and hostile clients, and restarts of the server."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from fedwca.core.network import Network
from fedwca.core.printable import printable
from fedwca.deploy.client_numbers import assign_number, set_name, why_no_number
from fedwca.deploy.composition import Composition
from fedwca.deploy.defences import FEWEST_MOVES, measure_statistics_shift, measure_update, norm_outliers
from fedwca.deploy.deployable_checks import check_compressible, check_consent, check_defences, check_deployable
from fedwca.deploy.protect_single_clients import check_not_single_model, clients_stay_apart, is_single
from fedwca.deploy.read_answers import ExpectedAnswer, ReceivedAnswer, read_answer
from fedwca.deploy.server_context import ServerContext
from fedwca.deploy.server_round import assign_late_client, close_session_round, find_incomparable, make_final_parcels
from fedwca.deploy.server_rules import Rules
from fedwca.deploy.server_tasks import make_offer, make_task, needs_cluster
from fedwca.deploy.session_state import SessionState
from fedwca.deploy.wire_messages import Parcel
from fedwca.errors import FedwcaError, UsageError
from fedwca.federated.method import Method
from fedwca.federated.participation import sample_clients
from fedwca.federated.server import Server

log = logging.getLogger("fedwca.deploy")


@dataclass
class _OpenRound:
    """The current round: sampled clients, and by client the expected and the accepted answers."""

    sampled: list[int] = field(default_factory=list)
    expected: dict[int, ExpectedAnswer] = field(default_factory=dict)
    answers: dict[int, ReceivedAnswer] = field(default_factory=dict)


class Session:
    """One federation, round by round: `open` returns what to send, `receive` takes answers, `close` ends the round.

    Args:
        method: its aggregator and clusterer are called as in `fedwca.federated.round.run_round`.
        network: the source model with its classifier.
        composition: the description of the method that clients are sent.
        rules: how clients are treated.

    Attributes:
        needs_all_answers: whether all sampled clients must answer, else the run fails; for simulations, where no
            client is ever absent.
        single_rounds: rounds after which the server had a single client's model for others, under rule ``alone=warn``.

    Raises:
        UsageError: the method cannot be deployed, or a rule does not fit it; gives the reason.
    """

    def __init__(self, method: Method, network: Network, composition: Composition, rules: Rules) -> None:
        check_deployable(method, 1, network, rules.clients)
        check_consent(rules, method)
        check_defences(rules, method, composition)
        check_compressible(composition, network)
        self.context = ServerContext(method, network, composition, rules)
        self.method, self.network, self.composition, self.rules = method, network, composition, rules
        self.layout = self.context.layout
        source, clients = self.layout.read(network), rules.clients
        shares = torch.zeros(1, clients, dtype=torch.float64)
        self.state = SessionState(0, Server(source[None], {}, source), shares, ("",) * clients, (0,) * clients)
        self.needs_all_answers = False
        self.single_rounds: list[int] = []
        self._informed: set[int] = set()
        self._repeats = 0
        self._round: _OpenRound | None = None

    @property
    def expected(self) -> Mapping[int, ExpectedAnswer]:
        """By client, the answer expected from it in the current round; empty between rounds."""
        return {} if self._round is None else self._round.expected

    def admit(self, name: str, wish: int | None = None) -> int | None:
        """Assign a number to the client called ``name`` and return it; see `assign_number`."""
        number = assign_number(self.state.names, name, wish)
        if number is None:
            log.warning("client %s is turned away: %s", name, why_no_number(self.state.names, wish))
        else:
            self.state = replace(self.state, names=set_name(self.state.names, number, name))
        return number

    def release(self, number: int, online: set[str]) -> None:
        """Free a number if its client cannot be reached; for nodes without keys, whose names change when they restart.

        Args:
            number: the number to free.
            online: names of the clients that can be reached.
        """
        names = self.state.names
        if 0 <= number < len(names) and names[number] not in online:
            self.state = replace(self.state, names=set_name(names, number, ""))
            self._informed.discard(number)

    def open(self, available: Collection[int]) -> dict[int, Parcel]:
        """Begin a round, or repeat it, and return the parcel to send to each sampled client.

        Args:
            available: numbers of the clients that can be reached.

        Raises:
            FedwcaError: a model of a single client would be sent to another one, and the rules refuse that.
        """
        state, aggregator = self.state, self.method.aggregator
        sampled = self._sample(available)
        offer = make_offer(self.context, state)
        parcels, self._round = {}, _OpenRound(sampled)
        for client in sorted(set(sampled) & set(available)):
            first = not state.round or needs_cluster(self.context, state, client)
            if aggregator.sends_models and not first:
                sent = torch.cat([offer.models.personal[client], offer.models.shared])
                subject = f"round {state.round}: a model sent to client {client}"
                check_not_single_model(self.context, state, sent, subject, client)
            task, expected = make_task(self.context, state, offer, client, first, client in self._informed)
            parcels[client], self._round.expected[client] = task, expected
        return parcels

    @property
    def can_close(self) -> bool:
        """Whether the round can be closed if all clients answer; late clients, who are not averaged, do not count."""
        members = [client for client in self.expected if not needs_cluster(self.context, self.state, client)]
        return len(members) >= self.rules.least

    def receive(self, client: int, parcel: Parcel) -> str:
        """Take one answer; return why it is refused, or an empty string if it is accepted."""
        current, expected = self._round, self.expected.get(client)
        if parcel.kind == "lost":
            self._informed.discard(client)
            sent_again = current is not None or self.method.aggregator.sends_models
            problem = f"does not know the source model{'; it is sent again' * sent_again}"
        elif current is None or expected is None:
            problem = "was not asked in this round"
        elif client in current.answers:
            problem = "has answered this round already"
        elif isinstance(answer := read_answer(parcel, expected), ReceivedAnswer):
            self._informed.add(client)
            current.answers[client] = answer
            return ""
        else:
            problem = answer
        self._log_refusal(client, problem)
        return problem

    def close(self) -> bool:
        """End the round with the accepted answers; return False if they are too few and the round must be repeated.

        Raises:
            FedwcaError: round 0 made a cluster of a single client, and the rules refuse that; a mean is not finite; or
                a sampled client has no accepted answer and ``needs_all_answers`` is set.
        """
        current, self._round = self._round, None
        assert current is not None
        state, rules = self.state, self.rules
        answers = self._without_outliers(current)
        self._drop_incomparable(answers)
        if self.needs_all_answers:
            self._check_all_answered(current.sampled, answers)
        late = self._assign_late_clients(answers)
        counted = len(answers) - len(late)
        if counted < rules.least:
            log.warning("round %d: %d uploads are too few; it is repeated", state.round, counted)
            self._repeats += 1
            return False
        self.state, self._repeats = close_session_round(self.context, state, answers, late), 0
        if not clients_stay_apart(self.context) and bool(is_single(self.state.shares).any()):
            self.single_rounds.append(state.round)
        return True

    @property
    def participants(self) -> set[int]:
        """Clients that took part in a round: those that get a final model."""
        return {client for client, number in enumerate(self.state.samples) if number}

    def final_parcels(self, clients: Collection[int]) -> dict[int, Parcel]:
        """Return the final models of some of the `participants`; see `make_final_parcels`."""
        return make_final_parcels(self.context, self.state, sorted(clients), self._informed)

    def resume(self, state: SessionState, stretch: bool | None = None) -> None:
        """Continue from a checkpoint.

        Args:
            state: what it holds.
            stretch: whether clients stretch image files, as in the rounds before; None: as the composition says.

        Raises:
            UsageError: the checkpoint has another number of clients or parameters than this federation.
        """
        if len(state.names) != self.rules.clients or state.server.rows.shape[1] != self.layout.width:
            raise UsageError(
                f"the checkpoint is of {len(state.names)} clients and models of {state.server.rows.shape[1]} values; "
                f"this federation has {self.rules.clients} and {self.layout.width}"
            )
        if stretch is not None:
            self.composition = self.composition.model_copy(update={"stretch": stretch})
            self.context = replace(self.context, composition=self.composition)
        # Assume that no client has the source model: clients that do only download it once more.
        self.state, self._informed, self._round = state, set(), None

    def _sample(self, available: Collection[int]) -> list[int]:
        """Return the clients that take part in the next round.

        These are all late clients, which must be assigned to a cluster, and a random share of the other clients that
        can be reached.
        """
        rules, state, aggregator = self.rules, self.state, self.method.aggregator
        candidates = set(range(rules.clients)) if self.needs_all_answers else set(available)
        late = {client for client in candidates if needs_cluster(self.context, state, client)}
        if aggregator.reports and state.round > 0 and not aggregator.expected_reports(state.round):
            candidates -= state.waiting  # they have not reported, and this round uses earlier reports
        members = sorted(candidates - late)
        draw = (rules.participation, self.context.keys, rules.least, self._repeats)
        drawn = sample_clients(state.round, len(members), *draw)
        return sorted({*late, *(members[index] for index in drawn)})

    def _check_all_answered(self, sampled: Sequence[int], answers: Mapping[int, ReceivedAnswer]) -> None:
        if missing := [client for client in sampled if client not in answers]:
            sentence = f"round {self.state.round}: there is no answer of client {missing[0]} that counts"
            raise FedwcaError(f"{sentence}; the warning before this says why")

    def _without_outliers(self, current: _OpenRound) -> dict[int, ReceivedAnswer]:
        """Return the answers whose models moved no further than the norm bound allows.

        Late clients, whose models nobody is sent yet, are not held to it: they begin from the source model, and move
        further than the others, who begin from their cluster's.
        """
        layout, factor, answers = self.layout, self.rules.norm_bound, dict(current.answers)
        if factor is None:
            return answers
        members = {k: answer for k, answer in answers.items() if not needs_cluster(self.context, self.state, k)}
        moves = {k: measure_update(answer.model, answer.start, layout) for k, answer in members.items()}
        moved = sum(move > 0 for move in moves.values())
        if moved < FEWEST_MOVES and (moved or len(members) < FEWEST_MOVES):
            message = "round %d: rule norm_bound takes 3 trained models and there are %d, so no update is held to it"
            log.warning(message, self.state.round, moved)
        # Images of another domain move statistics by about one standard deviation, other images hardly at all: the
        # median counts as at least 1.
        shifts = {k: measure_statistics_shift(answer.model, answer.start, layout) for k, answer in members.items()}
        too_far = {
            "its update is": norm_outliers(moves, factor),
            "its BatchNorm statistics moved": norm_outliers(shifts, factor, least=1.0),
        }
        for subject, outliers in too_far.items():
            for client in outliers.keys() & answers.keys():
                self._log_refusal(client, f"{subject} {outliers[client]:.3g} times the norm bound")
                del answers[client]
        return answers

    def _drop_incomparable(self, answers: dict[int, ReceivedAnswer]) -> None:
        """Remove, in round 0, the answers that cannot be clustered."""
        if not self.state.round and self.method.aggregator.grouping.needs_clusterer:
            for client in find_incomparable(self.context, self.state, answers):
                self._log_refusal(client, "its model cannot be compared with others")
                del answers[client]

    def _assign_late_clients(self, answers: dict[int, ReceivedAnswer]) -> dict[int, int]:
        """Return the clusters of late clients; answers that cannot be compared are removed."""
        late = {}
        for client in [client for client in answers if needs_cluster(self.context, self.state, client)]:
            cluster = assign_late_client(self.context, self.state, answers[client])
            if cluster is None:
                self._log_refusal(client, "its model cannot be compared with those that clusters were made of")
                del answers[client]
            else:
                late[client] = cluster
        return late

    def _log_refusal(self, client: int, reason: str) -> None:
        names = self.state.names
        name = names[client] if 0 <= client < len(names) else "?"
        log.warning("round %d: client %d (%s) refused: %s", self.state.round, client, name, printable(reason))
