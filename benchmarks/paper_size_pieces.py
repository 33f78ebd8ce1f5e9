"""What `paper_size.py` is made of: its pieces and their methods; no script.

No piece repeats one of the test of FedTAB (`fedtab_pieces.py`), although methods, sources and LeNet or ResNet-18 at 64
pixels are the same: there clients have at most 400 images (PACS 240), learning rates 0.003 and 0.001 and the fields'
defaults; here all images and preset ``paper`` with its rates (0.001, PACS 0.0001), weights of losses and rule of
selection. Source models of one seed are the same where processors and threads are. What both use unchanged are the
baselines' files.
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
"""With what else the paper's Table 2 compares."""
BY_CLUSTERER = ("fedwca", "fedwca by update", "fedwca by moments", "fedwca in true clusters")
"""Names of methods that differ in their clusterer alone."""
DIGITS = ("mnist", "mnistm", "synth", "usps")
PACS = ("art_painting", "cartoon", "photo", "sketch")
OFFICE = ("art", "clipart", "product", "real_world")
SEEDS = (20, 21, 22)
"""Source models of the tables of all images; nothing was designed or tuned on them."""
BY_MOMENTS = ("FedWCA by moments=fedwca/clusterer=ada_bn", "One-hot by moments=one_hot/clusterer=ada_bn")
"""The same clusters for both."""
TF32: dict[str, Any] = {"precision": "tf32"}
"""What torch does with convolutions by default on the GPUs of today."""
TEN_TF32: dict[str, Any] = {"rounds": 10, "trials": 1, **TF32}
SMALL: dict[str, Any] = {"clients": 2, "samples": 40, "rounds": 2, "epochs": 1, "trials": 1, "precision": "fp32"}
"""To rehearse."""


@dataclass(frozen=True)
class Kind:
    """Pieces of one table."""

    name: str
    dataset: str
    sources: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: dict[str, Any]
    """Over preset ``paper``, which says the rest."""
    methods: tuple[str, ...] = MAIN
    side: int | None = None
    """Pixels that a ResNet reads; None: the preset's model as it is."""
    device: str = "cpu"
    """What it is for."""
    known: tuple[tuple[str, int], ...] = ()
    """Sources and seeds that need no piece, since another kind's are the same runs."""
    may_lack: tuple[str, ...] = ()
    """Names of methods that tables show of the pieces that have them, with a smaller n, and wait for in none."""


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
        # There the clusters by first layers are those by moments, so One-hot of kind ``digits`` has these.
        known=(("mnist", 21), ("mnist", 22), ("mnistm", 21), ("mnistm", 22), ("usps", 22)),
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
        """As it is asked for, and its folder is called."""
        return f"{self.kind.name}-{self.source}-{self.seed}"

    def settings(self, weights: Path, small: bool) -> dict[str, Any]:
        """What `fedwca.bench` is given, but for where the data lie."""
        kind = self.kind
        side = 32 if small and kind.dataset != "digit_five" else kind.side
        name = "resnet50" if kind.dataset == "office_home" else "resnet18"
        file = "none" if name == "resnet50" else weights if weights.exists() else "imagenet"
        model = {} if side is None else {"model": f"{name}:side={side},weights={file}"}
        own = {"dataset": kind.dataset, "source": self.source, "seed": self.seed}
        one = {"source_models": 1, "baselines": kind.methods, "composed": False}
        return {"preset": "paper", **own, **one, **kind.settings, **model, **(SMALL if small else {})}


def pieces(data: Path, small: bool = False) -> Iterator[Piece]:
    """All of them, of data sets that are there, source models in turn; to rehearse, the first of each kind."""
    for kind in KINDS:
        if (data / kind.dataset).is_dir():
            every = [Piece(kind, source, seed) for seed in kind.seeds for source in kind.sources]
            every = [piece for piece in every if (piece.source, piece.seed) not in kind.known]
            yield from every[:1] if small else every
