"""Read data sets of the Hugging Face hub, or folders in its layouts: find their columns and decode images once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from fedwca.core.printable import printable
from fedwca.data.archives import Archive
from fedwca.data.cache import cache_dir
from fedwca.data.dataset import FederatedDataset, Images, Integers, canonical_domain, sorted_classes
from fedwca.data.decode_folders import decode_all, decode_with_cache, shorten_name
from fedwca.data.find_domains import name_folder
from fedwca.data.image_files import DECODER, decode_image
from fedwca.data.open_hub_tables import CONFIGURATION, SPLIT, HubTable, open_hub_tables
from fedwca.data.read_domains import assemble_dataset
from fedwca.errors import DataError

ROWS = 64
"""Encoded images that are in memory at once."""
PARTS = re.compile(r"(train(ing)?|test(ing)?|val(id|idation)?|dev(elopment)?|all|full)(?![a-z])")
"""Names of splits that are parts of one data set; splits with other names are domains."""
TEST = re.compile(r"(?<![a-z])test(ing)?(?![a-z])")
"""Occurs in the names of splits that are the published test part."""


@dataclass(frozen=True)
class HubColumns:
    """Names of the columns; None: the column is found by its type or its name."""

    image: str | None = None
    """Column of encoded images; found: ``image``, ``img``, or the only one of images."""
    labels: str | None = None
    """Column of labels; found: ``label``, ``labels``, ``class``, ``target``, or the only one that names classes."""
    domain: str | None = None
    """Column of domains; ``split``: splits are domains; ``configuration``: configurations are. Found: the column
    ``domain``, or the splits if none of them has a name of `PARTS`."""
    unit: str | None = None
    """Column of what an image belongs to by nature; None: there are no units."""


@dataclass(frozen=True)
class _Part:
    """Rows of one table that belong to one domain."""

    table: HubTable
    rows: Integers
    """Row numbers in the table."""
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
    """Read a data set of the hub, or a folder in one of its layouts.

    Splits that are no domains are pooled; those with ``test`` in their name are the published test part. Images become
    pixels as in `fedwca.data.read_image_folder`, and are cached under `fedwca.data.cache_dir`.

    Args:
        place: ``OWNER/NAME``, or a folder.
        columns: names of its columns.
        size: height and width in pixels.
        revision: commit, tag or branch; None: the newest.
        configuration: the one to read, if there are several and these are no domains.
        splits: those to read; empty: all.

    Raises:
        UsageError: a library is not installed, or there is no such configuration, split or revision.
        DataError: a column is not there or does not hold what it should; the message names those there are.
        FedwcaError: the hub cannot be reached.
    """
    tables = open_hub_tables(place, revision, configuration, columns.domain == CONFIGURATION, splits)
    domain = columns.domain or _find_domain(tables)
    name = canonical_domain(printable(name_folder(Path(place))))
    parts_by_text: dict[str, list[_Part]] = {}
    for table in tables:
        for text, part in _divide(table, columns, domain, name).items():
            parts_by_text.setdefault(text, []).append(part)
    parts = _name_domains(parts_by_text)
    all_parts = [part for domain_parts in parts.values() for part in domain_parts]
    units = sorted_classes(unit for part in all_parts for unit in part.units or ())
    # If a column declares no classes, the values that occur are its classes.
    classes = sorted_classes(text for part in all_parts for text in part.classes or part.labels)
    archives = {
        domain_name: _join(place, domain_name, parts[domain_name], classes, units, domain, size)
        for domain_name in sorted(parts)
    }
    return assemble_dataset(name, archives)


def _find_domain(tables: Sequence[HubTable]) -> str | None:
    for name in tables[0].columns:
        if name.lower() == "domain":
            return name
    has_parts = any(PARTS.match(table.split.lower()) for table in tables)
    return None if has_parts or len(tables) == 1 else SPLIT


def _divide(table: HubTable, columns: HubColumns, domain: str | None, only_domain: str) -> dict[str, _Part]:
    """The rows of a table by domain, under the names that the table has for them."""
    image = table.find_column("image", columns.image, table.image_columns(), ("image", "img"))
    class_columns = [name for name in table.class_columns() if name not in (domain, columns.unit)]
    label = table.find_column("labels", columns.labels, class_columns, ("label", "labels", "class", "target"))
    labels, classes = table.texts(label, of_classes=True), table.class_names(label)
    units = table.texts(table.known_column("unit", columns.unit)) if columns.unit else None
    if domain == SPLIT:
        domain_of_row = [table.split] * len(labels)
    elif domain == CONFIGURATION:
        domain_of_row = [table.configuration] * len(labels)
    else:
        domain_of_row = (
            [only_domain] * len(labels) if domain is None else table.texts(table.known_column("domain", domain))
        )
    names = np.array(domain_of_row)
    parts = {}
    for name in np.unique(names).tolist():
        rows = np.flatnonzero(names == name)
        part_units = None if units is None else [units[row] for row in rows]
        parts[name] = _Part(table, rows, image, [labels[row] for row in rows], classes, part_units)
    return parts


def _name_domains(parts_by_text: Mapping[str, list[_Part]]) -> dict[str, list[_Part]]:
    """The parts by domain names that are also valid names of run folders.

    Raises:
        DataError: two domains would have the same name.
    """
    texts: dict[str, str] = {}
    for text in parts_by_text:
        if (first := texts.setdefault(_name_domain(text), text)) != text:
            raise DataError(
                f"domains {first!r} and {text!r} would both be called {_name_domain(text)!r}; rename one in the data"
            )
    return {name: parts_by_text[text] for name, text in texts.items()}


def _name_domain(text: str) -> str:
    """A domain's name without characters that a run folder's name must not have.

    >>> [_name_domain(text) for text in ("Real World", "Indoor/Day", "../x", ".")]
    ['real_world', 'indoor_day', '__x', '_']
    """
    return canonical_domain(re.sub(r"^\.+|[/\\]", "_", printable(text)))


def _join(
    place: str | Path,
    name: str,
    parts: Sequence[_Part],
    all_classes: tuple[str, ...],
    units: tuple[str, ...],
    domain: str | None,
    size: int,
) -> Archive:
    """Join the parts of one domain into one archive."""
    domain_classes = sorted_classes(text for part in parts for text in part.classes or all_classes)
    label_by_class, number_by_unit = (
        {text: index for index, text in enumerate(texts)} for texts in (domain_classes, units)
    )
    published = np.concatenate(
        [np.full(len(part.rows), bool(TEST.search(part.table.split.lower())), np.int64) for part in parts]
    )
    unsplit = domain == SPLIT or len(np.unique(published)) < 2
    return Archive(
        _decode(place, name, parts, size),
        np.array([label_by_class[label] for part in parts for label in part.labels], np.int64),
        classes=domain_classes,
        part=None if unsplit else published,
        units=np.array([number_by_unit[unit] for part in parts for unit in part.units or ()], np.int64)
        if units
        else None,
    )


def _decode(place: str | Path, name: str, parts: Sequence[_Part], size: int) -> Images:
    sha = hashlib.sha256(f"{DECODER}\0{place}\0".encode())
    for part in parts:
        sha.update(f"{part.table.fingerprint}\0{part.image}\0".encode())
        sha.update(np.ascontiguousarray(part.rows, "<i8").data)
    file = f"{shorten_name(Path(place).name)}-{shorten_name(name)}-{size}-{sha.hexdigest()[:32]}.npy".replace("/", "_")
    starts = np.cumsum([0, *(len(part.rows) for part in parts)])

    def decoders(start: int, stop: int) -> list[Callable[[], Images]]:
        image_decoders: list[Callable[[], Images]] = []
        for part, first, last in zip(parts, starts, starts[1:], strict=False):
            rows = part.rows[max(0, start - first) : max(0, min(stop, last) - first)]
            encoded = part.table.images(part.image, rows) if len(rows) else []
            image_decoders += [partial(_one_image, *named_image, size) for named_image in encoded]
        return image_decoders

    def decode(start: int, stop: int) -> Images:
        images = np.empty((stop - start, size, size, 3), np.uint8)
        for low in range(start, stop, ROWS):
            high = min(low + ROWS, stop)
            images[low - start : high - start] = decode_all(decoders(low, high), size)
        return images

    return decode_with_cache(cache_dir() / "hub" / file, int(starts[-1]), size, decode)


def _one_image(name: str, value: Any, size: int) -> Images:
    """Decode an image as ``datasets`` gives it undecoded: bytes, or a mapping with the bytes or with a path."""
    content = value.get("bytes") if isinstance(value, Mapping) else value
    path = value.get("path") if isinstance(value, Mapping) else None
    if isinstance(content, bytes):
        return decode_image(BytesIO(content), size, name=name)
    if content is None and isinstance(path, str):
        return decode_image(Path(path), size)
    raise DataError(f"{name} holds no encoded image")
