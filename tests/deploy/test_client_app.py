"""Flower's client app where a client's folder holds the state of another deployment or a damaged one; needs Flower."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedwca._version import __version__
from fedwca.core.file_locks import hold_alone
from fedwca.deploy.state_files import CLIENT_FORMAT, read_state, write_state
from fedwca.deploy.wire_messages import TURNED_AWAY, Parcel
from fedwca.errors import FedwcaError

from .conftest import Build, Federation

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedwca.deploy.flower.client_app import ANSWERING, client_app
from fedwca.deploy.flower.records import from_record, to_record


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower makes messages only where the ids of a task are set."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture
def folder(tmp_path: Path, federation: Build) -> Path:
    """A client's folder, with its images in it."""
    images = federation().images[0].train.permute(0, 2, 3, 1).contiguous().numpy()
    np.savez(tmp_path / "images.npz", images=images)
    return tmp_path


def asked(built: Federation) -> Parcel:
    """The parcel of client 0 in round 0, with all that it has to know."""
    session = built.session(alone="warn")
    session.admit("client-0", 0)
    return session.open([0])[0]


def answered(folder: Path, parcel: Parcel, **node_config: Any) -> Message:
    """The app's reply to a parcel; as in a process of its own, it remembers only what is in the folder."""
    config: Mapping[str, Any] = {"data": str(folder / "images.npz"), "state": str(folder), **node_config}
    context = Context(1, 2, dict(config), RecordDict(), {})
    message = Message(to_record(parcel), dst_node_id=2, message_type="train")
    reply = client_app()(message, context)
    assert isinstance(reply, Message)
    return reply


def kind(reply: Message) -> str:
    assert not reply.has_error(), reply.error.reason
    return from_record(reply.content).kind


def kept(folder: Path, name: str = "client.safetensors") -> str:
    """The composition in a client's state file, as text."""
    return str(read_state(folder / name, CLIENT_FORMAT)[1]["composition"])


def test_what_another_deployment_left_keeps_nobody_out(
    folder: Path, federation: Build, caplog: pytest.LogCaptureFixture
) -> None:
    assert kind(answered(folder, asked(federation("wca:ta=1,tb=1")))) == "upload"
    first_composition = kept(folder)
    # Clipping is refused with wca, and accepted with fedavg.
    assert kind(answered(folder, asked(federation("fedavg")), clip=1.0)) == "upload"
    assert kept(folder) != first_composition
    assert kept(folder, "client.safetensors.old") == first_composition
    assert "this client begins afresh; what it had kept is now" in caplog.text


def test_what_was_learned_in_another_deployment_is_kept_aside(folder: Path, federation: Build) -> None:
    other_parcel, file = asked(federation("one_hot")), folder / "client.safetensors"
    assert kind(answered(folder, asked(federation("wca:ta=1,tb=1")))) == "upload"
    learned_state = file.read_bytes()
    assert kind(answered(folder, other_parcel)) == "upload"
    aside = folder / "client.safetensors.old"
    assert aside.read_bytes() == learned_state
    assert kind(answered(folder, other_parcel)) == "upload"  # a restarted server sends everything again
    assert aside.read_bytes() == learned_state
    assert kind(answered(folder, asked(federation("fedavg")))) == "upload"
    assert aside.read_bytes() == learned_state
    assert (folder / "client.safetensors.old-2").exists()


@pytest.mark.parametrize(
    ("now", "then"),
    [
        ('"name":"convnet"', '"name":"gone"'),
        ('"aggregator":{"name":"fedavg"', '"aggregator":{"name":"gone"'),
        ('"trial":0', '"trial":0,"gone":1'),
    ],
    ids=["model", "aggregator", "field"],
)
def test_what_a_newer_version_does_not_know_keeps_nobody_out(
    folder: Path, federation: Build, now: str, then: str
) -> None:
    parcel, file = asked(federation("fedavg")), folder / "client.safetensors"
    assert kind(answered(folder, parcel)) == "upload"
    tensors, notes = read_state(file, CLIENT_FORMAT)
    unknown_composition = notes["composition"].replace(now, then)
    assert unknown_composition != notes["composition"]
    write_state(file, tensors, {**notes, "composition": unknown_composition}, CLIENT_FORMAT)
    assert kind(answered(folder, parcel)) == "upload"
    assert kept(folder, "client.safetensors.old") == unknown_composition


def test_a_message_of_another_version_is_answered_by_what_to_install(
    folder: Path, federation: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pack_as_before(tensors: Mapping[str, Any]) -> ArrayRecord:
        return ArrayRecord({name: Array(tensor.numpy()) for name, tensor in tensors.items()})

    monkeypatch.setattr("fedwca.deploy.flower.records.pack", pack_as_before)  # of 0.1.0
    reason = answered(folder, asked(federation("fedavg"))).error.reason
    assert reason.startswith("the server's message is not of the form of a fedwca message")
    assert reason.endswith(f"; this client has fedwca {__version__}; install the server's version here")


def test_a_damaged_file_is_kept_aside_and_all_is_asked_for_again(folder: Path, federation: Build) -> None:
    parcel = asked(federation("fedavg"))
    (folder / "client.safetensors").write_bytes(b"damaged")
    later_parcel = Parcel("train", 1, {}, {}, {}, {"token": "t", "first": 0, "personal": 1})
    assert kind(answered(folder, later_parcel)) == "lost"
    assert (folder / "client.safetensors.old").read_bytes() == b"damaged"
    assert kind(answered(folder, parcel)) == "upload"


@pytest.mark.parametrize("lost", ["composition", "own"])
def test_a_file_that_lacks_something_is_kept_aside(folder: Path, federation: Build, lost: str) -> None:
    parcel, file = asked(federation("fedavg")), folder / "client.safetensors"
    assert kind(answered(folder, parcel)) == "upload"
    tensors, notes = read_state(file, CLIENT_FORMAT)
    for values in (tensors, notes):
        values.pop(lost, None)
    write_state(file, tensors, notes, CLIENT_FORMAT)
    assert kind(answered(folder, parcel)) == "upload"
    assert (folder / "client.safetensors.old").exists()


def test_the_server_is_not_told_names_of_files(
    folder: Path, federation: Build, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "images.npz").rename(folder / "patient.npz")
    (folder / "images.npz").write_bytes(b"damaged")
    reply = answered(folder, asked(federation("fedavg")))
    assert reply.error.reason == "its images cannot be used; its own log says why"
    assert "images.npz" in caplog.text
    (folder / "images.npz").unlink()
    (folder / "patient.npz").rename(folder / "images.npz")

    def raise_disk_full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(folder))

    monkeypatch.setattr("fedwca.deploy.flower.client_app.save_client", raise_disk_full)
    reply = answered(folder, asked(federation("fedavg")))
    assert reply.error.reason == "No space left on device; its own log says why"
    (folder / "identity").mkdir()
    hello = Message(RecordDict(), dst_node_id=2, message_type="query")
    reply = client_app()(hello, Context(1, 2, {"data": "x", "state": str(folder)}, RecordDict(), {}))
    assert str(folder) not in reply.error.reason
    assert f"{folder}" in caplog.text


def test_a_client_whose_images_are_more_or_fewer_says_so_itself(
    folder: Path, federation: Build, caplog: pytest.LogCaptureFixture
) -> None:
    parcel = asked(federation("fedavg"))
    upload = from_record(answered(folder, parcel).content)
    images = int(upload.notes["samples"])
    answer = answered(folder, replace(parcel, notes={**parcel.notes, "samples": images}))
    assert kind(answer) == "upload"
    answer = answered(folder, replace(parcel, notes={**parcel.notes, "samples": images + 2}))
    assert answer.error.reason == "its images cannot be used; its own log says why"
    assert f"this client has {images} images, and had {images + 2} in an earlier round; they stay" in caplog.text


def test_a_client_that_is_turned_away_says_so_itself(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = RecordDict({TURNED_AWAY: ConfigRecord({"reason": "all 4 numbers\x1b are taken"})})
    context = Context(1, 2, {"data": "x", "state": str(folder)}, RecordDict(), {})
    assert not client_app()(Message(content, dst_node_id=2, message_type="query"), context).has_error()
    sentence = r"this client does not take part: the server turns it away: all 4 numbers\x1b are taken"
    assert sentence in caplog.text


def test_a_node_that_was_not_started_by_fedwca_says_so_at_once() -> None:
    hello = Message(RecordDict(), dst_node_id=2, message_type="query")
    reply = client_app()(hello, Context(1, 2, {}, RecordDict(), {}))
    assert reply.error.reason == "this node's configuration names no 'state'; start it by fedwca client"


def test_noise_on_moments_that_are_not_asked_for_is_said_to_do_nothing(
    folder: Path, federation: Build, caplog: pytest.LogCaptureFixture
) -> None:
    assert kind(answered(folder, asked(federation("fedavg")), clip_moments=20.0, noise_moments=0.01)) == "upload"
    assert "--clip-moments and --noise-moments do nothing here" in caplog.text


@pytest.mark.parametrize("fault", ["clip", "images"])
def test_what_a_client_kept_stays_where_it_is_not_at_fault(folder: Path, federation: Build, fault: str) -> None:
    parcel = asked(federation("wca:ta=1,tb=1"))
    assert kind(answered(folder, parcel)) == "upload"
    composition = kept(folder)
    if fault == "images":
        (folder / "images.npz").rename(folder / "away.npz")
    reply = answered(folder, parcel, **({"clip": 1.0} if fault == "clip" else {}))
    assert reply.has_error()
    assert ("--clip" if fault == "clip" else "its own log says why") in reply.error.reason
    assert kept(folder) == composition
    assert not (folder / "client.safetensors.old").exists()


def test_a_second_task_at_once_is_refused_and_leaves_the_state_as_it_is(folder: Path, federation: Build) -> None:
    parcel = asked(federation("fedavg"))
    with hold_alone(folder / ANSWERING, FedwcaError("held")):
        refused = answered(folder, parcel)
    assert refused.has_error()
    assert refused.error.reason == "it still works on an earlier task"
    assert not (folder / "client.safetensors").exists()
    assert kind(answered(folder, parcel)) == "upload"


def test_a_folder_that_was_removed_is_made_again(folder: Path, federation: Build) -> None:
    gone = folder / "clients" / "0"
    assert kind(answered(folder, asked(federation("fedavg")), state=str(gone))) == "upload"
    assert (gone / "client.safetensors").exists()
