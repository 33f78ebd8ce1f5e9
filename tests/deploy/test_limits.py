"""Settings that do not go together are refused: defences without effect, noise that leaves an upload uncovered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedwca.aggregators.fedavg import FedAvg
from fedwca.deploy.client import Client
from fedwca.deploy.deployable_checks import check_clients_per_round, check_noise_coverage, check_sendable
from fedwca.deploy.privacy import Privacy
from fedwca.deploy.server_rules import Rules
from fedwca.errors import UsageError
from fedwca.objectives.prototype_contrastive import PrototypeContrastive

from .conftest import Build


@pytest.mark.parametrize(
    ("aggregator", "rules", "sentence"),
    [
        ("fedamp", {"robust": "median"}, "robust=median acts on means of clients, and aggregator 'fedamp' makes none"),
        ("fedavg", {"robust": "median", "clients": 2}, "robust=median acts on means of 3 clients or more; there are 2"),
        ("fedavg", {"norm_bound": 3.0, "clients": 2}, "norm_bound compares .* which takes 3 clients; there are 2"),
        ("ladd", {"robust": "trimmed"}, "replaces means of clusters, and aggregator 'ladd' makes others"),
        ("fedgma", {"robust": "median"}, "replaces means of clusters, and aggregator 'fedgma' makes others"),
    ],
)
def test_a_defence_that_would_do_nothing_is_refused(
    federation: Build, aggregator: str, rules: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        federation(aggregator).session(**rules)


@pytest.mark.parametrize(("rule", "value"), [("norm_bound", 3.0), ("robust", "median")])
def test_a_defence_that_rounds_ask_too_few_for_is_refused(rule: str, value: Any, federation: Build) -> None:
    rules = {rule: value, "participation": 0.5}
    with pytest.raises(UsageError, match=f"rule {rule} takes 3 clients in a round, and a round asks 2 of 4"):
        check_clients_per_round(Rules(clients=4, **rules))
    check_clients_per_round(Rules(clients=4, participation=0.5))
    federation("fedavg").session(**rules)  # a session is not refused: an existing deployment goes on


def test_robust_means_and_pooled_variances_are_two_things(federation: Build) -> None:
    with pytest.raises(UsageError, match="which --batch-norm pooled does not; take mixed"):
        federation("fedavg", batch_norm="pooled").session(robust="median")
    federation("fedavg", batch_norm="pooled").session(norm_bound=3.0)


def test_what_top_does_not_go_with(federation: Build) -> None:
    built = federation("fedavg", top=0.1)
    with pytest.raises(UsageError, match="with --top most coordinates of an update are left out"):
        built.session(robust="median")
    with pytest.raises(UsageError, match="--top then uploads mostly noise"):
        check_noise_coverage(built.session().composition)
    with pytest.raises(UsageError, match="--feedback is about what --top leaves out, which is not given"):
        federation("fedavg", feedback=True).session()


def test_a_model_of_which_nothing_can_be_left_out(federation: Build) -> None:
    built = federation("fedavg", top=0.1)
    built.session()
    built.network.backbone.frozen = True  # then only the bottleneck is trained, and it is the first layer
    with pytest.raises(UsageError, match="--top leaves out nothing here"):
        built.session()


@pytest.mark.parametrize(
    ("aggregator", "left"),
    [
        ("wca", "with aggregator 'wca' a client also uploads alpha and beta"),
        ("revised_wca:u=2", "with aggregator 'revised_wca' a client also uploads alpha and beta"),
        ("one_equal_a", "with aggregator 'one_equal_a' a client also uploads beta"),
        ("ifca", "with aggregator 'ifca' a client also uploads the cluster it chooses"),
    ],
)
def test_noise_that_does_not_cover_everything_is_refused(federation: Build, aggregator: str, left: str) -> None:
    built = federation(aggregator)
    session, (first, *_) = built.session(alone="warn"), built.clients()
    session.admit("client-0", 0)
    client = Client(first.images, privacy=Privacy(1.0, 0.5))
    with pytest.raises(UsageError, match=left):
        client.handle(session.open([0])[0])
    assert client.composition is None


def test_noise_does_not_cover_prototypes(federation: Build) -> None:
    built = federation("fedavg")
    composition = built.session().composition
    check_noise_coverage(composition)
    method = replace(built.method, objectives=(PrototypeContrastive(),))
    with_prototypes = composition.of(method, composition.architecture(), 3)
    with pytest.raises(UsageError, match="with objective 'prototype_contrastive' a client also uploads"):
        check_noise_coverage(with_prototypes)


@pytest.mark.parametrize("aggregator", ["fedavg", "one_hot", "equal", "one_equal", "fedamp"])
def test_what_the_sentence_offers_is_covered(federation: Build, aggregator: str) -> None:
    check_noise_coverage(federation(aggregator).session().composition)


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("cached_models", 1, "has clients hold models from earlier rounds"),
        ("rows_are_models", False, "keeps sums of models that are no means of them"),
    ],
)
def test_what_has_no_message_is_refused(flag: str, value: object, said: str) -> None:
    check_sendable(FedAvg(), "--aggregator fedavg:")
    aggregator = type("Other", (FedAvg,), {flag: value, "name": "other", "__module__": __name__})()
    with pytest.raises(UsageError, match=f"aggregator 'other' {said}"):
        check_sendable(aggregator, "--aggregator other:")
