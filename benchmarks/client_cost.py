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
    """Round 0 and a later round, as a server sends them."""
    built = registry_of("model").build({"name": model})
    network = built.build(CLASSES, pretrained=False)
    layout = Layout.of(network)
    method = resolve_plan({"aggregator": "wca", "clusterer": "finch", "baselines": []}).methods[-1][0]
    composition = Composition.of(method, built, CLASSES, training=Training(epochs=1))
    about = {"composition": composition.model_dump_json(), "client": 0}
    row = layout.read(network)
    sent = {f"sent-{i}": row_to_tensors(row * (1 + 1e-3 * i), layout) for i in range(CLUSTERS + 1)}
    return [
        Parcel("train", 0, {"source": network.state_dict()}, notes={"token": "0", "first": 1, "personal": 1, **about}),
        Parcel("train", 1, sent, notes={"token": "1", "first": 0, "personal": 1}),
    ]


def answer(folder: Path, images: int) -> dict[str, Any]:
    """Answer the message in a folder; what it took."""
    torch.set_num_threads(1)
    if importlib.util.find_spec("flwr"):
        import flwr.clientapp  # noqa: F401
    loaded = measure_peak_memory() / 1e6
    wall, cpu = time.perf_counter(), time.process_time()
    parcel = torch.load(folder / "parcel.pt", weights_only=False)
    draws = torch.Generator().manual_seed(0)
    client = Client(
        lambda side, stretch: torch.randint(0, 256, (images, 3, side, side), dtype=torch.uint8, generator=draws)
    )
    if (folder / "client.safetensors").exists():
        resume_client(client, folder / "client.safetensors")
    reply = client.handle(parcel)
    save_client(client, folder / "client.safetensors")
    return {
        **{"round": parcel.round, "models_sent": len(parcel.models), "images": images},
        **{"peak_mb": round(measure_peak_memory() / 1e6), "libraries_mb": round(loaded)},
        "seconds": round(time.perf_counter() - wall, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        **{"bytes_down": parcel.bytes, "bytes_up": reply.bytes},
        "disk_mb": round((folder / "client.safetensors").stat().st_size / 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--answer", action="store_true", help="OUT is a folder with a message; used by this script.")
    given = parser.parse_args()
    if given.answer:
        print(json.dumps(answer(given.out, given.images)))
        return
    flower = bool(importlib.util.find_spec("flwr"))
    about = {
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
                line = [sys.executable, __file__, folder, "--answer", "--images", str(given.images)]
                done = subprocess.run(line, capture_output=True, text=True, check=True)
                lines.append({"model": model, **json.loads(done.stdout.splitlines()[-1])})
                given.out.write_text(json.dumps({**about, "lines": lines}, indent=1) + "\n")


if __name__ == "__main__":
    main()
