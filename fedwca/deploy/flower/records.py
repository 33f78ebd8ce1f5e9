"""Parcels as Flower's records and back; nothing is unpickled, and nothing is decoded that is larger than it may be."""

from __future__ import annotations

from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedwca.deploy.wire_messages import Parcel
from fedwca.errors import FedwcaError

ROUND, KIND, REPORT, EXTRAS = "fedwca.round", "fedwca.kind", "report", "beside"
FRAMING = 4096
"""Bytes that an array's own header may add to its values."""


def to_record(parcel: Parcel) -> RecordDict:
    """One array record for each model, for the report and for what objectives exchange; the rest is configuration."""
    records: dict[str, Any] = {
        f"model/{name}": ArrayRecord({key: Array(tensor.contiguous().numpy()) for key, tensor in tensors.items()})
        for name, tensors in parcel.models.items()
    }
    for name, values in ((REPORT, parcel.report), (EXTRAS, parcel.extras)):
        if values:
            records[name] = ArrayRecord({key: Array(value.contiguous().numpy()) for key, value in values.items()})
    records["notes"] = ConfigRecord({**parcel.notes, ROUND: parcel.round, KIND: parcel.kind})
    return RecordDict(records)


def from_record(content: RecordDict, most: int | None = None) -> Parcel:
    """The parcel that `to_record` made.

    Args:
        content: of a message.
        most: bytes that its arrays may have; None: any number, as from one's own server.

    Raises:
        FedwcaError: there are more bytes, or a record is not of the form.
    """
    size = count_bytes(content)
    if most is not None and size > most:
        raise FedwcaError(f"holds {size:,} bytes of arrays; right is at most {most:,}")
    try:
        notes = dict(content.config_records["notes"])
        number, kind = int(notes.pop(ROUND)), notes.pop(KIND)
        arrays = {
            name: {key: torch.from_numpy(array.numpy().copy()) for key, array in record.items()}
            for name, record in content.array_records.items()
        }
    except Exception as error:
        raise FedwcaError(f"is not of the form of a fedwca message ({type(error).__name__}: {error})") from error
    report, extras = arrays.pop(REPORT, {}), arrays.pop(EXTRAS, {})
    models = {name.removeprefix("model/"): tensors for name, tensors in arrays.items()}
    return Parcel(kind, number, models, report, extras, notes)


def count_bytes(content: RecordDict) -> int:
    """Bytes of all arrays as they are on the wire, with each array's own header."""
    return sum(len(array.data) for record in content.array_records.values() for array in record.values())
