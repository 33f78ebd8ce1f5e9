"""Old name of `fedwca.federated.round`."""

from __future__ import annotations

from fedwca._deprecated import forward_module

RENAMED = {
    "Turn": "OpenRound",
    "begin": "init_server",
    "prepare": "open_round",
    "conclude": "close_round",
    "play": "run_round",
    "attendance": "sample_clients",
    "source_for": "offer_source",
}

__getattr__ = forward_module(__name__, "fedwca.federated.round", RENAMED)
