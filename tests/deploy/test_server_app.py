"""The server's app: rounds, final models and the log; needs Flower."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedwca.core.file_locks import hold_alone
from fedwca.deploy.server_status import ServerStatus
from fedwca.deploy.wire_messages import Parcel
from fedwca.errors import FedwcaError, UsageError

pytest.importorskip("flwr")

from flwr.app import MessageType, RecordDict

from fedwca.deploy.flower import connected_clients, exchange_messages
from fedwca.deploy.flower import server_app as serve
from fedwca.deploy.flower.config import DeploymentConfig
from fedwca.deploy.flower.connected_clients import HELLO, ConnectedClients
from fedwca.deploy.flower.exchange_messages import MessagesRefused
from fedwca.deploy.flower.records import to_record

pytestmark = pytest.mark.filterwarnings("default")  # of Flower


def patch_time(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    """Let pauses be noted in ``clock`` and take no time."""
    for module in (serve, exchange_messages):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: sum(clock), sleep=clock.append))


def test_one_run_at_a_time(tmp_path: Path) -> None:
    context = SimpleNamespace(run_config={"folder": str(tmp_path)})
    free = UsageError("held")
    with hold_alone(tmp_path / serve.RUNNING, free), pytest.raises(UsageError, match=r"another run of .* goes on"):
        serve._main(SimpleNamespace(), context)  # type: ignore[arg-type]
    assert not (tmp_path / "federation.log").exists(), "it is the other run's"


def bare_server(folder: Path) -> serve.FlowerServer:
    """A server without a method, for which three nodes are connected."""
    server = object.__new__(serve.FlowerServer)
    server.grid = SimpleNamespace(get_node_ids=lambda: [11, 12, 13])  # type: ignore[assignment]
    server.deployment = SimpleNamespace(  # type: ignore[assignment]
        deadline=600.0, rounds=3, rejoin=False, rules=SimpleNamespace(least=2)
    )
    context, state = SimpleNamespace(max_answer_bytes=10**6), SimpleNamespace(names=("a",))
    method = SimpleNamespace(aggregator=SimpleNamespace(sends_models=True))
    server.session = SimpleNamespace(context=context, state=state, method=method)  # type: ignore[assignment]
    server.folder, server.status = folder, ServerStatus(3, 3)
    server.clients = ConnectedClients(server.grid, server.session, server.deployment, lambda connected: None)
    return server


def took_part(server: serve.FlowerServer, *clients: int) -> None:
    """Give a bare server clients that are to get a final model."""
    server.session.participants = set(clients)  # type: ignore[misc]
    server.session.final_parcels = lambda some: dict.fromkeys(some, "model")  # type: ignore[assignment, method-assign]


def test_a_round_waits_for_clients_that_it_asks_and_not_for_any_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock: list[float] = []
    patch_time(monkeypatch, clock)
    server = bare_server(tmp_path)
    node_counts: list[int] = []

    class Asking:
        """A session that finds enough clients to ask only after 20 seconds."""

        can_close = needs_all_answers = False

        def open(self, nodes: dict[int, int]) -> dict[int, str]:
            node_counts.append(len(nodes))
            self.can_close = sum(clock) >= 20
            return {}

    server.session = Asking()  # type: ignore[assignment]
    server.clients = SimpleNamespace(find_idle=lambda: {0: 11}, count=lambda: 3)  # type: ignore[assignment]
    assert server._open_round() == ({0: 11}, {})
    assert 20 <= sum(clock) <= 2 * HELLO
    assert len(node_counts) == 2  # not once a second
    server.deployment.deadline = 5.0  # type: ignore[misc]
    monkeypatch.setattr(Asking, "open", lambda self, nodes: {})
    server.session.can_close = False  # type: ignore[misc]
    began = sum(clock)
    server._open_round()
    assert 5 <= sum(clock) - began < 10
    server.session.needs_all_answers = True  # type: ignore[misc]
    began = sum(clock)
    server._open_round()
    assert sum(clock) == began  # it does not wait: a client that is missing ends the run


@pytest.mark.parametrize(("back", "waited"), [(10.0, 10), (1000.0, HELLO)])
def test_a_client_that_is_away_for_a_moment_gets_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, back: float, waited: float
) -> None:
    clock: list[float] = []
    patch_time(monkeypatch, clock)
    server = bare_server(tmp_path)
    took_part(server, 0, 1)
    online_until = {11: 10**6, 13: 3}  # node 13 leaves meanwhile: a client that gets no model

    def online() -> list[int]:
        return [node for node, end in online_until.items() if sum(clock) < end] + [12] * (sum(clock) >= back)

    server.grid = SimpleNamespace(get_node_ids=online)  # type: ignore[assignment]
    server.clients = SimpleNamespace(find=lambda: {node - 11: node for node in online()})  # type: ignore[assignment]
    monkeypatch.setattr(server, "_exchange", lambda parcels, number: set(parcels))
    server._deliver()
    assert sum(clock) == waited
    assert ("clients [1] have not got their model" in caplog.text) == (back > 100)


def test_models_that_stay_at_the_clients_are_not_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    patch_time(monkeypatch, [])
    server = bare_server(tmp_path)
    server.session.method.aggregator.sends_models = False  # type: ignore[misc]
    took_part(server, 0)
    server.clients = SimpleNamespace(find=lambda: {0: 11})  # type: ignore[assignment]
    monkeypatch.setattr(server, "_exchange", lambda parcels, number: set())
    server._deliver()
    assert "clients [0] did not say that they have their model; no one else has it" in caplog.text


@pytest.mark.parametrize(("number", "waited"), [(0, 600.0), (2, serve.RECONNECTION)])
def test_only_a_new_run_waits_long_for_all_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, waited: float
) -> None:
    server, waits = bare_server(tmp_path), []
    server.session.state = SimpleNamespace(round=number)  # type: ignore[assignment]
    server.deployment = SimpleNamespace(rounds=number, wait=600.0, rules=SimpleNamespace(clients=3))  # type: ignore[assignment]
    monkeypatch.setattr(serve, "wait_for_nodes", lambda grid, clients, seconds, tell: waits.append(seconds))
    monkeypatch.setattr(server, "_deliver", lambda: None)
    server.run()
    assert waits == [waited]


def test_final_models_that_are_too_large_together_are_sent_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = bare_server(tmp_path)

    def exchange(parcels: dict[int, object], number: int) -> set[int]:
        if len(parcels) > 1 or 2 in parcels:
            raise MessagesRefused("too large")
        return set(parcels)

    monkeypatch.setattr(server, "_exchange", exchange)
    assert server._send_final(dict.fromkeys(range(3), (10, "model"))) == {0, 1}  # type: ignore[misc]
    assert caplog.text.count("too large") == 1


def test_why_a_run_failed_is_one_line_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encodings: list[str | None] = []

    def fail(path: Path) -> DeploymentConfig:
        encodings.extend(handler.encoding for handler in serve.log.handlers if isinstance(handler, logging.FileHandler))
        raise FedwcaError("one\nFEDWCA RUN COMPLETE")

    monkeypatch.setattr(DeploymentConfig, "read", fail)
    with pytest.raises(FedwcaError):
        serve._play(SimpleNamespace(), tmp_path)  # type: ignore[arg-type]
    assert encodings == ["utf-8"]  # as who shows the log reads it, whatever the locale
    (line,) = (tmp_path / "federation.log").read_text().splitlines()
    assert line.endswith(r"the run failed: FedwcaError: one\nFEDWCA RUN COMPLETE")


@pytest.mark.parametrize(("kind", "done"), [("final", {0}), ("adapt", set())])
def test_who_says_that_it_is_done_with_a_task_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, done: set[int]
) -> None:
    answer = SimpleNamespace(content=to_record(Parcel("done", 3)), has_error=lambda: False)
    monkeypatch.setattr(serve, "Message", lambda *_, **__: None)
    monkeypatch.setattr(serve, "exchange_messages", lambda *_: iter({11: answer}.items()))
    server, received = bare_server(tmp_path), []
    server.session.receive = lambda client, parcel: received.append((client, parcel.kind)) or ""  # type: ignore[method-assign]
    assert server._exchange({0: (11, Parcel(kind, 3))}, 3) == done
    assert received == ([] if done else [(0, "done")])


def test_who_cannot_be_reached_or_read_was_not_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serve, "Message", lambda *_, **__: None)
    monkeypatch.setattr(serve, "exchange_messages", lambda *_: iter({11: None}.items()))
    server = bare_server(tmp_path)
    assert server._exchange({0: (11, Parcel("train", 3))}, 3) == set()
    assert "in time" not in caplog.text


@pytest.mark.parametrize(("number", "name"), [(2, "round 2"), (3, "final models")])
def test_the_log_names_what_a_client_did_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int, name: str
) -> None:
    monkeypatch.setattr(serve, "Message", lambda *_, **__: None)
    monkeypatch.setattr(serve, "exchange_messages", lambda *_: iter(()))
    assert bare_server(tmp_path)._exchange({0: (11, Parcel("train", 3))}, number) == set()
    assert f"{name}: client 0 (a) did not answer in time" in caplog.text


class OneSlow:
    """A grid whose nodes 11 and 12 answer at once, and 13 nothing before the ``clock`` is at ``slow`` seconds."""

    def __init__(self, clock: list[float], slow: float) -> None:
        self.clock, self.slow = clock, slow
        self.pushed: list[tuple[int, str]] = []

    def get_node_ids(self) -> list[int]:
        return [11, 12, 13]

    def push_messages(self, messages: list[SimpleNamespace]) -> list[str]:
        self.pushed += [(message.metadata.dst_node_id, message.metadata.message_type) for message in messages]
        return [str(message.metadata.dst_node_id) for message in messages]

    def pull_messages(self, names: set[str]) -> list[SimpleNamespace]:
        if names == {"13"} and sum(self.clock) < self.slow:
            return []
        return [SimpleNamespace(content=RecordDict(), has_error=lambda: False, has_content=lambda: True)]


@pytest.mark.parametrize("least", [2, 3])
def test_the_tasks_of_a_slow_client_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, least: int
) -> None:
    clock: list[float] = []
    patch_time(monkeypatch, clock)
    for module in (serve, connected_clients):
        message = lambda *_, **metadata: SimpleNamespace(metadata=SimpleNamespace(**metadata))  # noqa: E731
        monkeypatch.setattr(module, "Message", message)
    server, grid = bare_server(tmp_path), OneSlow(clock, 1000)
    server.grid, server.deployment.rules.least = grid, least  # type: ignore[assignment, misc]

    class Session:
        can_close, needs_all_answers = True, False
        context, state = SimpleNamespace(max_answer_bytes=10**6), SimpleNamespace(names=("a", "b", "c"))

        def admit(self, name: str, wish: int | None) -> int:
            return int(name[-1])

        def open(self, nodes: dict[int, int]) -> dict[int, Parcel]:
            return {client: Parcel("train", 1) for client in nodes}

    server.session = Session()  # type: ignore[assignment]
    server.clients = ConnectedClients(grid, server.session, server.deployment, lambda connected: None)  # type: ignore[arg-type]
    server.clients._numbers = {11: 0, 12: 1, 13: 2}

    def play() -> list[int]:
        nodes, parcels = server._open_round()
        grid.pushed.clear()
        server._exchange({client: (nodes[client], parcel) for client, parcel in parcels.items()}, 1)
        return [node for node, kind in grid.pushed if kind == MessageType.TRAIN]

    assert play() == [11, 12, 13]
    assert (sum(clock), server.clients.find()) == (600, {0: 11, 1: 12, 2: 13}), "it still gets its final model"
    if least == 2:
        for _ in range(4):
            assert play() == [11, 12]
        assert caplog.text.count("client 2 is still at an earlier task; it gets no other one") == 4
        clock.append(1000)
        assert play() == play() == [11, 12, 13]
    else:  # no round can begin without it, so that it has longer
        assert play() == [11, 12, 13]
        assert sum(clock) == pytest.approx(1000, abs=5)
