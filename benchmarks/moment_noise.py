"""What noise on moments costs their clusters: ``python benchmarks/moment_noise.py`` writes results/moment_noise.json.

Clients of Digit-Five files upload clipped moments of the source model's BatchNorm inputs with Gaussian noise, as
``fedwca client --clip-moments --noise-moments`` sends them, and FINCH groups them. No client trains.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import torch
from keep import keep
from provenance import provenance
from signatures import DIGITS, Piece, images_of

from fedwca.config.resolve_config import resolve_plan
from fedwca.deploy.privacy import Privacy
from fedwca.engine.input_moments import measure_moments
from fedwca.functional import finch
from fedwca.runs.source_models import source_model
from fedwca.runs.split_trials import split_trial

RESULT = Path(__file__).parent / "results" / "moment_noise.json"
CLIP = 20.0
"""Largest L2 norm of a client's moments."""
NOISE = (0.0, 0.003, 0.01, 0.03, 0.1, 1.0)
CLIENTS = (4, 16)
"""Per target domain."""
IMAGES = 64
"""Training images a client."""
DRAWS = 20


def measure(source: str, clients: int, data: Path) -> dict[str, Any]:
    """Mean adjusted Rand index by noise, and norms of moments before they are clipped."""
    config = resolve_plan({**Piece("digit_five", source, 0, IMAGES, 1e-3).layer(data, data), "clients": clients}).config
    dataset, domain = images_of("digit_five", source, data, data)
    federation = split_trial(config, dataset, domain, 0, 0)
    network = source_model(config, dataset, domain, 0).network
    moments = [measure_moments(network, own.train).float() for own in federation.clients]
    found = {}
    for noise in NOISE:
        privacy = Privacy(CLIP, noise)
        every = [finch(torch.stack([privacy(own) for own in moments]), metric="euclidean") for _ in range(DRAWS)]
        found[str(noise)] = statistics.fmean(federation.metrics.clustering(labels)["ari"] for labels in every)
    norms = [float(own.norm()) for own in moments]
    return {"source": source, "clients": clients, "ari": found, "norms": [min(norms), max(norms)]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with digit_five")
    parser.add_argument("--out", type=Path, default=RESULT, help="file to write")
    given = parser.parse_args()
    rows = [measure(source, clients, given.data) for clients in CLIENTS for source in DIGITS]
    keep(given.out, {"clip": CLIP, "images": IMAGES, "draws": DRAWS, "rows": rows, "environment": provenance("cpu")})
