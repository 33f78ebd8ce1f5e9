"""Data sets of one domain, whose training and test parts are pooled where clients are made of them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fedwca.datasets import DatasetSource

if TYPE_CHECKING:
    from fedwca.data import FederatedDataset
    from fedwca.data.archives import Archive

PARTS = ("train", "test")


class PooledImages(DatasetSource):
    """One domain, from an archive, from two of its parts, or from the published files."""

    folders: ClassVar[tuple[str, ...]]
    """Folders of the published files below the root; their last part may be in the set's own folder too."""

    @abstractmethod
    def read_published(self, folder: Path) -> Archive | None:
        """The published files in a folder, training part first; None where they are not all there.

        Raises:
            DataError: a file is damaged.
        """

    def load(self, size: int = 32) -> FederatedDataset:
        """The one domain; see `DatasetSource.load`."""
        from fedwca.data.read_domains import assemble_dataset

        archive = self._read()
        dataset = assemble_dataset(self.name, {self.domains[0]: archive}, self.classes, gaps=True).resized(size)
        self.compare(dataset)
        return dataset

    def _read(self) -> Archive:
        from fedwca.data.archives import join_parts, read_npz
        from fedwca.data.read_domains import find_dataset_paths

        places = find_dataset_paths(self.folder, self.name)
        for place in places:
            for file in (place, place / f"{self.name}.npz"):
                if file.is_file():
                    return read_npz(file)
            parts = [place / f"{part}.npz" for part in PARTS]
            if all(file.is_file() for file in parts):
                return join_parts(place, [replace(read_npz(file), part=None) for file in parts])
            if place.is_dir() and (found := self.read_published(place)) is not None:
                return found
        inner = [place / Path(below).name for place in places for below in self.folders]
        for folder in (*(self.folder / below for below in self.folders), *inner):
            if folder.is_dir() and (found := self.read_published(folder)) is not None:
                return found
        raise self.missing("none of these files is there" if self.folder.is_dir() else "there is no such folder")

    def first_domain(self) -> str:
        """The only one."""
        return self.domains[0]
