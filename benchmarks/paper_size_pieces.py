"""What `paper_size.py` is made of: its pieces and their methods; no script.

No piece repeats one of the test of FedTAB (`fedtab_pieces.py`), although methods, sources and models (LeNet, ResNet-18
at 64 pixels) are the same. There clients have at most 400 images (PACS: 240), learning rates are 0.003 and 0.001, and
all else has its default; here clients have all images, and preset ``paper`` sets the learning rates (0.001, PACS:
0.0001), the weights of the losses and the selection rule of pseudo-labels. Source models of one seed are equal if the
processor and the number of threads are. Both studies use the baseline definitions unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAIN = (
    "source_only",
    "source_ada_bn",
    "fedwca",
    "one_hot",
    "fedavg",
    "local",
    "FedWCA by update=fedwca/clusterer=finch:reference=source",
    "FedWCA by moments=fedwca/clusterer=ada_bn",
    "FedWCA in true clusters=fedwca/clusterer=true",
    "fedscal",
)
TABLE2 = (*MAIN, "ladd", "fedpcl_pl")
"""`MAIN` and the other methods that the paper's Table 2 compares with."""
BY_CLUSTERER = ("fedwca", "fedwca by update", "fedwca by moments", "fedwca in true clusters")
"""Names of methods that differ only in their clusterer."""
DIGITS = ("mnist", "mnistm", "synth", "usps")
PACS = ("art_painting", "cartoon", "photo", "sketch")
OFFICE = ("art", "clipart", "product", "real_world")
SEEDS = (20, 21, 22)
"""Seeds of the source models of the tables with all images; nothing was designed or tuned on them."""
BY_MOMENTS = ("FedWCA by moments=fedwca/clusterer=ada_bn", "One-hot by moments=one_hot/clusterer=ada_bn")
"""FedWCA and One-hot with the same clusters."""
BY_FIRST_LAYERS_AND_MOMENTS = (("mnist", 21), ("mnist", 22), ("mnistm", 21), ("mnistm", 22), ("usps", 22))
"""Runs of kind ``digits`` in which clusters by first layers are those by moments, so that One-hot is the same."""
TF32: dict[str, Any] = {"precision": "tf32"}
"""The precision in which torch computes convolutions by default on recent GPUs."""
TEN_TF32: dict[str, Any] = {"rounds": 10, "trials": 1, **TF32}
SMALL: dict[str, Any] = {"clients": 2, "samples": 40, "rounds": 2, "epochs": 1, "trials": 1, "precision": "fp32"}
"""Settings of a rehearsal."""


@dataclass(frozen=True)
class Kind:
    """Pieces of one table."""

    name: str
    dataset: str
    sources: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: dict[str, Any]
    """Settings on top of preset ``paper``."""
    methods: tuple[str, ...] = MAIN
    side: int | None = None
    """Image side in pixels for a ResNet; None: the preset's model unchanged."""
    device: str = "cpu"
    """Type of device that the pieces are meant for."""
    known: tuple[tuple[str, int], ...] = ()
    """Sources and seeds without a piece, because pieces of another kind are the same runs."""
    may_lack: tuple[str, ...] = ()
    """Names of methods that a piece may lack and still be in the tables; these methods then have a smaller n."""


KINDS = (
    Kind("digits", "digit_five", DIGITS, SEEDS, {"clients": 4, "rounds": 10, "trials": 1}),
    Kind("digits40", "digit_five", ("synth",), SEEDS[:1], {"clients": 4, "rounds": 40, "trials": 1}),
    Kind(
        "moments",
        "digit_five",
        DIGITS,
        SEEDS,
        {"clients": 4, "rounds": 10, "trials": 1},
        BY_MOMENTS,
        known=BY_FIRST_LAYERS_AND_MOMENTS,
    ),
    Kind(
        "moments_source",
        "digit_five",
        DIGITS,
        SEEDS,
        {"clients": 4, "rounds": 10, "trials": 1},
        ("source_ada_bn",),
        known=BY_FIRST_LAYERS_AND_MOMENTS,
    ),
    Kind("pacs", "pacs", PACS, SEEDS, TEN_TF32, MAIN, 64, "cuda", may_lack=("fedwca by update",)),
    Kind("moments_pacs", "pacs", PACS, SEEDS, TEN_TF32, BY_MOMENTS, 64, "cuda"),
    Kind("paper_digits", "digit_five", ("mnist", "svhn", *DIGITS[1:]), tuple(range(5)), {}, TABLE2, device="cuda"),
    Kind("paper_pacs", "pacs", PACS, tuple(range(5)), TF32, TABLE2, 224, "cuda"),
    Kind("paper_office", "office_home", OFFICE, tuple(range(5)), TF32, TABLE2, device="cuda"),
)


@dataclass(frozen=True)
class Piece:
    """One source and one source model, with all methods."""

    kind: Kind
    source: str
    seed: int

    @property
    def name(self) -> str:
        """Name on the command line, and of its folder and its file of results."""
        return f"{self.kind.name}-{self.source}-{self.seed}"

    def settings(self, weights: Path, small: bool) -> dict[str, Any]:
        """Settings for `fedwca.bench`, except the folder of the data.

        Args:
            weights: file of ImageNet weights for a ResNet-18, used if it exists.
            small: whether to rehearse.
        """
        kind = self.kind
        side = 32 if small and kind.dataset != "digit_five" else kind.side
        architecture = "resnet50" if kind.dataset == "office_home" else "resnet18"
        pretrained = "none" if architecture == "resnet50" else weights if weights.exists() else "imagenet"
        model = {} if side is None else {"model": f"{architecture}:side={side},weights={pretrained}"}
        identity = {"dataset": kind.dataset, "source": self.source, "seed": self.seed}
        method_settings = {"source_models": 1, "baselines": kind.methods, "composed": False}
        return {"preset": "paper", **identity, **method_settings, **kind.settings, **model, **(SMALL if small else {})}


def pieces(data: Path, small: bool = False) -> Iterator[Piece]:
    """Pieces of the data sets in a folder, ordered by seed within a kind; for a rehearsal the first of each kind.

    Args:
        data: folder of data sets.
        small: whether to rehearse.
    """
    for kind in KINDS:
        if (data / kind.dataset).is_dir():
            kind_pieces = [Piece(kind, source, seed) for seed in kind.seeds for source in kind.sources]
            kind_pieces = [piece for piece in kind_pieces if (piece.source, piece.seed) not in kind.known]
            yield from kind_pieces[:1] if small else kind_pieces
