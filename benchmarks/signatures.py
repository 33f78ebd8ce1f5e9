"""How well FINCH finds the true domains from different signatures of the same round-0 models (Digit-Five files)."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from digits import SIZES, TRAINING, keep, layer

from fedwca import Keys, SequentialEngine, init_server, run_round
from fedwca.clusterers.finch import Finch
from fedwca.config.resolve_config import resolve_plan
from fedwca.data import DatasetWarning
from fedwca.engine.client_signatures import BankSignatures
from fedwca.results.environment import describe_environment
from fedwca.runs.load_data import load
from fedwca.runs.source_models import source_model
from fedwca.runs.split_trials import split_trial

SIGNATURES = {
    "first layer": Finch(),
    "first layer, update": Finch(reference="source"),
    "second layer": Finch(signature=2),
    "second layer, update": Finch(signature=2, reference="source"),
    "all layers": Finch(signature="all"),
    "all layers, update": Finch(signature="all", reference="source"),
    "BatchNorm statistics": Finch(signature="batch_norm"),
}
SEEDS = (0, 1, 2)


def main(data: str) -> None:
    warnings.simplefilter("ignore", DatasetWarning)
    found = []
    for source in ("mnist", "synth", "mnistm"):
        for seed in SEEDS:
            decided = resolve_plan(layer(data, source, seed=seed, training=TRAINING, aggregator="one_hot"))
            config = decided.config
            dataset, name = load(config)
            federation = split_trial(config, dataset, name, 0, 0)
            engine = SequentialEngine(source_model(config, dataset, name, 0).network, federation.clients)
            server, truth = init_server(engine), federation.metrics.domain_labels()
            run_round(0, server, decided.methods[-1][0], engine, config.training, Keys(seed), truth)
            signatures = BankSignatures(engine.bank, engine.layout, server.source)
            for label, clusterer in SIGNATURES.items():
                measured = federation.metrics.clustering(clusterer(signatures))
                found.append({"source": source, "seed": seed, "signature": label, **measured})
                print(source, seed, label, measured, flush=True)
    result = {
        "what": "FINCH level 0 on models after round 0 (16 clients, 4 per target domain) against the true domains",
        "config": {**SIZES, **TRAINING, "seeds": SEEDS},
        "results": found,
        "environment": describe_environment("cpu"),
    }
    keep(Path(__file__).parent / "results" / "signatures.json", result)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "../shared/data")
