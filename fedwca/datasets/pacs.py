"""PACS: seven kinds of things as art, cartoons, photographs and sketches."""

from __future__ import annotations

from typing import ClassVar

from fedwca.core.remote_files import HubCopy
from fedwca.datasets import DatasetSource, register


@register("pacs")
class Pacs(DatasetSource):
    """9,991 images of 7 classes in 4 domains, 227×227."""

    label = "PACS"
    domains = ("art_painting", "cartoon", "photo", "sketch")
    classes = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    image_counts: ClassVar[dict[str, int]] = {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929}
    downloads = (HubCopy("flwrlabs/pacs", "394113073258ead631f617d2e13bb377c0715c4b", domain="domain"),)
    download_size = 191_000_000
    stretch = True  # to squares, as in SHOT and its successors
    licence = "research use"
    source_url = "https://domaingeneralization.github.io"
    layout = "  <root>/pacs/{art_painting,cartoon,photo,sketch}/<class>/<image>"
    citation = "Li, Yang, Song, Hospedales: Deeper, Broader and Artier Domain Generalization, ICCV 2017"
