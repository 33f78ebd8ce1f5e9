"""Data sets by name; each module beside this one is one, except those with a leading underscore, which are helpers.

A module says what is known of its data set (where its files are looked for, how many images, whom to cite);
`fedwca.data` reads and checks the images of any data set.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fedwca.component import Component
from fedwca.core.files import expand_home
from fedwca.core.printable import quote_path
from fedwca.errors import UnknownComponent, UsageError
from fedwca.registry import Registry, canonical_name
from fedwca.warn_caller import warn_caller

if TYPE_CHECKING:
    from fedwca.core.remote_files import Download
    from fedwca.data import FederatedDataset
    from fedwca.errors import DatasetMissing


class DatasetSource(Component):
    """Describes a data set: where its files are expected, what they should hold, and how to get them."""

    domains: ClassVar[tuple[str, ...]] = ()
    """Domains in the order of tables; empty: whatever the folder holds."""
    classes: ClassVar[tuple[str, ...]] = ()
    """Class names by label; empty: whatever the folder holds."""
    stretch: ClassVar[bool] = False
    """Whether images of folders are stretched to a square; else they are cropped."""
    checksums: ClassVar[dict[str, str]] = {}
    """MD5 of published files, by their path below the data set's folder."""
    image_counts: ClassVar[dict[str, int]] = {}
    """Number of images of each domain as published, or as papers use it; empty: unknown."""
    downloads: ClassVar[tuple[Download, ...]] = ()
    """Remote files that `fedwca data get` downloads; empty: users have to get the data set by hand."""
    download_size: ClassVar[int] = 0
    """Approximate size of all downloads in bytes."""
    licence: ClassVar[str] = ""
    """Licence, or what its makers allow."""
    source_url: ClassVar[str] = ""
    """Page from which people get the data set."""
    origin: ClassVar[str] = ""
    """Origin of the data set in tables; empty: ``source_url``."""
    layout: ClassVar[str] = ""
    """Files that are looked for below the root, as messages list them."""
    citation: ClassVar[str] = ""
    """Publication to cite."""

    default_domain: ClassVar[str] = ""
    """Domain that is the source, or the target with leave_one_out, if the user names none; empty: the first domain."""

    root: Path | None = None
    """Folder that holds the data set's folder; unset: FEDWCA_DATA, or else `data` in the cache folder."""

    def has_domain(self, domain: str, folder: Path) -> bool:
        """Whether a folder, or an archive of all domains, holds a domain in a form that `load` reads."""
        from fedwca.data.find_domains import find_domains

        return folder.exists() and domain in find_domains(folder)

    @property
    def root_folder(self) -> Path:
        """The root folder in use."""
        from fedwca.data import data_dir

        return expand_home(self.root) if self.root else data_dir()

    @property
    def may_download(self) -> bool:
        """Whether `load` downloads what is not on this machine."""
        return False

    @property
    def own_folder(self) -> Path:
        """The data set's folder in the root; the root itself if there is none."""
        from fedwca.data.find_domains import find_dataset_path

        return find_dataset_path(self.root_folder, self.name) or self.root_folder

    def load(self, size: int = 32) -> FederatedDataset:
        """The data set, its images ``size`` × ``size`` pixels.

        Warns:
            DatasetWarning: a domain has another number of images than published.

        Raises:
            DatasetMissing: the files are not there; the message says which layout was looked for and how to get them.
            DataError: a file is damaged or does not fit the others.
        """
        from fedwca.data import FederatedDataset, read_domains
        from fedwca.errors import DatasetMissing

        try:
            place = self.locate()
            dataset = read_domains(
                *place,
                size=size,
                domains=self.available_domains(*place),
                classes=self.classes,
                stretch=self.stretch,
                gaps=True,
            )
        except DatasetMissing as error:
            raise self.missing_files_error(str(error).partition("; the layout")[0]) from error
        dataset = FederatedDataset(self.name, dataset.classes, dataset.domains)
        self.compare_with_published(dataset)
        return dataset

    def load_published(self, size: int = 32) -> FederatedDataset:
        """The data set with its published training and test parts, in the sizes that papers use.

        Raises:
            UsageError: a domain does not say which of its images are in which part.
            DatasetMissing, DataError: see `load`.
        """
        return self._check_parts(self.load(size))

    def _check_parts(self, dataset: FederatedDataset) -> FederatedDataset:
        """The data set, if each domain says which of its images are for training and which for testing."""
        # Of a data set without a published test part, such as FEMNIST, all images are in the training part.
        if lacking := [n for n, domain in dataset.domains.items() if domain.part is None or len({*domain.part}) < 2]:
            raise UsageError(
                f"--split published: {', '.join(lacking)} of {self.name} has no published parts (key 'part' of an "
                "archive: 0 for training, 1 for test, and images of both); --split random cuts 64/16/20"
            )
        return dataset

    def count_images(self) -> Mapping[str, int] | None:
        """Number of images of each domain that `load` gives, found without decoding; None: unknown before `load`."""
        return None

    def find_default_domain(self) -> str | None:
        """The special domain if the user names none, found without reading an image; None: unknown before `load`."""
        return self.default_domain or next(iter(self.available_domains(*self.locate())), None)

    def available_domains(self, root: Path, name: str | None) -> tuple[str, ...]:
        """Catalogued domains that are there, if two or more; else all of them, so that reading reports missing ones."""
        from fedwca.data.find_domains import find_dataset_path

        folder = find_dataset_path(root, name) or root  # the root itself may be the data set's folder
        available = tuple(domain for domain in self.domains if self.has_domain(domain, folder))
        return available if len(available) > 1 else self.domains

    def locate(self) -> tuple[Path, str | None]:
        """Root and name for `read_domains`; the name is None if the root itself holds all domains."""
        from fedwca.data.find_domains import find_dataset_path, find_domains

        root = self.root_folder
        flat = find_dataset_path(root, self.name) is None and root.is_dir()
        return root, None if flat and set(self.domains) <= set(find_domains(root)) else self.name

    def verify_checksums(self) -> list[str]:
        """Check the MD5 of the published files that are there; returns their paths below the data set's folder.

        Raises:
            DataError: a file has another MD5, so it is damaged or another version.
        """
        from fedwca.data.archives import file_hash
        from fedwca.errors import DataError

        folder = self.own_folder
        files = [name for name in self.checksums if (folder / name).is_file()]
        for name in files:
            if (md5 := file_hash(folder / name, "md5")) != self.checksums[name]:
                raise DataError(
                    f"{folder / name} is damaged or another edition: its MD5 is {md5}, not {self.checksums[name]}"
                )
        return files

    def missing_files_error(self, problem: str) -> DatasetMissing:
        """The error for missing files, which names the problem, the layout looked for and how to get the files."""
        from fedwca.data.find_domains import find_dataset_path, find_domains
        from fedwca.errors import DatasetMissing

        data_option = f" --data {quote_path(self.root_folder)}" if self.root else ""
        own = find_dataset_path(self.root_folder, self.name)
        domains = find_domains(own) if own is not None and own.is_dir() else ()
        own_data = (
            f"\nIf {own} is a data set of your own ({', '.join(domains)}), name it with --data {quote_path(own)}."
            if own is not None and len(domains) > 1
            else ""
        )
        command = f"with `fedwca data get {self.name}{data_option}`, or from" if self.downloads else "from"
        return DatasetMissing(
            f"data set {self.name!r} is not complete in {self.root_folder}: {problem}.\nLooked for:\n{self.layout}\n"
            f"Get it {command} {self.source_url} ({self.licence}), or name another folder with --data PATH or the "
            f"variable FEDWCA_DATA.{own_data}"
        )

    def compare_with_published(self, dataset: FederatedDataset) -> None:
        """Compare a data set that was read with the published one.

        Warns:
            DatasetWarning: it has other numbers of images or fewer classes than published.

        Raises:
            DataError: it has a class that the published data set does not have.
        """
        from fedwca.data import DatasetWarning
        from fedwca.errors import DataError

        if self.classes and (unknown_classes := sorted(set(dataset.classes) - set(self.classes))):
            raise DataError(
                f"{self.name} has no class {', '.join(unknown_classes)}; its classes are {', '.join(self.classes)}"
            )
        differences = [
            f"{name} has {len(dataset.domains[name])} of {count} images" if name in dataset.domains else f"no {name}"
            for name, count in self.image_counts.items()
            if name not in dataset.domains or len(dataset.domains[name]) != count
        ]
        if len(dataset.classes) < len(self.classes):
            differences.append(f"{len(dataset.classes)} of {len(self.classes)} classes")
        for name, domain in dataset.domains.items():
            counts = domain.class_counts(len(dataset.classes))
            if empty_classes := [
                class_name for class_name, count in zip(dataset.classes, counts, strict=True) if not count
            ]:
                ending = f" and {len(empty_classes) - 3} more" if len(empty_classes) > 3 else ""
                differences.append(f"{name} has no {', '.join(empty_classes[:3])}{ending}")
        if differences:
            message = f"{self.name} is not the published data set, so results cannot be compared with published ones"
            warn_caller(f"{message}: {', '.join(differences)}", DatasetWarning)


datasets: Registry[DatasetSource] = Registry(
    "dataset", __name__, requires=("load",), base="fedwca.datasets.DatasetSource"
)
register = datasets


def stretches_images(name: str) -> bool:
    """Whether image files of a data set are stretched to squares instead of cropped; False if it is not registered.

    >>> stretches_images("pacs"), stretches_images("my_domains")
    (True, False)
    """
    dataset_name = canonical_name(name.partition(":")[0])
    return dataset_name in datasets.names() and datasets.get(dataset_name).stretch


def find_dataset(name: str, root: Path | None = None, fields: Mapping[str, Any] | None = None) -> DatasetSource:
    """The data set ``name``: a registered one, or else a folder of that name in ``root``.

    Args:
        name: as on the command line, such as ``hub:OWNER/NAME,labels=class``; ``folder`` is ``root`` itself.
        root: folder that holds data sets; None: `fedwca.data.cache.data_dir`.
        fields: values of further fields of the component.

    Raises:
        UnknownComponent: the name is not registered, and ``root`` has no folder of that name.
        InvalidConfig: there is no such field, or its value is not allowed.
        UsageError: ``name`` is not a word.
    """
    if not isinstance(name, str):
        raise UsageError(f"a data set is named by a word, such as 'digits-mini', not by {name!r}; root takes a folder")
    dataset_name, options = datasets.parse(name) if ":" in name else (name, {})
    values = {**({} if root is None else {"root": root}), **(fields or {}), **options}
    registered = canonical_name(dataset_name) in datasets.names()
    from fedwca.data.cache import data_dir
    from fedwca.data.find_domains import find_dataset_path

    if registered or (root is None and find_dataset_path(data_dir(), name) is None):
        path = Path(name)
        folder = path.parent if path.suffix == ".npz" and path.is_file() else path  # a domain may be one file
        if not registered and folder.is_dir():
            option = f"--data {quote_path(folder)}"
            raise UnknownComponent(
                f"no dataset {name!r}; to read the folder of that path, take dataset folder with {option}"
            )
        return datasets.build({"name": dataset_name, **values})
    if root is not None and find_dataset_path(root, name) is None:
        known_names = ", ".join(datasets.names())
        raise UnknownComponent(f"no dataset {name!r}: it is neither a folder in {root} nor one of {known_names}")
    return datasets.build({"name": "folder", "dataset": name, **values})
