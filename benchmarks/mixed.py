"""How many images FedWCA mixes in a step, and how many places a step of all clients has for them.

``python benchmarks/mixed.py DATA`` takes about five minutes. All clients of a step have as many places for mixed images
as the client that mixes most. Steps recorded as CUDA graphs (``--kernels graphs``) have a place for every image, since
their shapes cannot depend on the data. Counting makes the host wait for the device once a round; this measures how many
rows it saves.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from digits import SIZES, TRAINING, layer
from keep import keep
from provenance import provenance

import fedwca
from fedwca.engine.stacked.client_batch import TrialBatch
from fedwca.engine.stacked.mini_batches import StepSchedule

SETTINGS = {
    "clusterer": "finch",
    "engine": "stacked",
    "rounds": 5,
    "source_models": 1,
    "baselines": ["source_only"],
    **TRAINING,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "mixed.json")
    options = parser.parse_args()
    rounds: list[dict[str, Any]] = []
    original_init = StepSchedule.__init__

    def record_shares(schedule: StepSchedule, batch: TrialBatch, *positional: Any, **keywords: Any) -> None:
        original_init(schedule, batch, *positional, **keywords)
        if not schedule._mixed:
            return
        images = mixed = places = 0
        for epoch in schedule.epochs:
            for step, groups in enumerate(schedule.groups):
                for group in groups:
                    clients = range(group.first, group.stop)
                    images += group.images * len(clients)
                    places += schedule.places(epoch, step, group) * len(clients)
                    mixed += sum(schedule._mixed[client][epoch - schedule.epochs.start][step] for client in clients)
        shares = {
            "mixed": mixed / images,
            "places": places / images,
            "all_places_over_counted": 2 / (1 + places / images),
        }
        rounds.append({"round": len(rounds), **{name: round(value, 3) for name, value in shares.items()}})

    with tempfile.TemporaryDirectory() as folder, patch.object(StepSchedule, "__init__", record_shares):
        fedwca.bench(out=f"{folder}/run", **layer(str(options.data), "mnist", **SETTINGS))
    description = (
        "shares of a step's images, of all clients' steps of a FedWCA round on Digit-Five files, source mnist, seed 0"
    )
    keep(
        options.out,
        {"what": description, "settings": {**SIZES, **SETTINGS}, "rounds": rounds, "environment": provenance("cpu")},
    )
    print(rounds)


if __name__ == "__main__":
    main()
