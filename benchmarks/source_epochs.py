"""What the length of source training does to Source Only (Digit-Five files); keeps results/source_epochs.json."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from digits import layer
from keep import keep

from fedwca import SequentialEngine, init_server
from fedwca.config.resolve_config import resolve_plan
from fedwca.results.environment import describe_environment
from fedwca.runs.load_data import load
from fedwca.runs.records.measure_delivered import list_accuracies
from fedwca.runs.source_models import source_models
from fedwca.runs.split_trials import split_trial

RESULT = Path(__file__).parent / "results" / "source_epochs.json"


def main(data: str) -> None:
    results = []
    for source in ("mnist", "synth"):
        for epochs in (3, 10, 30):
            config = resolve_plan(layer(data, source, source_training={"epochs": epochs})).config
            dataset, source_domain = load(config)
            federation = split_trial(config, dataset, source_domain, 0, 0)
            model = source_models(config, dataset, source_domain, lambda *_: None)[0]
            engine = SequentialEngine(model.network, federation.clients)
            init_server(engine)
            mean = statistics.fmean(list_accuracies(federation.metrics, engine.predict_tests()))
            results.append({"source": source, "epochs": epochs, "seed": 0, "held_out": model.accuracy, "targets": mean})
            print(results[-1], flush=True)
    description = "accuracy in percent of source models, on held-out source images and on the clients' test images"
    keep(RESULT, {"what": description, "results": results, "environment": describe_environment("cpu")})


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "../shared/data")
