"""Messages as Flower's records, the server's app, and Flower's simulation; needs Flower."""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedwca._version import __version__
from fedwca.core.file_locks import hold_alone
from fedwca.deploy.read_answers import answer_problem, read_answer
from fedwca.deploy.server_status import ServerStatus
from fedwca.deploy.state_files import read_final
from fedwca.deploy.wire_messages import Parcel
from fedwca.engine.parameter_layout import Layout
from fedwca.errors import FedwcaError, UsageError
from fedwca.objectives.prototype_contrastive import PrototypeContrastive

from .conftest import Federation as Composed
from .processes import PARTS, call, laid_out, message_by_message, require_same, stacked

pytest.importorskip("flwr")

import httpx
from flwr.app import DEFAULT_TTL, Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common.constant import SUPERLINK_NODE_ID

from fedwca.deploy.flower import server_app as serve
from fedwca.deploy.flower.client_secret import name_of
from fedwca.deploy.flower.config import DeploymentConfig
from fedwca.deploy.flower.processes import QUIET, flower_environment, server_command
from fedwca.deploy.flower.records import count_bytes, from_record, to_record, to_records
from fedwca.deploy.flower.simulation import simulate
from fedwca.deploy.folder_names import CONFIG_NAME

pytestmark = pytest.mark.filterwarnings("default")  # of Flower and Ray


@pytest.fixture(autouse=True)
def swept() -> Iterator[None]:
    """Collect the unclosed files and processes that Ray leaves in cycles: later, another test would fail for them."""
    yield
    gc.collect()


def test_what_several_parcels_have_is_packed_once() -> None:
    shared, own_models = {"w": torch.ones(2)}, [{"w": torch.full((2,), float(k))} for k in range(3)]
    parcels = [Parcel("train", 1, {"sent-0": own, "sent-1": shared}) for own in own_models]
    contents = to_records(parcels)
    assert len({id(content["model/sent-1"]) for content in contents}) == 1
    assert len({id(content["model/sent-0"]) for content in contents}) == 3
    for parcel, content in zip(parcels, contents, strict=True):
        unpacked = from_record(content)
        assert all(torch.equal(unpacked.models[name]["w"], parcel.models[name]["w"]) for name in parcel.models)


def test_a_parcel_survives_the_wire() -> None:
    parcel = Parcel(
        "upload",
        3,
        {"model": {"w": torch.randn(2, 3).half()}},
        {"beta": torch.tensor([0.5, 0.5])},
        {"o.x": torch.ones(2, 2)},
        {"n": 1},
    )
    content = to_record(parcel)
    unpacked = from_record(content)
    assert (unpacked.kind, unpacked.round, dict(unpacked.notes)) == ("upload", 3, {"n": 1})
    assert torch.equal(unpacked.models["model"]["w"], parcel.models["model"]["w"])
    assert torch.equal(unpacked.report["beta"], parcel.report["beta"])
    assert torch.equal(unpacked.beside["o.x"], parcel.beside["o.x"])
    files = [record["safetensors"].data for record in content.array_records.values()]
    headers = [8 + int.from_bytes(file[:8], "little") for file in files]
    assert count_bytes(content) == parcel.bytes + sum(headers)
    with pytest.raises(FedwcaError, match=r"holds \d+ bytes of arrays; right is at most 100"):
        from_record(content, 100)
    content["report"] = ArrayRecord({"beta": Array(np.ones(2))})
    with pytest.raises(FedwcaError, match=r"an array record has \['beta'\]; right is safetensors alone"):
        from_record(content)
    content["report"] = ArrayRecord({"safetensors": Array(np.ones(2))})
    with pytest.raises(FedwcaError, match="is not of the form of a fedwca message"):
        from_record(content)
    content["report"] = to_record(parcel)["report"]
    from_record(content)
    content.config_records["notes"].pop("fedwca.round")
    with pytest.raises(FedwcaError, match="is not of the form of a fedwca message"):
        from_record(content)


def test_what_is_beside_arrays_is_bounded_too() -> None:
    content = to_record(Parcel("upload", 3, notes={"samples": "1" * 20_000}))
    from_record(content)
    with pytest.raises(FedwcaError, match=r"holds 20,0.. characters beside arrays; right is at most 10,000"):
        from_record(content, 10**9)
    content = to_record(Parcel("upload", 3, notes={"samples": 1}))
    from_record(content, 10**9)
    content["more"] = MetricRecord({"numbers": [0.5] * 9_000})
    with pytest.raises(FedwcaError, match=r"holds 45,... characters beside arrays"):
        from_record(content, 10**9)
    content["more"] = ConfigRecord({"n" * 20_000: 1})
    with pytest.raises(FedwcaError, match=r"holds 20,... characters beside arrays"):
        from_record(content, 10**9)


def test_one_run_at_a_time(tmp_path: Path) -> None:
    context = SimpleNamespace(run_config={"folder": str(tmp_path)})
    with hold_alone(tmp_path / serve.RUNNING) as alone:
        assert alone
        with pytest.raises(UsageError, match=r"another run of .* goes on"):
            serve._main(SimpleNamespace(), context)  # type: ignore[arg-type]
    assert not (tmp_path / "federation.log").exists(), "it is the other run's"


@pytest.mark.parametrize("method", ["fedavg", "prototypes"])
def test_a_whole_federation_survives_the_wire(federation: Callable[..., Composed], method: str) -> None:
    if method == "fedavg":
        built = federation("fedavg", top=0.1, feedback=True, transport="half")
    else:
        built = federation("local", PrototypeContrastive())
    final_models = []
    for wire in (lambda parcel, limit: parcel, lambda parcel, limit: from_record(to_record(parcel), limit)):
        session, clients = built.session(alone="warn"), built.clients()
        for number in range(4):
            session.admit(f"client-{number}", number)
        while session.state.round < 3:
            for client, parcel in session.open(range(4)).items():
                answer = clients[client].handle(wire(parcel, None))
                assert session.receive(client, wire(answer, session.context.max_answer_bytes)) == ""
            session.close()
        for client, parcel in session.final_parcels().items():
            clients[client].handle(wire(parcel, None))
        final_models.append(stacked(clients))
    assert torch.equal(final_models[0], final_models[1])


def garble(file: bytes, draw: random.Random) -> bytes:
    """A file with a few bytes changed, mostly in its header; it may also be cut, or have bytes appended."""
    garbled = bytearray(file)
    header = 8 + int.from_bytes(file[:8], "little")
    for _ in range(draw.randint(1, 4)):
        garbled[draw.randrange(draw.choice([8, header, header, len(garbled)]))] = draw.randrange(256)
    end = draw.choice([len(garbled), len(garbled), draw.randrange(len(garbled))])
    return bytes(garbled[:end]) + draw.choice([b"", b"", bytes(7)])


@pytest.mark.parametrize("options", [{}, {"top": 0.1}, {"transport": "half"}], ids=str)
def test_garbled_answers_are_refused_or_hold_finite_models(
    federation: Callable[..., Composed], options: dict[str, Any]
) -> None:
    built = federation("wca:ta=1,tb=1", **options)
    session, clients = built.session(alone="warn"), built.clients()
    for number in range(4):
        session.admit(f"client-{number}", number)
    for _ in range(2):  # answers hold a report from round 1 on
        answers = {client: clients[client].handle(parcel) for client, parcel in session.open(range(4)).items()}
        expected, sent = dict(session.expected), to_record(answers[1])
        for client, answer in answers.items():
            assert session.receive(client, answer) == ""
        session.close()
    draw, accepted = random.Random(0), 0
    names = list(sent.array_records)
    assert len(names) > 1
    for _ in range(300):
        content = RecordDict(dict(sent))
        name = draw.choice(names)
        file = garble(sent.array_records[name]["safetensors"].data, draw)
        content[name] = ArrayRecord({"safetensors": Array("uint8", (len(file),), "safetensors", file)})
        try:
            parcel = from_record(content, session.context.max_answer_bytes)
        except FedwcaError:
            continue
        if not answer_problem(parcel, expected[1]):
            accepted += 1
            assert bool(torch.isfinite(read_answer(parcel, expected[1]).model).all())
    assert 0 < accepted < 300


def test_nothing_is_told_to_strangers() -> None:
    assert {QUIET[name] for name in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED")} == {"0"}
    assert QUIET["FLWR_DISABLE_UPDATE_CHECK"] == QUIET["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"


@pytest.mark.parametrize("asked_for", [False, True])
def test_packages_are_installed_at_run_time_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked_for: bool
) -> None:
    from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink

    name = "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"
    monkeypatch.delenv(name, raising=False)
    if asked_for:
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv(name, flower_environment(tmp_path)[name])
    arguments = server_command(tmp_path, "127.0.0.1", 1, insecure=True)[3:]
    assert _parse_args_run_superlink().parse_args(arguments).runtime_dependency_install is asked_for


class Coming:
    """A grid in which one more node can be reached each time that it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def get_node_ids(self) -> range:
        self.asked += 1
        return range(self.asked - 1)


def test_nodes_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(serve, "time", SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append))
    grid = Coming()
    serve.wait_for(grid, 3, 60.0)
    assert (grid.asked, len(slept)) == (4, 3)
    serve.wait_for(grid, 100, 5 * serve.POLL)
    assert len(slept) == 3 + 5


class Answering:
    """A grid whose nodes answer after so many seconds of ``clock`` each.

    Flower itself answers for the nodes in ``lost``. A node whose name is empty cannot be asked.
    """

    def __init__(self, after: dict[str, float], clock: list[float], lost: str = "") -> None:
        self.after, self.clock, self.lost = after, clock, lost

    def push_messages(self, messages: object) -> list[str]:
        return list(self.after)

    def pull_messages(self, names: set[str]) -> list[SimpleNamespace]:
        assert "" not in names
        return [self.reply(name) for name in names if self.after[name] <= sum(self.clock)]

    def reply(self, name: str) -> SimpleNamespace:
        lost = name in self.lost
        return by(SUPERLINK_NODE_ID if lost else 10 + list(self.after).index(name), name, lost)


def by(node: int, name: str, error: bool = False) -> SimpleNamespace:
    """A reply to the message ``name`` that claims to come from ``node``."""
    metadata = SimpleNamespace(reply_to_message_id=name, src_node_id=node)
    return SimpleNamespace(metadata=metadata, has_error=lambda: error, has_content=lambda: not error)


def taken(grid: Answering, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """The second in which the answer of each node was taken."""
    monkeypatch.setattr(serve, "time", SimpleNamespace(monotonic=lambda: sum(clock), sleep=clock.append))
    messages = [SimpleNamespace(metadata=SimpleNamespace(dst_node_id=10 + node)) for node in range(len(grid.after))]
    return {node: sum(clock) for node, _ in serve.exchange(grid, messages, 60)}  # type: ignore[arg-type]


def test_answers_are_taken_as_they_come_and_not_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: list[float] = []
    seconds = taken(Answering({"a": 0, "b": 1, "c": 20, "d": 1e9}, clock), clock, monkeypatch)
    assert list(seconds) == [10, 11, 12]
    assert seconds[10] == 0
    # An answer that came after t seconds is taken within another t / 4.
    assert 1 <= seconds[11] <= 1.25
    assert 20 <= seconds[12] <= 23
    assert 60 <= sum(clock) <= 63


def test_what_flower_says_of_a_lost_node_is_that_nodes_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: list[float] = []
    assert list(taken(Answering({"a": 0, "b": 1, "": 0}, clock, lost="b"), clock, monkeypatch)) == [10, 11]


def test_messages_that_flower_does_not_take_end_the_run_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Answering({"a": 0, "b": 1}, [])
    monkeypatch.setattr(grid, "push_messages", lambda messages: [])
    with pytest.raises(FedwcaError, match="Flower took none of 2 messages: they are too large for it"):
        taken(grid, [], monkeypatch)


def test_a_reply_is_whose_message_it_answers_and_not_whose_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: list[float] = []
    grid = Answering({"a": 0, "b": 1}, clock)
    monkeypatch.setattr(grid, "reply", lambda name: by(99, "other"))
    assert list(taken(grid, clock, monkeypatch)) == [10, 11]


@pytest.mark.parametrize("error", [KeyError("x"), IndexError(), AttributeError("x")])
def test_a_reply_that_cannot_be_read_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    clock: list[float] = []
    grid = Answering({"a": 0, "b": 1, "c": 1}, clock)
    honest = grid.reply

    def reply(name: str) -> SimpleNamespace:
        if name == "b":
            raise error
        return honest(name)

    monkeypatch.setattr(grid, "reply", reply)
    assert list(taken(grid, clock, monkeypatch)) == [10, 12]
    assert f"node 11: its message cannot be read ({type(error).__name__})" in caplog.text


def test_a_server_that_does_not_answer_is_not_a_clients_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: list[float] = []
    grid = Answering({"a": 0}, clock)

    def gone(names: set[str]) -> list[SimpleNamespace]:
        raise httpx.ConnectError("gone")

    monkeypatch.setattr(grid, "pull_messages", gone)
    with pytest.raises(httpx.ConnectError):
        taken(grid, clock, monkeypatch)


class Reply:
    """What a node answers when it is asked who it is, or why it cannot say."""

    def __init__(self, config: dict[str, str | int] | None = None, why: str = "") -> None:
        self.content = RecordDict({"hello": ConfigRecord(config)} if config is not None else {})
        self.error = SimpleNamespace(reason=why)

    def has_error(self) -> bool:
        """Whether it cannot say."""
        return bool(self.error.reason)


def bare_server(tmp_path: Path, nodes: list[int], admitted: list[tuple[str, int | None]]) -> serve.FlowerServer:
    """A server without a method, whose session admits every client and notes it in ``admitted``."""

    def admit(name: str, wish: int | None) -> int:
        admitted.append((name, wish))
        return len(admitted) - 1

    server = object.__new__(serve.FlowerServer)
    server.grid = SimpleNamespace(get_node_ids=lambda: nodes)  # type: ignore[assignment]
    server.deployment = SimpleNamespace(deadline=600.0, rejoin=False, rules=SimpleNamespace(least=2))  # type: ignore[assignment]
    context, state = SimpleNamespace(max_answer_bytes=10**6), SimpleNamespace(names=())
    server.session = SimpleNamespace(admit=admit, context=context, state=state)  # type: ignore[assignment]
    server.folder, server.status = tmp_path, ServerStatus(3, len(nodes))
    server._numbers, server._names = {}, {}
    return server


def test_who_does_not_say_who_it_is_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replies = {
        11: Reply({"seat": 2, "identity": "secret", "fedwca": "9.0"}),
        12: Reply(why="its folder cannot be written"),
    }
    monkeypatch.setattr(serve, "Message", lambda *_, **__: None)
    monkeypatch.setattr(serve, "exchange", lambda *_: iter(replies.items()))
    admitted: list[tuple[str, int | None]] = []
    assert bare_server(tmp_path, [11, 12, 13], admitted)._present() == {0: 11}
    assert admitted == [(name_of("secret"), 2)]
    assert "secret" not in caplog.text
    assert f"client {name_of('secret')} has fedwca 9.0, this server {__version__};" in caplog.text
    assert "node 12 does not say who it is: its folder cannot be written" in caplog.text
    assert "node 13 did not say in time who it is" in caplog.text


@pytest.mark.parametrize(("deadline", "later"), [(600.0, serve.HELLO), (5.0, 5.0)])
def test_a_node_that_never_says_who_it_is_costs_later_rounds_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deadline: float, later: float
) -> None:
    replies, waited = {11: Reply({"identity": "a", "fedwca": __version__})}, []

    def exchange(grid: object, nodes: list[int], seconds: float) -> Iterator[tuple[int, Reply]]:
        waited.append((nodes, seconds))
        return iter([(node, replies[node]) for node in nodes if node in replies])

    monkeypatch.setattr(serve, "Message", lambda *_, dst_node_id, **__: dst_node_id)
    monkeypatch.setattr(serve, "exchange", exchange)
    server = bare_server(tmp_path, [11, 12, 13], [])
    server.deployment.deadline = deadline  # type: ignore[misc]
    assert server._present() == {0: 11}
    replies[12] = Reply({"identity": "b", "fedwca": __version__})
    assert server._present() == {0: 11, 1: 12}
    assert server._present() == {0: 11, 1: 12}
    # A round needs two clients: while only one is known, unknown nodes have the full deadline.
    assert waited == [([11, 12, 13], deadline), ([12, 13], deadline), ([13], later)]


def test_a_round_waits_for_clients_that_it_asks_and_not_for_any_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock: list[float] = []
    monkeypatch.setattr(serve, "time", SimpleNamespace(monotonic=lambda: sum(clock), sleep=clock.append))
    server = bare_server(tmp_path, [11, 12, 13], [])
    node_counts: list[int] = []

    class Asking:
        """A session that finds enough clients to ask only after 20 seconds."""

        can_close = everybody = False

        def open(self, nodes: dict[int, int]) -> dict[int, str]:
            node_counts.append(len(nodes))
            self.can_close = sum(clock) >= 20
            return {}

    server.session = Asking()  # type: ignore[assignment]
    monkeypatch.setattr(server, "_present", lambda: {0: 11})
    assert server._open_round() == ({0: 11}, {})
    assert 20 <= sum(clock) <= 2 * serve.HELLO
    assert len(node_counts) == 2  # not once a second
    server.deployment.deadline = 5.0  # type: ignore[misc]
    monkeypatch.setattr(Asking, "open", lambda self, nodes: {})
    server.session.can_close = False  # type: ignore[misc]
    began = sum(clock)
    server._open_round()
    assert 5 <= sum(clock) - began < 10
    server.session.everybody = True  # type: ignore[misc]
    began = sum(clock)
    server._open_round()
    assert sum(clock) == began  # it does not wait: a client that is missing ends the run


def test_who_was_turned_away_is_asked_again_when_a_place_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client without a key that lost its folder comes back under a new name, while Flower lists its old node."""
    replies = {node: Reply({"identity": name, "seat": 0}) for node, name in ((11, "a"), (12, "b"), (13, "b"))}
    asked_nodes: list[list[int]] = []

    def exchange(grid: object, nodes: list[int], seconds: float) -> Iterator[tuple[int, Reply]]:
        asked_nodes.append(nodes)
        return iter([(node, replies[node]) for node in nodes])

    monkeypatch.setattr(serve, "Message", lambda *_, dst_node_id, **__: dst_node_id)
    monkeypatch.setattr(serve, "exchange", exchange)
    nodes, names = [11, 12], {0: ""}
    server = bare_server(tmp_path, nodes, [])
    server.deployment.rejoin = True  # type: ignore[misc]

    def release(number: int, online: set[str]) -> None:
        names[number] = names[number] if names[number] in online else ""

    def admit(name: str, wish: int) -> int | None:
        names[wish] = names[wish] or name
        return wish if names[wish] == name else None

    server.session.release, server.session.admit = release, admit  # type: ignore[method-assign, assignment]
    assert server._present() == {0: 11}
    nodes.remove(11)
    assert server._present() == {0: 12}
    nodes.append(13)
    assert server._present() == {0: 13}  # the same client, back under another node
    nodes.remove(13)
    assert server._present() == {0: 12}
    assert asked_nodes == [[11, 12], [12], [13], [12]]
    assert server._present() == {0: 12}


@pytest.mark.parametrize(("back", "waited"), [(10.0, 10), (1000.0, serve.HELLO)])
def test_a_client_that_is_away_for_a_moment_gets_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, back: float, waited: float
) -> None:
    clock: list[float] = []
    monkeypatch.setattr(serve, "time", SimpleNamespace(monotonic=lambda: sum(clock), sleep=clock.append))
    server = bare_server(tmp_path, [], [])
    server.deployment.rounds = 3  # type: ignore[misc]
    server.session.final_parcels = lambda: {0: "model", 1: "model"}  # type: ignore[assignment, method-assign]
    online_until = {11: 10**6, 13: 3}  # node 13 leaves meanwhile: a client that gets no model

    def online() -> list[int]:
        return [node for node, end in online_until.items() if sum(clock) < end] + [12] * (sum(clock) >= back)

    server.grid = SimpleNamespace(get_node_ids=online)  # type: ignore[assignment]
    monkeypatch.setattr(server, "_present", lambda: {node - 11: node for node in online()})
    monkeypatch.setattr(server, "_exchange", lambda parcels, number: set(parcels))
    server._deliver()
    assert sum(clock) == waited
    assert ("clients [1] have not got their model" in caplog.text) == (back > 100)


def test_final_models_that_are_too_large_together_are_sent_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = bare_server(tmp_path, [], [])
    server.deployment.rounds = 3  # type: ignore[misc]

    def exchange(parcels: dict[int, object], number: int) -> set[int]:
        if len(parcels) > 1 or 2 in parcels:
            raise serve.MessagesRefused("too large")
        return set(parcels)

    monkeypatch.setattr(server, "_exchange", exchange)
    assert server._send_final(dict.fromkeys(range(3), (10, "model"))) == {0, 1}  # type: ignore[misc]
    assert caplog.text.count("too large") == 1


def test_why_a_run_failed_is_one_line_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> DeploymentConfig:
        raise FedwcaError("one\nFEDWCA RUN COMPLETE")

    monkeypatch.setattr(DeploymentConfig, "read", fail)
    with pytest.raises(FedwcaError):
        serve._play(SimpleNamespace(), tmp_path)  # type: ignore[arg-type]
    (line,) = (tmp_path / "federation.log").read_text().splitlines()
    assert line.endswith(r"the run failed: FedwcaError: one\nFEDWCA RUN COMPLETE")


@pytest.mark.parametrize(("kind", "done"), [("final", {0}), ("adapt", set())])
def test_who_says_that_it_is_done_with_a_task_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, done: set[int]
) -> None:
    answer = SimpleNamespace(content=to_record(Parcel("done", 3)), has_error=lambda: False)
    monkeypatch.setattr(serve, "Message", lambda *_, **__: None)
    monkeypatch.setattr(serve, "exchange", lambda *_: iter({11: answer}.items()))
    server, received = bare_server(tmp_path, [11], []), []
    server.session.receive = lambda client, parcel: received.append((client, parcel.kind)) or ""  # type: ignore[method-assign]
    assert server._exchange({0: (11, Parcel(kind, 3))}, 3) == done
    assert received == ([] if done else [(0, "done")])


@pytest.mark.parametrize("name", [*PARTS, "fedpcl_pl"])
@pytest.mark.timeout(600)
def test_flowers_simulation_ends_with_the_same_models(tmp_path: Path, shades: Path, name: str) -> None:
    pytest.importorskip("ray")
    federation = laid_out(tmp_path / "d", shades, name)
    session = simulate(federation, tmp_path / "d" / "server", tmp_path / "d" / "data")
    rows = session.state.server.rows
    if name == "fedpcl_pl":
        # The server gets no models; each client has written its own.
        layout = Layout.of(session.network)
        rows = torch.stack([read_final(tmp_path / "d" / "server" / f"client-{k}", layout) for k in range(4)])
    require_same(rows, federation, tmp_path / "d")


@pytest.mark.timeout(600)
def test_a_client_that_diverges_ends_flowers_simulation(tmp_path: Path, shades: Path) -> None:
    pytest.importorskip("ray")
    size = ["--clients", "2", "--samples", "30", "--rounds", "2", "--preset", "default", "--lr", "1e30"]
    method = ["--aggregator", "fedavg", "--set", "model.bottleneck=8", "--set", "source_training.epochs=1"]
    output = ["--data", str(shades), "--backend", "flower", "--out", str(tmp_path / "d")]
    completed = call("bench", *size, *method, *output, timeout=500)
    assert completed.returncode == 1
    assert "a lower learning rate may help" in completed.stderr
    assert "there is no answer of client" in completed.stderr
    federation = DeploymentConfig.read(tmp_path / "d" / "server" / CONFIG_NAME)
    assert 10 * 3600 < federation.deadline < DEFAULT_TTL


@pytest.mark.timeout(600)
def test_thinned_uploads_over_flower(tmp_path: Path, shades: Path) -> None:
    pytest.importorskip("ray")
    federation = laid_out(tmp_path / "d", shades, "fedavg", "--top", "0.1", "--feedback")
    session = simulate(federation, tmp_path / "d" / "server", tmp_path / "d" / "data")
    in_process, _ = message_by_message(federation, tmp_path / "d")
    assert torch.equal(session.state.server.rows, in_process.state.server.rows)
    bytes_by_round = [json.loads(line) for line in (tmp_path / "d" / "server" / "wire.jsonl").read_text().splitlines()]
    assert max(bytes_by_round[0]["up"].values()) < 0.3 * max(bytes_by_round[1]["down"].values())
