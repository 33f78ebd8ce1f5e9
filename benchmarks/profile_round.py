"""Where the time of a round goes with all images of Digit-Five, on the loop engine; keeps results/profile_round.json.

Seconds by phase of FedAvg and FedWCA, summed over clients, in the second round, which is the first that mixes models.
``fedwca bench --profile`` prints the same for any run, as a mean over its rounds. Use an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from keep import keep, refuse_rehearsal
from paper_size import kept_settings
from provenance import provenance

from fedwca import bench
from fedwca.results.read_run import read_run

RESULT = Path(__file__).parent / "results" / "profile_round.json"
ROUND = 1
METHODS = ("fedavg", "fedwca")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with digit_five")
    parser.add_argument("--source", default="synth", help="source domain")
    parser.add_argument("--samples", type=int, help="at most so many images a client, to rehearse; default: all")
    parser.add_argument("--out", type=Path, default=RESULT, help="file to write")
    options = parser.parse_args()
    refuse_rehearsal(parser, options, "samples", "source")
    size = {"clients": 4, "samples": options.samples, "rounds": ROUND + 1, "source_models": 1, "trials": 1, "seed": 20}
    data = {"dataset": "digit_five", "data": str(options.data), "source": options.source}
    settings = {"preset": "paper", "baselines": METHODS, "composed": False, "engine": "loop", "workers": 1}
    environment = provenance("cpu")
    with tempfile.TemporaryDirectory() as folder:
        run = read_run(bench(out=Path(folder) / "run", keep="none", **data, **size, **settings).path)
        seconds = {
            label: next(r["seconds"] for r in run.rounds(name) if r["round"] == ROUND)
            for name, label in run.labels.items()
        }
    description = "seconds by phase of one round, summed over clients; round: by the clock"
    keep(
        options.out,
        {
            "what": description,
            "round": ROUND,
            "clients": len(run.domains),
            "seconds": seconds,
            "config": kept_settings(run.config),
            "environment": environment,
        },
    )
    for label, phases in seconds.items():
        print(label, {phase: round(value, 2) for phase, value in phases.items()}, flush=True)


if __name__ == "__main__":
    main()
