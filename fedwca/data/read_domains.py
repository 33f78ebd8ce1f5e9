"""Read data sets from ``<root>/<name>/<domain>.npz`` or ``<root>/<name>/<domain>/<class>/<image>``.

A data set of one domain may be the archive ``<root>/<name>.npz``.

A single domain is read by `fedwca.data.archives` or `fedwca.data.decode_folders`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from fedwca.core.printable import join_accents, printable, quote_path
from fedwca.data.archives import Archive, read_npz
from fedwca.data.class_differences import describe_class_differences
from fedwca.data.dataset import DatasetWarning, Domain, FederatedDataset, canonical_domain, sorted_classes
from fedwca.data.decode_folders import read_image_folder
from fedwca.data.find_domains import (
    find_dataset_path,
    find_domains,
    holds_folders_of_images,
    is_archive,
    list_unread_beside,
    name_folder,
)
from fedwca.data.read_units import number_units, read_units
from fedwca.errors import DataError, DatasetMissing, UsageError
from fedwca.warn_caller import warn_caller

MOST_LABELS = 10_000
"""Bound that labels without class names stay below: a larger label is probably a mistake, and would mean as many
classes, whose means are compared in pairs."""
LAYOUT = "<root>/<name>/<domain>.npz (images uint8 [N, H, W] or [N, H, W, 3], labels int64 [N]) or \
<root>/<name>/<domain>/<class>/<image>"


def read_domains(
    root: Path,
    name: str | None = None,
    *,
    size: int = 32,
    domains: tuple[str, ...] = (),
    classes: tuple[str, ...] = (),
    stretch: bool = False,
    gaps: bool = False,
) -> FederatedDataset:
    """Read the data set ``name`` in ``root``; without a name, ``root`` itself holds the domains.

    Every domain is an archive ``<domain>.npz`` or a folder ``<domain>/<class>/<image>``; a data set of one domain may
    be the archive ``<name>.npz`` in ``root``. All domains share one list of classes. Domains that name their classes
    (folders by their sub-folders, archives by ``classes``) must name the same ones, in any order; a class may be empty,
    but not absent. Archives without names use the list of the others, or else ``classes``, or else the numbers from 0
    to the largest label, as '0', '1', …; an archive need not have every label.

    Args:
        root: folder of data sets, or of domains.
        name: data set; a dash is as good as an underscore.
        size: width and height in pixels to which images are resized.
        domains: those to read, in this order; empty: all, alphabetically.
        classes: names of the labels if no domain names its classes.
        stretch: whether images of folders that are not square are stretched instead of cropped.
        gaps: whether a domain may name fewer classes than another.

    Raises:
        DatasetMissing: the folder or a domain is not there.
        DataError: a file cannot be read, or the domains do not fit together.
        UsageError: ``size`` is not positive.
    """
    if size < 1:
        raise UsageError(f"images cannot be resized to {size} pixels; 1 or more is right")
    folder = find_dataset_path(root, name)
    paths = find_domains(folder) if folder else {}
    requested = domains or tuple(paths)
    missing = [domain for domain in requested if domain not in paths]
    if folder is None or missing or not requested:
        raise _describe_missing(root, name, folder, missing if paths else [])
    if not domains and (unread := list_unread_beside(folder, paths)):
        one = len(unread) == 1
        what = "1 file or folder with images is" if one else f"{len(unread)} files or folders with images are"
        warn_caller(
            f"{folder}: {what} not read, such as {unread[0].name}; what is read is <domain>.npz and "
            "<domain>/<class>/<image>",
            DatasetWarning,
        )
    try:
        archives = {
            domain: read_npz(paths[domain])
            if is_archive(paths[domain])
            else Archive(*read_image_folder(paths[domain], size, stretch))
            for domain in requested
        }
        tables = {domain: read_units(paths[domain]) for domain in requested if not is_archive(paths[domain])}
    except OSError as error:  # such as a folder without read permission
        raise DataError(f"{error.filename or folder} cannot be read: {error.strerror or error}") from None
    if named_units := {domain: units for domain, units in tables.items() if units is not None}:
        # A unit number in an archive also serves as that unit's name, so that a units.csv can refer to the same unit.
        numbered_units = {domain: archive.units for domain, archive in archives.items() if archive.units is not None}
        units = number_units(
            named_units | {domain: [str(unit) for unit in numbers] for domain, numbers in numbered_units.items()}
        )
        archives |= {domain: replace(archives[domain], units=numbers) for domain, numbers in units.items()}
    dataset_name = canonical_domain(printable(name or name_folder(folder)))
    return assemble_dataset(dataset_name, archives, classes, gaps).resized(size)


def _describe_missing(root: Path, name: str | None, folder: Path | None, missing: list[str]) -> DatasetMissing:
    """The error for a data set that is not there, or lacks the domains ``missing``; empty: it has none at all."""
    if root.is_file():
        return DatasetMissing(
            f"{root} is a file, and --data takes the folder of a data set; one archive alone is --data "
            f"{root.parent} --dataset {root.stem}"
        )
    if not root.is_dir():
        beside = [path.name for path in root.parent.iterdir() if path.is_dir()] if root.parent.is_dir() else []
        close = get_close_matches(root.name, beside, 1)
        hint = f"; did you mean {root.with_name(close[0])}?" if close else ""
        return DatasetMissing(f"the folder {root} does not exist{hint}")
    problem = f"is no domain {', '.join(missing)}" if missing else "are no domains"
    layout = LAYOUT if name else LAYOUT.replace("<root>/<name>/", "<data>/")
    described = f"there {problem} in {folder or root / (name or '')}; the layout is {layout}"
    if folder and not missing and holds_folders_of_images(folder):
        parent = folder.resolve().parent if folder.name in ("", "..") else folder.parent
        described += f"; if {folder} is one domain, with a sub-folder for each class, take --data {quote_path(parent)}"
    return DatasetMissing(described)


def assemble_dataset(
    name: str, archives: dict[str, Archive], unnamed: tuple[str, ...] = (), gaps: bool = False
) -> FederatedDataset:
    """Assemble a data set from one archive per domain, renumbering all labels to one list of classes.

    Args:
        name: of the data set.
        archives: one per domain, by its name.
        unnamed: names of the labels if no archive names its classes.
        gaps: whether archives may name different classes; see `read_domains`.

    Raises:
        DataError: named classes differ (the message says which is missing where), a domain names one twice, or a label
            has no name.
    """
    # Class names are reduced to printable characters, as they are in the files of a run.
    archives = {
        domain: replace(archive, classes=archive.classes and tuple(printable(join_accents(c)) for c in archive.classes))
        for domain, archive in archives.items()
    }
    names_by_domain = {domain: archive.classes for domain, archive in archives.items() if archive.classes is not None}
    for domain, class_names in names_by_domain.items():
        if repeated := [label for label, times in Counter(class_names).items() if times > 1]:
            raise DataError(
                f"data set {name!r}, domain {domain!r}: the class {repeated[0]!r} is there twice; each needs its own "
                "name"
            )
    union = set().union(*names_by_domain.values())
    if not gaps and (differences := describe_class_differences(names_by_domain)):
        raise DataError(
            f"the domains of {name!r} must have the same classes, but {differences}; where a class has no images, an "
            "empty folder or its name in the key classes is enough"
        )
    if empty := [domain for domain, archive in archives.items() if not len(archive.labels)]:
        raise DataError(f"data set {name!r}, domain {empty[0]!r}: is empty; it needs at least one image")
    largest = max((int(archive.labels.max()) for archive in archives.values()), default=-1)
    if not union and not unnamed and largest >= MOST_LABELS:
        bad_domain = next(domain for domain, archive in archives.items() if largest in archive.labels)
        raise DataError(
            f"data set {name!r}, domain {bad_domain!r}: has the label {largest}; labels without names are 0 to "
            f"{MOST_LABELS - 1} at most, more take the key classes"
        )
    classes = sorted_classes(union) or unnamed or tuple(str(label) for label in range(largest + 1))
    default_names = _numbered_classes(name, archives, classes)
    label_by_class = {label: index for index, label in enumerate(classes)}
    domains = {}
    for domain, archive in archives.items():
        class_names = archive.classes or default_names
        low, high = int(archive.labels.min()), int(archive.labels.max())
        if low < 0 or high >= len(class_names):
            expected = f"0 to {len(class_names) - 1}, not {low} to {high}"
            raise DataError(f"data set {name!r}, domain {domain!r}: labels must be {expected}")
        renumbered = np.array([label_by_class[label] for label in class_names], np.int64)[archive.labels]
        domains[domain] = Domain(domain, archive.images, renumbered, archive.groups, archive.part, archive.units)
    used = np.unique(np.concatenate([domain.labels for domain in domains.values()]))
    if 2 * len(used) < len(classes):
        warn_caller(
            f"{name}: {len(classes) - len(used):,} of {len(classes):,} classes have no image in any domain; are the "
            "labels right?",
            DatasetWarning,
        )
    return FederatedDataset(name, classes, domains)


def _numbered_classes(name: str, archives: dict[str, Archive], classes: tuple[str, ...]) -> tuple[str, ...]:
    """The order of classes in which archives without class names number theirs: that of the other archives.

    Raises:
        DataError: the other archives number their classes differently.
    """
    lists = {archive.classes for archive in archives.values() if archive.classes is not None}
    nameless = [domain for domain, archive in archives.items() if archive.classes is None and len(archive.labels)]
    if len(lists) == 1:
        return next(iter(lists))
    if nameless and any(
        class_names != tuple(label for label in classes if label in class_names) for class_names in lists
    ):
        raise DataError(
            f"data set {name!r}, domain {nameless[0]!r}: names no classes, and the others number theirs differently; "
            "give it the key classes"
        )
    return classes
