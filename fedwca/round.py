"""Old name of `fedwca.federated.round`."""

from __future__ import annotations

from typing import Any

from fedwca._deprecated import forward_module

RENAMED = {
    "Turn": "OpenRound",
    "begin": "init_server",
    "prepare": "open_round",
    "conclude": "close_round",
    "play": "run_round",
    "attendance": "sample_clients",
}

_in_round = forward_module(__name__, "fedwca.federated.round", RENAMED)
_in_server = forward_module(__name__, "fedwca.federated.server", {"source_for": "offer_source"})


def __getattr__(name: str) -> Any:
    return _in_server(name) if name == "source_for" else _in_round(name)
