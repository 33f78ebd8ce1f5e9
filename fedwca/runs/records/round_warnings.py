"""Warnings about a round's record, each kind at most once per run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fedwca.core.count_of import count_of
from fedwca.federated.close_round import Outcome
from fedwca.federated.method import Method
from fedwca.results.low_trust import LABELLED_MODEL, low_trust_note
from fedwca.results.report.warnings import FEW_IMAGES


class WarnOnce:
    """Issues warnings about rounds, each kind at most once per run.

    Args:
        tell: called with each warning.
        told: kinds that were already issued; extended in place.
    """

    def __init__(self, tell: Callable[[str], None], told: set[str] | None = None) -> None:
        self.tell, self.told = tell, set[str]() if told is None else told

    def _once(self, kind: str, message: str) -> None:
        if kind not in self.told:
            self.told.add(kind)
            self.tell(message)

    def _look_at_trust(self, trust: Sequence[float], method: Method, domains: Sequence[str]) -> None:
        if not method.finish and (note := low_trust_note(trust, domains=domains)):
            self._once("trust", note)  # all methods use the same source model
        elif note := low_trust_note(trust, LABELLED_MODEL, domains):
            self._once(f"trust of {method.name}", f"{method.label}: {note}")

    def __call__(
        self, record: Mapping[str, Any], outcome: Outcome, method: Method, domains: Sequence[str] = ()
    ) -> None:
        """Check one round's record and outcome; ``domains``: that of each client, if they are to be named."""
        targets = {client: upload.targets for client, upload in outcome.uploads.items()}
        divisors = [t.notes["divisors"] for t in targets.values() if "divisors" in t.notes]
        if divisors and bool((torch.stack(divisors) <= 0).any()):
            self._once(
                f"divisor {method.name}",
                f"{method.label}: a mean prototype similarity is not above 0, so the selection rule may prefer the "
                "worse label (docs/decisions.md, A13)",
            )
        for client, target in targets.items():
            if record["label_entropy"][client] == 0 and len(target.labels) > FEW_IMAGES:
                self._once(
                    f"collapse {method.name}",
                    f"{method.label}: from round {record['round'] + 1} client {client} gives all its images one label",
                )
            # A labeler that selects clients gives some no weights on purpose.
            if record["dropped"][client] == len(target.labels) and not method.pseudo_labeler.selects_clients:
                self._once(
                    f"no weights {method.name}",
                    f"{method.label}: in round {record['round'] + 1} none of client {client}'s images has a weight "
                    "above 0, and such pseudo-labels train nothing",
                )
        for client, reason in record.get("refused", {}).items():
            self._once(
                f"refused {client} {method.name}",
                f"{method.label}: in round {record['round'] + 1} client {client}'s answer is refused ({reason}); "
                "the mean is made without it",
            )
        self._look_at_trust(record.get("trust", ()), method, domains)
        if warning := outcome.notes.get("warning"):
            self._once(f"clusterer {method.name}", f"{method.label}: {warning}")
        if record["round"] == 0 and method.aggregator.grouping.needs_clusterer and len(outcome.labels) > 1:
            if int(outcome.labels.max()) == 0:
                # More training helps only if models' parameters are compared.
                compares_models = method.clusterer is not None and method.clusterer.neighbour_metric is not None
                reason = (
                    " (too little training in round 0 leaves first layers nearly equal; raise --samples or --epochs)"
                )
                self._once(
                    f"one {method.name}",
                    f"{method.label}: all clients are in one cluster, so this is an average of everybody"
                    f"{reason if compares_models else ''}",
                )
            singles = int((outcome.labels.bincount() == 1).sum())
            if singles and singles < len(outcome.labels):
                self._once(
                    f"alone {method.name}",
                    f"{method.label}: {count_of(singles, 'cluster')} {'has' if singles == 1 else 'have'} a single "
                    "client, whose model would be handed on as it is",
                )
