"""How many images FedWCA mixes in a step, and how many places a step of all clients has for them.

python benchmarks/mixed.py DATA; about five minutes. Clients of a step have as many places as the one that mixes most;
recorded steps (``--kernels graphs``) have a place for every image, since they cannot depend on it. The count costs the
host one wait a round; this says what it saves.
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
    given = parser.parse_args()
    rounds: list[dict[str, Any]] = []
    real = StepSchedule.__init__

    def watched(plan: StepSchedule, batch: TrialBatch, *rest: Any, **more: Any) -> None:
        real(plan, batch, *rest, **more)
        if not plan._mixed:
            return
        images = mixed = places = 0
        for epoch in plan.epochs:
            for step, spans in enumerate(plan.groups):
                for span in spans:
                    clients = range(span.first, span.stop)
                    images += span.images * len(clients)
                    places += plan.places(epoch, step, span) * len(clients)
                    mixed += sum(plan._mixed[client][epoch - plan.epochs.start][step] for client in clients)
        found = {
            "mixed": mixed / images,
            "places": places / images,
            "all_places_over_counted": 2 / (1 + places / images),
        }
        rounds.append({"round": len(rounds), **{name: round(value, 3) for name, value in found.items()}})

    with tempfile.TemporaryDirectory() as folder, patch.object(StepSchedule, "__init__", watched):
        fedwca.bench(out=f"{folder}/run", **layer(str(given.data), "mnist", **SETTINGS))
    what = (
        "shares of a step's images, of all clients' steps of a FedWCA round on Digit-Five files, source mnist, seed 0"
    )
    keep(
        given.out, {"what": what, "settings": {**SIZES, **SETTINGS}, "rounds": rounds, "environment": provenance("cpu")}
    )
    print(rounds)


if __name__ == "__main__":
    main()
