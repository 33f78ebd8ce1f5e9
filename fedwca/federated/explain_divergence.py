"""Why a client's model is not finite: a component's own values, or else most likely the learning rate."""

from __future__ import annotations

import math
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

    def look(work: ClientWork) -> list[float | None]:
        # An objective may read more than it is given here, which must neither hide the finding nor end one rank alone.
        with suppress(Exception), torch.no_grad():
            start = opened.blend(work).start
            (predictions,), loss = work.outputs(start), float(work.loss(start))
            outputs = (predictions.logits, predictions.features)
            if not math.isfinite(loss) and all(bool(values.isfinite().all()) for values in outputs):
                return [loss]
        return [None]

    # With the rows' own BatchNorm statistics: those that stay with this client are perhaps no longer finite.
    (loss,) = opened.engine.run(
        SingleStep(opened.offer, opened.rows, opened.task, [client], look, as_trained=True, source=opened.source)
    )
    if loss is None:
        return advise_lower(option)
    objectives = names_of(opened.task(client).objectives)
    return f"the loss of {objectives} is {loss} on the model that it started from, whose outputs are finite"
