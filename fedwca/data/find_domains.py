"""Finds a data set's folder or archive below a root, and the domains in it, without reading an image."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from fedwca.core.printable import printable
from fedwca.data.dataset import canonical_domain
from fedwca.data.decode_folders import is_hidden, is_image
from fedwca.errors import DataError

RUN_DEPTH = 3
"""Levels below a folder at which its runs may be, as in ``runs/sweep/runs/<run>``."""
LOOKED_AT = 100
"""Entries of a folder among which runs are looked for: one is enough, and a class may have very many images."""


def name_folder(folder: Path) -> str:
    """The name of a data set's folder, also where its path ends in ``.`` or ``..``."""
    return folder.resolve().name if folder.name in ("", "..") else folder.name


def find_dataset_paths(root: Path, name: str | None) -> list[Path]:
    """Paths in ``root`` that are called like data set ``name``: folders, then archives, each of which is one domain.

    Dashes, underscores, blanks and case do not matter. Without a name, the only path is ``root``.
    """
    if not root.is_dir():
        return []
    if name is None:
        return [root]
    entries = sorted(root.iterdir())
    folders = [path for path in entries if path.is_dir() and canonical_domain(path.name) == canonical_domain(name)]
    archives = [path for path in entries if path.is_file() and is_archive(path)]
    named_archives = [path for path in archives if canonical_domain(path.stem) == canonical_domain(name)]
    return [*folders, *named_archives]


def find_dataset_path(root: Path, name: str | None) -> Path | None:
    """The first path of `find_dataset_paths`, if there are several the first that holds a domain; None: there is none.

    Raises:
        DataError: there are several, and one has two archives, or two folders, of the same domain.
    """
    paths = find_dataset_paths(root, name)
    with_domains = (path for path in paths if len(paths) == 1 or find_domains(path))
    return next(with_domains, next(iter(paths), None))


def is_archive(path: Path) -> bool:
    """Whether a path has the suffix of an archive, which holds one domain."""
    return path.suffix.lower() == ".npz"


def find_domains(folder: Path) -> dict[str, Path]:
    """Archive or folder of each domain, by the domains' sorted names; hidden names and folders of runs are left out.

    If a domain has an archive and a folder, the archive is taken.

    Args:
        folder: holds the domains; or an archive, which is one domain.

    Raises:
        DataError: two archives, or two folders, are of the same domain.
    """
    path_by_domain: dict[str, Path] = {}
    for path in sorted(
        folder.iterdir() if folder.is_dir() else [folder], key=lambda path: (is_archive(path), path.name)
    ):
        if not is_hidden(path) and (is_archive(path) or (_has_classes(path) and not _holds_runs(path))):
            name = canonical_domain(printable(path.stem if is_archive(path) else path.name))
            if name in path_by_domain and path_by_domain[name].is_dir() == path.is_dir():
                raise DataError(
                    f"{path_by_domain[name]} and {path.name} are both the domain {name!r}; rename or remove one"
                )
            path_by_domain[name] = path
    return dict(sorted(path_by_domain.items()))


def holds_folders_of_images(folder: Path) -> bool:
    """Whether images are directly in a sub-folder, as in a domain; in a data set they are one level deeper."""
    sub_folders = [path for path in folder.iterdir() if path.is_dir() and not is_hidden(path)]
    return any(is_image(path) for sub_folder in sub_folders for path in sub_folder.iterdir())


def _has_classes(path: Path) -> bool:
    return path.is_dir() and any(child.is_dir() and not is_hidden(child) for child in path.iterdir())


def _holds_runs(folder: Path, depth: int = RUN_DEPTH) -> bool:
    """Whether a folder is that of a run or has such folders in it: without ``--out`` runs may be beside the domains."""
    try:
        if (folder / "rounds.jsonl").is_file():
            return True
        with os.scandir(folder) as entries:
            inner_folders = [Path(entry.path) for entry in islice(entries, LOOKED_AT) if depth and entry.is_dir()]
    except OSError:  # reported when the domain is read
        return False
    return any(_holds_runs(inner, depth - 1) for inner in inner_folders)


def list_unread_beside(folder: Path, domains: Mapping[str, Path]) -> list[Path]:
    """List images, and folders of images, that a user may expect to be read as or in a domain.

    A folder of classes beside an archive of the same domain is one of them; hidden ones and folders of runs are not.

    Args:
        folder: holds the domains.
        domains: what is read, by name.
    """

    def expected(path: Path) -> bool:
        if not path.is_dir():
            return is_image(path)
        if _holds_runs(path):
            return False
        children = list(path.iterdir())
        holds_classes = any(child.is_dir() for child in children)
        return any(map(is_image, children)) or (canonical_domain(printable(path.name)) in domains and holds_classes)

    entries = [path for path in sorted(folder.iterdir()) if path not in domains.values()] if folder.is_dir() else []
    return [path for path in entries if not is_hidden(path) and expected(path)]
