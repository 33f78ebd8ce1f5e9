"""Converts parcels to Flower's records and back; nothing is unpickled, and sizes are checked before decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import safetensors.numpy
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from fedwca.deploy.wire_messages import Parcel
from fedwca.errors import FedwcaError

ROUND, KIND, REPORT, BESIDE = "fedwca.round", "fedwca.kind", "report", "beside"
FILE = "safetensors"
"""Name of the only array of an array record: all its tensors as one safetensors file. Flower sends, checks and stores
each array separately, and a model has dozens of tensors.
"""

NOTES = 10_000
"""Largest number of characters of a client's answer outside its arrays' values: some numbers, a token, and names."""


def to_record(parcel: Parcel) -> RecordDict:
    """Convert a parcel: an array record each for models, the report and ``beside``; a config record for the rest."""
    return to_records([parcel])[0]


def to_records(parcels: Sequence[Parcel]) -> list[RecordDict]:
    """Convert several parcels; a mapping of tensors that several of them hold is packed once.

    Such a mapping is a model sent to all clients: memory does not grow with clients times models.
    """
    packed: dict[int, ArrayRecord] = {}

    def pack_once(tensors: Mapping[str, Tensor]) -> ArrayRecord:
        if id(tensors) not in packed:  # the parcels keep it alive, so its id is not reused
            packed[id(tensors)] = pack(tensors)
        return packed[id(tensors)]

    contents = []
    for parcel in parcels:
        records: dict[str, Any] = {f"model/{name}": pack_once(tensors) for name, tensors in parcel.models.items()}
        groups = ((REPORT, parcel.report), (BESIDE, parcel.beside))
        records |= {name: pack_once(values) for name, values in groups if values}
        records["notes"] = ConfigRecord({**parcel.notes, ROUND: parcel.round, KIND: parcel.kind})
        contents.append(RecordDict(records))
    return contents


def from_record(content: RecordDict, max_bytes: int | None = None) -> Parcel:
    """Convert a message's content back to the parcel that `to_record` converted.

    Args:
        content: the content of a message.
        max_bytes: largest accepted size of its arrays; None: sizes are not checked, as for messages of the server.

    Raises:
        FedwcaError: the message is too large, or not one of `to_record`.
    """
    if max_bytes is not None and (size := count_bytes(content)) > max_bytes:
        raise FedwcaError(f"holds {size:,} bytes of arrays; right is at most {max_bytes:,}")
    if max_bytes is not None and (size := count_notes(content)) > NOTES:
        raise FedwcaError(f"holds {size:,} characters beside arrays; right is at most {NOTES:,}")
    try:
        notes = dict(content.config_records["notes"])
        number, kind = int(notes.pop(ROUND)), notes.pop(KIND)
        arrays = {name: unpack(record) for name, record in content.array_records.items()}
    except Exception as error:
        raise FedwcaError(f"is not of the form of a fedwca message ({type(error).__name__}: {error})") from error
    report, beside = arrays.pop(REPORT, {}), arrays.pop(BESIDE, {})
    models = {name.removeprefix("model/"): tensors for name, tensors in arrays.items()}
    return Parcel(kind, number, models, report, beside, notes)


def pack(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    """Return an array record with the tensors as one safetensors file."""
    file = safetensors.numpy.save({name: tensor.contiguous().numpy() for name, tensor in tensors.items()})
    return ArrayRecord({FILE: Array(dtype="uint8", shape=(len(file),), stype=FILE, data=file)})


def unpack(record: ArrayRecord) -> dict[str, Tensor]:
    """Return the tensors of a record that `pack` made.

    Raises:
        ValueError: the record has other arrays.
    """
    if list(record) != [FILE]:
        raise ValueError(f"an array record has {len(record)} arrays; right is one, named {FILE}")
    return {name: torch.from_numpy(values.copy()) for name, values in safetensors.numpy.load(record[FILE].data).items()}


def count_bytes(content: RecordDict) -> int:
    """Return the size of all arrays on the wire, including the header of each file."""
    return sum(len(array.data) for record in content.array_records.values() for array in record.values())


def count_notes(content: RecordDict) -> int:
    """Return the number of characters of everything outside arrays, including names, also those of a file's tensors.

    A file begins with the length of what it says of its tensors, which may be millions without any value.
    """
    plain_records = [*content.config_records.values(), *content.metric_records.values()]
    characters = sum(len(name) + len(repr(value)) for record in plain_records for name, value in record.items())
    files = [array.data for record in content.array_records.values() for array in record.values()]
    return characters + sum(map(len, content)) + sum(int.from_bytes(file[:8], "little") for file in files)
