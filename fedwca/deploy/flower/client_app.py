"""The ClientApp: each message may be handled in a new process, so the client's state is kept in its folder."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from fedwca._version import __version__
from fedwca.core.file_locks import hold_alone
from fedwca.core.printable import printable
from fedwca.deploy.client import Client
from fedwca.deploy.client_images import read_images
from fedwca.deploy.flower.client_secret import identity
from fedwca.deploy.flower.records import from_record, to_record
from fedwca.deploy.flower.tell_failure import tell_failure
from fedwca.deploy.privacy import Privacy
from fedwca.deploy.state_files import resume_client, save_client, save_final
from fedwca.deploy.wire_messages import TURNED_AWAY, VERSION, Parcel
from fedwca.errors import CheckpointError, DataError, FedwcaError, UsageError
from fedwca.results.low_trust import own_low_trust_note

log = logging.getLogger("fedwca.deploy")
ANSWERING = "answering"
"""A file that is locked while a task is answered: Flower gives out the next one early if the machine's clock jumps."""
UNKNOWN = 0
"""Flower's code for an error that is not one of Flower's own."""
Settings = Callable[[dict[str, Any]], dict[str, Any]]
Handler = Callable[[Message, dict[str, Any]], Message]


def client_app(settings: Settings = lambda node_config: node_config) -> ClientApp:
    """Return the app; ``data`` and ``state`` in the node's configuration are the paths of its images and its folder.

    Args:
        settings: maps the node's configuration to the one that is used, for simulated nodes.
    """
    app = ClientApp()

    def report_errors(handle: Handler) -> Callable[[Message, Context], Message]:
        def handler(message: Message, context: Context) -> Message:
            node_config = settings(dict(context.node_config))
            try:
                return handle(message, node_config)
            except Exception as error:
                return Message(Error(UNKNOWN, tell_failure(error, node_config)), reply_to=message)

        return handler

    app.query()(report_errors(_introduce))
    app.train()(report_errors(_answer))
    return app


def _introduce(message: Message, node_config: dict[str, Any]) -> Message:
    _check_node_config(node_config, "state")
    if (turned_away := message.content.config_records.get(TURNED_AWAY)) is not None:
        log.error("this client does not take part: the server turns it away: %s", printable(str(turned_away["reason"])))
    hello = {
        "number": int(node_config.get("number", -1)),
        "identity": identity(Path(str(node_config["state"]))),
        VERSION: __version__,
    }
    return Message(RecordDict({"hello": ConfigRecord(hello)}), reply_to=message)


def _check_node_config(node_config: dict[str, Any], *keys: str) -> None:
    for key in keys:
        if key not in node_config:
            raise UsageError(f"this node's configuration names no {key!r}; start it by fedwca client")


def _answer(message: Message, node_config: dict[str, Any]) -> Message:
    _check_node_config(node_config, "data", "state")
    state, parcel = Path(str(node_config["state"])), _read_parcel(message)
    state.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may have been removed since the client was started
    with hold_alone(state / ANSWERING, FedwcaError("it still works on an earlier task")):
        return Message(to_record(_handle(parcel, state, node_config)), reply_to=message)


def _handle(parcel: Parcel, state: Path, node_config: dict[str, Any]) -> Parcel:
    device = str(node_config.get("device", "cpu"))
    privacy, moment_privacy = _read_privacy(node_config, ""), _read_privacy(node_config, "_moments")
    client = Client(partial(read_images, Path(str(node_config["data"]))), device, privacy, moment_privacy)
    state_file = state / "client.safetensors"
    resumed_engine = client.engine if state_file.exists() and _resume(client, state_file, parcel) else None
    trust_known = client.trust is not None
    answer = client.handle(parcel)
    if not trust_known and client.trust is not None and (note := own_low_trust_note(client.trust)):
        log.warning("%s", note)
    composition = client.composition
    if "source" in parcel.models and client.moment_privacy and composition is not None and composition.moments is None:
        log.warning("--clip-moments and --noise-moments do nothing here: clients of this method upload no moments")
    if state_file.exists() and (resumed_engine is None or client.engine is not resumed_engine):
        _set_aside(state_file)
    if parcel.kind == "final" and client.final is not None:
        save_final(client, state)
    else:
        save_client(client, state_file)
    return answer


def _read_parcel(message: Message) -> Parcel:
    try:
        return from_record(message.content)
    except FedwcaError as error:
        advice = f"this client has fedwca {__version__}; install the server's version here"
        raise FedwcaError(f"the server's message {error}; {advice}") from error


def _read_privacy(node_config: dict[str, Any], suffix: str) -> Privacy | None:
    clip = float(node_config.get(f"clip{suffix}", 0))
    return Privacy(clip, float(node_config.get(f"noise{suffix}", 0))) if clip else None


def _resume(client: Client, state_file: Path, parcel: Parcel) -> bool:
    """Restore the client from its state file; return False if the file cannot be used and the client starts anew.

    Raises:
        DataError: the images cannot be read.
        FedwcaError: the state does not fit this client's options, and the message has no source model to start from.
    """
    try:
        resume_client(client, state_file)
    except DataError:
        raise  # the images are the problem, not the state file
    except CheckpointError as error:
        log.warning("%s", error)
        return False  # the client answers "lost", unless this message has the source model
    except FedwcaError as error:
        # For example, the state is of an earlier deployment, which does not allow --clip.
        if "source" not in parcel.models:
            raise
        log.warning("%s: %s", state_file, error)
        return False
    return True


def _set_aside(state_file: Path) -> None:
    """Rename a state file that cannot be used; it is not deleted, as the client's own model may be in it."""
    names = (f"{state_file.name}.old{f'-{number}' * (number > 1)}" for number in count(1))
    set_aside = next(path for path in map(state_file.with_name, names) if not path.exists())
    state_file.replace(set_aside)
    log.warning("this client begins afresh; what it had kept is now %s", set_aside)
