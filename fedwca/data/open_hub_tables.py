"""Tables of a data set of the Hugging Face hub, or of a folder in its layouts, through the library ``datasets``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedwca.data.cache import cache_dir
from fedwca.data.dataset import Integers
from fedwca.errors import DataError, FedwcaError, UsageError, first_line

CONFIGURATION, SPLIT = "configuration", "split"
"""What stands for a column of domains where these are configurations, or splits."""


@dataclass(frozen=True)
class HubTable:
    """One split of one configuration; its rows stay on disk."""

    place: str
    configuration: str
    split: str
    rows: Any
    """``datasets.Dataset``"""

    @property
    def columns(self) -> list[str]:
        """Names."""
        return list(self.rows.column_names)

    @property
    def fingerprint(self) -> str:
        """Another one where the files are others."""
        return str(self.rows._fingerprint)

    def image_columns(self) -> list[str]:
        """Columns that are declared to hold images."""
        return [name for name, kind in self.rows.features.items() if type(kind).__name__ == "Image"]

    def class_columns(self) -> list[str]:
        """Columns that are declared to hold classes."""
        return [name for name, kind in self.rows.features.items() if type(kind).__name__ == "ClassLabel"]

    def class_names(self, column: str) -> tuple[str, ...] | None:
        """Classes that a column declares; None: it does not."""
        return tuple(self.rows.features[column].names) if column in self.class_columns() else None

    def known_column(self, what: str, asked: str) -> str:
        """A column that was asked for.

        Raises:
            DataError: there is none; names those there are.
        """
        if asked not in self.columns:
            raise DataError(f"{self.place} has no column {asked!r} ({what}={asked}); it has {', '.join(self.columns)}")
        return asked

    def find_column(self, what: str, asked: str | None, declared: Sequence[str], usual: Sequence[str]) -> str:
        """The column that holds something: as asked for, else the one of a usual name, else the only one declared so.

        Raises:
            DataError: there is none, or nothing tells which; names those there are.
        """
        if asked is not None:
            return self.known_column(what, asked)
        named = [name for name in usual if name in self.columns and (name in declared or not declared)]
        if named or len(declared) == 1:
            return named[0] if named else declared[0]
        raise DataError(
            f"nothing says which column of {self.place} is its {what}: say {what}=COLUMN; it has "
            f"{', '.join(self.columns)}"
        )

    def texts(self, column: str) -> list[str]:
        """The values of a column as text; of classes their names.

        Raises:
            DataError: a row has none, or a value that is no name.
        """
        names, found = self.class_names(column), []
        values = self.rows.select_columns([column]).with_format("arrow")[:].column(0).to_pylist()
        for row, value in enumerate(values):
            unnamed = names is not None and isinstance(value, int) and not 0 <= value < len(names)
            if unnamed or not isinstance(value, str | int) or not str(value).strip():
                raise DataError(
                    f"{self.place}, split {self.split}, row {row}: column {column!r} holds {value!r}, which is no name "
                    "and no number of a class; splits=… reads some splits alone"
                )
            found.append(str(value) if names is None or isinstance(value, str) else names[value])
        return found

    def images(self, column: str, numbers: Integers) -> list[tuple[str, Any]]:
        """What some rows hold for an image, not decoded, and how messages call each."""
        rows = self.rows.select(numbers).select_columns([column])
        if column in self.image_columns():
            import datasets

            rows = rows.cast_column(column, datasets.Image(decode=False))
        return [
            (f"{self.place}, split {self.split}, row {number}, column {column!r}", value)
            for number, value in zip(numbers.tolist(), rows[:][column], strict=True)
        ]


def open_hub_tables(
    place: str | Path, revision: str | None, configuration: str | None, every: bool, splits: Sequence[str]
) -> list[HubTable]:
    """The tables that a data set is read from; what is not there is fetched.

    Args:
        place: ``OWNER/NAME``, or a folder.
        revision: commit, tag or branch; None: the newest.
        configuration: which one, where there are several.
        every: all configurations.
        splits: those that are read; none: all.

    Raises:
        UsageError: ``datasets`` is not installed, or there is no such configuration or split.
        FedwcaError: the hub cannot be asked, or the folder or repository holds no data set.
    """
    library = _library()
    if isinstance(place, Path) and not place.is_dir():
        raise UsageError(f"hub:{place}: there is no such folder")
    if isinstance(place, str) and Path(place).exists():
        raise UsageError(f"hub:{place} may be the hub's or the folder here; the latter is hub:./{place}")
    given = {"cache_dir": str(cache_dir() / "hub" / "tables")}
    at = {} if revision is None or isinstance(place, Path) else {"revision": revision}
    try:
        there = list(library.get_dataset_config_names(str(place), **at))
        if configuration is not None and configuration not in there:
            raise UsageError(f"{place} has no configuration {configuration!r}; it has {', '.join(there)}")
        if configuration is None and not every and len(there) > 1 and "default" not in there:
            raise UsageError(
                f"{place} has the configurations {', '.join(there)}: say configuration={there[0]}, or "
                f"domain={CONFIGURATION} where they are its domains"
            )
        wanted = there if every else [configuration or ("default" if "default" in there else there[0])]
        opened = {name: library.load_dataset(str(place), name, **at, **given) for name in wanted}
    except FedwcaError:
        raise
    except Exception as error:  # the library raises its own, its transport's, its formats' and the system's
        why = " ".join(first_line(error).split())
        hint = "" if isinstance(place, Path) else "; without a network, hub:./FOLDER reads a copy of its files"
        raise FedwcaError(f"{place} cannot be read as a data set of the Hugging Face hub: {why}{hint}") from None
    tables = [
        HubTable(str(place), name, split, rows)
        for name, found in opened.items()
        for split, rows in found.items()
        if (not splits or split in splits) and len(rows)
    ]
    known = dict.fromkeys(split for found in opened.values() for split in found)
    if strange := [split for split in splits if split not in known]:
        raise UsageError(f"{place} has no split {strange[0]!r}; it has {', '.join(known)}")
    if not tables:
        raise DataError(f"{place} holds no rows")
    return tables


def _library() -> Any:
    try:
        import datasets
    except ImportError:
        raise UsageError(
            "data sets of the Hugging Face hub need libraries that are not installed: pip install 'fedwca[hub]'"
        ) from None
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    logging.getLogger("huggingface_hub").setLevel(
        logging.ERROR
    )  # of every try to reach the hub; the last one is said in a sentence
    return datasets
