"""Read the unit of each image of a domain's folder from a table beside its class folders."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedwca.core.input_files import check_not_special
from fedwca.core.printable import join_accents
from fedwca.data.dataset import Integers, sorted_classes
from fedwca.data.decode_folders import list_image_files
from fedwca.errors import DataError

TABLE = "units.csv"
"""Its columns are ``image``, a path below the domain's folder, and ``unit``, any text."""


def read_units(path: Path) -> list[str] | None:
    """Unit of each of a domain's images, in the order of `fedwca.data.read_image_folder`; None: there is no table.

    Args:
        path: folder of a domain, ``<domain>/<class>/<image>``; units are in ``<domain>/units.csv``.

    Raises:
        DataError: the table cannot be read, lacks an image or a unit, or names an image twice or one that is not there.
    """
    table = path / TABLE
    if not table.exists():
        return None
    unit_by_image: dict[str, str] = {}
    try:
        check_not_special(table)
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            if not {"image", "unit"} <= set(rows.fieldnames or ()):
                raise DataError(f"{table}: needs the columns image and unit, not {', '.join(rows.fieldnames or ())}")
            for row in rows:
                image, unit = (join_accents(str(row[key] or "")).strip() for key in ("image", "unit"))
                if image in unit_by_image or not unit:
                    raise DataError(f"{table}, line {rows.line_num}: {image} " + ("again" if unit else "has no unit"))
                unit_by_image[image] = unit
    except (OSError, UnicodeError, csv.Error) as error:
        raise DataError(f"{table} cannot be read: {error}") from None
    files = [join_accents(file.relative_to(path).as_posix()) for file, _ in list_image_files(path)[0]]
    if missing_files := [name for name in files if name not in unit_by_image]:
        raise DataError(f"{table} says no unit of {missing_files[0]}; it has to name every image")
    if unknown_names := sorted(set(unit_by_image) - set(files)):
        raise DataError(f"{table} names {unknown_names[0]}, and there is no such image")
    return [unit_by_image[name] for name in files]


def number_units(texts_by_domain: Mapping[str, Sequence[str]]) -> dict[str, Integers]:
    """Number the units ``[N]`` int64 of each domain; equal texts get equal numbers in all domains.

    Args:
        texts_by_domain: unit of each image, by domain.
    """
    number_by_unit = {
        unit: index
        for index, unit in enumerate(sorted_classes(unit for texts in texts_by_domain.values() for unit in texts))
    }
    return {
        domain: np.array([number_by_unit[unit] for unit in texts], np.int64)
        for domain, texts in texts_by_domain.items()
    }
