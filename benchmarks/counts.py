"""Exact counts of what a round does: calls into torch, FLOPs, the largest tensor, and what `fedwca --help` imports.

Unlike times, counts are the same on every machine with one version of torch, so a test compares them with
`counts.json`. After an intended change write the file again and commit it: ``python benchmarks/counts.py --write``.
Without ``--write`` the script names on stderr what differs, and fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from fedwca import Keys, Method, SequentialEngine, Training, init_server, run_round
from fedwca.aggregators import aggregators
from fedwca.clusterers import clusterers
from fedwca.data.federation import ClientImages
from fedwca.engine.stacked import StackedEngine, StackedTrials
from fedwca.engine.stacked import trials_together as several
from fedwca.engine.stacked import worker as alone
from fedwca.engine.stacked.train import train
from fedwca.federated.open_round import open_round
from fedwca.federated.server import Server
from fedwca.models.lenet import LeNet
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.prototype import Prototype
from fedwca.pseudo_labelers.two_model import TwoModel

FILE = Path(__file__).parent / "counts.json"
IMAGES, BATCH, CLASSES = 24, 12, 10
CLIENTS, CLUSTERS, EPOCHS = (2, 4, 8), 2, 1
TRIALS = (2, 3, 5)
COST_EPOCHS, COST_CLUSTERS = 5, 4
OPTIONAL = {"attr", "shellingham"}
"""Packages that rich and typer import only if they happen to be installed."""


class Counting(TorchDispatchMode):
    """Counts the operators that reach the dispatcher, and keeps the bytes of the largest tensor that one allocated."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.bytes = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        self.calls += 1
        input_storages = {storage(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        new_tensors = [
            leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and storage(leaf) not in input_storages
        ]
        self.bytes = max([self.bytes, *(leaf.untyped_storage().nbytes() for leaf in new_tensors)])
        return output


def storage(tensor: Tensor) -> int:
    """Address of a tensor's memory, which all its views share."""
    return tensor.untyped_storage().data_ptr()


def federation(clients: int, images: int = IMAGES) -> list[ClientImages]:
    """Clients with random images and no test images."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (clients, images, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return [ClientImages(x, x[:0]) for x in pixels]


def method(name: str) -> Method:
    """FedAvg as a baseline, or FedWCA without mixup, since how many images mixup adds depends on rounding errors."""
    aggregator = aggregators.build(name)
    labeler = Prototype() if name == "fedavg" else TwoModel(mixup=False)
    clusterer = clusterers.build("true") if aggregator.grouping.needs_clusterer else None
    return Method(name, name, aggregator, labeler, (Shot(),), clusterer)


class Setting:
    """A federation after round 0, so that round 1 can be run repeatedly."""

    def __init__(
        self,
        name: str,
        clients: int,
        clusters: int,
        epochs: int,
        images: int = IMAGES,
        batch: int = BATCH,
        engine: str = "loop",
    ) -> None:
        data = federation(clients, images)
        network = LeNet().build(CLASSES)
        self.engine = (
            StackedEngine(network, data) if engine == "stacked" else SequentialEngine(network, data, "cpu", workers=1)
        )
        self.method, self.training = method(name), Training(epochs=epochs, batch_size=batch)
        self.domains = torch.arange(clients) % clusters
        self.server = self.run(0, init_server(self.engine))

    def run(self, round: int, server: Server | None = None) -> Server:
        """Run a round from ``server``, by default from the state after round 0; returns the server after it."""
        previous = self.server if server is None else server
        return run_round(round, previous, self.method, self.engine, self.training, Keys(0), self.domains)[0]


def calls(name: str) -> dict[str, Any]:
    """Operator calls of a round and bytes of its largest new tensor, by number of clients."""
    result: dict[str, Any] = {"aten_calls": {}, "largest_tensor_bytes": {}}
    for clients in CLIENTS:
        setting = Setting(name, clients, CLUSTERS, EPOCHS)
        with Counting() as counting:
            setting.run(1)
        result["aten_calls"][str(clients)] = counting.calls
        result["largest_tensor_bytes"][str(clients)] = counting.bytes
    return result


def stacked_calls(name: str) -> dict[str, int]:
    """Operator calls of the clients' part of a round on the stacked engine, by number of clients; all must be equal."""
    calls_by_clients = {}
    for clients in CLIENTS:
        setting, counting = Setting(name, clients, CLUSTERS, EPOCHS, engine="stacked"), Counting()
        work = setting.engine.run

        def counted(*arguments: Any, work: Any = work, counting: Counting = counting) -> Any:
            with counting:
                return work(*arguments)

        setting.engine.run = counted  # type: ignore[method-assign]
        setting.run(1)
        calls_by_clients[str(clients)] = counting.calls
    return calls_by_clients


def training_calls(name: str) -> dict[str, int]:
    """Operator calls of training in a round of several trials together, by number of trials; all must be equal."""
    calls_by_trials = {}
    for trials in TRIALS:
        engines = StackedTrials([LeNet().build(CLASSES, seed) for seed in range(trials)], [federation(2)] * trials)
        trial_method, counting = method(name), Counting()

        def counted(*arguments: Any, counting: Counting = counting) -> Any:
            with counting:
                return train(*arguments)

        with patch.object(alone, "train", counted), patch.object(several, "train", counted):
            round_arguments = (trial_method, Training(epochs=EPOCHS, batch_size=BATCH), Keys(0), torch.arange(2))
            parts = {
                i: open_round(0, init_server(engine), round_arguments[0], engine, *round_arguments[1:])
                for i, engine in enumerate(engines.engines)
            }
            engines.run(parts)
        calls_by_trials[str(trials)] = counting.calls
    return calls_by_trials


def flops(name: str) -> int:
    """FLOPs of round 1 for one client."""
    setting = Setting(name, COST_CLUSTERS, COST_CLUSTERS, COST_EPOCHS)
    with FlopCounterMode(display=False) as counter:
        setting.run(1)
    return int(counter.get_total_flops()) // COST_CLUSTERS


def formula(epochs: int, clusters: int) -> float:
    """Cost of a FedWCA round in FedAvg rounds, counted in forward passes; a backward pass counts as two.

    >>> round(formula(5, 4), 4)
    1.375
    """
    return (3 * epochs + clusters + 3) / (3 * epochs + 1)


def imported() -> list[str]:
    """Packages outside the standard library that ``fedwca --help`` loads."""
    code = (
        "import contextlib, io, sys\nbefore = set(sys.modules)\nfrom fedwca.cli import run\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n    run(['--help'])\n"
        "tops = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(' '.join(sorted(top for top in tops - sys.stdlib_module_names if not top.startswith('_'))))"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [name for name in completed.stdout.split() if name not in OPTIONAL]


def counts() -> dict[str, Any]:
    """The content of `counts.json`."""
    costs = {name: flops(name) for name in ("fedavg", "wca")}
    return {
        "torch": torch.__version__.partition("+")[0],
        "round": {name: calls(name) for name in ("fedavg", "wca")},
        "stacked_calls": {name: stacked_calls(name) for name in ("fedavg", "wca")},
        "training_calls_of_trials": {name: training_calls(name) for name in ("fedavg", "wca")},
        "flops_per_client": costs,
        "wca_in_fedavg_rounds": {
            "epochs": COST_EPOCHS,
            "clusters": COST_CLUSTERS,
            "formula": round(formula(COST_EPOCHS, COST_CLUSTERS), 4),
            "measured": round(costs["wca"] / costs["fedavg"], 4),
        },
        "help_imports": imported(),
    }


def differences(now: Any, then: Any, name: str = "") -> Iterator[str]:
    """A line for each value that differs.

    >>> list(differences({"calls": {"2": 7, "4": 9}}, {"calls": {"2": 5, "4": 9}}))
    ['calls.2: 7, in counts.json 5']
    """
    if isinstance(now, dict) and isinstance(then, dict):
        for key in {**then, **now}:
            yield from differences(now.get(key), then.get(key), f"{name}.{key}".lstrip("."))
    elif now != then:
        yield f"{name}: {now}, in counts.json {then}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write counts.json")
    options = parser.parse_args(arguments)
    now = counts()
    text = json.dumps(now, indent=2) + "\n"
    if options.write:
        FILE.write_text(text)
    print(text, end="")
    cost = now["wca_in_fedavg_rounds"]
    print(f"(3E + C + 3) / (3E + 1) = {cost['formula']} at E = {cost['epochs']}, C = {cost['clusters']}; ", end="")
    print(f"measured in FLOPs: {cost['measured']}")
    lines = list(differences(now, json.loads(FILE.read_text())))
    print(*lines, sep="\n", end="\n" if lines else "", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
