"""Any folder of domains: the data set that reads the user's own data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedwca.datasets import DatasetSource, register

if TYPE_CHECKING:
    from fedwca.data import FederatedDataset


@register("folder")
class Folder(DatasetSource):
    """Domains as ``<domain>.npz`` or ``<domain>/<class>/<image>``; see `fedwca.data.read_domains`."""

    label = "own data"
    origin = "yours, with --data PATH"
    layout = "  <root>/[<dataset>/]<domain>.npz\n  <root>/[<dataset>/]<domain>/<class>/<image>"

    dataset: str | None = None
    """Folder of the data set below the root; unset: the root itself holds the domains."""

    def find_default_domain(self) -> str | None:
        """The first domain, alphabetically."""
        from fedwca.data.find_domains import find_dataset_path, find_domains

        folder = find_dataset_path(self.root_folder, self.dataset)
        return next(iter(find_domains(folder)), None) if folder else None

    def load(self, size: int = 32) -> FederatedDataset:
        """All domains of the folder, in alphabetical order.

        Raises:
            DatasetMissing: the folder is not there or holds no domain.
            DataError: a file is damaged or does not fit the others.
        """
        from fedwca.data import read_domains

        return read_domains(self.root_folder, self.dataset, size=size)
