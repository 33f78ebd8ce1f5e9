"""Everything that is to be known of the engines on a GPU, by one command, in pieces of under ten minutes.

python benchmarks/gpu.py runs the pieces that results/gpu lacks and writes one file for each; names of pieces run those
alone, again. Images are random bytes: times do not depend on what is on them. ``--device cpu --small`` is a rehearsal
of the same code on any machine, which writes beside the real files only where ``--out`` says so.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from beside import CLASSES, plain
from counts import formula
from digits import keep
from provenance import provenance
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fedwca import Keys, Loop, Method, Training, begin
from fedwca.aggregators import aggregators
from fedwca.clusterers.true import TrueDomains
from fedwca.data.partition import ClientImages
from fedwca.engine.precision import Precision
from fedwca.engine.protocol import OneByOne
from fedwca.engine.stacked import Stacked, StackedTrials
from fedwca.engine.stacked.contest import best, contest
from fedwca.engine.stacked.kernels import Kernels
from fedwca.models import models
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.prototype import Prototype
from fedwca.pseudo_labelers.two_model import TwoModel
from fedwca.round import conclude, prepare

OUT = Path(__file__).parent / "results" / "gpu"
DIGITS = [2720] * 24 + [744] * 8
"""Training images of 32 clients of Digit-Five: three domains of 34,000 images and USPS, 64 % of them for training."""
ROUNDS, DOMAINS = 100, 4
KERNELS = {"lenet": (32, 64), "resnet18:weights=none": (9, 64)}
"""Clients at a time and images of each in a step, by model."""


@dataclass(frozen=True)
class Place:
    """Where and how large the pieces are run."""

    device: str
    small: bool

    def settle(self) -> None:
        """Wait for the device, so that a clock read on the host means something."""
        if self.device.startswith("cuda"):
            torch.cuda.synchronize(self.device)

    def timed(self, work: Callable[[], Any]) -> float:
        """Seconds that some work takes, the device's part included."""
        self.settle()
        started = time.perf_counter()
        work()
        self.settle()
        return time.perf_counter() - started

    def peak(self) -> int | None:
        """Bytes of tensors on the device at their most since the last question; None on a CPU."""
        if not self.device.startswith("cuda"):
            return None
        found = int(torch.cuda.max_memory_allocated(self.device))
        torch.cuda.reset_peak_memory_stats(self.device)
        return found

    def held(self) -> int:
        """Bytes of tensors on the device now; 0 on a CPU."""
        return int(torch.cuda.memory_allocated(self.device)) if self.device.startswith("cuda") else 0


def federation(sizes: list[int], side: int) -> list[ClientImages]:
    """Clients with random images, no test images."""
    draw = torch.Generator().manual_seed(0)
    drawn = [torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=draw) for n in sizes]
    return [ClientImages(x, x[:0], x[:0]) for x in drawn]


def method(name: str) -> Method:
    """FedWCA with all its parts, or FedAvg as a baseline; true domains stand for clusters of the usual number."""
    if name == "fedavg":
        return Method(name, name, aggregators.build(name), Prototype(), (Shot(),))
    return Method(name, name, aggregators.build("wca"), TwoModel(), (Shot(),), TrueDomains())


class Run:
    """A federation whose rounds are timed one by one."""

    def __init__(
        self,
        place: Place,
        name: str,
        model: str,
        sizes: list[int],
        engine: str,
        precision: Precision,
        epochs: int = 5,
        trials: int = 1,
    ) -> None:
        architecture = models.build(model)
        own = federation(sizes, architecture.stored)
        networks = [architecture.build(CLASSES, seed=seed) for seed in range(trials)]
        if trials > 1:
            self.engines: OneByOne = StackedTrials(networks, [own] * trials, place.device, precision=precision)
        else:
            kind = Stacked if engine == "stacked" else Loop
            self.engines = OneByOne([kind(networks[0], own, place.device, precision=precision)])
        self.engine = self.engines.engines[0]
        self.place, self.method, self.training = place, method(name), Training(epochs=epochs)
        self.domains = torch.arange(len(sizes)) * DOMAINS // len(sizes)
        self.number, self.servers = 0, [begin(engine) for engine in self.engines.engines]

    def round(self) -> None:
        """One more round of all trials."""
        parts = {
            i: prepare(self.number, self.servers[i], self.method, engine, self.training, Keys(i), self.domains)
            for i, engine in enumerate(self.engines.engines)
        }
        self.servers = [conclude(parts[i], uploads)[0] for i, uploads in self.engines.run(parts).items()]
        self.number += 1

    def seconds(self, rounds: int) -> list[float]:
        """Of each of some rounds, after one that is not counted."""
        self.round()
        return [round(self.place.timed(self.round), 4) for _ in range(rounds)]


def tf32(allowed: bool) -> None:
    """Whether products of float32 numbers may be rounded to TensorFloat-32 on the way."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


PRECISIONS: dict[str, tuple[Precision, bool]] = {
    "fp32": ("fp32", False),
    "tf32": ("fp32", True),
    "bf16": ("bf16", True),
}


def parity(place: Place) -> dict[str, Any]:
    """The two engines on the same rounds in full float32: how far models come apart, by the update's norm."""
    tf32(False)
    sizes = [70, 70, 50, 40] if place.small else [700, 700, 500, 400]
    runs = [Run(place, "wca", "lenet", sizes, engine, "fp32", epochs=2) for engine in ("loop", "stacked")]
    start = runs[0].engine.bank.clone()
    for run in runs:
        run.round()
    one, other = (run.engine.bank for run in runs)
    apart = float(((other - one).norm(dim=1) / (one - start).norm(dim=1)).max())
    return {"largest_difference_in_update_norms": apart, "limit": 1e-3, "met": apart <= 1e-3}


def whole_run(place: Place, model: str, sizes: list[int], rounds: int, target: float) -> dict[str, Any]:
    """Seconds of FedWCA rounds by precision, and of the rounds of a whole run in the quickest of them."""
    tried: dict[str, Any] = {}
    for name, (precision, allowed) in PRECISIONS.items():
        tf32(allowed)
        tried[name] = {"seconds": Run(place, "wca", model, sizes, "stacked", precision).seconds(2)}
    best = min(tried, key=lambda name: statistics.median(tried[name]["seconds"]))
    precision, allowed = PRECISIONS[best]
    tf32(allowed)
    place.peak()
    seconds = Run(place, "wca", model, sizes, "stacked", precision).seconds(rounds)
    peak, median = place.peak(), statistics.median(seconds)
    price = statistics.median(Run(place, "fedavg", model, sizes, "stacked", precision).seconds(2))
    return {
        "model": model,
        "clients": len(sizes),
        "images": sizes,
        "epochs": 5,
        "precisions": tried,
        "chosen": best,
        "seconds_a_round": seconds,
        "peak_bytes": peak,
        "extrapolated_minutes_of_100_rounds": round(median * ROUNDS / 60, 2),
        "target_minutes": target,
        "met": median * ROUNDS / 60 <= target,
        "in_fedavg_rounds": {"formula": formula(5, DOMAINS), "measured": round(median / price, 3)},
    }


def digit_five(place: Place) -> dict[str, Any]:
    """Full-size Digit-Five: 32 clients, LeNet, 20 rounds; 100 are extrapolated."""
    sizes = [96] * 3 + [40] if place.small else DIGITS
    return whole_run(place, "lenet", sizes, 2 if place.small else 20, 3.0)


def trials(place: Place) -> dict[str, Any]:
    """Fifteen trials of full-size Digit-Five in every step, beside one alone; three rounds, 100 are extrapolated."""
    sizes, number = ([96] * 3 + [40], 3) if place.small else (DIGITS, 15)
    tried: dict[str, Any] = {}
    for name, (precision, allowed) in PRECISIONS.items():
        tf32(allowed)
        alone = Run(place, "wca", "lenet", sizes, "stacked", precision).seconds(3)
        place.peak()
        together = Run(place, "wca", "lenet", sizes, "stacked", precision, trials=number).seconds(3)
        ratio = number * statistics.median(alone) / statistics.median(together)
        tried[name] = {
            "alone_seconds": alone,
            "together_seconds": together,
            "peak_bytes": place.peak(),
            "times_as_fast": round(ratio, 2),
        }
    best = min(tried, key=lambda name: statistics.median(tried[name]["together_seconds"]))
    minutes = statistics.median(tried[best]["together_seconds"]) * ROUNDS / 60
    return {
        "model": "lenet",
        "clients": len(sizes),
        "trials": number,
        "images": sizes,
        "epochs": 5,
        "precisions": tried,
        "chosen": best,
        "extrapolated_minutes_of_100_rounds": round(minutes, 2),
        "target_minutes": 15.0,
        "met": minutes <= 15.0,
    }


def pacs(place: Place) -> dict[str, Any]:
    """PACS: nine clients, ResNet-18 at 224 px; three rounds."""
    model = "resnet18:weights=none,side=32" if place.small else "resnet18:weights=none"
    return whole_run(place, model, [8] * 3 if place.small else [560] * 9, 1 if place.small else 3, 15.0)


def beside_plain(place: Place) -> dict[str, Any]:
    """Local epochs of 32 LeNets against a loop over plain modules on the same device, with images on it."""
    tf32(False)
    clients, each = (4, 64) if place.small else (32, 2720)
    base = plain(clients, each, device=place.device)
    base()
    theirs = [place.timed(base) for _ in range(3)]
    run = Run(place, "fedavg", "lenet", [each] * clients, "stacked", "fp32", epochs=1)
    ours = run.seconds(3)
    ratio = statistics.median(theirs) / statistics.median(ours)
    return {
        "clients": clients,
        "images": each,
        "plain_seconds": theirs,
        "stacked_seconds": ours,
        "note": "the engine's round holds evaluation passes for labels and an average beside the epoch",
        "times_as_fast": round(ratio, 2),
        "target": 20,
        "met": ratio >= 20,
    }


def matrix(place: Place) -> dict[str, Any]:
    """The card's own rate on large matrix products, and what share of it a FedWCA round of 32 LeNets achieves."""
    n = 256 if place.small else 8192
    rates, shares = {}, {}
    sizes = [64] * 4 if place.small else [2720] * 32
    run = Run(place, "wca", "lenet", [64] * 4, "loop", "fp32", epochs=1)
    run.round()
    with FlopCounterMode(display=False) as counter:
        run.round()
    flops = counter.get_total_flops() * sum(sizes) / (64 * 4)
    for name, (precision, allowed) in PRECISIONS.items():
        tf32(allowed)
        a = torch.randn(n, n, device=place.device, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)

        def product(a: Tensor = a) -> Tensor:
            return a @ a

        product()
        rates[name] = 2 * n**3 / min(place.timed(product) for _ in range(5))
        seconds = Run(place, "wca", "lenet", sizes, "stacked", precision, epochs=1).seconds(2)
        shares[name] = flops / statistics.median(seconds) / rates[name]
    return {"matrix_flops_per_second": rates, "share_achieved": shares, "flops_of_a_round": flops}


def kernels(place: Place) -> dict[str, Any]:
    """Training steps by kernels, model and precision: which are quickest, and whether they give eager's numbers."""
    sizes = {"lenet": (4, 8), "resnet18:weights=none,side=32": (2, 4)} if place.small else KERNELS
    candidates: list[Kernels] = ["eager", "channels-last", "products", *(() if place.small else ("compile",))]
    found: dict[str, Any] = {}
    for name, (clients, batch) in sizes.items():
        network = models.build(name).build(CLASSES, seed=0).to(place.device)
        drawn = [own.train for own in federation([batch] * clients, models.build(name).stored)]
        images = torch.stack(drawn).to(place.device)
        found[name] = {"clients": clients, "batch": batch, "precisions": {}}
        for precision in ("fp32", "bf16"):
            kind, allowed = PRECISIONS[precision]
            tf32(allowed)
            tried = contest(network, images, kind, candidates)
            found[name]["precisions"][precision] = {"best": best(tried), "candidates": tried}
    return {"models": found}


def memory(place: Place) -> dict[str, Any]:
    """Bytes of tensors on the device after each of twenty rounds, and their peak in each: flat or growing.

    Peaks are judged with FedAvg, whose steps have one size; how many images FedWCA mixes differs from round to round.
    """
    tf32(False)
    rounds, sizes = (4, [40] * 3) if place.small else (20, [640] * 32)
    found: dict[str, Any] = {"clients": len(sizes), "images": sizes[0]}
    flat = []
    for name in ("fedavg", "wca"):
        run = Run(place, name, "lenet", sizes, "stacked", "fp32", epochs=1)
        held, peaks = [], []
        for _ in range(rounds):
            place.peak()
            run.round()
            held.append(place.held())
            peaks.append(place.peak() or 0)
        found[name] = {"bytes_after_each_round": held, "peak_bytes_in_each": peaks}
        flat.append(set(held[1:]) == {held[1]} and (name == "wca" or max(peaks[1:]) <= peaks[1]))
    return {**found, "met": all(flat) if place.device.startswith("cuda") else None}


PIECES = {f.__name__: f for f in (parity, digit_five, trials, pacs, beside_plain, matrix, kernels, memory)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pieces", nargs="*", choices=[*PIECES, []], help="default: those that have no file yet")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="a rehearsal of a minute")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    if given.device.startswith("cuda") and not torch.cuda.is_available():
        print("there is no CUDA device here; --device cpu --small --out FOLDER rehearses", file=sys.stderr)
        return 1
    if given.out == OUT and (given.small or not given.device.startswith("cuda")):
        print("a rehearsal is no result; give it an --out of its own", file=sys.stderr)
        return 2
    place = Place(given.device, given.small)
    given.out.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in given.pieces or [name for name in PIECES if not (given.out / f"{name}.json").exists()]:
        started = time.perf_counter()
        found = PIECES[name](place)
        result = {"what": (PIECES[name].__doc__ or "").strip(), "small": given.small, **found}
        result |= {"seconds": round(time.perf_counter() - started, 1), "environment": provenance(given.device)}
        keep(given.out / f"{name}.json", result)
        failed = failed or (name == "parity" and not found["met"])
        met = "none set" if found.get("met") is None else found["met"]
        print(f"{name}: {result['seconds']} s, target met: {met}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
