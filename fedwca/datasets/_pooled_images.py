"""Data sets of one domain, whose training and test parts are pooled before images are dealt to clients."""

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
    """One domain, read from an archive, from archives of its two parts, or from the published files."""

    published_folders: ClassVar[tuple[str, ...]]
    """Folders of the published files below the root; the last part of each may also be in the data set's own folder."""

    @abstractmethod
    def read_published(self, folder: Path) -> Archive | None:
        """Read the published files in a folder, training part first; None if they are not all there.

        Raises:
            DataError: a file is damaged.
        """

    def load(self, size: int = 32) -> FederatedDataset:
        """The one domain; see `DatasetSource.load`."""
        from fedwca.data.read_domains import assemble_dataset

        archive = self._read()
        dataset = assemble_dataset(self.name, {self.domains[0]: archive}, self.classes, gaps=True).resized(size)
        self.compare_with_published(dataset)
        return dataset

    def _read(self) -> Archive:
        from fedwca.data.archives import join_parts, read_npz
        from fedwca.data.find_domains import find_dataset_paths

        places = find_dataset_paths(self.root_folder, self.name)
        for place in places:
            for file in (place, place / f"{self.name}.npz"):
                if file.is_file():
                    return read_npz(file)
            parts = [place / f"{part}.npz" for part in PARTS]
            if all(file.is_file() for file in parts):
                return join_parts(place, [replace(read_npz(file), part=None) for file in parts])
            if place.is_dir() and (archive := self.read_published(place)) is not None:
                return archive
        inner_folders = [place / Path(below).name for place in places for below in self.published_folders]
        for folder in (*(self.root_folder / below for below in self.published_folders), *inner_folders):
            if folder.is_dir() and (archive := self.read_published(folder)) is not None:
                return archive
        raise self.missing_files_error(
            "none of these files is there" if self.root_folder.is_dir() else "there is no such folder"
        )

    def find_default_domain(self) -> str:
        """The only domain."""
        return self.domains[0]
