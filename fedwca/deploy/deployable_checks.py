"""Checks that a method can be deployed and that its options fit together; each error gives the reason."""

from __future__ import annotations

import warnings

import torch

from fedwca.clusterers.each import Each
from fedwca.clusterers.kmeans import KMeans
from fedwca.core.interfaces import Aggregator
from fedwca.core.network import Network
from fedwca.deploy.composition import Composition
from fedwca.deploy.compression import TopKCompressor
from fedwca.deploy.server_context import ModelSignatures
from fedwca.deploy.server_rules import Rules
from fedwca.engine.batch_norm import BatchNormPolicy
from fedwca.engine.client_program import collecting_objectives
from fedwca.engine.input_moments import count_moments
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.randomness import Keys, draw_changes
from fedwca.errors import UsageError
from fedwca.federated.assign_clusters import compare_clients, deal_first_groups
from fedwca.federated.extra_networks import changes_network
from fedwca.federated.method import Method
from fedwca.federated.participation import count_sampled


def check_deployable(method: Method, rounds: int, network: Network, clients: int) -> None:
    """Refuse a method that cannot be deployed.

    Args:
        method: to deploy.
        rounds: R.
        network: the source model with its classifier.
        clients: K, how many clients take part.

    Raises:
        UsageError: the method cannot be deployed; gives the reason.
    """
    prefix = f"method {method.name!r} cannot be deployed:"
    if not rounds:
        raise UsageError(f"{prefix} it has no round; hand the source model out as it is")
    if network.trains_classifier:
        raise UsageError(
            f"{prefix} its clients have labels and train the whole network, and a round of it takes two messages more "
            "(the mean to all clients, their answers back), which deployments do not send yet; `fedwca bench` runs it"
        )
    check_sendable(method.aggregator, prefix)
    if method.adaptation is not None:
        raise UsageError(
            f"{prefix} adaptation {method.adaptation.name!r} works on images that clients predict, for which "
            "deployments have no step yet; `fedwca bench` runs it"
        )
    if extras := [part for part in method.trained if changes_network(part)]:
        raise UsageError(
            f"{prefix} objective {extras[0].name!r} trains networks beside the model, which deployments do not send "
            "yet; `fedwca bench` runs it"
        )
    uploading = collecting_objectives(method.objectives)
    if undeclared := [objective.name for objective in uploading if not objective.has_upload_bounds]:
        raise UsageError(
            f"{prefix} objective {undeclared[0]!r} does not declare by upload_bounds what it uploads, so a server "
            "could refuse nothing"
        )
    if not method.aggregator.sends_models and not uploading:
        raise UsageError(f"{prefix} no model is sent after the source model; each client can adapt it alone")
    if method.clusterer is None:
        return
    if method.clusterer.oracle:
        raise UsageError(f"{prefix} clusterer {method.clusterer.name!r} reads the true domains, which no server knows")
    layout = Layout.of(network)
    source = layout.read(network)
    changes = draw_changes(clients, layout.width, source.dtype)
    with warnings.catch_warnings(action="ignore"):
        try:
            layers = method.clusterer.norm_layers
            moments = {} if layers is None else {str(layers): changes[:, : count_moments(network, layers)].clone()}
            # In place: these are as many models as a round has.
            signatures = ModelSignatures(changes.mul_(1e-3).add_(source), layout, source, measured=moments)
            method.clusterer(signatures)
            compare_clients(method.clusterer, signatures)
        except UsageError as error:
            raise UsageError(f"{prefix} clusterer {method.clusterer.name!r}: {error}") from None


def check_sendable(aggregator: Aggregator, prefix: str) -> None:
    """Refuse an aggregator that needs messages, or state stored at clients, that deployments do not support.

    Raises:
        UsageError: the aggregator needs one; the message is ``prefix`` and the reason.
    """
    obstacles = {
        "asks clients in round 0 already, for which there is no message yet": aggregator.offers_in_round_0,
        "has clients keep control variates, which nobody stores yet": aggregator.infers_gradients,
        "has layers stay with clients, and models travel whole yet": aggregator.local_layers > 0,
        "has clients hold models from earlier rounds, and all are sent yet": aggregator.cached_models > 0,
        "keeps sums of models that are no means of them, which a server refuses yet": not aggregator.rows_are_models,
    }
    for reason in (reason for reason, applies in obstacles.items() if applies):
        raise UsageError(f"{prefix} aggregator {aggregator.name!r} {reason}; `fedwca bench` runs it")


def check_compressible(composition: Composition, network: Network) -> None:
    """Refuse ``--top`` where it would leave out almost nothing or no model is uploaded, and ``--feedback`` without it.

    Raises:
        UsageError: one of these holds.
    """
    if composition.feedback and composition.top is None:
        raise UsageError("--feedback is about what --top leaves out, which is not given")
    layout = Layout.of(network)
    if composition.top is not None and not composition.build().aggregator.sends_models:
        raise UsageError("--top is about models, and in this method none is uploaded")
    if composition.top is None or len(TopKCompressor(layout, composition.top).sparse_positions) > layout.width / 2:
        return
    raise UsageError(
        "--top leaves out nothing here: the first layer and BatchNorm's statistics, which travel whole, are most of "
        f"the {layout.width:,} numbers of this model"
    )


def check_consent(rules: Rules, method: Method) -> None:
    """Refuse objectives that send the uploads of single clients to other clients, unless rule ``alone`` is ``warn``.

    Raises:
        UsageError: the method has such an objective.
    """
    if rules.alone == "refuse" and (uploading := collecting_objectives(method.objectives)):
        raise UsageError(
            f"objective {uploading[0].name!r} sends clients what other clients uploaded, without a mean of two or "
            "more; allow it with --rule alone=warn"
        )


def check_defences(rules: Rules, method: Method, composition: Composition) -> None:
    """Refuse defences that would have no effect, or another effect than documented, with this method.

    Raises:
        UsageError: a defence does not fit; names it and gives the reason.
    """
    aggregator, too_few = method.aggregator, rules.clients < 3
    if not aggregator.sends_models and (rules.norm_bound is not None or rules.robust != "mean"):
        raise UsageError("rules norm_bound and robust are about models, and in this method none is uploaded")
    if rules.norm_bound is not None and too_few:
        raise UsageError(
            f"rule norm_bound compares an update with the round's median, which takes 3 clients; "
            f"there are {rules.clients}"
        )
    if rules.robust == "mean":
        return
    prefix = f"rule robust={rules.robust}"
    if too_few:
        raise UsageError(f"{prefix} acts on means of 3 clients or more; there are {rules.clients}")
    if aggregator.grouping.keeps_models_apart:
        raise UsageError(f"{prefix} acts on means of clients, and aggregator {aggregator.name!r} makes none")
    if not aggregator.averages_groups:
        raise UsageError(f"{prefix} replaces means of clusters, and aggregator {aggregator.name!r} makes others")
    if composition.top is not None:
        raise UsageError(f"{prefix} is by coordinate, and with --top most coordinates of an update are left out")
    if composition.batch_norm is BatchNormPolicy.POOLED:
        raise UsageError(f"{prefix} takes variances by coordinate, which --batch-norm pooled does not; take mixed")


def check_clients_per_round(rules: Rules) -> None:
    """Refuse defences that need more clients in a round than a new deployment would sample.

    Raises:
        UsageError: a round samples fewer than 3 clients; names the defence.
    """
    sampled = count_sampled(rules.clients, rules.participation)
    names = ["norm_bound"] if rules.norm_bound is not None else ["robust"] if rules.robust != "mean" else []
    if names and sampled < 3:
        raise UsageError(f"rule {names[0]} takes 3 clients in a round, and a round asks {sampled} of {rules.clients}")


def check_first_groups(rules: Rules, method: Method, keys: Keys) -> None:
    """Refuse groups that always stop a new deployment in round 0, since one of them is a single client's.

    Args:
        rules: with ``alone`` at ``warn`` nothing stops.
        method: to deploy.
        keys: where the random numbers of its rounds come from.

    Raises:
        UsageError: there is such a group, if all clients answer and no two have equal models.
    """
    clients, grouping, clusterer = rules.clients, method.aggregator.grouping, method.clusterer
    if rules.alone == "warn" or clients == 1 or method.pseudo_labeler.selects_clients:
        return
    if grouping.clients_choose:
        sizes = deal_first_groups(method.aggregator, torch.ones(clients, dtype=torch.bool), keys).bincount().tolist()
        grouped, groups = f"aggregator {method.aggregator.name!r}", f"groups of {', '.join(map(str, sorted(sizes)))}"
        stops = 1 in sizes
    elif grouping.needs_clusterer and isinstance(clusterer, Each | KMeans):
        fewest = clusterer.fewest_clusters(clients)
        grouped, groups = f"clusterer {clusterer.name!r}", f"{fewest} groups or more"
        stops = 2 * fewest > clients
    else:
        return
    if stops:
        raise UsageError(
            f"{grouped} puts {clients} clients into {groups} in round 0, and a group of one stops the run; take larger "
            "groups, or allow it with --rule alone=warn"
        )


def check_noise_coverage(composition: Composition, moments: bool = False) -> None:
    """Refuse clipping and noise that do not cover every upload computed from the client's images.

    Args:
        composition: the composition the client is asked to run.
        moments: whether uploaded moments get clipping and noise too.

    Raises:
        UsageError: something would be uploaded without noise; names it.
    """
    if composition.top is not None:
        raise UsageError("--clip and --noise change every number of an update, and --top then uploads mostly noise")
    method = composition.build()
    aggregator, labeler = method.aggregator, method.pseudo_labeler
    uncovered = sorted(aggregator.reports)
    source = f"aggregator {aggregator.name!r}"
    if aggregator.grouping.clients_choose:
        uncovered = ["the cluster it chooses"]
    if uploading := collecting_objectives(method.objectives):
        uncovered, source = ["more than a model"], f"objective {uploading[0].name!r}"
    if labeler.selects_clients:
        uncovered, source = ["whether its labels are trusted"], f"pseudo-labeler {labeler.name!r}"
    if composition.moments is not None and not moments and not uncovered:
        raise UsageError(
            "--clip and --noise cover the model alone, and with this clusterer a client also uploads moments to be "
            "grouped by, computed from its images; give --clip-moments and --noise-moments too, or leave them out"
        )
    if uncovered:
        raise UsageError(
            f"--clip and --noise cover the model alone, and with {source} a client also uploads "
            f"{' and '.join(uncovered)}, computed from its images; leave them out, or take part in fedavg, fedgma, "
            "one_hot, equal, one_equal or fedamp"
        )
