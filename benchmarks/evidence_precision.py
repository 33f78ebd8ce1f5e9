"""Whether evidence in bfloat16 keeps the labels, on the loop engine; keeps results/evidence_precision.json.

In rounds of FedWCA in float32, each pass without training is made a second time with convolutions and products in
bfloat16, as ``--precision bf16-all`` makes it, and clients' labels are made from both. Kept are the share of images
whose label is the same, by round and client, and the seconds of both passes. Use an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

from keep import keep, refuse_rehearsal
from paper_size import kept_settings
from provenance import provenance
from torch import Tensor

from fedwca import bench
from fedwca.core.messages import Predictions
from fedwca.engine import client_program
from fedwca.engine.sequential.evidence import ClientEvidence
from fedwca.results.read_run import read_run

RESULT = Path(__file__).parent / "results" / "evidence_precision.json"
METHOD = "fedwca"


class BothPrecisions:
    """Makes passes and labels in float32, as the run does, and in bfloat16 beside them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.pairs: dict[int, tuple[Predictions, Predictions]] = {}
        """Predictions of the client at work in float32 and in bfloat16, by the identity of the first."""
        self.same: list[float] = []
        """Percent of images with the same label, a value for each client and round in turn."""
        self.original_pass, self.original_targets = ClientEvidence._pass, client_program.make_targets

    def run_pass(self, evidence: ClientEvidence, row: Tensor) -> Predictions:
        """Predictions in float32; those in bfloat16 are kept."""
        predictions = {}
        for precision in ("bf16-all", "fp32"):
            evidence.replica._forward.precision = precision
            started = time.perf_counter()
            predictions[precision] = self.original_pass(evidence, row)
            self.seconds[precision] += time.perf_counter() - started
        self.pairs[id(predictions["fp32"])] = predictions["fp32"], predictions["bf16-all"]
        return predictions["fp32"]

    def make_targets(self, task: Any, predictions: Any, draws: Tensor, *more: Any) -> Any:
        """Targets in float32; how many labels are the same in bfloat16 is kept."""
        result = self.original_targets(task, predictions, draws, *more)
        lowered = {name: self.pairs[id(value)][1] for name, value in predictions.items()}
        other, _ = self.original_targets(task, lowered, draws, *more)
        self.same.append(float((result[0].labels == other.labels).double().mean()) * 100)
        self.pairs.clear()
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with digit_five")
    parser.add_argument("--source", default="synth", help="source domain")
    parser.add_argument("--samples", type=int, help="at most so many images a client, to rehearse; default: all")
    parser.add_argument("--out", type=Path, default=RESULT, help="file to write")
    options = parser.parse_args()
    refuse_rehearsal(parser, options, "samples")
    size = {"clients": 4, "samples": options.samples, "rounds": 3, "source_models": 1, "trials": 1, "seed": 20}
    data = {"dataset": "digit_five", "data": str(options.data), "source": options.source}
    settings = {"preset": "paper", "baselines": [METHOD], "composed": False, "engine": "loop", "workers": 1}
    environment, both = provenance("cpu"), BothPrecisions()
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(ClientEvidence, "_pass", lambda evidence, row: both.run_pass(evidence, row)),
        patch.object(client_program, "make_targets", both.make_targets),
    ):
        run = read_run(bench(out=Path(folder) / "run", keep="none", **data, **size, **settings).path)
    clients = len(run.domains)
    rounds = [both.same[i : i + clients] for i in range(0, len(both.same), clients)]
    keep(
        options.out,
        {
            "what": "percent of images whose label is the same in bfloat16, by round and client; seconds of all passes",
            "domains": list(run.domains),
            "same_labels": [[round(value, 2) for value in values] for values in rounds],
            "seconds": {precision: round(seconds, 1) for precision, seconds in both.seconds.items()},
            "config": kept_settings(run.config),
            "environment": environment,
        },
    )
    print([round(sum(values) / clients, 2) for values in rounds], dict(both.seconds))


if __name__ == "__main__":
    main()
