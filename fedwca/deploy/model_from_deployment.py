"""Reads a client's final model, or a cluster's model, from a deployment's server, for export."""

from __future__ import annotations

import copy
from pathlib import Path

import torch

from fedwca.core.deployment_files import CHECKPOINT, CONFIG_NAME, SOURCE
from fedwca.core.model_description import ModelDescription
from fedwca.core.network import Network
from fedwca.deploy.describe_deployed import describe_deployed
from fedwca.deploy.flower.config import DeploymentConfig
from fedwca.deploy.protect_single_clients import check_not_single_model
from fedwca.deploy.server_round import make_final_parcels
from fedwca.deploy.session import Session
from fedwca.deploy.state_files import resume_session
from fedwca.deploy.wire_messages import tensors_to_row
from fedwca.errors import CheckpointError, UsageError
from fedwca.export.model_from_run import check_cluster, check_one_holder


def open_deployment(folder: Path) -> Session:
    """Return the server's session after its last finished round.

    Args:
        folder: the deployment's.

    Raises:
        CheckpointError: no round is done yet, or the checkpoint is damaged or of another composition.
        FedwcaError: a file is missing or wrong; names it.
    """
    server = folder / "server"
    session = DeploymentConfig.read(server / CONFIG_NAME).session(server / SOURCE)
    if not (server / CHECKPOINT).is_file():
        raise CheckpointError(f"{folder}: no round is done yet, so there is no model; start `fedwca deploy run`")
    resume_session(session, server / CHECKPOINT)
    return session


def model_of_deployment(
    session: Session, client: int | None = None, cluster: int | None = None
) -> tuple[Network, ModelDescription]:
    """Return a client's or a cluster's model and its description.

    Exactly one of ``client`` and ``cluster`` must be given.

    Args:
        session: after its last finished round; see `open_deployment`.
        client: 0…K-1; its model is the one it would end with if the federation stopped now.
        cluster: 0…C-1.

    Raises:
        UsageError: there is no such client or cluster, it has no model, or not exactly one of the two is given.
        FedwcaError: the model was made from a single client's upload, and the federation's rules refuse to export that.
    """
    state, layout = session.state, session.layout
    check_one_holder(client, cluster)
    if not session.method.aggregator.sends_models:
        raise UsageError("in this method models stay at the clients, so the server has none; export a client's own")
    if client is not None:
        if not 0 <= client < len(state.names):
            raise UsageError(f"--client {client}: this deployment has clients 0 to {len(state.names) - 1}")
        if not state.samples[client]:
            raise UsageError(f"--client {client}: it took part in no round, so there is no model for it")
        parcel = make_final_parcels(session.context, state, [client], {client})[client]
        row = tensors_to_row(parcel.models["sent-0"], layout)
        members, holder = [client], f"client {client}"
    else:
        assert cluster is not None
        rows, labels = state.server.rows, state.server.state.get("labels")
        # After the clusters' rows the server may hold others, such as teachers; numbers that are free have labels, too.
        taken = [0] if labels is None else [k for k, n in zip(labels.tolist(), state.samples, strict=True) if n]
        check_cluster(cluster, taken, "this deployment")
        mixture = torch.eye(len(rows), dtype=state.shares.dtype)[cluster]
        check_not_single_model(session.context, state, mixture, f"the model of cluster {cluster}")
        members, holder = state.shares[cluster].nonzero()[:, 0].tolist(), f"cluster {cluster}"
        row = session.context.mix(mixture, rows)
    network = copy.deepcopy(session.network)
    layout.write(network, row)
    notes = () if session.composition.batch_norm.one_model else (_STATISTICS,)
    description = describe_deployed(
        session.composition, network.state_dict(), holder, state.round, clients=tuple(members), notes=notes
    )
    return network.eval(), description


_STATISTICS = (
    "BatchNorm statistics are those of the server's mean; clients of this deployment have their own, so the file in a "
    "client's folder is the better model for that client."
)
