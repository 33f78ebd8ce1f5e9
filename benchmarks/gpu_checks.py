"""Pieces of gpu.py that look at one thing: parity, the plain loop, matrix products, kernels, memory; no script."""

from __future__ import annotations

import statistics
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from beside import CLASSES, engine, plain
from by_hand import beside
from gpu_setting import PRECISIONS, Place, Run, candidates, federation, quickest, tf32
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fedwca.engine.stacked.tuning.benchmark import benchmark_kernels, pick_kernels
from fedwca.models import models

KERNELS = {"lenet": (32, 64), "resnet18:weights=none": (9, 64)}
"""Clients at a time and images of each per step, by model."""


def parity(place: Place) -> dict[str, Any]:
    """The two engines on the same round: how far models come apart, by the update's norm.

    Judged in float64. In float32 training makes more of a last digit wherever a unit or a label changes sides, on any
    device, and cuDNN's kernels for LeNet may keep three digits.
    """
    tf32(False)
    distance = engines_apart(replace(place, dtype=torch.float64))
    result = {"float64": distance, "float32": engines_apart(place), "limit": 1e-9, "met": distance <= 1e-9}
    with torch.backends.cudnn.flags(enabled=False):
        return {**result, "float32_without_cudnn": engines_apart(place)}


def engines_apart(place: Place) -> float:
    """The largest distance between a client's models on the two engines after a round, by the norm of its update."""
    sizes = [70, 70, 50, 40] if place.small else [700, 700, 500, 400]
    runs = [Run(place, "wca", "lenet", sizes, name, "fp32", epochs=2) for name in ("loop", "stacked")]
    start = runs[0].engine.bank.clone()
    for run in runs:
        run.round()
    loop_bank, stacked_bank = (run.engine.bank for run in runs)
    return float(((stacked_bank - loop_bank).norm(dim=1) / (loop_bank - start).norm(dim=1)).max())


def beside_plain(place: Place) -> dict[str, Any]:
    """Local epochs of 32 LeNets against a loop over plain modules on the same device, with images on it."""
    tf32(False)
    clients, per_client = (4, 64) if place.small else (32, 2720)
    kernels, measured = quickest(place, "fedavg", "lenet", [per_client] * clients, "fp32")
    plain_epochs = plain(clients, per_client, device=place.device)
    stacked_epochs = engine(clients, per_client, workers=None, device=place.device, kind="stacked", kernels=kernels)
    plain_epochs()
    stacked_epochs()
    plain_seconds, stacked_seconds = [], []
    for _ in range(3):
        plain_seconds.append(place.timed(plain_epochs))
        stacked_seconds.append(place.timed(stacked_epochs))
    round_seconds = Run(
        place, "fedavg", "lenet", [per_client] * clients, "stacked", "fp32", epochs=1, kernels=kernels
    ).seconds(3)
    ratio = statistics.median(plain_seconds) / statistics.median(stacked_seconds)
    return {
        "clients": clients,
        "images": per_client,
        "plain_seconds": plain_seconds,
        "kernels": {"chosen": kernels, "measured": measured},
        "stacked_seconds": stacked_seconds,
        "round_seconds": round_seconds,
        "note": "stacked_seconds: the same epochs, and an average; round_seconds: passes for labels as well",
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
        chosen, _ = quickest(place, "wca", "lenet", sizes, precision)
        seconds = Run(place, "wca", "lenet", sizes, "stacked", precision, epochs=1, kernels=chosen).seconds(2)
        shares[name] = flops / statistics.median(seconds) / rates[name]
    return {"matrix_flops_per_second": rates, "share_achieved": shares, "flops_of_a_round": flops}


def kernels(place: Place) -> dict[str, Any]:
    """Training steps by kernels, model and precision: which are quickest, and whether they give eager's numbers."""
    sizes = {"lenet": (4, 8), "resnet18:weights=none,side=32": (2, 4)} if place.small else KERNELS
    result: dict[str, Any] = {}
    for name, (clients, batch) in sizes.items():
        network = models.build(name).build(CLASSES, seed=0).to(place.device)
        client_images = [client.train for client in federation([batch] * clients, models.build(name).stored_side)]
        images = torch.stack(client_images).to(place.device)
        result[name] = {"clients": clients, "batch": batch, "precisions": {}}
        for precision in ("fp32", "bf16"):
            number_format, allowed = PRECISIONS[precision]
            tf32(allowed)
            measured = benchmark_kernels(network, images, number_format, candidates(place), mixes=True)
            result[name]["precisions"][precision] = {"best": pick_kernels(measured), "candidates": measured}
    return {"models": result}


def by_hand(place: Place) -> dict[str, Any]:
    """A training step of 32 LeNets batched by hand, as the engine does, and by torch.func.vmap."""
    tf32(False)
    return beside(4 if place.small else 32, 8 if place.small else 64, place.device, 3 if place.small else 15)


@contextmanager
def noting_waits(collected: list[warnings.WarningMessage]) -> Iterator[None]:
    """Append torch's warnings inside the context to ``collected``; each wait for the device is one of them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")
    collected += caught


def waits(place: Place) -> dict[str, Any]:
    """How often the host waits for the device in a round of FedWCA, and where, by kernels.

    Recorded steps leave none but the one in which uploads arrive; eager ones count mixed images once.
    """
    tf32(False)
    by_kernels: dict[str, Any] = {}
    for kernels in candidates(place):
        run = Run(place, "wca", "lenet", [32] * 4 if place.small else [640] * 32, "stacked", "fp32", 1, kernels=kernels)
        run.round()
        run.round()
        if not place.device.startswith("cuda"):
            by_kernels[kernels] = None
            continue
        caught: list[warnings.WarningMessage] = []
        run.round(noting_waits(caught))
        places = [
            f"{Path(warning.filename).name}:{warning.lineno}"
            for warning in caught
            if "synchronizing CUDA operation" in str(warning.message)
        ]
        by_kernels[kernels] = {"waits": len(places), "where": Counter(places)}
    return {"by_kernels": by_kernels}


def memory(place: Place) -> dict[str, Any]:
    """Bytes of tensors on the device after each of twenty rounds, and their peak in each: flat or growing.

    Flat: no more in the last ten rounds than in the nine after the first. Peaks are judged with FedAvg, whose steps
    have one size; how many images FedWCA mixes differs from round to round.
    """
    tf32(False)
    rounds, sizes = (4, [40] * 3) if place.small else (20, [640] * 32)
    result: dict[str, Any] = {"clients": len(sizes), "images": sizes[0]}
    flat = []
    for name in ("fedavg", "wca"):
        run = Run(place, name, "lenet", sizes, "stacked", "fp32", epochs=1)
        held, peaks = [], []
        for _ in range(rounds):
            place.peak()
            run.round()
            held.append(place.held())
            peaks.append(place.peak() or 0)
        result[name] = {"bytes_after_each_round": held, "peak_bytes_in_each": peaks}
        half = rounds // 2
        judged = [held] if name == "wca" else [held, peaks]
        flat.append(all(max(values[half:]) <= max(values[1:half]) for values in judged))
    return {**result, "met": all(flat) if place.device.startswith("cuda") else None}
