"""Which client each connected node is; needs Flower."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace

import pytest

from fedwca._version import __version__

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, RecordDict

from fedwca.deploy.flower import connected_clients
from fedwca.deploy.flower.client_secret import name_of
from fedwca.deploy.wire_messages import TURNED_AWAY

pytestmark = pytest.mark.filterwarnings("default")  # of Flower


class Reply:
    """What a node answers when it is asked who it is, or why it cannot say."""

    def __init__(self, config: dict[str, str | int] | None = None, why: str | None = None) -> None:
        self.content = RecordDict({"hello": ConfigRecord(config)} if config is not None else {})
        self.error = SimpleNamespace(reason=why)

    def has_error(self) -> bool:
        """Whether it cannot say."""
        return not self.content


def make_clients(
    nodes: list[int], admitted: list[tuple[str, int | None]], rejoin: bool = False
) -> connected_clients.ConnectedClients:
    """Clients of a session that admits everybody and notes it in ``admitted``; a round needs two."""

    def admit(name: str, wish: int | None) -> int:
        admitted.append((name, wish))
        return len(admitted) - 1

    grid = SimpleNamespace(get_node_ids=lambda: nodes, push_messages=lambda messages: None)
    deployment = SimpleNamespace(deadline=600.0, rejoin=rejoin, rules=SimpleNamespace(least=2))
    session = SimpleNamespace(admit=admit)
    return connected_clients.ConnectedClients(grid, session, deployment, lambda connected: None)  # type: ignore[arg-type]


def test_who_does_not_say_who_it_is_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replies = {
        11: Reply({"number": 2, "identity": "secret", "fedwca": "9.0"}),
        12: Reply(why="its folder cannot be written"),
        14: Reply(),
    }
    monkeypatch.setattr(connected_clients, "Message", lambda *_, **__: None)
    monkeypatch.setattr(connected_clients, "exchange_messages", lambda *_: iter(replies.items()))
    admitted: list[tuple[str, int | None]] = []
    assert make_clients([11, 12, 13, 14], admitted).find() == {0: 11}
    assert admitted == [(name_of("secret"), 2)]
    assert "secret" not in caplog.text
    assert f"client {name_of('secret')} has fedwca 9.0, this server {__version__};" in caplog.text
    assert "node 12 does not say who it is: its folder cannot be written" in caplog.text
    assert "node 14 does not say who it is: no reason given" in caplog.text
    assert "node 13 did not say in time who it is" in caplog.text


@pytest.mark.parametrize(("deadline", "later"), [(600.0, connected_clients.HELLO), (5.0, 5.0)])
def test_a_node_that_never_says_who_it_is_costs_later_rounds_little(
    monkeypatch: pytest.MonkeyPatch, deadline: float, later: float
) -> None:
    replies, waited = {11: Reply({"identity": "a", "fedwca": __version__})}, []

    def exchange(grid: object, nodes: list[int], seconds: float) -> Iterator[tuple[int, Reply]]:
        waited.append((nodes, seconds))
        return iter([(node, replies[node]) for node in nodes if node in replies])

    monkeypatch.setattr(connected_clients, "Message", lambda *_, dst_node_id, **__: dst_node_id)
    monkeypatch.setattr(connected_clients, "exchange_messages", exchange)
    clients = make_clients([11, 12, 13], [])
    clients.deployment.deadline = deadline  # type: ignore[misc]
    assert clients.find() == {0: 11}
    replies[12] = Reply({"identity": "b", "fedwca": __version__})
    assert clients.find() == {0: 11, 1: 12}
    assert clients.find() == {0: 11, 1: 12}
    # A round needs two clients: while only one is known, unknown nodes have the full deadline.
    assert waited == [([11, 12, 13], deadline), ([12, 13], deadline), ([13], later)]


class NamesNow:
    """The names by place, as they are when they are read."""

    def __init__(self, names: dict[int, str]) -> None:
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: int) -> str:
        return self.names[number]

    def __contains__(self, name: str) -> bool:
        return name in self.names.values()


def with_places(
    monkeypatch: pytest.MonkeyPatch, nodes: list[int], names: dict[int, str], replies: Mapping[int, Reply], rejoin: bool
) -> tuple[connected_clients.ConnectedClients, list[list[int]]]:
    """Clients of a session with these names by place, and a list that gets the nodes that are asked each time."""
    asked_nodes: list[list[int]] = []

    def exchange(grid: object, nodes: list[int], seconds: float) -> list[tuple[int, Reply]]:
        asked_nodes.append(nodes)
        return [(node, replies[node]) for node in nodes if node in replies]

    def release(number: int, online: set[str]) -> None:
        names[number] = names[number] if names[number] in online else ""

    def admit(name: str, wish: int) -> int | None:
        names[wish] = names[wish] or name
        return wish if names[wish] == name else None

    monkeypatch.setattr(connected_clients, "Message", lambda *_, dst_node_id, **__: dst_node_id)
    monkeypatch.setattr(connected_clients, "exchange_messages", exchange)
    clients = make_clients(nodes, [], rejoin)
    clients.session.release, clients.session.admit = release, admit  # type: ignore[method-assign, assignment]
    clients.session.state = SimpleNamespace(names=NamesNow(names))  # type: ignore[assignment]
    return clients, asked_nodes


def test_who_was_turned_away_is_asked_again_when_a_place_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client without a key that lost its folder comes back under a new name, while Flower lists its old node."""
    replies = {node: Reply({"identity": name, "number": 0}) for node, name in ((11, "a"), (12, "b"), (13, "b"))}
    nodes = [11, 12]
    clients, asked_nodes = with_places(monkeypatch, nodes, {0: ""}, replies, rejoin=True)
    assert clients.find() == {0: 11}
    nodes.remove(11)
    assert clients.find() == {0: 12}
    nodes.append(13)
    assert clients.find() == {0: 13}  # the same client, back under another node
    nodes.remove(13)
    assert clients.find() == {0: 12}
    assert asked_nodes == [[11, 12], [12], [13], [12]]
    assert clients.find() == {0: 12}


@pytest.mark.parametrize("rival", [10, 12])
def test_who_is_connected_keeps_its_place_whichever_node_says_so_first(
    monkeypatch: pytest.MonkeyPatch, rival: int
) -> None:
    """After the server is started again, all nodes say at once who they are, and another one asks for a taken place."""
    replies = {11: Reply({"identity": "a", "number": 0}), rival: Reply({"identity": "b", "number": 0})}
    clients, _ = with_places(monkeypatch, sorted(replies), {0: name_of("a")}, replies, rejoin=True)
    assert clients.find() == {0: 11}


@pytest.mark.parametrize(("newcomer", "nodes"), [("a", [11]), ("c", [11, 12])], ids=["it has one", "12 said nothing"])
def test_nobody_loses_its_place_to_who_has_one_or_while_a_node_is_not_known(
    monkeypatch: pytest.MonkeyPatch, newcomer: str, nodes: list[int]
) -> None:
    names = {0: name_of("a"), 1: name_of("b")}
    replies = {11: Reply({"identity": newcomer, "number": 1})}
    clients, asked_nodes = with_places(monkeypatch, nodes, names, replies, rejoin=True)
    for _ in range(2):
        clients.find()
        assert names == {0: name_of("a"), 1: name_of("b")}
    assert asked_nodes[1:] == ([nodes] if 12 in nodes else []), "who was turned away meanwhile is asked again"


def test_who_was_turned_away_with_a_key_is_asked_again_when_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client with a key is known by the same node after it is started again, now with another number."""
    replies = {11: Reply({"identity": "a", "number": 0}), 12: Reply({"identity": "b", "number": 0})}
    nodes = [11, 12]
    clients, asked_nodes = with_places(monkeypatch, nodes, {0: name_of("a"), 1: ""}, replies, rejoin=False)
    assert clients.find() == {0: 11}
    nodes.remove(12)
    assert clients.find() == {0: 11}
    replies[12] = Reply({"identity": "b", "number": 1})
    nodes.append(12)
    assert clients.find() == {0: 11, 1: 12}
    assert asked_nodes == [[11, 12], [12]]
    nodes.remove(11)
    assert clients.find() == {1: 12}
    nodes.append(11)
    assert clients.find() == {0: 11, 1: 12}
    assert len(asked_nodes) == 2, "who has a place is known by its key"


def test_a_node_that_is_turned_away_is_told_why_and_does_not_count_as_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replies = {11: Reply({"identity": "a", "number": 0}), 12: Reply({"identity": "b", "number": 0})}
    clients, _ = with_places(monkeypatch, [11, 12, 13], {0: ""}, replies, rejoin=False)
    counts: list[int] = []
    told: list[tuple[int, str]] = []

    def make_message(content: RecordDict, *, dst_node_id: int, message_type: str) -> tuple[int, str] | int:
        record = content.config_records.get(TURNED_AWAY)
        return (dst_node_id, str(record["reason"])) if record else dst_node_id

    monkeypatch.setattr(connected_clients, "Message", make_message)
    clients.tell = counts.append
    clients.grid.push_messages = told.extend  # type: ignore[method-assign, assignment]
    assert clients.count() == 3, "nobody is known yet"
    for _ in range(2):
        assert clients.find() == {0: 11}
    assert (counts, clients.count()) == ([2, 2], 2), "13 has not said who it is"
    assert told == [(12, f"it asks for number 0 (--number), which is client {name_of('a')}'s")], "once"
    # The same identity at another node: the older one is told.
    replies[13] = Reply({"identity": "a", "number": 0})
    assert clients.find() == {0: 13}
    assert told[1:] == [(11, "another client has connected as this one, perhaps from a copy of its folder")]
