"""The ClientApp: each message may be a process of its own, so what a client knows is kept in its folder."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from fedwca._version import __version__
from fedwca.deploy.client import Client
from fedwca.deploy.client_images import read_images
from fedwca.deploy.flower.client_secret import identity
from fedwca.deploy.flower.records import from_record, to_record
from fedwca.deploy.flower.tell_failure import tell_failure
from fedwca.deploy.privacy import Privacy
from fedwca.deploy.state_files import resume_client, save_client, save_final
from fedwca.deploy.wire_messages import VERSION, Parcel
from fedwca.errors import CheckpointError, DataError, FedwcaError, UsageError
from fedwca.results.low_trust import own_low_trust_note

log = logging.getLogger("fedwca.deploy")
UNKNOWN = 0
"""Flower's code for an error that is none of its own."""
Settings = Callable[[dict[str, Any]], dict[str, Any]]
Handler = Callable[[Message, dict[str, Any]], Message]


def client_app(settings: Settings = lambda given: given) -> ClientApp:
    """The app; ``data`` and ``state`` of the node's configuration name the images and the client's folder.

    Args:
        settings: from the node's configuration to what is used of it, for nodes that are simulated.
    """
    app = ClientApp()

    def answer(handle: Handler) -> Callable[[Message, Context], Message]:
        def answered(message: Message, context: Context) -> Message:
            given = settings(dict(context.node_config))
            try:
                return handle(message, given)
            except Exception as error:
                return Message(Error(UNKNOWN, tell_failure(error, given)), reply_to=message)

        return answered

    app.query()(answer(_introduce))
    app.train()(answer(_answer))
    return app


def _introduce(message: Message, given: dict[str, Any]) -> Message:
    about = {"seat": int(given.get("seat", -1)), "identity": identity(Path(str(given["state"]))), VERSION: __version__}
    return Message(RecordDict({"hello": ConfigRecord(about)}), reply_to=message)


def _answer(message: Message, given: dict[str, Any]) -> Message:
    for needed in ("data", "state"):
        if needed not in given:
            raise UsageError(f"this node's configuration names no {needed!r}; start it by fedwca client")
    data, state = Path(str(given["data"])), Path(str(given["state"]))
    device = str(given.get("device", "cpu"))
    client = Client(partial(read_images, data), device, _read_privacy(given, ""), _read_privacy(given, "_moments"))
    kept, parcel = state / "client.safetensors", from_record(message.content)
    held = client.engine if kept.exists() and _resume(client, kept, parcel) else None
    knew = client.trust is not None
    answer = client.handle(parcel)
    if not knew and client.trust is not None and (note := own_low_trust_note(client.trust)):
        log.warning("%s", note)
    asked = client.composition
    if "source" in parcel.models and client.moment_privacy and asked is not None and asked.moments is None:
        log.warning("--clip-moments and --noise-moments do nothing here: clients of this method upload no moments")
    if kept.exists() and (held is None or client.engine is not held):
        _set_aside(kept)
    if parcel.kind == "final" and client.final is not None:
        save_final(client, state)
    else:
        save_client(client, kept)
    return Message(to_record(answer), reply_to=message)


def _read_privacy(given: dict[str, Any], of: str) -> Privacy | None:
    clip = float(given.get(f"clip{of}", 0))
    return Privacy(clip, float(given.get(f"noise{of}", 0))) if clip else None


def _resume(client: Client, kept: Path, parcel: Parcel) -> bool:
    """Take up what is kept; False where it is of no use and the client begins afresh.

    Raises:
        FedwcaError: it cannot be taken up now, and nothing to begin with comes with this message.
    """
    try:
        resume_client(client, kept)
    except DataError:
        raise  # the images are at fault
    except CheckpointError as error:
        log.warning("%s", error)
        return False  # answered by "lost", unless all it has to know comes with this message
    except FedwcaError as error:
        # Of an earlier deployment, say, which --clip does not fit.
        if "source" not in parcel.models:
            raise
        log.warning("%s: %s", kept, error)
        return False
    return True


def _set_aside(kept: Path) -> None:
    """Keep a file that is of no use here, for a model of the client's own may be in it."""
    old = kept.with_name(f"{kept.name}.old")
    kept.replace(old)
    log.warning("this client begins afresh; what it had kept is now %s", old)
