"""What a deployed client costs: peak memory, seconds and bytes of the process that answers one message.

    python benchmarks/client_cost.py OUT.json [--images 64]

For LeNet and ResNet-18: round 0, then a round of FedWCA with four clusters (five models sent), each message answered by
a process of its own, as Flower does it. The process loads fedwca and, where it is installed, Flower's client library,
but no network is used. Images and weights are random: neither changes the work. One thread.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from fedwca.config.component_registries import registry_of
from fedwca.config.resolve_config import resolve_plan
from fedwca.deploy.client import Client
from fedwca.deploy.composition import Composition
from fedwca.deploy.state_files import resume_client, save_client
from fedwca.deploy.wire_messages import Parcel, row_to_tensors
from fedwca.engine.client_task import Training
from fedwca.engine.memory import measure_peak_memory
from fedwca.engine.parameter_layout import Layout
from fedwca.results.environment import describe_environment

CLUSTERS, CLASSES = 4, 10


def parcels(model: str) -> list[Parcel]:
    """The messages that a server sends in round 0 and in a later round."""
    architecture = registry_of("model").build({"name": model})
    network = architecture.build(CLASSES, pretrained=False)
    layout = Layout.of(network)
    method = resolve_plan({"aggregator": "wca", "clusterer": "finch", "baselines": []}).methods[-1][0]
    composition = Composition.of(method, architecture, CLASSES, training=Training(epochs=1))
    notes = {"composition": composition.model_dump_json(), "client": 0}
    parameters = layout.read(network)
    sent = {f"sent-{i}": row_to_tensors(parameters * (1 + 1e-3 * i), layout) for i in range(CLUSTERS + 1)}
    return [
        Parcel("train", 0, {"source": network.state_dict()}, notes={"token": "0", "first": 1, "personal": 1, **notes}),
        Parcel("train", 1, sent, notes={"token": "1", "first": 0, "personal": 1}),
    ]


def answer(folder: Path, images: int) -> dict[str, Any]:
    """Answer the message in a folder; returns the memory, seconds and bytes that it took."""
    torch.set_num_threads(1)
    if importlib.util.find_spec("flwr"):
        import flwr.clientapp  # noqa: F401
    libraries_mb = measure_peak_memory() / 1e6
    wall_start, cpu_start = time.perf_counter(), time.process_time()
    parcel = torch.load(folder / "parcel.pt", weights_only=False)
    generator = torch.Generator().manual_seed(0)
    client = Client(
        lambda side, stretch: torch.randint(0, 256, (images, 3, side, side), dtype=torch.uint8, generator=generator)
    )
    if (folder / "client.safetensors").exists():
        resume_client(client, folder / "client.safetensors")
    reply = client.handle(parcel)
    save_client(client, folder / "client.safetensors")
    return {
        **{"round": parcel.round, "models_sent": len(parcel.models), "images": images},
        **{"peak_mb": round(measure_peak_memory() / 1e6), "libraries_mb": round(libraries_mb)},
        "seconds": round(time.perf_counter() - wall_start, 1),
        "cpu_seconds": round(time.process_time() - cpu_start, 1),
        **{"bytes_down": parcel.bytes, "bytes_up": reply.bytes},
        "disk_mb": round((folder / "client.safetensors").stat().st_size / 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--answer", action="store_true", help="OUT is a folder with a message; used by this script.")
    options = parser.parse_args()
    if options.answer:
        print(json.dumps(answer(options.out, options.images)))
        return
    flower = bool(importlib.util.find_spec("flwr"))
    settings = {
        "threads": 1,
        "epochs": 1,
        "clusters": CLUSTERS,
        "flower": flower,
        "environment": describe_environment("cpu"),
    }
    lines = []
    for model in ("lenet", "resnet18"):
        with tempfile.TemporaryDirectory() as folder:
            for parcel in parcels(model):
                torch.save(parcel, Path(folder) / "parcel.pt")
                command = [sys.executable, __file__, folder, "--answer", "--images", str(options.images)]
                completed = subprocess.run(command, capture_output=True, text=True, check=True)
                lines.append({"model": model, **json.loads(completed.stdout.splitlines()[-1])})
                options.out.write_text(json.dumps({**settings, "lines": lines}, indent=1) + "\n")


if __name__ == "__main__":
    main()
