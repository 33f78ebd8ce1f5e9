"""A client that joins late does what the others did before, and changes nothing but itself."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from fedwca.adaptations.entropy import Entropy
from fedwca.aggregators.fedavg import FedAvg
from fedwca.aggregators.ifca import IFCA
from fedwca.aggregators.ladd import LaddAggregator
from fedwca.aggregators.local import Local
from fedwca.aggregators.one_hot import OneHot
from fedwca.aggregators.revised_wca import RevisedWCA
from fedwca.aggregators.wca import WCA
from fedwca.clusterers.ada_bn import AdaBN
from fedwca.clusterers.finch import Finch
from fedwca.clusterers.kmeans import KMeans
from fedwca.clusterers.ladd import LaddClusterer
from fedwca.clusterers.true import TrueDomains
from fedwca.core.interfaces import Aggregator, Clusterer
from fedwca.core.messages import Offer, Predictions, Signatures, State
from fedwca.core.network import Network
from fedwca.core.training_settings import SourceTraining, Training
from fedwca.data.dataset import Domain
from fedwca.data.federation import ClientImages
from fedwca.engine.batch_norm import BatchNormPolicy
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.randomness import Keys
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.sequential.worker import ClientWorker
from fedwca.errors import UsageError
from fedwca.export.delivered_accuracy import classify
from fedwca.federated.method import Method
from fedwca.federated.round import init_server, run_round
from fedwca.federated.source_model import pretrain
from fedwca.functional import Metric, finch, mutual_information, tempered_softmax
from fedwca.models.lenet import LeNet
from fedwca.newcomers.choose_cluster import ClusterAssignment
from fedwca.newcomers.join import join
from fedwca.newcomers.load_federation import TrainedFederation
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.trusted import Trusted
from fedwca.pseudo_labelers.two_model import TwoModel
from fedwca.runs.records.nearest_clients import nearest_clients

TRUTH = torch.tensor([0, 0, 1, 1, 2, 2])
TRAINING = Training(epochs=1, lr=0.003, batch_size=8)


def tinted(domain: int, seed: int, n: int = 16) -> Tensor:
    """Noise in the colour of a domain; every second image has a bright square in the middle."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 60, (n, 3, 32, 32), dtype=torch.uint8, generator=generator)
    images[:, domain] += 60
    images[1::2, :, 8:24, 8:24] += 100
    return images


@cache
def source() -> Network:
    """A source model trained on grey images with and without a bright square."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 120, (64, 32, 32, 1), dtype=torch.uint8, generator=generator)
    images = images.expand(-1, -1, -1, 3).clone()
    images[1::2, 8:24, 8:24] += 100
    grey = Domain("grey", images.numpy(), torch.arange(64).numpy() % 2)
    training = SourceTraining(epochs=5, lr=0.01, batch_size=8)
    return pretrain(grey, ("plain", "square", "other"), LeNet(bottleneck=16), training, seed=0).network


@cache
def federation(
    aggregator: Aggregator, clusterer: Clusterer | None = None, rounds: int = 2, **fields: object
) -> TrainedFederation:
    """A federation of six clients in three colours after some rounds; ``fields`` replace fields of the result."""
    clients = [ClientImages(tinted(int(d), k), tinted(0, 0, 0)) for k, d in enumerate(TRUTH)]
    network, keys = source(), Keys(0)
    needs_clusterer = aggregator.grouping.needs_clusterer
    clusterer = (clusterer or Finch()) if needs_clusterer else None
    method = Method("made", "Made", aggregator, TwoModel(), (Shot(),), clusterer)
    engine = SequentialEngine(network, clients, "cpu", 2)
    server, labels = init_server(engine), torch.zeros(len(clients), dtype=torch.int64)
    for number in range(rounds):
        server, outcome = run_round(number, server, method, engine, TRAINING, keys, TRUTH)
        labels = outcome.labels
    return replace(TrainedFederation(method, network, clients, server, labels, TRAINING, keys), **fields)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def weighted() -> TrainedFederation:
    """A federation by FedWCA whose clusters are the colours."""
    return federation(WCA(), TrueDomains())


@pytest.mark.parametrize("domain", range(3))
def test_a_newcomer_finds_its_colour(weighted: TrainedFederation, domain: int) -> None:
    choice = join(weighted, tinted(domain, 77)).choice
    assert (choice.by, choice.cluster) == ("update", domain)
    assert int(TRUTH[choice.member]) == domain
    assert choice.ranked[0] == domain
    assert choice.runner_up == choice.ranked[1] != domain
    assert choice.margin == pytest.approx(float(choice.scores.sort().values[1] - choice.scores.min()))


def test_whoever_was_there_is_its_own_first_neighbour(weighted: TrainedFederation) -> None:
    """A newcomer with the images and the draws of a client repeats its round 0 exactly: their distance is 0."""
    without_last = replace(weighted, clients=weighted.clients[:5], labels=weighted.labels[:5])
    choice = join(without_last, weighted.clients[5].train).choice
    assert (choice.cluster, choice.member) == (2, 4)
    with_twin = replace(without_last, clients=[*weighted.clients[:4], weighted.clients[5]])
    drawn_alike = replace(with_twin, keys=lambda round, client, purpose: weighted.keys(round, min(client, 4), purpose))
    assert float(join(drawn_alike, weighted.clients[5].train).choice.scores[2]) < 1e-15


def test_assignments_are_ranked_by_their_scores() -> None:
    """Alignment is better the larger it is, a distance of updates the smaller."""
    scores = torch.tensor([0.1, 0.5, 0.9, 0.3])
    by_alignment, by_update = (ClusterAssignment(c, by, scores, 0) for c, by in ((2, "alignment"), (0, "update")))  # type: ignore[arg-type]
    assert (by_alignment.ranked, by_alignment.runner_up) == ([2, 1, 3, 0], 1)
    assert (by_update.ranked, by_update.runner_up) == ([0, 3, 1, 2], 3)
    assert (by_alignment.margin, by_update.margin) == (pytest.approx(0.4), pytest.approx(0.2))


def test_alignment_takes_the_largest_alpha(weighted: TrainedFederation) -> None:
    joined = join(weighted, tinted(1, 5), by="alignment")
    choice, aggregator = joined.choice, weighted.method.aggregator
    assert isinstance(aggregator, WCA)
    assert choice.by == "alignment"
    assert choice.cluster == int(joined.report["alpha"].argmax())
    torch.testing.assert_close(tempered_softmax(choice.scores, aggregator.ta), joined.report["alpha"])


@pytest.mark.parametrize("by", ["update", "alignment"])
def test_the_start_is_what_eq_8_says(weighted: TrainedFederation, by: str) -> None:
    """Weights are beta0 · own cluster + beta1 · alpha · soft; the model is the server's rows mixed by them."""
    joined = join(weighted, tinted(2, 5), by=by)  # type: ignore[arg-type]
    own_cluster = torch.nn.functional.one_hot(torch.tensor(joined.choice.cluster), 3).double()
    alpha, beta, soft = joined.report["alpha"], joined.report["beta"], weighted.server.state["soft"]
    torch.testing.assert_close(joined.weights, beta[0] * own_cluster + beta[1] * alpha @ soft)
    expected = joined.weights.float() @ weighted.server.rows
    torch.testing.assert_close(Layout.of(joined.network).read(joined.network), expected)
    assert joined.weights.sum() == pytest.approx(1)


def information(network: Network, images: Tensor) -> float:
    with torch.no_grad():
        logits, _ = network.eval()(network.prepare(images))
    return float(mutual_information(logits.double()))


def test_a_newcomers_trust_is_that_of_the_source_model(weighted: TrainedFederation) -> None:
    images = tinted(2, 5)
    assert join(weighted, images).trust == pytest.approx(information(source(), images), abs=1e-5)


def test_without_a_blend_it_gets_the_clusters_model() -> None:
    trained = federation(OneHot(), TrueDomains())
    joined = join(trained, tinted(1, 9))
    assert joined.weights.tolist() == [0, 1, 0]
    torch.testing.assert_close(Layout.of(joined.network).read(joined.network), trained.server.rows[1])


@pytest.mark.parametrize(
    ("aggregator", "clusterer", "by"),
    [
        (FedAvg(), None, "alone"),
        (IFCA(clusters=2), None, "loss"),
        (RevisedWCA(u=3), LaddClusterer(), "update"),
        (WCA(), KMeans(least=3, most=3), "update"),
        (WCA(), Finch(signature="all", reference="source", metric="euclidean"), "update"),
    ],
)
def test_every_kind_of_method_has_a_place(aggregator: Aggregator, clusterer: Clusterer | None, by: str) -> None:
    trained = federation(aggregator, clusterer, rounds=3)
    joined = join(trained, tinted(0, 5))
    assert joined.choice.by == ("alone" if by == "update" and int(trained.labels.max()) == 0 else by)
    assert joined.weights.sum() == pytest.approx(1)
    assert classify(joined.network, tinted(0, 6)).shape == (16,)
    if by == "update" and isinstance(clusterer, KMeans | LaddClusterer):
        assert joined.choice.cluster == int(trained.labels[0])


@pytest.mark.parametrize("domain", range(3))
def test_a_cluster_that_nobody_chose_may_be_chosen(domain: int) -> None:
    trained = federation(IFCA(clusters=3), None, rounds=2)
    chosen = join(trained, tinted(domain, 9)).choice.cluster
    joined = join(replace(trained, labels=torch.full_like(trained.labels, (chosen + 1) % 3)), tinted(domain, 9))
    assert joined.choice.cluster == chosen
    assert len(joined.choice.scores) == len(trained.server.rows) == 3
    assert joined.weights.tolist() == torch.eye(3)[joined.choice.cluster].tolist()


def test_a_teacher_is_no_cluster() -> None:
    trained = federation(LaddAggregator(start=1), TrueDomains(), rounds=3)
    assert len(trained.server.rows) == 6
    choice = join(trained, tinted(1, 9), by="alignment").choice
    assert (choice.by, len(choice.scores)) == ("alignment", 3)
    assert int(trained.labels[choice.member]) == choice.cluster


class MeanForAll(OneHot):
    """Sends everybody the mean of all clients beside the own cluster's model."""

    name = "mean_for_all"

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """The own cluster's model, and the mean."""
        return Offer(super().offer(state, round, rows).personal, torch.full((1, len(rows)), 1 / len(rows)))


def test_models_that_are_shared_beside_clusters_are_no_clusters() -> None:
    choice = join(federation(MeanForAll(), TrueDomains()), tinted(1, 9), by="alignment").choice
    assert len(choice.scores) == 3
    plain = join(federation(OneHot(), TrueDomains()), tinted(1, 9), by="alignment").choice
    assert choice.cluster == plain.cluster


@pytest.mark.parametrize("by", ["update", "alignment"])
@pytest.mark.parametrize("epochs", [0, 2])
def test_nobody_else_changes(weighted: TrainedFederation, by: str, epochs: int) -> None:
    def everything() -> list[Tensor]:
        network = weighted.network.state_dict()
        tensors = [weighted.server.rows, weighted.server.source, weighted.labels, *weighted.server.state.values()]
        return [t.clone() for t in (*tensors, *network.values(), *(c.train for c in weighted.clients))]

    tensors_before, images = everything(), tinted(1, 3)
    images_before = images.clone()
    join(weighted, images, by=by, epochs=epochs)  # type: ignore[arg-type]
    assert all(torch.equal(a, b) for a, b in zip(tensors_before, everything(), strict=True))
    assert torch.equal(images, images_before)


def test_adaptation_goes_on_from_the_start(weighted: TrainedFederation) -> None:
    images = tinted(1, 3)
    plain, adapted, repeated = (join(weighted, images, epochs=epochs) for epochs in (0, 2, 2))
    assert torch.equal(plain.weights, adapted.weights)
    for name, value in adapted.network.state_dict().items():
        assert torch.equal(value, repeated.network.state_dict()[name]), "the same draws every time"
        if name.startswith("classifier"):
            assert torch.equal(value, plain.network.state_dict()[name]), "the classifier stays frozen"
    first = "backbone.conv1.weight"
    assert not torch.equal(plain.network.state_dict()[first], adapted.network.state_dict()[first])


def test_a_newcomer_trains_its_epochs_at_the_rate_that_was_set(
    weighted: TrainedFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 images in batches of 8 are two steps an epoch; a federation may count steps and end at a rate of 0."""
    scheduled = TRAINING.model_copy(update={"epochs": None, "steps": 5, "cosine": 4, "decay": 0.5})
    take_step, taken = ClientWorker._step, list[None]()
    monkeypatch.setattr(ClientWorker, "_step", lambda *given, **named: (taken.append(None), take_step(*given, **named)))
    networks = []
    for training in (TRAINING, scheduled):
        joined = join(replace(weighted, training=training), tinted(1, 3), by="alignment", epochs=3)
        networks.append(joined.network.state_dict())
        assert len(taken) == 3 * 2
        taken.clear()
    assert all(torch.equal(value, networks[1][name]) for name, value in networks[0].items())


@pytest.mark.parametrize(("adaptation", "lr"), [(Entropy(), 0.002), (Entropy(lr=0.3), 0.15)])
def test_an_adaptations_rate_follows_the_schedule(
    adaptation: Entropy, lr: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In round 1 of a rate that is a quarter after two, it is half of what was set."""
    rates = list[float]()
    adapt = SequentialEngine.adapt
    monkeypatch.setattr(
        SequentialEngine, "adapt", lambda self, by, lr, *rest: (rates.append(lr), adapt(self, by, lr, *rest))[1]
    )
    training = TRAINING.model_copy(update={"lr": 0.004, "decay": 0.25, "decay_rounds": 2})
    trained = federation(FedAvg(), training=training, round=1)
    join(trained, tinted(1, 3), adaptation=adaptation)
    assert rates == [pytest.approx(lr)]


@pytest.mark.parametrize("policy", ["local", "recalibrated", "pooled"])
def test_batch_norm_statistics_follow_the_run(policy: str) -> None:
    trained = federation(OneHot(), TrueDomains())
    plain = join(trained, tinted(1, 3)).network.state_dict()
    joined = join(replace(trained, batch_norm=BatchNormPolicy(policy)), tinted(1, 3)).network.state_dict()
    unchanged = {name for name in plain if torch.equal(plain[name], joined[name])}
    changed = set(plain) - unchanged
    assert changed == (set() if policy == "pooled" else {"norm.running_mean", "norm.running_var"})


@pytest.mark.parametrize("clusterer", [LaddClusterer(), AdaBN()], ids=lambda clusterer: clusterer.name)
def test_nothing_is_trained_where_no_trained_model_is_compared(
    clusterer: Clusterer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = federation(OneHot(), clusterer)
    monkeypatch.setattr(ClientWorker, "train", None)
    choice = join(trained, tinted(1, 77), done=pytest.fail).choice
    assert (choice.by, int(TRUTH[choice.member])) == ("update", 1)


def test_statistics_that_stay_with_clients_are_measured_at_one_that_trains_nothing() -> None:
    trained = replace(federation(OneHot(), AdaBN(layers="all")), batch_norm=BatchNormPolicy.LOCAL)
    network = join(trained, tinted(1, 3)).network
    images = network.prepare(tinted(1, 3))
    features = []
    handle = network.norm.register_forward_hook(lambda _, inputs, __: features.append(inputs[0]))
    with torch.no_grad():
        network(images)
    handle.remove()
    torch.testing.assert_close(network.norm.running_mean, features[0].mean(0), atol=1e-3, rtol=1e-3)


def test_what_cannot_be_joined_is_said(weighted: TrainedFederation) -> None:
    with pytest.raises(UsageError, match="at least 2 images"):
        join(weighted, tinted(0, 1, 1))
    with pytest.raises(UsageError, match="epochs=-1: takes 0 or more"):
        join(weighted, tinted(0, 1), epochs=-1)
    with pytest.raises(UsageError, match="by='aligment': takes update or alignment"):
        join(weighted, tinted(0, 1), by="aligment")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="keeps every client's model apart"):
        join(federation(Local()), tinted(0, 1))
    with pytest.raises(UsageError, match="has no rounds"):
        join(federation(FedAvg(), rounds=0), tinted(0, 1))


class Statistics(Clusterer):
    """A plugin's clusterer: FINCH on BatchNorm statistics by Euclidean distance."""

    @property
    def neighbour_metric(self) -> Metric | None:
        """The metric of `client_vectors`."""
        return "euclidean"

    def client_vectors(self, signatures: Signatures) -> tuple[Tensor, Metric] | None:
        """BatchNorm statistics."""
        return signatures.batch_norm_statistics(), "euclidean"

    def __call__(self, signatures: Signatures) -> Tensor:
        """The finest clusters."""
        return finch(signatures.batch_norm_statistics(), metric="euclidean")


def test_a_clusterer_from_elsewhere_says_what_newcomers_are_compared_by() -> None:
    trained = federation(OneHot(), Statistics())
    choice = join(replace(trained, clients=trained.clients[:5], labels=trained.labels[:5]), tinted(1, 77)).choice
    builtin, five = Finch(signature="batch_norm", metric="euclidean"), replace(trained, labels=trained.labels[:5])
    alike = replace(five, clients=trained.clients[:5], method=replace(trained.method, clusterer=builtin))
    assert torch.equal(join(alike, tinted(1, 77)).choice.scores, choice.scores)
    by_domain = replace(alike, method=replace(trained.method, clusterer=TrueDomains()))
    assert not torch.equal(join(by_domain, tinted(1, 77)).choice.scores, choice.scores), "those that read none: layer 1"


@pytest.mark.parametrize(
    ("clusterer", "recorded"),
    [(Statistics(), True), (Finch(), True), (KMeans(), True), (LaddClusterer(), False), (TrueDomains(), False)],
    ids=lambda value: getattr(value, "name", "") or type(value).__name__,
)
def test_a_clusterer_says_whether_nearest_clients_are_recorded(clusterer: Clusterer, recorded: bool) -> None:
    clients = [ClientImages(tinted(k, k), tinted(0, 0, 0)) for k in range(3)]
    method = Method("made", "Made", OneHot(), TwoModel(), (Shot(),), clusterer)
    engine = SequentialEngine(source(), clients, "cpu", 1)
    server, _ = run_round(
        0,
        init_server(engine),
        replace(method, clusterer=TrueDomains()),
        engine,
        TRAINING,
        Keys(0),
        torch.tensor([0, 0, 1]),
    )
    record = nearest_clients(method, engine, server.source)
    assert set(record) == ({"nearest", "margins"} if recorded else set())


def test_no_nearest_clients_are_recorded_where_an_update_has_no_direction() -> None:
    """A client of a single image does not train; k-means compares updates by distance, neighbours by direction."""
    clients = [ClientImages(tinted(k, k, n), tinted(0, 0, 0)) for k, n in enumerate((16, 16, 1))]
    method = Method("made", "Made", OneHot(), TwoModel(), (Shot(),), KMeans(reference="source"))
    engine = SequentialEngine(source(), clients, "cpu", 1)
    server, _ = run_round(0, init_server(engine), method, engine, TRAINING, Keys(0), torch.arange(3))
    assert nearest_clients(method, engine, server.source) == {}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The mutual information of the outputs that trust was asked of, each time; nobody is trusted."""
    values: list[float] = []

    def trust(self: Trusted, source: Predictions) -> Tensor:
        values.append(float(mutual_information(source.logits.double())))
        return torch.zeros((), dtype=torch.float64)

    monkeypatch.setattr(Trusted, "trust", trust)
    return values


def test_trust_is_asked_once_before_anything_is_trained(asked: list[float]) -> None:
    """By update, a newcomer trains the source model to choose, and BatchNorm statistics may stay on the network."""
    trained = federation(OneHot(), TrueDomains(), batch_norm=BatchNormPolicy.LOCAL)
    trusting = replace(trained, method=replace(trained.method, pseudo_labeler=Trusted(least=0.99)))
    joined = join(trusting, tinted(2, 5), epochs=3)
    assert len(asked) == 1
    assert joined.trust == pytest.approx(asked[0], abs=1e-5)
    assert joined.epochs == 0, "whoever is not trusted trains nothing"
    assert join(trained, tinted(2, 5), epochs=1).epochs == 1


def test_with_a_last_phase_trust_is_of_the_model_that_it_adapts(asked: list[float]) -> None:
    trained, images = federation(OneHot(), TrueDomains()), tinted(2, 5)
    method = replace(trained.method, pseudo_labeler=Trusted(least=0.99), finish=(Shot(),))
    joined = join(replace(trained, method=method), images, by="alignment")
    delivered = copy.deepcopy(source())
    Layout.of(delivered).write(delivered, trained.server.rows[joined.choice.cluster])
    assert asked == [pytest.approx(information(delivered, images), abs=1e-5)]
    assert abs(asked[0] - information(source(), images)) > 1e-4
