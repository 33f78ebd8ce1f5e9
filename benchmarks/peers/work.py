"""The work that every peer does: FedAvg of the plain LeNet over K clients, all floats of a model averaged alike.

Peers differ in how models get to clients and back, and in how many clients run at once.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import torch
from plain import PlainLeNet, train
from torch import Tensor

MARK = "FEDWCA_PEER"
CLASSES = 10


def arguments() -> argparse.Namespace:
    """Sizes, from the command line that `run.py` gives to every peer."""
    parser = argparse.ArgumentParser()
    for name, value in (("clients", 32), ("images", 640), ("epochs", 1), ("rounds", 2), ("workers", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


@cache
def images(client: int, count: int, device: str) -> tuple[Tensor, Tensor]:
    """Float images ``[count, 3, 32, 32]`` and labels ``[count]`` of one client, made once in a process."""
    generator = torch.Generator().manual_seed(client)
    x = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return ((x.float() / 255 - 0.5) / 0.5).to(device), (torch.arange(count) % CLASSES).to(device)


def fresh() -> dict[str, Tensor]:
    """State of the model from which every peer starts."""
    torch.manual_seed(0)
    return floats(PlainLeNet(CLASSES).state_dict())


def floats(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Floating-point tensors of a state, which leaves out BatchNorm's counters, copied to the CPU."""
    return {name: x.detach().cpu().clone() for name, x in state.items() if x.is_floating_point()}


def adapt(state: Mapping[str, Tensor], client: int, count: int, epochs: int, device: str) -> dict[str, Tensor]:
    """The state of a model after one client has trained it for a round."""
    torch.set_num_threads(1)
    model = PlainLeNet(CLASSES).to(device)
    model.load_state_dict(state, strict=False)
    train(model, *images(client, count, device), epochs)
    return floats(model.state_dict())


def cpu() -> float:
    """CPU seconds so far of all processes with this run's mark in their environment, wherever they were started."""
    mark, ticks, total = f"{MARK}={os.environ.get(MARK, '')}".encode(), os.sysconf("SC_CLK_TCK"), 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    fields = (folder / "stat").read_text().rpartition(")")[2].split()
                    total += sum(map(int, fields[11:15]))  # user and system time, its ended children's too
            except OSError:  # it ended in the meantime, or belongs to another user
                continue
    return total / ticks


class Clock:
    """Seconds of each round; the first is a warm-up. Prints a line of JSON at the end."""

    def __init__(self) -> None:
        self.rounds: list[dict[str, float]] = []

    def start(self) -> None:
        self._wall, self._cpu = time.perf_counter(), cpu()

    def stop(self) -> None:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        self.rounds.append({"wall": time.perf_counter() - self._wall, "cpu": cpu() - self._cpu})

    def __call__(self, work: Callable[[], object]) -> None:
        self.start()
        work()
        self.stop()

    def report(self) -> None:
        print("PEER " + json.dumps(self.rounds[1:]), flush=True)
