"""Open the tables of a Hugging Face hub data set, or of a folder in its layouts, with the library ``datasets``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedwca.data.cache import cache_dir
from fedwca.data.dataset import Integers
from fedwca.data.decode_folders import digest_listing, list_files_below
from fedwca.errors import DataError, FedwcaError, UsageError, first_line

CONFIGURATION, SPLIT = "configuration", "split"
"""Values that stand for the column of domains if configurations, or splits, are the domains."""


@dataclass(frozen=True)
class HubTable:
    """One split of one configuration; its rows stay on disk."""

    place: str
    configuration: str
    split: str
    rows: Any
    """``datasets.Dataset``"""
    listing: str = ""
    """Digest of the files of a folder; empty: the data set is of the hub."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.rows.column_names)

    @property
    def fingerprint(self) -> str:
        """Identifies the table's content: it changes when the files change."""
        return f"{self.listing}{self.rows._fingerprint}"

    def image_columns(self) -> list[str]:
        """Columns that are declared to hold images."""
        return [name for name, kind in self.rows.features.items() if type(kind).__name__ == "Image"]

    def class_columns(self) -> list[str]:
        """Columns that are declared to hold classes."""
        return [name for name, kind in self.rows.features.items() if type(kind).__name__ == "ClassLabel"]

    def class_names(self, column: str) -> tuple[str, ...] | None:
        """Class names that a column declares; None: it declares none."""
        return tuple(self.rows.features[column].names) if column in self.class_columns() else None

    def known_column(self, option: str, column: str) -> str:
        """Return ``column`` if the table has it.

        Args:
            option: name of the setting in the message.
            column: name of the column that the setting asks for.

        Raises:
            DataError: there is no such column; the message names those there are.
        """
        if column not in self.columns:
            raise DataError(
                f"{self.place} has no column {column!r} ({option}={column}); it has {', '.join(self.columns)}"
            )
        return column

    def find_column(self, option: str, column: str | None, declared: Sequence[str], usual_names: Sequence[str]) -> str:
        """Find the column for a setting: the one asked for, else the first usual name, else the only declared column.

        Args:
            option: name of the setting in the message.
            column: name that the setting asks for; None: not given.
            declared: columns whose type fits.
            usual_names: names to look for, in this order; among ``declared`` unless that is empty.

        Raises:
            DataError: there is no such column, or several are possible; the message names those there are.
        """
        if column is not None:
            return self.known_column(option, column)
        candidates = [name for name in usual_names if name in self.columns and (name in declared or not declared)]
        if candidates or len(declared) == 1:
            return candidates[0] if candidates else declared[0]
        raise DataError(
            f"nothing says which column of {self.place} is its {option}: say {option}=COLUMN; it has "
            f"{', '.join(self.columns)}"
        )

    def texts(self, column: str, of_classes: bool = False) -> list[str]:
        """The values of a column as text, classes by their names.

        Args:
            column: its name.
            of_classes: refuse negative numbers, by which many tables say that there is no label.

        Raises:
            DataError: a value is empty, is neither text nor an integer, or is not the number of a declared class.
        """
        names, texts = self.class_names(column), []
        values = self.rows.select_columns([column]).with_format("arrow")[:].column(0).to_pylist()
        for row, value in enumerate(values):
            negative = isinstance(value, int) and value < 0 and (of_classes or names is not None)
            out_of_range = negative or (names is not None and isinstance(value, int) and value >= len(names))
            if out_of_range or not isinstance(value, str | int) or not str(value).strip():
                raise DataError(
                    f"{self.place}, split {self.split}, row {row}: column {column!r} holds {value!r}, which is no name "
                    "and no number of a class; splits=… reads some splits alone"
                )
            texts.append(str(value) if names is None or isinstance(value, str) else names[value])
        return texts

    def images(self, column: str, numbers: Integers) -> list[tuple[str, Any]]:
        """For each of some rows, its name in error messages and its image, not decoded."""
        rows = self.rows.select(numbers).select_columns([column])
        if column in self.image_columns():
            import datasets

            rows = rows.cast_column(column, datasets.Image(decode=False))
        return [
            (f"{self.place}, split {self.split}, row {number}, column {column!r}", value)
            for number, value in zip(numbers.tolist(), rows[:][column], strict=True)
        ]


def open_hub_tables(
    place: str | Path, revision: str | None, configuration: str | None, all_configurations: bool, splits: Sequence[str]
) -> list[HubTable]:
    """Open the tables of a data set; files that are not on this machine are downloaded.

    Args:
        place: ``OWNER/NAME``, or a folder.
        revision: commit, tag or branch; None: the newest.
        configuration: the one to read, if there are several.
        all_configurations: whether all are read.
        splits: those to read; empty: all.

    Raises:
        UsageError: ``datasets`` is not installed, or there is no such configuration or split.
        FedwcaError: the hub cannot be reached, or the folder or repository holds no data set, or a split without rows.
    """
    library = _library()
    if isinstance(place, Path) and not place.is_dir():
        raise UsageError(f"hub:{place}: there is no such folder")
    if isinstance(place, str) and Path(place).exists():
        raise UsageError(f"hub:{place} may be the hub's or the folder here; the latter is hub:./{place}")
    revision_option = {} if revision is None or isinstance(place, Path) else {"revision": revision}
    try:
        listing = _digest_folder(place) if isinstance(place, Path) else ""
        options = {"cache_dir": str(cache_dir() / "hub" / "tables" / listing)}
        available = list(library.get_dataset_config_names(str(place), **revision_option))
        if configuration is not None and configuration not in available:
            raise UsageError(f"{place} has no configuration {configuration!r}; it has {', '.join(available)}")
        if configuration is None and not all_configurations and len(available) > 1 and "default" not in available:
            raise UsageError(
                f"{place} has the configurations {', '.join(available)}: say configuration={available[0]}, "
                f"or domain={CONFIGURATION} where they are its domains"
            )
        names = (
            available
            if all_configurations
            else [configuration or ("default" if "default" in available else available[0])]
        )
        opened_tables = {name: library.load_dataset(str(place), name, **revision_option, **options) for name in names}
    except FedwcaError:
        raise
    except Exception as error:  # the library's own, and those of network, file formats and system
        reason = " ".join(first_line(error).split())
        hint = "" if isinstance(place, Path) else "; without a network, hub:./FOLDER reads a copy of its files"
        raise FedwcaError(f"{place} cannot be read as a data set of the Hugging Face hub: {reason}{hint}") from None
    tables = [
        HubTable(str(place), name, split, rows, listing)
        for name, rows_by_split in opened_tables.items()
        for split, rows in rows_by_split.items()
        if not splits or split in splits
    ]
    known_splits = dict.fromkeys(split for rows_by_split in opened_tables.values() for split in rows_by_split)
    if unknown_splits := [split for split in splits if split not in known_splits]:
        raise UsageError(f"{place} has no split {unknown_splits[0]!r}; it has {', '.join(known_splits)}")
    return tables


def _digest_folder(folder: Path) -> str:
    # The library knows a folder's tables again by its name and the patterns in its README, whatever its files hold.
    return digest_listing(folder, filter(Path.is_file, list_files_below(folder)))


def _library() -> Any:
    try:
        import datasets
    except ImportError:
        raise UsageError(
            "data sets of the Hugging Face hub need libraries that are not installed: pip install 'fedwca[hub]'"
        ) from None
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    # It warns of every failed try to reach the hub; the last failure is raised as an error.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    return datasets
