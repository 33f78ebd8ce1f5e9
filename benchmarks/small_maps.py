"""What convolutions over few pixels cost a ResNet-18 on a CPU: as matrix products, and as torch's own.

CPU milliseconds per image of a training step and of a forward pass, on one thread; both ways take turns in one process,
so that ratios are of the same run.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
from beside import describe_ratios, take_turns
from keep import keep, refuse_rehearsal
from provenance import provenance
from torch import nn

from fedwca.core.network import Network
from fedwca.core.training_settings import Precision
from fedwca.engine.precision import compute_precision
from fedwca.models._small_map_convolution import SmallMapConvolution
from fedwca.models.resnet18 import ResNet18

BATCH, REPEATS, CLASSES = 64, 7, 7
SIDES = (32, 64, 128)
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")
WAYS = ("as products", "torch's own")


def build(side: int, way: str) -> Network:
    """A ResNet-18 whose convolutions over small maps are computed in one of the two `WAYS`.

    Its weights have the same memory layout in both, that of clients.
    """
    network = ResNet18(side=side, weights="none").build(CLASSES, seed=0)
    for module in network.modules():
        if way == "torch's own" and isinstance(module, SmallMapConvolution):
            module.__class__ = nn.Conv2d
    return network


def train(network: Network, images: torch.Tensor, precision: Precision) -> None:
    """A forward and backward pass of the backbone."""
    with compute_precision(precision, "train", images.device):
        features = network.backbone(images, ())
    features.float().square().mean().backward()


def predict(network: Network, images: torch.Tensor, precision: Precision) -> None:
    """A forward pass of the backbone."""
    with torch.no_grad(), compute_precision(precision, "train", images.device):
        network.backbone(images, ())


def measure(side: int, precision: Precision, work: str, repeats: int) -> dict[str, Any]:
    """Milliseconds per image by way, and median and quartiles of the ratios within turns."""
    images = torch.randn(BATCH, 3, side, side).contiguous(memory_format=torch.channels_last)
    step = train if work == "training" else predict
    work_by_way = {way: partial(step, build(side, way), images, precision) for way in WAYS}
    seconds = take_turns(work_by_way, repeats)
    return {
        "side": side,
        "precision": precision,
        "work": work,
        "milliseconds": {way: round(1000 * statistics.median(values) / BATCH, 3) for way, values in seconds.items()},
        "ratio": describe_ratios(*seconds.values()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "small_maps.json")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    refuse_rehearsal(parser, options, "repeats")
    torch.set_num_threads(1)
    environment, cases = provenance("cpu"), []
    for side in SIDES:
        for precision in PRECISIONS:
            for work in ("training", "forward"):
                cases.append(measure(side, precision, work, options.repeats))
                print(cases[-1], flush=True)
    description = f"CPU milliseconds of an image of ResNet-18's backbone, {BATCH} at once; medians of {options.repeats}"
    keep(
        options.out,
        {"what": description, "batch": BATCH, "repeats": options.repeats, "cases": cases, "environment": environment},
    )


if __name__ == "__main__":
    main()
