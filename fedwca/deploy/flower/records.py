"""Parcels as Flower's records and back; nothing is unpickled, and nothing is decoded that is larger than it may be."""

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
"""The only array of an array record: all its tensors as one file. Flower moves, checks and stores each array by itself,
and a model has dozens.
"""

NOTES = 10_000
"""Characters that a client's answer may have beside its arrays: some numbers and a token."""


def to_record(parcel: Parcel) -> RecordDict:
    """One array record for each model, for the report and for what objectives exchange; the rest is configuration."""
    return to_records([parcel])[0]


def to_records(parcels: Sequence[Parcel]) -> list[RecordDict]:
    """The same of several parcels: the tensors of a mapping that several have, such as a model sent to all clients, are
    packed once, so that memory does not grow with clients times models.
    """
    packed: dict[int, ArrayRecord] = {}

    def pack_once(tensors: Mapping[str, Tensor]) -> ArrayRecord:
        if id(tensors) not in packed:  # the parcels hold it, so that no other mapping comes to have its number
            packed[id(tensors)] = pack(tensors)
        return packed[id(tensors)]

    found = []
    for parcel in parcels:
        records: dict[str, Any] = {f"model/{name}": pack_once(tensors) for name, tensors in parcel.models.items()}
        beside = ((REPORT, parcel.report), (BESIDE, parcel.beside))
        records |= {name: pack_once(values) for name, values in beside if values}
        records["notes"] = ConfigRecord({**parcel.notes, ROUND: parcel.round, KIND: parcel.kind})
        found.append(RecordDict(records))
    return found


def from_record(content: RecordDict, most: int | None = None) -> Parcel:
    """The parcel that `to_record` made.

    Args:
        content: of a message.
        most: bytes that its arrays may have; None: any number, as from one's own server.

    Raises:
        FedwcaError: there are more bytes, or a record is not of the form.
    """
    if most is not None and (size := count_bytes(content)) > most:
        raise FedwcaError(f"holds {size:,} bytes of arrays; right is at most {most:,}")
    if most is not None and (size := count_notes(content)) > NOTES:
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
    """Tensors as the one file of a record."""
    file = safetensors.numpy.save({name: tensor.contiguous().numpy() for name, tensor in tensors.items()})
    return ArrayRecord({FILE: Array(dtype="uint8", shape=(len(file),), stype=FILE, data=file)})


def unpack(record: ArrayRecord) -> dict[str, Tensor]:
    """What `pack` packed."""
    if list(record) != [FILE]:
        raise ValueError(f"an array record has {sorted(record)}; right is {FILE} alone")
    return {name: torch.from_numpy(values.copy()) for name, values in safetensors.numpy.load(record[FILE].data).items()}


def count_bytes(content: RecordDict) -> int:
    """Bytes of all arrays as they are on the wire, with the header of each file."""
    return sum(len(array.data) for record in content.array_records.values() for array in record.values())


def count_notes(content: RecordDict) -> int:
    """Characters of everything else, names too."""
    others = [*content.config_records.values(), *content.metric_records.values()]
    held = sum(len(name) + len(repr(value)) for record in others for name, value in record.items())
    return held + sum(map(len, content))
