"""Data sets of the Hugging Face hub, and folders in its layouts: columns found or given, images decoded once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedwca.core.printable import printable
from fedwca.data.archives import Archive
from fedwca.data.cache import cache_dir
from fedwca.data.dataset import FederatedDataset, Images, Integers, canonical_domain, sorted_classes
from fedwca.data.decode_folders import decode_all, keep_decoded
from fedwca.data.image_files import DECODER, decode_bytes, decode_image
from fedwca.data.open_hub_tables import CONFIGURATION, SPLIT, HubTable, open_hub_tables
from fedwca.data.read_domains import assemble_dataset
from fedwca.errors import DataError

ROWS = 64
"""Encoded images that are in memory at once."""
PARTS = re.compile(r"(train(ing)?|test(ing)?|val(id|idation)?|dev(elopment)?|all|full)(?![a-z])")
"""What splits are called that are parts of one data set; splits of other names are domains."""
TEST = re.compile(r"(?<![a-z])test(ing)?(?![a-z])")
"""What the published test part is called."""


@dataclass(frozen=True)
class HubColumns:
    """Which columns hold what; None: found by their type, or by their name."""

    image: str | None = None
    """Encoded images; found: the only one of such, or ``image``, ``img``."""
    labels: str | None = None
    """Labels; found: ``label``, ``labels``, ``class``, ``target``, or the only one that names classes."""
    domain: str | None = None
    """Domains; ``split``: splits are domains; ``configuration``: configurations are. Found: the column ``domain``, or
    splits that are not called as parts are."""
    unit: str | None = None
    """What an image belongs to by nature; None: nobody says it."""


@dataclass(frozen=True)
class _Part:
    """Rows of one table that are of one domain."""

    table: HubTable
    rows: Integers
    """Their numbers."""
    image: str
    labels: Sequence[str]
    classes: tuple[str, ...] | None
    units: Sequence[str] | None


def read_hub_dataset(
    place: str | Path,
    columns: HubColumns,
    *,
    size: int,
    revision: str | None = None,
    configuration: str | None = None,
    splits: Sequence[str] = (),
) -> FederatedDataset:
    """A data set of the hub, or a folder in one of its layouts, as domains.

    Splits that are no domains are pooled; those with ``test`` in their name are the published test part. Images become
    pixels as in `fedwca.data.read_image_folder`, and are cached under `fedwca.data.cache_dir`.

    Args:
        place: ``OWNER/NAME``, or a folder.
        columns: which hold what.
        size: height and width in pixels.
        revision: commit, tag or branch; None: the newest.
        configuration: which one is read, where there are several and these are no domains.
        splits: those that are read; none: all.

    Raises:
        UsageError: a library is not installed, or there is no such configuration, split or revision.
        DataError: a column is not there or does not hold what it should; names those there are.
        FedwcaError: the hub cannot be asked.
    """
    tables = open_hub_tables(place, revision, configuration, columns.domain == CONFIGURATION, splits)
    domain = columns.domain or _find_domain(tables)
    name = canonical_domain(printable(Path(place).name))
    given: dict[str, list[_Part]] = {}
    for table in tables:
        for text, part in _divide(table, columns, domain, name).items():
            given.setdefault(text, []).append(part)
    parts = _name_domains(given)
    every = [part for some in parts.values() for part in some]
    units = sorted_classes(unit for part in every for unit in part.units or ())
    # Where a column declares no classes, those that are there are all.
    classes = sorted_classes(text for part in every for text in part.classes or part.labels)
    archives = {found: _join(place, found, parts[found], classes, units, domain, size) for found in sorted(parts)}
    return assemble_dataset(name, archives)


def _find_domain(tables: Sequence[HubTable]) -> str | None:
    for name in tables[0].columns:
        if name.lower() == "domain":
            return name
    whole = any(PARTS.match(table.split.lower()) for table in tables)
    return None if whole or len(tables) == 1 else SPLIT


def _divide(table: HubTable, columns: HubColumns, domain: str | None, alone: str) -> dict[str, _Part]:
    """The rows of a table by domain, as the table calls it."""
    image = table.find_column("image", columns.image, table.image_columns(), ("image", "img"))
    named = [name for name in table.class_columns() if name != domain]
    label = table.find_column("labels", columns.labels, named, ("label", "labels", "class", "target"))
    labels, classes = table.texts(label), table.class_names(label)
    units = table.texts(table.known_column("unit", columns.unit)) if columns.unit else None
    if domain == SPLIT:
        of = [table.split] * len(labels)
    elif domain == CONFIGURATION:
        of = [table.configuration] * len(labels)
    else:
        of = [alone] * len(labels) if domain is None else table.texts(table.known_column("domain", domain))
    names = np.array(of)
    found = {}
    for name in np.unique(names).tolist():
        rows = np.flatnonzero(names == name)
        of_units = None if units is None else [units[row] for row in rows]
        found[name] = _Part(table, rows, image, [labels[row] for row in rows], classes, of_units)
    return found


def _name_domains(given: Mapping[str, list[_Part]]) -> dict[str, list[_Part]]:
    """Domains by names that folders of runs may have."""
    texts: dict[str, str] = {}
    for text in given:
        if (other := texts.setdefault(_name_domain(text), text)) != text:
            raise DataError(
                f"domains {other!r} and {text!r} would both be called {_name_domain(text)!r}; rename one in the data"
            )
    return {name: given[text] for name, text in texts.items()}


def _name_domain(text: str) -> str:
    """A domain's name as folders of runs may have it.

    >>> [_name_domain(text) for text in ("Real World", "Indoor/Day", "../x", ".")]
    ['real_world', 'indoor_day', '__x', '_']
    """
    return canonical_domain(re.sub(r"^\.+|[/\\]", "_", printable(text)))


def _join(
    place: str | Path,
    name: str,
    parts: Sequence[_Part],
    every: tuple[str, ...],
    units: tuple[str, ...],
    domain: str | None,
    size: int,
) -> Archive:
    """One domain of all the parts of it."""
    own = sorted_classes(text for part in parts for text in part.classes or every)
    number, unit_number = ({text: index for index, text in enumerate(texts)} for texts in (own, units))
    published = np.concatenate(
        [np.full(len(part.rows), bool(TEST.search(part.table.split.lower())), np.int64) for part in parts]
    )
    whole = domain == SPLIT or len(np.unique(published)) < 2
    return Archive(
        _decode(place, name, parts, size),
        np.array([number[label] for part in parts for label in part.labels], np.int64),
        classes=own,
        part=None if whole else published,
        units=np.array([unit_number[unit] for part in parts for unit in part.units or ()], np.int64) if units else None,
    )


def _decode(place: str | Path, name: str, parts: Sequence[_Part], size: int) -> Images:
    sha = hashlib.sha256(f"{DECODER}\0{place}\0".encode())
    for part in parts:
        sha.update(f"{part.table.fingerprint}\0{part.image}\0".encode())
        sha.update(np.ascontiguousarray(part.rows, "<i8").data)
    file = f"{Path(place).name}-{name}-{size}-{sha.hexdigest()[:32]}.npy".replace("/", "_")
    starts = np.cumsum([0, *(len(part.rows) for part in parts)])

    def decoders(start: int, stop: int) -> list[Callable[[], Images]]:
        found: list[Callable[[], Images]] = []
        for part, first, last in zip(parts, starts, starts[1:], strict=False):
            rows = part.rows[max(0, start - first) : max(0, min(stop, last) - first)]
            encoded = part.table.images(part.image, rows) if len(rows) else []
            found += [partial(_one_image, *one, size) for one in encoded]
        return found

    def decode(start: int, stop: int) -> Images:
        images = np.empty((stop - start, size, size, 3), np.uint8)
        for low in range(start, stop, ROWS):
            high = min(low + ROWS, stop)
            images[low - start : high - start] = decode_all(decoders(low, high), size)
        return images

    return keep_decoded(cache_dir() / "hub" / file, int(starts[-1]), size, decode)


def _one_image(where: str, value: Any, size: int) -> Images:
    """An image as the hub's libraries give it without decoding: bytes, a table with them, or with a path."""
    content = value.get("bytes") if isinstance(value, Mapping) else value
    path = value.get("path") if isinstance(value, Mapping) else None
    if isinstance(content, bytes):
        return decode_bytes(content, where, size)
    if content is None and isinstance(path, str):
        return decode_image(Path(path), size)
    raise DataError(f"{where} holds no encoded image")
