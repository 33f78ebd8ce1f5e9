"""Why a client's model is not finite: a component's own values, or else most likely the learning rate."""

from __future__ import annotations

from contextlib import suppress

import torch

from fedwca.engine.client_program import names_of
from fedwca.engine.interface import ClientWork, SingleStep
from fedwca.federated.open_round import OpenRound
from fedwca.federated.simulated_uploads import SimulatedUpload
from fedwca.federated.upload_checks import advise_lower


def explain_divergence(opened: OpenRound, client: int, upload: SimulatedUpload, option: str = "--lr") -> str:
    """What may help, in a phrase that follows the finding and a semicolon.

    The model that the client started from is looked at again: where its outputs are finite and its loss is not, a
    lower learning rate would change nothing.

    Args:
        opened: the round; server rows are finite.
        client: whose model has values that are not finite.
        upload: what it sent.
        option: the command-line option that sets the clients' learning rate.
    """
    if not bool(upload.weights.isfinite().all()):
        return f"aggregator {opened.method.aggregator.name!r}: blend gave it weights that are not finite"

    def look(work: ClientWork) -> list[str]:
        with torch.no_grad():
            start = opened.blend(work).start
            (predictions,), loss = work.outputs(start), work.loss(start)
        outputs = (predictions.logits, predictions.features)
        if bool(loss.isfinite().all()) or not all(bool(values.isfinite().all()) for values in outputs):
            return [""]
        objectives = names_of(opened.task(client).objectives)
        return [
            f"the loss of {objectives} is {float(loss)} on the model that it started from, whose outputs are finite"
        ]

    with suppress(Exception):  # an objective may read more than the look gives it, and this must not hide the finding
        (reason,) = opened.engine.run(SingleStep(opened.offer, opened.rows, opened.task, [client], look))
        return reason or advise_lower(option)
    return advise_lower(option)
