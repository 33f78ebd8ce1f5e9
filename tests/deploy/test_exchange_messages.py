"""The server waits for nodes and takes their replies as they come; needs Flower."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from fedwca.errors import FedwcaError

pytest.importorskip("flwr")

import httpx
from flwr.common.constant import SUPERLINK_NODE_ID

from fedwca.deploy.flower import exchange_messages

pytestmark = pytest.mark.filterwarnings("default")  # of Flower


class Coming:
    """A grid in which one more node can be reached each time that it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def get_node_ids(self) -> range:
        self.asked += 1
        return range(self.asked - 1)


def test_nodes_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(exchange_messages, "time", SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append))
    grid = Coming()

    def count() -> int:
        return len(grid.get_node_ids())

    exchange_messages.wait_for_nodes(count, 3, 60.0)
    assert (grid.asked, len(slept)) == (4, 3)
    exchange_messages.wait_for_nodes(count, 100, 5 * exchange_messages.POLL)
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
    monkeypatch.setattr(exchange_messages, "time", SimpleNamespace(monotonic=lambda: sum(clock), sleep=clock.append))
    messages = [SimpleNamespace(metadata=SimpleNamespace(dst_node_id=10 + node)) for node in range(len(grid.after))]
    return {node: sum(clock) for node, _ in exchange_messages.exchange_messages(grid, messages, 60)}  # type: ignore[arg-type]


def test_answers_are_taken_as_they_come_and_not_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: list[float] = []
    seconds = taken(Answering({"a": 0, "b": 1, "c": 20, "d": 1e9}, clock), clock, monkeypatch)
    assert list(seconds) == [10, 11, 12]
    assert seconds[10] == 0
    # An answer that came after t seconds is taken within another t / 4.
    assert 1 <= seconds[11] <= 1.25
    assert 20 <= seconds[12] <= 23
    assert sum(clock) == pytest.approx(60)


def test_an_answer_that_came_in_the_last_pause_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: list[float] = []
    seconds = taken(Answering({"a": 59.99, "b": 60.01}, clock), clock, monkeypatch)
    assert seconds == {10: pytest.approx(60)}


def test_messages_live_longer_than_the_wait_for_their_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: list[float] = []
    grid = Answering({"a": 1}, clock)
    lives: list[float] = []

    def push(messages: list[SimpleNamespace]) -> list[str]:
        lives.extend(message.metadata.ttl for message in messages)
        return ["a"]

    monkeypatch.setattr(grid, "push_messages", push)
    taken(grid, clock, monkeypatch)
    assert lives == [60 + 12 * 3600]


class Uploading(Answering):
    """A grid that waits for the rest of the answer of the node called ``slow``, until ``uploaded`` is set."""

    def __init__(self, after: dict[str, float], clock: list[float], slow: str) -> None:
        super().__init__(after, clock)
        self.slow, self.uploaded = slow, Event()
        self.pulled: list[str] = []

    def pull_messages(self, names: set[str]) -> list[SimpleNamespace]:
        self.pulled.extend(names)
        if self.slow in names and not self.uploaded.wait(60):
            return []
        return super().pull_messages(names)


def test_an_upload_that_never_ends_keeps_no_other_answer_from_being_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_messages, "PATIENCE", 0.01)
    monkeypatch.setattr(exchange_messages, "GRACE", 0.01)
    clock: list[float] = []
    grid = Uploading({"a": 0, "b": 0, "c": 30}, clock, slow="a")
    assert list(taken(grid, clock, monkeypatch)) == [11, 12]
    assert grid.pulled.count("a") == 1  # Flower gives a reply out once
    grid.uploaded.set()


@pytest.mark.parametrize("ends", [0.0, 60.0])
def test_an_upload_that_ends_while_others_are_waited_for_or_just_after_counts(
    monkeypatch: pytest.MonkeyPatch, ends: float
) -> None:
    monkeypatch.setattr(exchange_messages, "PATIENCE", 0.01)
    clock: list[float] = []
    grid = Uploading({"a": 0, "b": 1e9}, clock, slow="a")

    def look(names: set[str]) -> list[SimpleNamespace]:
        if "b" in names and sum(clock) >= ends:
            grid.uploaded.set()
        return Uploading.pull_messages(grid, names)

    monkeypatch.setattr(grid, "pull_messages", look)
    assert list(taken(grid, clock, monkeypatch)) == [10]
    assert grid.pulled.count("a") == 1


def test_what_flower_says_of_a_lost_node_is_that_nodes_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: list[float] = []
    assert list(taken(Answering({"a": 0, "b": 1, "": 0}, clock, lost="b"), clock, monkeypatch)) == [12, 10, 11]


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


REFUSED = httpx.HTTPStatusError("500", request=Mock(), response=Mock())


@pytest.mark.parametrize("error", [KeyError("x"), IndexError(), AttributeError("x"), REFUSED])
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
    assert list(taken(grid, clock, monkeypatch)) == [10, 11, 12]
    assert f"node 11: its message cannot be read ({type(error).__name__})" in caplog.text


def test_a_server_that_does_not_answer_is_not_a_clients_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: list[float] = []
    grid = Answering({"a": 0}, clock)

    def gone(names: set[str]) -> list[SimpleNamespace]:
        raise httpx.ConnectError("gone")

    monkeypatch.setattr(grid, "pull_messages", gone)
    with pytest.raises(httpx.ConnectError):
        taken(grid, clock, monkeypatch)


def test_of_nodes_that_are_gone_no_answer_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock: list[float] = []
    seconds = taken(Answering({"": 1e9, "b": 1}, clock), clock, monkeypatch)
    assert list(seconds) == [10, 11]
    assert seconds[10] == 0
    assert "node 10: is gone, so nothing was sent to it" in caplog.text
