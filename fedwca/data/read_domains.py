"""From files to data sets: ``<root>/<name>/<domain>.npz`` or ``<root>/<name>/<domain>/<class>/<image>``.

One domain alone may be ``<root>/<name>.npz``.

How one domain is read is in `fedwca.data.archives` and `fedwca.data.decode_folders`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedwca.core.printable import printable
from fedwca.data.archives import Archive, read_npz
from fedwca.data.dataset import DatasetWarning, Domain, FederatedDataset, canonical_domain, sorted_classes
from fedwca.data.decode_folders import is_hidden, read_image_folder
from fedwca.data.read_units import number_units, read_units
from fedwca.errors import DataError, DatasetMissing, UsageError

MOST_LABELS = 10_000
"""Labels without names are numbers below it: a larger one is a mistake, and would be taken for so many classes, whose
means are compared in pairs."""
LAYOUT = "<root>/<name>/<domain>.npz (images uint8 [N, H, W] or [N, H, W, 3], labels int64 [N]) or \
<root>/<name>/<domain>/<class>/<image>"


def find_dataset_paths(root: Path, name: str | None) -> list[Path]:
    """Folders of data set ``name`` in ``root`` (dash, underscore and case are alike), or ``root`` for no name; behind
    them archives of that name, each of which is its only domain.
    """
    if not root.is_dir():
        return []
    if name is None:
        return [root]
    inside = sorted(root.iterdir())
    folders = [path for path in inside if path.is_dir() and canonical_domain(path.name) == canonical_domain(name)]
    archives = [path for path in inside if path.is_file() and is_archive(path)]
    alone = [path for path in archives if canonical_domain(path.stem) == canonical_domain(name)]
    return [*folders, *alone]


def find_dataset_path(root: Path, name: str | None) -> Path | None:
    """The first of `find_dataset_paths`, and of several the first that holds a domain; None where there is none.

    Raises:
        DataError: there are several, and one has two archives, or two folders, of one domain.
    """
    paths = find_dataset_paths(root, name)
    held = (path for path in paths if len(paths) == 1 or find_domains(path))
    return next(held, next(iter(paths), None))


def is_archive(path: Path) -> bool:
    """Whether a path is an archive of one domain, by its name."""
    return path.suffix.lower() == ".npz"


def find_domains(folder: Path) -> dict[str, Path]:
    """Domain name → its archive or folder, sorted; the archive where both are there; hidden names are left out.

    Args:
        folder: of domains; an archive is one domain.

    Raises:
        DataError: two archives, or two folders, are of one domain.
    """
    found: dict[str, Path] = {}
    for path in sorted(
        folder.iterdir() if folder.is_dir() else [folder], key=lambda path: (is_archive(path), path.name)
    ):
        if is_hidden(path):
            continue
        if is_archive(path) or (
            path.is_dir() and any(inner.is_dir() and not is_hidden(inner) for inner in path.iterdir())
        ):
            name = canonical_domain(printable(path.stem if is_archive(path) else path.name))
            if name in found and found[name].is_dir() == path.is_dir():
                raise DataError(f"{found[name]} and {path.name} are both the domain {name!r}; rename or remove one")
            found[name] = path
    return dict(sorted(found.items()))


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
    """The data set ``name`` in ``root``; without a name, ``root`` itself holds the domains.

    Every domain is an archive ``<domain>.npz`` or a folder ``<domain>/<class>/<image>``; one domain alone may be the
    archive ``<name>.npz`` in ``root``. All domains share one list of
    classes. Domains that name theirs (folders by their sub-folders, archives by ``classes``) must name the same ones,
    in any order; a class may be empty, but not absent. Archives without names take the list of the others, or else
    ``classes``, or else the union of all labels, as '0', '1', …; not every one of them needs to have every label.

    Args:
        root: folder of data sets, or of domains.
        name: data set; a dash is as good as an underscore.
        size: images are made this many pixels wide and high.
        domains: the ones to read, in this order; empty: all, by letter.
        classes: names of the labels of archives that name none, where no domain names its classes.
        stretch: images of folders that are not square are stretched instead of cropped.
        gaps: a domain may name fewer classes than another.

    Raises:
        DatasetMissing: the folder or a domain is not there.
        DataError: a file cannot be read, or the domains do not fit together.
        UsageError: ``size`` is not positive.
    """
    if size < 1:
        raise UsageError(f"images cannot be resized to {size} pixels; 1 or more is right")
    folder = find_dataset_path(root, name)
    paths = find_domains(folder) if folder else {}
    wanted = domains or tuple(paths)
    absent = [domain for domain in wanted if domain not in paths]
    if folder is None or absent or not wanted:
        if not root.is_dir():
            raise DatasetMissing(f"the folder {root} does not exist")
        lacks = f"is no domain {', '.join(absent)}" if absent and paths else "are no domains"
        layout = LAYOUT if name else LAYOUT.replace("<root>/<name>/", "<data>/")
        raise DatasetMissing(f"there {lacks} in {folder or root / (name or '')}; the layout is {layout}")
    try:
        archives = {
            domain: read_npz(paths[domain])
            if is_archive(paths[domain])
            else Archive(*read_image_folder(paths[domain], size, stretch))
            for domain in wanted
        }
        tables = {domain: read_units(paths[domain]) for domain in wanted if not is_archive(paths[domain])}
    except OSError as error:  # a folder of images that may not be read
        raise DataError(f"{error.filename or folder} cannot be read: {error.strerror or error}") from None
    if named := {domain: units for domain, units in tables.items() if units is not None}:
        # The number that an archive says is the name of that unit, so that a table can name it too.
        numbered = {domain: archive.units for domain, archive in archives.items() if archive.units is not None}
        units = number_units(named | {domain: [str(unit) for unit in numbers] for domain, numbers in numbered.items()})
        archives |= {domain: replace(archives[domain], units=numbers) for domain, numbers in units.items()}
    return assemble_dataset(canonical_domain(printable(name or folder.name)), archives, classes, gaps).resized(size)


def assemble_dataset(
    name: str, archives: dict[str, Archive], unnamed: tuple[str, ...] = (), gaps: bool = False
) -> FederatedDataset:
    """One data set from one archive a domain, with the labels of all renumbered to one list of classes.

    ``unnamed`` are the classes where no archive names its own, ``gaps`` allows lists to differ; see `read_domains`.

    Raises:
        DataError: named classes differ (says which is missing where), a domain names one twice, or a label has no name.
    """
    # A name is what can be shown of it, in the run's files too.
    archives = {
        domain: replace(archive, classes=archive.classes and tuple(map(printable, archive.classes)))
        for domain, archive in archives.items()
    }
    named = {domain: archive.classes for domain, archive in archives.items() if archive.classes is not None}
    for domain, class_names in named.items():
        if twice := [label for label, times in Counter(class_names).items() if times > 1]:
            raise DataError(
                f"data set {name!r}, domain {domain!r}: the class {twice[0]!r} is there twice; each needs its own name"
            )
    union = set().union(*named.values())
    absent = {domain: sorted(union - set(class_names)) for domain, class_names in named.items()}
    lacks = [f"{domain} lacks {', '.join(names)}" for domain, names in absent.items() if names]
    if lacks and not gaps:
        raise DataError(f"the domains of {name!r} must have the same classes, but {'; '.join(lacks)}")
    labelled = [archive.labels for archive in archives.values() if len(archive.labels)]
    most = max((int(labels.max()) for labels in labelled), default=-1)
    if not union and not unnamed and most >= MOST_LABELS:
        where = next(domain for domain, archive in archives.items() if most in archive.labels)
        raise DataError(
            f"data set {name!r}, domain {where!r}: has the label {most}; labels without names are 0 to "
            f"{MOST_LABELS - 1} at most, more take the key classes"
        )
    classes = sorted_classes(union) or unnamed or tuple(str(label) for label in range(most + 1))
    numbered = _numbered_classes(name, archives, classes)
    number = {label: index for index, label in enumerate(classes)}
    domains = {}
    for domain, archive in archives.items():
        class_names = archive.classes or numbered
        low, high = (int(archive.labels.min()), int(archive.labels.max())) if len(archive.labels) else (0, 0)
        if low < 0 or high >= len(class_names):
            right = f"0 to {len(class_names) - 1}, not {low} to {high}"
            raise DataError(f"data set {name!r}, domain {domain!r}: labels must be {right}")
        renumbered = np.array([number[label] for label in class_names], np.int64)[archive.labels]
        domains[domain] = Domain(domain, archive.images, renumbered, archive.groups, archive.part, archive.units)
    used = np.unique(np.concatenate([domain.labels for domain in domains.values()]))
    if 2 * len(used) < len(classes):
        warnings.warn(
            f"{name}: {len(classes) - len(used):,} of {len(classes):,} classes have no image in any domain; are the "
            "labels right?",
            DatasetWarning,
            stacklevel=2,
        )
    return FederatedDataset(name, classes, domains)


def _numbered_classes(name: str, archives: dict[str, Archive], classes: tuple[str, ...]) -> tuple[str, ...]:
    """Classes in the order in which archives that name none number them: as the others do.

    Raises:
        DataError: the others number them differently.
    """
    lists = {archive.classes for archive in archives.values() if archive.classes is not None}
    nameless = [domain for domain, archive in archives.items() if archive.classes is None and len(archive.labels)]
    if len(lists) == 1:
        return next(iter(lists))
    if nameless and any(own != tuple(label for label in classes if label in own) for own in lists):
        raise DataError(
            f"data set {name!r}, domain {nameless[0]!r}: names no classes, and the others number theirs differently; "
            "give it the key classes"
        )
    return classes
