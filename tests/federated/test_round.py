"""Rounds of small compositions: equal special cases, refused reports, counted passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedwca.adaptations.learned import Learned
from fedwca.aggregators import aggregators
from fedwca.aggregators.wca import WCA
from fedwca.clusterers import clusterers
from fedwca.core.interfaces import Aggregator, Clusterer
from fedwca.core.messages import Blend, Simplex
from fedwca.core.network import Network
from fedwca.core.training_settings import Training
from fedwca.data.federation import ClientImages
from fedwca.engine.randomness import Keys
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.errors import Diverged, FedwcaError, UsageError
from fedwca.federated.close_round import Outcome
from fedwca.federated.method import Method
from fedwca.federated.round import init_server, run_round
from fedwca.federated.server import Server
from fedwca.objectives.adapted import AdaptedCrossEntropy
from fedwca.objectives.control import Control
from fedwca.objectives.cross_entropy import CrossEntropy
from fedwca.objectives.digest import Digest
from fedwca.objectives.shot import Shot
from fedwca.objectives.simple_representation import SimpleRepresentation
from fedwca.pseudo_labelers import pseudo_labelers
from fedwca.pseudo_labelers.two_model import TwoModel

DOMAINS = torch.tensor([0, 0, 1, 1])
TRAINING = Training(epochs=1, lr=0.01, batch_size=8)


def method(
    aggregator: str | Aggregator, clusterer: str | Clusterer | None = None, labeler: str = "two_model"
) -> Method:
    built = aggregators.build(aggregator) if isinstance(aggregator, str) else aggregator
    return Method(
        "toy",
        "Toy",
        built,
        pseudo_labelers.build(labeler),
        (Shot(), Control()) if built.infers_gradients else (Shot(),),
        None if clusterer is None else clusterers.build(clusterer),
    )


def rounds(
    loop: SequentialEngine, composed: Method, count: int = 3, domains: Tensor = DOMAINS, training: Training = TRAINING
) -> tuple[Server, list[Outcome]]:
    """Play ``count`` rounds from the network's own weights."""
    server = init_server(loop)
    outcomes = []
    for number in range(count):
        server, outcome = run_round(number, server, composed, loop, training, Keys(1), domains[: len(loop.images)])
        outcomes.append(outcome)
    return server, outcomes


def finals(composed: Method, server: Server) -> Tensor:
    """The models the clients end with ``[K, P]``."""
    weights = composed.aggregator.deliver(server.state, len(server.rows))
    return weights.to(server.rows.dtype) @ server.rows


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("one_hot", "single"), ("fedavg:weighting=uniform", None)),
        (("one_hot:weighting=samples", "single"), ("fedavg", None)),
        (("one_hot", "each"), ("local", None)),
        (("wca", "single"), ("fedavg:weighting=uniform", None)),
        (("one_hot", "true"), ("one_hot", "finch")),
    ],
    ids=lambda pair: "+".join(filter(None, pair)),
)
def test_special_cases_are_equal(loop: SequentialEngine, one: tuple[str, str], other: tuple[str, str | None]) -> None:
    first, second = method(*one), method(*other)
    # Round 0 decides the clusters; if the domains are the clusters of FINCH, the oracle must give the same models.
    truth = rounds(loop, second, 1)[1][0].labels if one[1] == "true" else DOMAINS
    (server, _), (other_server, outcomes) = rounds(loop, first, 3, truth), rounds(loop, second, 3, truth)
    assert torch.allclose(finals(first, server), finals(second, other_server), atol=1e-6)
    assert not torch.equal(server.rows[0], loop.layout.read(loop.network))
    assert len(outcomes) == 3


def test_wca_in_one_cluster_starts_from_the_cluster_model(loop: SequentialEngine) -> None:
    _, outcomes = rounds(loop, method("wca", "single"), 2)
    assert outcomes[1].weights.tolist() == [[1.0]] * 4
    assert all(bool(upload.targets.models_agree.all()) for upload in outcomes[1].uploads.values())


def test_starts_are_mixtures_and_reports_go_to_the_server(loop: SequentialEngine) -> None:
    server, outcomes = rounds(loop, method("wca:ta=1,tb=1", "each"), 3)
    assert outcomes[0].report == {}
    for outcome in outcomes[1:]:
        assert torch.allclose(outcome.weights.sum(1), torch.ones(4, dtype=torch.float64))
        assert outcome.report["alpha"].shape == (4, 4)
        assert outcome.report["beta"].shape == (4, 2)
        assert bool((outcome.weights > 0).all())
    assert not torch.equal(server.state["soft"], torch.eye(4, dtype=torch.float64))


@pytest.mark.parametrize("aggregator", aggregators.names())
def test_one_client(network: Network, images: list[ClientImages], aggregator: str) -> None:
    clusterer = "finch" if aggregators.get(aggregator).grouping.needs_clusterer else None
    loop = SequentialEngine(network, images[:1], "cpu", 1)
    training = TRAINING.model_copy(update={"momentum": 0.0}) if aggregator == "scaffold" else TRAINING
    server, outcomes = rounds(loop, method(aggregator, clusterer), 2, DOMAINS[:1], training)
    assert outcomes[-1].labels.tolist() == [0]
    assert bool(torch.isfinite(server.rows).all())


def test_only_oracles_see_the_domains(loop: SequentialEngine) -> None:
    class Peeping(Clusterer):
        def __call__(self, signatures):  # type: ignore[no-untyped-def]
            return signatures.domains()

    class Marked(Peeping):
        oracle = True

    with pytest.raises(UsageError, match="oracle"):
        rounds(loop, replace(method("one_hot", "single"), clusterer=Peeping()), 1)
    assert torch.equal(rounds(loop, replace(method("one_hot", "single"), clusterer=Marked()), 1)[1][0].labels, DOMAINS)
    assert torch.equal(rounds(loop, method("one_hot", "true"), 1)[1][0].labels, DOMAINS)


def test_a_later_round_needs_the_server_of_the_one_before(loop: SequentialEngine) -> None:
    composed = Method("toy", "Toy", WCA(), TwoModel(), (Shot(),), clusterers.build("true"))
    server = init_server(loop)
    with pytest.raises(UsageError, match="round 2 needs the server that round 1 returned; the first round is 0"):
        run_round(2, server, composed, loop, Training(), Keys(1), torch.zeros(len(loop.images)))


def test_clusters_are_found_once(loop: SequentialEngine) -> None:
    calls = []

    class Counting(Clusterer):
        def __call__(self, signatures):  # type: ignore[no-untyped-def]
            calls.append(signatures.clients)
            return torch.tensor([0, 1, 1, 0])

    _, outcomes = rounds(loop, replace(method("one_hot", "single"), clusterer=Counting()), 3)
    assert calls == [4]
    assert [outcome.labels.tolist() for outcome in outcomes] == [[0, 1, 1, 0]] * 3


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        ({"share": torch.tensor([[0.5, 0.6]])}, "share [0.5, 0.6"),
        ({"share": torch.tensor([[0.5, 0.25, 0.25]])}, "must have shape (2,), not (3,)"),
        ({"share": torch.tensor([[1.5, -0.5]])}, "must be finite and not negative"),
        ({"share": torch.tensor([[torch.nan, 1]])}, "must be finite and not negative"),
        (
            {"share": torch.tensor([[1.0, 0.0]]), "other": torch.tensor([[1.0, 0.0]])},
            "is no report that the aggregator declares",
        ),
        ({}, "reports no share"),
    ],
    ids=["sum", "shape", "negative", "nan", "undeclared", "missing"],
)
def test_a_wrong_report_is_refused(loop: SequentialEngine, report: dict[str, Tensor], sentence: str) -> None:
    class Reporting(WCA):
        reports = {"share": Simplex(2)}

        def blend(self, round, view):  # type: ignore[no-untyped-def]
            return Blend(view.own, report=report)

    with pytest.raises(FedwcaError) as caught:
        rounds(loop, method(Reporting(), "each"), 2)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("client 0's upload is refused: aggregator 'wca': ")


@pytest.mark.parametrize("labeler", ["prototype", "prototype:renew=epoch", "two_model"])
def test_diverging_names_the_client(loop: SequentialEngine, labeler: str) -> None:
    wild = Training(epochs=3, lr=1e30, batch_size=8)
    with pytest.raises(Diverged, match=r"client 0's model has values that are not finite; a lower --lr"):
        rounds(loop, method("local", None, labeler), 2, training=wild)


@pytest.mark.parametrize(
    ("aggregator", "clusterer", "labeler", "expected"),
    [
        ("fedavg", None, "prototype", [1, 1, 1]),
        ("local", None, "prototype", [1, 1, 1]),
        ("one_hot", "true", "two_model", [1, 1, 1]),
        # C soft models, own, mixed, start; the own model's pass also labels (C = 2).
        ("wca", "true", "two_model", [1, 5, 5]),
        ("wca", "each", "two_model", [1, 7, 7]),
        ("wca", "true", "prototype", [1, 5, 5]),
    ],
)
def test_passes_are_counted(
    loop: SequentialEngine, aggregator: str, clusterer: str | None, labeler: str, expected: list[int]
) -> None:
    _, outcomes = rounds(loop, method(aggregator, clusterer, labeler), 3)
    assert [[upload.passes for upload in outcome.uploads.values()] for outcome in outcomes] == [
        [n] * 4 for n in expected
    ]


def test_labels_renewed_each_epoch_cost_a_pass_each(loop: SequentialEngine) -> None:
    training = Training(epochs=3, lr=0.01, batch_size=8)
    _, outcomes = rounds(loop, method("local", None, "prototype:renew=epoch"), 2, training=training)
    assert [upload.passes for upload in outcomes[1].uploads.values()] == [3] * 4


def test_a_round_is_a_function_of_its_arguments(loop: SequentialEngine) -> None:
    composed = method("wca:ta=1,tb=1", "true")
    first, second = rounds(loop, composed)[0], rounds(loop, composed)[0]
    assert torch.equal(first.rows, second.rows)
    server = init_server(loop)
    again = run_round(0, server, composed, loop, TRAINING, Keys(1, trial=1), DOMAINS)[0]
    assert not torch.equal(again.rows, run_round(0, server, composed, loop, TRAINING, Keys(1), DOMAINS)[0].rows)


def test_the_classifier_stays_as_it_was(loop: SequentialEngine) -> None:
    before = {name: tensor.clone() for name, tensor in loop.network.state_dict().items()}
    rounds(loop, method("wca", "true"), 2)
    assert all(torch.equal(tensor, before[name]) for name, tensor in loop.network.state_dict().items())


def test_each_client_is_told_when_done(loop: SequentialEngine) -> None:
    finished: list[int] = []
    server = init_server(loop)
    run_round(0, server, method("fedavg"), loop, TRAINING, Keys(1), DOMAINS, done=finished.append)
    assert sorted(finished) == [0, 1, 2, 3]


def test_two_models_disagree_once_starts_are_mixed(loop: SequentialEngine) -> None:
    composed = replace(method("wca:ta=10,tb=10", "each"), pseudo_labeler=TwoModel())
    training = Training(epochs=2, lr=0.1, batch_size=8)
    _, outcomes = rounds(loop, composed, 3, training=training)
    assert sum(int((~upload.targets.models_agree).sum()) for upload in outcomes[-1].uploads.values()) > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objectives": (SimpleRepresentation(),)}, "'simple_representation' trains networks beside the model"),
        ({"objectives": (AdaptedCrossEntropy(),), "adaptation": Learned()}, "'learned' trains networks beside the"),
        ({"objectives": (AdaptedCrossEntropy(),)}, "trains through a step of an adaptation"),
        ({"objectives": (Shot(), Control())}, "'control' reads the model 'control', which aggregator 'fedavg'"),
        ({"objectives": (CrossEntropy(), Digest())}, "'digest' trains on public images"),
    ],
    ids=str,
)
def test_what_a_round_alone_would_leave_out_is_refused(
    loop: SequentialEngine, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        rounds(loop, replace(method("fedavg"), **changes), 1)


def test_a_round_trains_as_the_method_says(loop: SequentialEngine) -> None:
    own = Training(epochs=1, lr=0.03, batch_size=8)
    expected, _ = rounds(loop, method("fedavg"), 1, training=own)
    server, _ = rounds(loop, replace(method("fedavg"), training=own), 1)
    assert torch.equal(server.rows, expected.rows)
