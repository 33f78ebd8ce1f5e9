"""What a data set says of where its files lie on the network; `fedwca.download` gets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class RemoteFile:
    """A file at one or several addresses."""

    urls: tuple[str, ...]
    """The same file; tried in this order."""
    path: str
    """Where it is written, below the data set's folder."""
    md5: str | None = None
    """As published."""
    sha256: str | None = None
    """As published."""
    size: int | None = None
    """Bytes; None: the server says it."""
    unpack: Literal["gzip", "zip", "tar"] | None = None
    """What is done with it once it is there; then the archive is removed."""
    gives: str = ""
    """File or folder that unpacking makes, below the data set's folder; while it is there, nothing is fetched."""


@dataclass(frozen=True)
class TorchvisionFiles:
    """Files whose addresses and checksums torchvision keeps."""

    name: Literal["MNIST", "FashionMNIST", "EMNIST", "USPS", "SVHN"]
    below: str = ""
    """Folder for them in the data set's folder."""


@dataclass(frozen=True)
class HubCopy:
    """A data set of the Hugging Face hub whose rows are images, in parquet files."""

    repository: str
    """``owner/name``"""
    revision: str
    """Commit, 40 hex digits: what it holds cannot change."""
    image: str = "image"
    """Column of encoded images."""
    label: str = "label"
    """Column of labels."""
    domain: str | None = None
    """Column of domains; None: all rows are of ``only``."""
    only: str = ""
    """The one domain, where there is no column of them."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What is called otherwise here: by value of the column, the domain."""
    unit: str | None = None
    """Column of whom an image comes from, such as its writer."""
    form: Literal["folders", "archive"] = "folders"
    """folders: ``<domain>/<class>/<image>``, images as they are; archive: ``<domain>.npz``, all of one shape."""


@dataclass(frozen=True)
class Elsewhere:
    """What no address is known of that would still be there next year."""

    what: str
    """Of the data set, such as a domain."""
    page: str
    """Where people get it."""


Download: TypeAlias = RemoteFile | TorchvisionFiles | HubCopy | Elsewhere
