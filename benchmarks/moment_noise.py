"""What noise on moments costs their clusters: ``python benchmarks/moment_noise.py`` writes results/moment_noise.json.

Clients with Digit-Five files upload moments of the source model's BatchNorm inputs, clipped and with Gaussian noise as
``fedwca client --clip-moments --noise-moments`` sends them, and FINCH clusters the clients. No client trains.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import torch
from keep import keep
from provenance import provenance
from signature_pieces import DIGITS, SIDE, Piece
from signatures import images_of

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
"""Standard deviations of the noise, in units of `CLIP`."""
CLIENTS = (4, 16)
"""Clients per target domain."""
IMAGES = 64
"""Training images per client."""
DRAWS = 20
"""Draws of the noise; the adjusted Rand index is the mean over them."""


def measure(source: str, clients: int, data: Path) -> dict[str, Any]:
    """Mean adjusted Rand index by noise, and the smallest and largest norm of moments before clipping.

    Args:
        source: source domain.
        clients: per target domain.
        data: folder with digit_five.
    """
    config = resolve_plan({**Piece("digit_five", source, 0, IMAGES, 1e-3).layer(data, data), "clients": clients}).config
    dataset, source_domain = images_of("digit_five", source, SIDE, data, data)
    federation = split_trial(config, dataset, source_domain, 0, 0)
    network = source_model(config, dataset, source_domain, 0).network
    moments = [measure_moments(network, client.train).float() for client in federation.clients]
    ari_by_noise = {}
    for noise in NOISE:
        privacy = Privacy(CLIP, noise)
        clusterings = [
            finch(torch.stack([privacy(client_moments) for client_moments in moments]), metric="euclidean")
            for _ in range(DRAWS)
        ]
        ari_by_noise[str(noise)] = statistics.fmean(
            federation.metrics.clustering(labels)["ari"] for labels in clusterings
        )
    norms = [float(client_moments.norm()) for client_moments in moments]
    return {"source": source, "clients": clients, "ari": ari_by_noise, "norms": [min(norms), max(norms)]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with digit_five")
    parser.add_argument("--out", type=Path, default=RESULT, help="file to write")
    given = parser.parse_args()
    rows = [measure(source, clients, given.data) for clients in CLIENTS for source in DIGITS]
    keep(given.out, {"clip": CLIP, "images": IMAGES, "draws": DRAWS, "rows": rows, "environment": provenance("cpu")})
