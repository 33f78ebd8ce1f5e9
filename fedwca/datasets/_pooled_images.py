"""Data sets of one domain, whose training and test parts are pooled before images are dealt to clients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fedwca.datasets import DatasetSource

if TYPE_CHECKING:
    from fedwca.data import FederatedDataset
    from fedwca.data.archives import Archive

PARTS = ("train", "test")


@dataclass(frozen=True)
class _Files:
    """The files that the data set is read from."""

    folder: Path
    """Folder in which they were looked for, which may be the only file itself."""
    read: Callable[[], Archive]


class PooledImages(DatasetSource):
    """One domain, read from an archive, from archives of its two parts, or from the published files."""

    published_folders: ClassVar[tuple[str, ...]]
    """Folders of the published files below the root; the last part of each may also be in the data set's own folder."""
    published_classes: ClassVar[tuple[str, ...]] = ()
    """Published class names by label, which archives may have in place of ``classes``; empty: they are the same."""

    @abstractmethod
    def find_published(self, folder: Path) -> Callable[[], Archive] | None:
        """Find the published files in a folder, without reading them.

        Returns:
            A function that reads them, training part first, and raises `DataError` if one is damaged; None if they are
            not all there.
        """

    def load(self, size: int = 32) -> FederatedDataset:
        """The one domain; see `DatasetSource.load`."""
        from fedwca.data.read_domains import assemble_dataset

        files = self._find_files()
        if files is None:
            raise self.missing_files_error(
                "none of these files is there" if self.root_folder.is_dir() else "there is no such folder"
            )
        archive = files.read()
        own_names = dict(zip(self.published_classes or self.classes, self.classes, strict=True))
        if archive.classes is not None:
            archive = replace(archive, classes=tuple(own_names.get(name, name) for name in archive.classes))
        dataset = assemble_dataset(self.name, {self.domains[0]: archive}, self.classes, gaps=True).resized(size)
        self.compare_with_published(dataset)
        return dataset

    def has_domain(self, domain: str, folder: Path) -> bool:
        """Whether the root holds a domain in a form that `load` reads; ``folder``: not looked at."""
        return domain in self.domains and self._find_files() is not None

    @property
    def own_folder(self) -> Path:
        """The folder in which the files are that `load` reads, or the only file; the root itself if there is none."""
        files = self._find_files()
        return super().own_folder if files is None else files.folder

    def _find_files(self) -> _Files | None:
        """The files that `load` reads; None: none are there."""
        from fedwca.data.archives import read_npz
        from fedwca.data.find_domains import find_dataset_paths

        places = find_dataset_paths(self.root_folder, self.name)
        for place in places:
            for file in (place, place / f"{self.name}.npz"):
                if file.is_file():
                    return _Files(place, partial(read_npz, file))
            parts = [place / f"{part}.npz" for part in PARTS]
            if all(file.is_file() for file in parts):
                return _Files(place, partial(_read_parts, place, parts))
            if place.is_dir() and (read := self.find_published(place)) is not None:
                return _Files(place, read)
        inner_folders = [place / Path(below).name for place in places for below in self.published_folders]
        for folder in (*(self.root_folder / below for below in self.published_folders), *inner_folders):
            if folder.is_dir() and (read := self.find_published(folder)) is not None:
                return _Files(folder, read)
        return None

    def find_default_domain(self) -> str:
        """The only domain."""
        return self.domains[0]


def _read_parts(folder: Path, files: Sequence[Path]) -> Archive:
    from fedwca.data.archives import join_parts, read_npz

    return join_parts(folder, [replace(read_npz(file), part=None) for file in files])
