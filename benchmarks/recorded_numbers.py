"""What same_numbers.py compares of two recordings, and where they first differ; no script."""

from __future__ import annotations

import csv
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Tensor(NamedTuple):
    """A tensor as stored in a file: type, shape and bytes."""

    kind: str
    shape: tuple[int, ...]
    content: bytes

    def at(self, byte: int) -> str:
        """The number that a byte belongs to, and its index in the flattened tensor."""
        formats = {"F64": ("d", 8), "F32": ("f", 4), "F16": ("e", 2), "I64": ("q", 8), "I32": ("i", 4), "U8": ("B", 1)}
        letter, size = formats.get(self.kind, ("B", 1))
        index = byte // size
        return f"{struct.unpack_from('<' + letter, self.content, index * size)[0]!r} at {index}"


SKIPPED = re.compile(
    r"seconds|^(timing|time|path|places|command|commit|checksum|python|system|cpu|instructions|cores|versions|resumed)$"
)
"""Keys that are not compared: times, paths and commands with them, hardware, versions, and checksums of content that is
compared itself."""
HASHES = re.compile(r"^(identity|config_hash|identity_without)$")
"""Keys that identify a configuration; they may change when a value is only written differently."""
ADDED = re.compile(r"^(places|dataset_name|classes|test_images|delivery|resumed)$")
"""Keys that only later versions or resumed runs write, so that one recording may lack them."""
UNREAD = re.compile(r"^\.|^(memory\.json|cost\.png|study\.journal)$|\.(log|npy)$")
"""Names of files that are not compared: such information, and image caches, whose names depend on a path."""


def values(path: Path) -> Any:
    """Content of a file without what may differ: nested mappings and lists with numbers as written, or bytes."""
    if path.suffix == ".safetensors":
        return _tensors(path.read_bytes())
    if path.suffix not in (".json", ".jsonl", ".csv", ".txt", ".md", ".tex", ".html"):
        return path.read_bytes()
    text = path.read_text()
    if path.suffix == ".json":
        return _json(text)
    if path.suffix == ".html":  # the data of its charts; the text around it has versions and times
        return _json(text.partition('id="data">')[2].partition("</script>")[0])
    if path.suffix == ".csv":
        return _lines(csv.DictReader(text.splitlines()))
    if path.suffix == ".jsonl":
        return _lines(map(_json, text.splitlines()))
    text = re.sub(r"Ran \d+ s after \d+ s", "Ran", text)
    if path.stem == "report":  # the last column has seconds
        text = re.sub(r"[|&][^|&\n]*(\||\\\\)$", "", text, flags=re.MULTILINE)
    return _lines(text.splitlines())


def _json(text: str) -> Any:
    return json.loads(text, parse_float=str, parse_int=str)


def _lines(records: Any) -> dict[str, Any]:
    return {f"line {number}": line for number, line in enumerate(records, 1)}


def _tensors(content: bytes) -> dict[str, Any]:
    """The tensors of a safetensors file by name, and its metadata under ``metadata``."""
    start = 8 + struct.unpack_from("<Q", content)[0]
    header = json.loads(content[8:start])
    metadata = {
        key: _json(text) if text.startswith("{") else text for key, text in header.pop("__metadata__", {}).items()
    }

    def tensor(dtype: str, shape: list[int], data_offsets: list[int]) -> Tensor:
        first, end = data_offsets
        return Tensor(dtype, tuple(shape), content[start + first : start + end])

    return {**{name: tensor(**entry) for name, entry in header.items()}, "metadata": metadata}


def without_hashes(content: Any) -> Any:
    """Content of a file without the keys of `HASHES`."""
    if isinstance(content, dict):
        return {key: without_hashes(value) for key, value in content.items() if not HASHES.search(key)}
    return [without_hashes(value) for value in content] if isinstance(content, list) else content


def difference(first: Any, second: Any, path: str = "", added: bool = False) -> str | None:
    """The first place where two values differ, with both values; None if there is none.

    Args:
        first: a value of `values`.
        second: the other recording's.
        path: where they are, for the answer.
        added: whether the second may have keys that the first lacks.
    """
    if type(first) is not type(second):
        return f"{path}: {_short(first)} and {_short(second)}"
    if isinstance(first, dict):
        keys = first if added else (*first, *second)
        missing_key = next((key for key in keys if (key in first) != (key in second) and not ADDED.search(key)), None)
        if missing_key is not None:
            return f"{path}: {missing_key!r} is in the {'first' if missing_key in first else 'second'} alone"
        shared_keys = [key for key in first if key in second and not SKIPPED.search(key)]
        pairs = ((f"{path}, {key}", first[key], second[key]) for key in shared_keys)
        return next(filter(None, (difference(a, b, key, added) for key, a, b in pairs)), None)
    if isinstance(first, list):
        if len(first) != len(second):
            return f"{path}: {len(first)} and {len(second)} values"
        pairs = ((f"{path}[{index}]", a, b) for index, (a, b) in enumerate(zip(first, second, strict=True)))
        return next(filter(None, (difference(a, b, key, added) for key, a, b in pairs)), None)
    if first == second:
        return None
    if isinstance(first, Tensor):
        if first[:2] != second[:2]:
            return f"{path}: {first.kind} {list(first.shape)} and {second.kind} {list(second.shape)}"
        byte = next(byte for byte, (a, b) in enumerate(zip(first.content, second.content, strict=True)) if a != b)
        return f"{path}: {first.at(byte)} and {second.at(byte)}"
    return f"{path}: {_short(first)} and {_short(second)}"


def _short(value: Any) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) else str(value)[:200]


def differences(first: Path, second: Path, hashes: bool = True, added: bool = False) -> Iterator[str]:
    """Yield a sentence for each file in which two folders differ, with the first difference.

    Args:
        first: folder.
        second: folder.
        hashes: whether keys that identify configurations are compared.
        added: whether the second may have files and keys that the first lacks.
    """
    read = values if hashes else lambda path: without_hashes(values(path))
    first_files, second_files = list_files(first), list_files(second)
    for name in sorted(first_files if added else first_files | second_files):
        if name not in first_files or name not in second_files:
            yield f"{name}: is in the {'first' if name in first_files else 'second'} alone"
        elif message := difference(read(first / name), read(second / name), name, added):
            yield message


def list_files(folder: Path) -> set[str]:
    """Paths of a folder's files that are compared, relative to it."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not UNREAD.search(path.name))
    return {str(path.relative_to(folder)) for path in paths}
