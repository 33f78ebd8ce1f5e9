"""What the study of `signatures.py` is made of (docs/internals/measured-methods.md); no script."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import Any

EPOCHS, MANY = 5, 50
"""Epochs of a round, and of a few rounds that show the effect of more steps."""
SIDE, LARGE = 64, (128, 224)
"""Image side of PACS in pixels, and of a few rounds that show the effect of larger images."""
SETTINGS: dict[str, dict[str, Any]] = {
    "digit_five": {"clients": 4, "source_training": {"epochs": 10, "lr": 3e-3}},
    "pacs": {"clients": 3, "source_training": {"epochs": 2, "lr": 3e-3}},
}
SIZES = {64: 100, 256: 400, 720: 1125}
"""Images per client before the split, by training images per client."""
DIGITS = ("synth", "mnistm", "mnist", "usps")
RATES = (0.003, 0.001, 0.0003)
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Piece:
    """One training of round 0."""

    dataset: str
    source: str
    seed: int
    images: int
    lr: float
    epochs: int = EPOCHS
    side: int = SIDE
    """Image side in pixels for a ResNet."""

    def layer(self, data: Path, weights: Path) -> dict[str, Any]:
        """The piece as a layer of a run's configuration, with one_hot, whose round 0 is that of FedWCA.

        Args:
            data: folder of data sets.
            weights: file that a ResNet-18 begins with.
        """
        model = {"model": f"resnet18:side={self.side},weights={weights}"} if self.dataset == "pacs" else {}
        identity = {
            "dataset": self.dataset,
            "data": str(data),
            "source": self.source,
            "seed": self.seed,
            "baselines": [],
        }
        size = {"samples": SIZES[self.images], "training": {"epochs": self.epochs, "lr": self.lr}}
        return {**identity, **SETTINGS[self.dataset], **size, **model, "aggregator": "one_hot"}


def digits(
    images: int, rates: Iterable[float] = RATES, seeds: Iterable[int] = SEEDS, sources: Iterable[str] = DIGITS
) -> list[Piece]:
    """Pieces of Digit-Five, ordered by seed, then source, then learning rate."""
    return [Piece("digit_five", source, seed, images, lr) for seed, source, lr in product(seeds, sources, rates)]


def pieces() -> list[Piece]:
    """All pieces in order of importance: first one seed, then other seeds and PACS, then the rest of the grid."""
    main_rates = (1e-3,)
    art, photo = (
        [Piece("pacs", source, 0, 256, lr) for lr in (1e-3, 3e-3, 1e-4, 3e-4)] for source in ("art_painting", "photo")
    )
    small_pacs = [Piece("pacs", piece.source, 0, 64, piece.lr) for piece in (*art[:2], *photo[:2])]
    first_pieces = [
        digits(256, RATES[:2], (0,)),
        digits(256, main_rates, (1,), ("synth",)),
        digits(64, main_rates, (0,)),
    ]
    # USPS first: it has the fewest images, so its source models are trained fastest.
    seed_pieces = [digits(256, main_rates, SEEDS[1:], (source,)) for source in ("usps", "synth", "mnist", "mnistm")]
    next_pieces = [art[:1], digits(256, RATES[:1]), digits(720, main_rates, (0,)), art[1:3], photo[:1], digits(256)]
    long_rounds = [Piece("pacs", source, 0, 256, 1e-3, MANY) for source in ("art_painting", "photo")]
    large_images = [
        Piece("pacs", source, 0, 256, lr, side=LARGE[0]) for lr in (1e-4, 1e-3) for source in ("art_painting", "photo")
    ]
    large_images += [Piece("pacs", "art_painting", 0, 256, 1e-4, side=LARGE[1])]
    remaining_pieces = [
        digits(64, main_rates),
        digits(720, main_rates),
        photo,
        art,
        small_pacs,
        long_rounds,
        large_images,
        digits(64),
        digits(720),
    ]
    return list(dict.fromkeys(chain(*first_pieces, *seed_pieces, *next_pieces, *remaining_pieces)))
