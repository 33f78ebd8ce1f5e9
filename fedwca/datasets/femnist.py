"""FEMNIST: handwritten letters and digits by writer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fedwca.core.remote_files import RECORD, HubCopy
from fedwca.datasets import register
from fedwca.datasets._pooled_images import PARTS, PooledImages

if TYPE_CHECKING:
    from fedwca.data.archives import Archive


@register("femnist")
class Femnist(PooledImages):
    """Letters and digits in one domain, grey, 28×28; units are writers. FedTTA takes 185 of LEAF's 3,550 writers."""

    label = "FEMNIST"
    paper = "FedTTA sec. 4.1"
    domains = ("femnist",)
    classes = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
    image_counts: ClassVar[dict[str, int]] = {"femnist": 805263}
    downloads = (
        HubCopy(
            *("flwrlabs/femnist", "e3219ce09911a0053b27146284f7c5414a7efeec"),
            label="character",
            only_domain="femnist",
            unit="writer_id",
            saved_as="archive",
        ),
    )
    download_size = 250_000_000
    licence = "BSD-2-Clause (LEAF); NIST Special Database 19 is public domain"
    source_url = "https://github.com/TalwalkarLab/leaf"
    layout = (
        "  <root>/femnist.npz with key units or client (the writer), or LEAF's files\n"
        "  <root>/femnist/{train,test}/*.json, or all in <root>/femnist/*.json"
    )
    citation = "Caldas et al.: LEAF: A Benchmark for Federated Settings, arXiv 1812.01097"
    published_folders = ("femnist/data",)

    def find_published(self, folder: Path) -> Callable[[], Archive] | None:
        """Find LEAF's files."""
        from fedwca.data.leaf_files import read_leaf_parts

        parts = [sorted((folder / part).glob("*.json")) for part in PARTS]
        if not all(parts):
            parts = [sorted(file for file in folder.glob("*.json") if file.name != RECORD), []]
        return partial(read_leaf_parts, folder, parts) if parts[0] else None
