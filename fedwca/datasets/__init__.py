"""Data sets by name; each file beside this one is one of them, but for files with an underscore, which belong to one.

A file says what is known of its data set (where its files are looked for, how many images, who to cite); `fedwca.data`
reads and checks images of any.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar

from fedwca.core.files import expand_home
from fedwca.errors import UnknownComponent
from fedwca.registry import Component, Registry, canonical_name

if TYPE_CHECKING:
    from fedwca.core.remote_files import Download
    from fedwca.data import FederatedDataset
    from fedwca.errors import DatasetMissing


class DatasetSource(Component):
    """Knows where a data set's files are expected, what should be in them, and how to get them."""

    domains: ClassVar[tuple[str, ...]] = ()
    """Domains in the order of tables; empty: whatever the folder holds."""
    classes: ClassVar[tuple[str, ...]] = ()
    """Class names by label; empty: whatever the folder holds."""
    stretch: ClassVar[bool] = False
    """Whether images of folders are stretched to a square; else they are cropped."""
    checksums: ClassVar[dict[str, str]] = {}
    """MD5 of published files, by their path below the data set's folder."""
    counts: ClassVar[dict[str, int]] = {}
    """Images of each domain as published, or as used by the papers; empty: unknown."""
    downloads: ClassVar[tuple[Download, ...]] = ()
    """Where its files lie on the network, for `fedwca data get`; empty: it has to be got by hand."""
    download_size: ClassVar[int] = 0
    """Bytes of all that, about."""
    licence: ClassVar[str] = ""
    """What its makers allow."""
    source_url: ClassVar[str] = ""
    """Page that people get it from."""
    where: ClassVar[str] = ""
    """How tables say where it comes from; empty: the page."""
    layout: ClassVar[str] = ""
    """Files looked for below the root."""
    citation: ClassVar[str] = ""
    """Whom to cite."""

    default_source: ClassVar[str] = ""
    """Domain of the server when the user names none; empty: the first."""

    root: Path | None = None
    """Folder that holds the data set's folder; unset: FEDWCA_DATA, or else `data` in the cache folder."""

    def is_there(self, domain: str, folder: Path) -> bool:
        """Whether a domain that a download of its own brings is in a folder in another form that `load` reads."""
        return False

    @property
    def folder(self) -> Path:
        """The root in use."""
        from fedwca.data import data_dir

        return expand_home(self.root) if self.root else data_dir()

    def load(self, size: int = 32) -> FederatedDataset:
        """The data set, its images ``size`` × ``size`` pixels.

        Warns:
            DatasetWarning: a domain has another number of images than published.

        Raises:
            DatasetMissing: the files are not there; says which layout was looked for and how to get them.
            DataError: a file is damaged or does not fit the others.
        """
        from fedwca.data import FederatedDataset, read_domains
        from fedwca.errors import DatasetMissing

        try:
            place = self.place()
            dataset = read_domains(
                *place,
                size=size,
                domains=self.there(*place),
                classes=self.classes,
                stretch=self.stretch,
                gaps=True,
            )
        except DatasetMissing as error:
            raise self.missing(str(error).partition("; the layout")[0]) from error
        dataset = FederatedDataset(self.name, dataset.classes, dataset.domains)
        self.compare(dataset)
        return dataset

    def load_published(self, size: int = 32) -> FederatedDataset:
        """The data set for a split into its published training and test parts; of the sizes that papers take.

        Raises:
            UsageError: a domain does not say which of its images are in which part.
            DatasetMissing, DataError: see `load`.
        """
        return self._with_parts(self.load(size))

    def _with_parts(self, dataset: FederatedDataset) -> FederatedDataset:
        from fedwca.errors import UsageError

        if without := [name for name, domain in dataset.domains.items() if domain.part is None]:
            raise UsageError(
                f"--split published: {', '.join(without)} of {self.name} has no published parts (key 'part' of an "
                "archive: 0 for training, 1 for test); --split random cuts 64/16/20"
            )
        return dataset

    def count_images(self) -> Mapping[str, int] | None:
        """Images that `load` will give of each domain, found without decoding one; None: that has to show it."""
        return None

    def first_domain(self) -> str | None:
        """Domain of the server when the user names none, found without reading an image; None: that has to show it."""
        return self.default_source or next(iter(self.there(*self.place())), None)

    def there(self, root: Path, name: str | None) -> tuple[str, ...]:
        """The catalogued domains that are there, if two or more are; else all, so that reading says what is missing."""
        from fedwca.data.read_domains import find_dataset_path, find_domains

        folder = find_dataset_path(root, name)
        found = find_domains(folder) if folder else {}
        have = tuple(domain for domain in self.domains if domain in found)
        return have if len(have) > 1 else self.domains

    def place(self) -> tuple[Path, str | None]:
        """Root and name for `read_domains`: ``<folder>/<name>``, or the folder itself where that holds all domains."""
        from fedwca.data.read_domains import find_dataset_path, find_domains

        inside = find_dataset_path(self.folder, self.name) is None and self.folder.is_dir()
        return self.folder, None if inside and set(self.domains) <= set(find_domains(self.folder)) else self.name

    def verify(self) -> list[str]:
        """Published files that are there and have the published MD5, by their path below the data set's folder.

        Raises:
            DataError: a file has another MD5, so it is damaged or another edition.
        """
        from fedwca.data.archives import file_md5
        from fedwca.data.read_domains import find_dataset_path
        from fedwca.errors import DataError

        folder = find_dataset_path(self.folder, self.name) or self.folder
        there = [name for name in self.checksums if (folder / name).is_file()]
        for name in there:
            if (found := file_md5(folder / name)) != self.checksums[name]:
                raise DataError(
                    f"{folder / name} is damaged or another edition: its MD5 is {found}, not {self.checksums[name]}"
                )
        return there

    def missing(self, why: str) -> DatasetMissing:
        """The error for files that are not there: what is not, the layout looked for, and how to get them."""
        from fedwca.errors import DatasetMissing

        root = f" --data {quote(str(self.folder))}" if self.root else ""
        command = f"with `fedwca data get {self.name}{root}`, or from" if self.downloads else "from"
        return DatasetMissing(
            f"data set {self.name!r} is not complete in {self.folder}: {why}.\nLooked for:\n{self.layout}\n"
            f"Get it {command} {self.source_url} ({self.licence}), or name another folder with --data PATH or the "
            "variable FEDWCA_DATA."
        )

    def compare(self, dataset: FederatedDataset) -> None:
        """Check a data set against the catalogue.

        Warns:
            DatasetWarning: other numbers of images or fewer classes than published.

        Raises:
            DataError: classes that the published data set does not have.
        """
        from fedwca.data import DatasetWarning
        from fedwca.errors import DataError

        if unknown := sorted(set(dataset.classes) - set(self.classes)):
            raise DataError(f"{self.name} has no class {', '.join(unknown)}; its classes are {', '.join(self.classes)}")
        other = [
            f"{name} has {len(dataset.domains[name])} of {count} images" if name in dataset.domains else f"no {name}"
            for name, count in self.counts.items()
            if name not in dataset.domains or len(dataset.domains[name]) != count
        ]
        if len(dataset.classes) < len(self.classes):
            other.append(f"{len(dataset.classes)} of {len(self.classes)} classes")
        for name, domain in dataset.domains.items():
            numbers = domain.counts(len(dataset.classes))
            if absent := [title for title, number in zip(dataset.classes, numbers, strict=True) if not number]:
                more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
                other.append(f"{name} has no {', '.join(absent[:3])}{more}")
        if other:
            message = f"{self.name} is not the published data set, so results cannot be compared with published ones"
            warnings.warn(f"{message}: {', '.join(other)}", DatasetWarning, stacklevel=3)


datasets: Registry[DatasetSource] = Registry("dataset", __name__, requires=("load",))
register = datasets


def stretches_images(name: str) -> bool:
    """Whether image files of a run's data set are stretched to squares, not cropped; one that is not catalogued is not.

    >>> stretches_images("pacs"), stretches_images("my_domains")
    (True, False)
    """
    named = canonical_name(name.partition(":")[0])
    return named in datasets.names() and datasets.get(named).stretch


def find_dataset(name: str, root: Path | None = None, fields: Mapping[str, Any] | None = None) -> DatasetSource:
    """The data set ``name``: a registered one, or else a folder of that name in ``root``.

    Args:
        name: as on the command line, such as ``hub:OWNER/NAME,labels=class``; ``folder`` is ``root`` itself.
        root: folder that holds data sets.
        fields: further fields of the component.

    Raises:
        UnknownComponent: not registered, and no folder of that name in ``root``.
    """
    named, own = datasets.parse(name) if ":" in name else (name, {})
    given = {**({} if root is None else {"root": root}), **(fields or {}), **own}
    if root is None or canonical_name(named) in datasets.names():
        return datasets.build({"name": named, **given})
    from fedwca.data.read_domains import find_dataset_path

    if find_dataset_path(root, name) is None:
        known = ", ".join(datasets.names())
        raise UnknownComponent(f"no dataset {name!r}: it is neither a folder in {root} nor one of {known}")
    return datasets.build({"name": "folder", "dataset": name, **given})
