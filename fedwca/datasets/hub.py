"""Data sets of the Hugging Face hub, and folders in its layouts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import field_validator

from fedwca.core.files import expand_home
from fedwca.datasets import DatasetSource, register

if TYPE_CHECKING:
    from fedwca.data import FederatedDataset


@register("hub")
class Hub(DatasetSource):
    """Any data set of labelled images: ``hub:OWNER/NAME``, or ``hub:./FOLDER`` in one of the hub's layouts.

    Nothing of it is run: repositories that need code of their own are refused by ``datasets`` from 4.0 on.
    """

    label = "Hugging Face hub"
    origin = "https://huggingface.co/datasets"
    positional_field = "repository"
    layout = "  hub:OWNER/NAME\n  hub:./FOLDER with parquet files, or <split>/<class>/<image>"

    repository: str | Path
    """OWNER/NAME; what begins with a dot, a slash or ~ is a folder."""
    image: str | None = None
    """Column of images; unset: image, img, or the only one of images."""
    labels: str | None = None
    """Column of labels; unset: label, labels, class, target, or the only one that names classes."""
    domain: str | None = None
    """Column of domains, or split or configuration, if these are the domains; unset: the column domain, else the splits
    if none is called train, test, validation or the like, else all is one domain."""
    unit: str | None = None
    """Column of what an image belongs to by nature, such as its writer."""
    configuration: str | None = None
    """Configuration that is read, if there are several and these are no domains."""
    splits: str | None = None
    """Splits that are read, as train+test; unset: all."""
    revision: str | None = None
    """Commit, tag or branch; unset: the newest."""

    @field_validator("repository")
    @classmethod
    def _is_a_place(cls, value: str | Path) -> str | Path:
        text = str(value)
        if text.startswith((".", "/", "~")):
            return expand_home(text).absolute()
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", text):
            raise ValueError("is OWNER/NAME of the Hugging Face hub, or a folder such as ./images")
        return text

    @property
    def root_folder(self) -> Path:
        """The repository if it is a folder; nothing is looked for below ``--data``."""
        return self.repository if isinstance(self.repository, Path) else Path()

    @property
    def may_download(self) -> bool:
        """Whether it is a repository of the hub."""
        return not isinstance(self.repository, Path)

    def find_default_domain(self) -> str | None:
        """None: only the rows tell which domains there are."""
        return None

    def load(self, size: int = 32) -> FederatedDataset:
        """All domains, in alphabetical order.

        Raises:
            UsageError: a library is not installed, or there is no such folder, configuration or split.
            DataError: a column is not there or holds something else; the message names those there are.
            FedwcaError: the hub cannot be reached.
        """
        from fedwca.data.read_hub_dataset import HubColumns, read_hub_dataset
        from fedwca.errors import UsageError

        if self.root is not None:
            raise UsageError(f"--data {self.root}: hub:{self.repository} says itself where it is; leave --data out")
        return read_hub_dataset(
            self.repository,
            HubColumns(self.image, self.labels, self.domain, self.unit),
            size=size,
            revision=self.revision,
            configuration=self.configuration,
            splits=tuple(part.strip() for part in self.splits.split("+")) if self.splits else (),
        )
