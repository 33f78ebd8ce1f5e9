"""What each image of a folder belongs to, as a table beside its classes says it."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedwca.core.input_files import check_not_special
from fedwca.data.dataset import Integers, sorted_classes
from fedwca.data.decode_folders import list_image_files
from fedwca.errors import DataError

TABLE = "units.csv"
"""Its columns are ``image``, a path below the domain's folder, and ``unit``, any text."""


def read_units(path: Path) -> list[str] | None:
    """The unit of each of a domain's images, in the order of `fedwca.data.read_image_folder`; None: nobody says them.

    Args:
        path: folder of a domain, ``<domain>/<class>/<image>``; units are in ``<domain>/units.csv``.

    Raises:
        DataError: the table cannot be read, lacks an image, names one that is not there or one twice.
    """
    table = path / TABLE
    if not table.exists():
        return None
    said: dict[str, str] = {}
    try:
        check_not_special(table)
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            if not {"image", "unit"} <= set(rows.fieldnames or ()):
                raise DataError(f"{table}: needs the columns image and unit, not {', '.join(rows.fieldnames or ())}")
            for row in rows:
                image, unit = (str(row[key] or "").strip() for key in ("image", "unit"))
                if image in said or not unit:
                    raise DataError(f"{table}, line {rows.line_num}: {image} " + ("again" if unit else "has no unit"))
                said[image] = unit
    except (OSError, UnicodeError, csv.Error) as error:
        raise DataError(f"{table} cannot be read: {error}") from None
    files = [file.relative_to(path).as_posix() for file, _ in list_image_files(path)[0]]
    if lacks := [name for name in files if name not in said]:
        raise DataError(f"{table} says no unit of {lacks[0]}; it has to name every image")
    if strange := sorted(set(said) - set(files)):
        raise DataError(f"{table} names {strange[0]}, and there is no such image")
    return [said[name] for name in files]


def number_units(said: Mapping[str, Sequence[str]]) -> dict[str, Integers]:
    """Units ``[N]`` int64 of each domain, the same text the same number in all of them.

    Args:
        said: the unit of each image, by domain.
    """
    number = {unit: index for index, unit in enumerate(sorted_classes(unit for own in said.values() for unit in own))}
    return {domain: np.array([number[unit] for unit in own], np.int64) for domain, own in said.items()}
