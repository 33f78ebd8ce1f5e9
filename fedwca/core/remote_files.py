"""Where the files of a data set are on the network; `fedwca.download` fetches them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

RECORD = "download.json"
"""File in a data set's folder that says where its files came from."""


@dataclass(frozen=True)
class RemoteFile:
    """A file at one or several addresses."""

    urls: tuple[str, ...]
    """Addresses of the same file; tried in this order."""
    path: str
    """Where it is written, below the data set's folder."""
    md5: str | None = None
    """As published."""
    sha256: str | None = None
    """As published."""
    size: int | None = None
    """Size in bytes; None: as the server says."""
    unpack: Literal["gzip", "zip", "tar"] | None = None
    """How it is unpacked after the download; the archive is then removed."""
    unpacked_path: str = ""
    """File or folder that unpacking makes, below the data set's folder; while it exists, nothing is fetched."""


@dataclass(frozen=True)
class TorchvisionFiles:
    """Files whose addresses and checksums are listed in torchvision."""

    name: Literal["MNIST", "FashionMNIST", "EMNIST", "USPS", "SVHN"]
    folder: str = ""
    """Folder for them in the data set's folder."""


@dataclass(frozen=True)
class HubCopy:
    """A data set of the Hugging Face hub whose rows are images, in parquet files."""

    repository: str
    """``owner/name``"""
    revision: str
    """Commit, 40 hex digits: its content cannot change."""
    image: str = "image"
    """Column of encoded images."""
    label: str = "label"
    """Column of labels."""
    domain: str | None = None
    """Column of domains; None: all rows are of ``only_domain``."""
    only_domain: str = ""
    """The one domain, where there is no column of them."""
    domain_names: Mapping[str, str] = field(default_factory=dict)
    """Domain by value of the domain column, for domains that have another name here."""
    unit: str | None = None
    """Column of the unit that an image belongs to, such as its writer."""
    saved_as: Literal["folders", "archive"] = "folders"
    """folders: ``<domain>/<class>/<image>``, images as they are; archive: ``<domain>.npz``, all of one shape."""


@dataclass(frozen=True)
class ManualDownload:
    """A part of a data set without a lasting download address."""

    part: str
    """The part of the data set, such as a domain."""
    page: str
    """Web page where people get it."""


Download: TypeAlias = RemoteFile | TorchvisionFiles | HubCopy | ManualDownload
