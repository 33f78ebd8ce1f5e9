"""Methods over several rounds, compared with the methods that they vary and with loops written by hand."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedwca.aggregators import aggregators
from fedwca.clusterers import clusterers
from fedwca.config.compose_methods import compose
from fedwca.config.run_config import RunConfig
from fedwca.core.interfaces import Objective, PseudoLabeler
from fedwca.core.messages import Batch, Predictions, Targets
from fedwca.core.network import Network
from fedwca.core.training_settings import SourceTraining, Training
from fedwca.data.federation import ClientImages
from fedwca.data.metrics import Metrics
from fedwca.engine.batch_norm import pool_statistics
from fedwca.engine.randomness import Keys, fold_key, permutation
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine
from fedwca.errors import FedwcaError
from fedwca.federated.close_round import Outcome
from fedwca.federated.method import Method
from fedwca.federated.participation import sample_clients
from fedwca.federated.round import init_server, run_round
from fedwca.federated.server import Server, offer_source
from fedwca.federated.simulated_uploads import SimulatedUpload
from fedwca.functional import (
    alignment,
    blend_weights,
    prototype_labels,
    soft_cluster_weights,
    soft_neighborhood_density,
)
from fedwca.objectives.control import Control
from fedwca.objectives.prototype_contrastive import PrototypeContrastive
from fedwca.objectives.proximal import Proximal
from fedwca.objectives.self_training import SelfTraining
from fedwca.objectives.server_client_alignment import ServerClientAlignment
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.argmax import Argmax
from fedwca.pseudo_labelers.prototype import Prototype
from fedwca.pseudo_labelers.two_model import TwoModel
from fedwca.runs.load_data import load
from fedwca.runs.records.round_record import describe_round
from fedwca.runs.run_trials_and_methods import run_bench
from fedwca.runs.split_trials import TrialSplits

DOMAINS = torch.tensor([0, 0, 1, 1])
TRAINING = Training(epochs=1, lr=0.05, batch_size=8)
FEDWCAS, SHOTS = TwoModel(), (Shot(),)


def rounds(
    loop: SequentialEngine,
    aggregator: str,
    count: int,
    *extra_objectives: Objective,
    participation: float = 1.0,
    labeler: PseudoLabeler = FEDWCAS,
    first: tuple[Objective, ...] = SHOTS,
    training: Training = TRAINING,
) -> tuple[list[Server], list[Outcome]]:
    """Play ``count`` rounds; return the servers before and after each round, and the outcome of each."""
    built_aggregator = aggregators.build(aggregator)
    clusterer = clusterers.build("true") if built_aggregator.grouping.needs_clusterer else None
    method = Method("toy", "Toy", built_aggregator, labeler, (*first, *extra_objectives), clusterer)
    servers, outcomes = [init_server(loop)], []
    for number in range(count):
        server, outcome = run_round(number, servers[-1], method, loop, training, Keys(1), DOMAINS, participation)
        servers.append(server)
        outcomes.append(outcome)
    return servers, outcomes


def test_revised_with_u_1_is_wca_to_the_bit(loop: SequentialEngine) -> None:
    wca, revised = rounds(loop, "wca", 3)[0], rounds(loop, "revised_wca:u=1", 3)[0]
    assert torch.equal(wca[-1].rows, revised[-1].rows)


def test_revised_with_u_2_is_the_loop_by_hand(loop: SequentialEngine) -> None:
    servers, outcomes = rounds(loop, "revised_wca:u=2,ta=0.05", 5)
    membership = torch.nn.functional.one_hot(DOMAINS).double()
    soft = torch.eye(2, dtype=torch.float64)
    v = membership
    for number, outcome in enumerate(outcomes[1:], start=1):
        if number in (1, 3):  # clients compute weights: C + 1 models are sent, alpha and beta are reported
            assert outcome.offer.models_per_client == 3
            alpha, beta = outcome.report["alpha"], outcome.report["beta"]
            v = blend_weights(membership, alpha, beta, soft)
            soft = soft_cluster_weights(alpha, beta, DOMAINS)
        else:  # weights are reused: two models are sent, nothing is reported
            assert outcome.offer.models_per_client == 2
            assert outcome.report == {}
        assert torch.allclose(outcome.weights, v, atol=1e-12), number
    assert not torch.allclose(v, membership)
    assert torch.allclose(servers[-1].state["soft"], soft)


def test_wca_asks_the_models_of_the_clients_images(loop: SequentialEngine, images: list[ClientImages]) -> None:
    """Eqs. 1 and 3, computed from the sent models and the images without the engine."""
    servers, outcomes = rounds(loop, "wca:ta=0.1,tb=0.1", 2)
    clusters, network = servers[1].rows, copy.deepcopy(loop.network).eval()

    def measure(row: Tensor, client: int) -> tuple[Tensor, Tensor]:
        loop.layout.write(network, row)
        with torch.no_grad():
            logits, features = network(network.prepare(images[client].train))
        score = alignment(features, network.class_vectors)
        return score, soft_neighborhood_density(logits.softmax(-1))

    for client, cluster in enumerate(DOMAINS.tolist()):
        measured = [measure(row, client) for row in clusters]
        alpha = (torch.stack([score for score, _ in measured]).double() / 0.1).softmax(0)
        torch.testing.assert_close(outcomes[1].report["alpha"][client], alpha, rtol=0, atol=1e-5)
        _, mixed = measure((alpha @ clusters.double()).float(), client)
        beta = (torch.stack([measured[cluster][1], mixed]).double() / 0.1).softmax(0)
        torch.testing.assert_close(outcomes[1].report["beta"][client], beta, rtol=0, atol=1e-4)


def test_fedamp_is_not_local(loop: SequentialEngine) -> None:
    local, _ = rounds(loop, "local", 2)
    amp, outcomes = rounds(loop, "fedamp", 2, Proximal(mu=0.1))
    assert torch.equal(outcomes[0].labels, torch.arange(4))
    assert not torch.allclose(local[1].rows, amp[1].rows, atol=1e-7)  # the penalty has a gradient from round 0 on
    weights = outcomes[1].weights
    assert bool((weights.diagonal() > 0.5).all())
    assert bool((weights[~torch.eye(4, dtype=torch.bool)] > 0).all())  # round 1 starts from a mixture of all models
    assert not torch.allclose(local[2].rows, amp[2].rows, atol=1e-4)


def test_ifca_deals_clients_out_and_lets_them_choose(loop: SequentialEngine) -> None:
    servers, outcomes = rounds(loop, "ifca:clusters=2", 4)
    assert sorted(outcomes[0].labels.tolist()) == [0, 0, 1, 1]
    assert all(len(server.rows) == 2 for server in servers[1:])
    for previous, current, outcome in zip(servers[1:-1], servers[2:], outcomes[1:], strict=True):
        assert outcome.offer.models_per_client == 2
        for cluster in set(range(2)) - set(outcome.labels.tolist()):
            # A model that no client chose stays as it is.
            assert torch.equal(previous.rows[cluster], current.rows[cluster])
        assert torch.equal(outcome.weights.argmax(1), outcome.labels)


def test_ifca_chooses_by_the_loss_on_the_clients_images(loop: SequentialEngine, images: list[ClientImages]) -> None:
    """Information maximization and 0.1 of cross-entropy with each model's own labels, without the engine."""
    servers, outcomes = rounds(loop, "ifca:clusters=3", 2)
    network = copy.deepcopy(loop.network).eval()
    for client, chosen in enumerate(outcomes[1].labels.tolist()):
        losses = []
        for row in servers[1].rows:
            loop.layout.write(network, row)
            with torch.no_grad():
                logits, features = network(network.prepare(images[client].train))
            p = logits.softmax(1)
            diversity = -(p.mean(0) * (p.mean(0) + 1e-5).log()).sum()
            labels = prototype_labels(features, p)[0]
            uncertainty = -(p * (p + 1e-5).log()).sum(1).mean()
            losses.append(float(uncertainty - diversity + 0.1 * cross_entropy(logits, labels)))
        assert losses.index(min(losses)) == chosen
    assert len(outcomes[1].labels.unique()) > 1


@pytest.mark.parametrize("aggregator", aggregators.names())
def test_absent_clients_keep_their_place(loop: SequentialEngine, aggregator: str) -> None:
    training, extra = TRAINING, []
    if aggregator == "scaffold":
        training, extra = TRAINING.model_copy(update={"momentum": 0.0}), [Control()]
    _, outcomes = rounds(loop, aggregator, 4, *extra, participation=0.5, training=training)
    assert [len(outcome.uploads) for outcome in outcomes] == [4, 2, 2, 2]
    for outcome in outcomes:
        assert len(outcome.labels) == 4
        absent = ~outcome.present
        assert bool(outcome.weights[absent].isnan().all())
        assert not bool(outcome.weights[outcome.present].isnan().any())


def test_the_mean_uses_those_who_are_there(loop: SequentialEngine) -> None:
    servers, outcomes = rounds(loop, "fedavg:weighting=uniform", 2, participation=0.5)
    present = outcomes[-1].present
    assert torch.allclose(servers[-1].rows[0], loop.bank[present].mean(0), atol=1e-6)


def pcl(loop: SequentialEngine, count: int, participation: float = 1.0) -> tuple[list[Server], list[Outcome]]:
    """Play ``count`` rounds of FedPCL+PL."""
    objectives = (PrototypeContrastive(tau=1.0),)
    return rounds(loop, "local", count, participation=participation, labeler=Prototype(), first=objectives)


def test_prototypes_travel_and_models_do_not(loop: SequentialEngine) -> None:
    servers, outcomes = pcl(loop, 3)
    name = "collected.prototype_contrastive.prototypes"
    assert name not in servers[0].state
    assert outcomes[0].shared == {}
    for server, outcome in zip(servers[1:], outcomes, strict=True):
        # Clients upload the means of their unit-length features by label, so no mean is longer than 1.
        assert server.state[name].shape == (4, 3, 16)
        assert float(server.state[name].norm(dim=-1).max()) <= 1
        for client, upload in outcome.uploads.items():
            assert torch.equal(upload.collected["prototype_contrastive.prototypes"], server.state[name][client])
            empty = upload.targets.labels.bincount(minlength=3) == 0
            assert torch.equal((server.state[name][client] == 0).all(1), empty)
    for previous, outcome in zip(servers[1:-1], outcomes[1:], strict=True):
        shared, stored = outcome.shared["prototypes"], previous.state[name]
        present = (stored != 0).any(-1)
        assert torch.equal(shared[present], stored[present])
        assert bool((shared != 0).any(-1).eq(present.any(0)).all())


def test_round_0_without_prototypes_leaves_weights_to_decay(network: Network, images: list[ClientImages]) -> None:
    loop = SequentialEngine(network, images, "cpu", 1)
    servers, _ = pcl(loop, 2)
    width = loop.layout.trained
    source, first, second = servers[0].source[:width], servers[1].rows[:, :width], servers[2].rows[:, :width]
    assert bool((first.abs() <= source.abs() + 1e-7).all())
    assert torch.allclose(first, source.expand_as(first), rtol=1e-3)
    assert not torch.allclose(second, first, rtol=1e-2)


def test_prototypes_are_counted_as_bytes(loop: SequentialEngine, images: list[ClientImages]) -> None:
    labels = [torch.zeros(len(client.train), dtype=torch.int64) for client in images]
    metrics = Metrics(("a", "a", "b", "b"), labels, [torch.zeros(5, dtype=torch.int64)] * 4)
    method = Method("toy", "Toy", aggregators.build("local"), Prototype(), (PrototypeContrastive(),))
    outcomes = pcl(loop, 2)[1]
    first, later = (describe_round(o, method, metrics, loop, first=n == 0) for n, o in enumerate(outcomes))
    prototype_bytes = 3 * 16 * 4  # classes, features, bytes of a float
    model_bytes = loop.layout.width * 4 + (3 * 16 + 3) * 4
    assert (first["bytes_up"], first["bytes_down"]) == (4 * prototype_bytes, 4 * model_bytes)
    assert (later["bytes_up"], later["bytes_down"]) == (4 * prototype_bytes, 4 * 4 * prototype_bytes)


def test_a_record_says_what_labels_were_by_hand(network: Network, images: list[ClientImages]) -> None:
    pixels = images[0].train
    engine = SequentialEngine(network, [ClientImages(pixels[:4], pixels[:0])], "cpu", 1)
    labels, weights, mix = torch.tensor([0, 0, 1, 1]), torch.tensor([1.0, 1, 1, 0]), torch.tensor([0, 0, 0, 0.55])
    targets = Targets(labels, weights, torch.arange(4), mix, torch.tensor([True, True, True, False]))
    upload = SimulatedUpload(report={}, weights=torch.ones(1), targets=targets, seconds={}, passes=3)
    outcome = Outcome(torch.zeros(1, dtype=torch.int64), offer_source(1), {0: upload})
    metrics = Metrics(("a",), [torch.tensor([0, 0, 1, 0])], [torch.zeros(0, dtype=torch.int64)])
    method = Method("toy", "Toy", aggregators.build("fedavg"), Prototype(), (Shot(),))
    record = describe_round(outcome, method, metrics, engine, first=True)
    assert (record["agreement"], record["mixed"], record["dropped"]) == ([0.75], [1.0], [1.0])
    assert record["label_entropy"] == [pytest.approx(math.log(2))]
    assert record["pseudo_label_accuracy"] == [100.0]  # the wrong label has no weight
    assert record["passes"] == 3


def test_an_absent_client_keeps_its_prototypes(loop: SequentialEngine) -> None:
    servers, outcomes = pcl(loop, 3, participation=0.5)
    name = "collected.prototype_contrastive.prototypes"
    for previous, server, outcome in zip(servers[1:-1], servers[2:], outcomes[1:], strict=True):
        unchanged = (previous.state[name] == server.state[name]).flatten(1).all(1)
        assert torch.equal(unchanged, ~outcome.present)


def test_what_is_collected_does_not_disturb_aggregators_that_keep_states(loop: SequentialEngine) -> None:
    servers, outcomes = rounds(loop, "wca", 3, PrototypeContrastive())
    assert {"soft", "alpha", "beta", "labels", "collected.prototype_contrastive.prototypes"} == set(servers[-1].state)
    assert outcomes[-1].shared["prototypes"].shape == (4, 3, 16)


class Odd(Objective):
    """Uploads something that no server should accept."""

    what: str = "shape"

    def __call__(self, batch: Batch) -> Tensor:
        return batch.logits.square().mean()

    def collect(self, predictions: Predictions, targets: Targets) -> dict[str, Tensor]:
        n = len(targets.labels)
        match self.what:
            case "shape":
                return {"seen": torch.zeros(n)}
            case "finite":
                return {"seen": torch.full((2,), torch.nan)}
            case _:
                return {"seen": torch.zeros(1)} if n == 13 else {}


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("shape", "client 1 uploaded .seen of shape (20,), client 0 (13,)"),
        ("finite", "client 0 uploaded .seen with values that are not finite"),
        ("missing", "client 1 uploaded .seen of shape None, client 0 (1,)"),
    ],
)
def test_a_wrong_upload_is_refused(loop: SequentialEngine, what: str, sentence: str) -> None:
    with pytest.raises(FedwcaError) as caught:
        rounds(loop, "local", 1, Odd(what=what))
    assert sentence in str(caught.value)


def test_ladd_labels_by_its_teacher(loop: SequentialEngine) -> None:
    only_teacher: list[bool] = []

    class Watching(Argmax):
        def __call__(self, predictions, draws):  # type: ignore[no-untyped-def]
            only_teacher.append(set(predictions) == {"teacher"})
            return super().__call__(predictions, draws)

    labeler = Watching(model="teacher", confidence=0.9, share=0.66)
    servers, outcomes = rounds(loop, "ladd:start=1", 4, labeler=labeler, first=(SelfTraining(),))
    assert len(only_teacher) == 4 * 4
    assert all(only_teacher)
    # Until a teacher is the mean of two models it is the cluster's model, and is not sent beside it.
    assert [outcome.offer.models_per_client for outcome in outcomes] == [1, 1, 1, 2]
    models, teachers = servers[4].rows.split(2)
    assert not torch.allclose(models, teachers)
    expected = torch.stack([server.rows[:2] for server in servers[2:]]).mean(0)
    assert torch.allclose(teachers, expected, atol=1e-5)


OTHERS = [SelfTraining(), PrototypeContrastive(), ServerClientAlignment()]


@pytest.mark.parametrize("more", OTHERS, ids=lambda objective: objective.name)
def test_ifca_chooses_by_any_objective(loop: SequentialEngine, more: Objective) -> None:
    servers, _ = rounds(loop, "ifca:clusters=2", 3, more)
    assert bool(torch.isfinite(servers[-1].rows).all())


def test_fedscal_learns_from_strong_views(loop: SequentialEngine) -> None:
    plain, _ = rounds(loop, "fedavg", 2)
    aligned, _ = rounds(loop, "fedavg", 2, ServerClientAlignment(threshold=0, lowest=0, highest=0))
    again, _ = rounds(loop, "fedavg", 2, ServerClientAlignment(threshold=0, lowest=0, highest=0))
    assert not torch.allclose(plain[-1].rows, aligned[-1].rows)
    assert torch.equal(aligned[-1].rows, again[-1].rows)


def test_the_learning_rate_of_a_round_follows_the_cosine(loop: SequentialEngine) -> None:
    method = Method("toy", "Toy", aggregators.build("fedavg"), Prototype(), SHOTS)
    server, _ = run_round(0, init_server(loop), method, loop, TRAINING, Keys(1), DOMAINS)

    def played(number: int, **changed: float) -> Tensor:
        training = TRAINING.model_copy(update=changed)
        return run_round(number, server, method, loop, training, Keys(1), DOMAINS)[0].rows

    assert torch.equal(played(2, cosine=4), played(2, lr=0.025))
    # At the end of the schedule the rate is 0: only BatchNorm statistics change.
    width = loop.layout.trained
    assert torch.allclose(played(4, cosine=4)[0, :width], server.rows[0, :width], atol=1e-6)
    assert not torch.allclose(played(4)[0, :width], server.rows[0, :width], atol=1e-3)


def test_attendance_is_drawn_anew_each_round() -> None:
    samples = [tuple(sample_clients(number, 20, 0.3, Keys(0))) for number in range(1, 12)]
    assert {len(sample) for sample in samples} == {6}
    assert len(set(samples)) > 5
    assert sample_clients(0, 20, 0.3, Keys(0)) == list(range(20))
    assert [len(sample_clients(1, 10, share, Keys(0))) for share in (0.01, 0.24, 0.26)] == [1, 2, 3]
    assert len(sample_clients(1, 6, 0.5, Keys(0), least=4)) == 4


def statistics_of(network: Network, images: list[ClientImages], policy: str) -> tuple[SequentialEngine, Server]:
    """Play two rounds of FedAvg with a batch-norm policy; return the engine and the last server."""
    loop = SequentialEngine(network, images, "cpu", 1, policy)  # type: ignore[arg-type]
    return loop, rounds(loop, "fedavg:weighting=uniform", 2)[0][-1]


def test_batch_norm_policies(network: Network, images: list[ClientImages]) -> None:
    mixed, server = statistics_of(network, images, "mixed")
    assert torch.allclose(server.rows[0], mixed.bank.mean(0), atol=1e-6)
    pooling, server = statistics_of(network, images, "pooled")
    uniform = torch.full((1, 4), 0.25)
    assert torch.allclose(server.rows, pool_statistics(uniform, pooling.bank, pooling.layout), atol=1e-6)
    local, server = statistics_of(network, images, "local")
    width = local.layout.trained
    settled = local._apply_batch_norm(2, server.rows[0].clone(), local._replicas.get())
    assert torch.equal(settled[width:], local.bank[2, width:])
    assert torch.equal(settled[:width], server.rows[0, :width])


def test_recalibration_gives_the_images_own_statistics(network: Network, images: list[ClientImages]) -> None:
    loop = SequentialEngine(network, images, "cpu", 1, "recalibrated")
    row = loop.layout.read(network)
    settled: Tensor = loop._apply_batch_norm(1, row.clone(), loop._replicas.get())
    x = network.prepare(images[1].train)
    activations = network.bottleneck(network.backbone(x, ()))
    expected = torch.cat([activations.mean(0), activations.var(0)]).detach()
    assert torch.allclose(settled[loop.layout.trained :], expected, atol=1e-5)


@pytest.mark.parametrize(("chunk", "pieces"), [(7, [7, 7, 6]), (1, [2] * 10)])  # one image has no variance
def test_recalibration_in_pieces_weighs_them_by_their_images(
    network: Network, images: list[ClientImages], monkeypatch: pytest.MonkeyPatch, chunk: int, pieces: list[int]
) -> None:
    monkeypatch.setattr(type(network), "eval_batch_size", chunk)
    x = network.prepare(images[1].train[:20])
    clients = [replace(client, train=client.train[:20]) for client in images]
    order = permutation(fold_key(["recalibration"]), 20)
    z = network.bottleneck(network.backbone(x, ())).detach()[order].split(pieces)
    shares = torch.tensor(pieces) / 20
    means = sum(share * part.mean(0) for share, part in zip(shares, z, strict=True))
    variances = sum(share * part.var(0) for share, part in zip(shares, z, strict=True))
    for engine in (SequentialEngine, StackedEngine):
        loop = engine(network, clients, "cpu", 1, "recalibrated")  # type: ignore[operator]
        row = loop.layout.read(network)
        settled: Tensor = loop.deliver(torch.ones(4, 1, dtype=torch.float64), row[None])[1]
        assert torch.allclose(settled[loop.layout.trained :], torch.cat([means, variances]), atol=1e-5)


@pytest.mark.parametrize("engine", [SequentialEngine, StackedEngine])
def test_recalibration_does_not_depend_on_whether_images_are_sorted_by_class(
    network: Network, monkeypatch: pytest.MonkeyPatch, engine: type[SequentialEngine | StackedEngine]
) -> None:
    """Of two classes, dark and bright, a pass over one class would have hardly any variance."""
    monkeypatch.setattr(type(network), "eval_batch_size", 20)
    noise = torch.randint(0, 60, (200, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    by_class = noise + 150 * (torch.arange(200) >= 100).to(torch.uint8)[:, None, None, None]
    alternating = by_class.unflatten(0, (2, 100)).transpose(0, 1).flatten(0, 1)
    # The third client makes the others have places past its last image.
    clients = [ClientImages(x, x[:0]) for x in (by_class, alternating, by_class[70:130])]
    loop = engine(network, clients, "cpu", 1, "recalibrated")
    settled = loop.deliver(torch.ones(3, 1, dtype=torch.float64), loop.layout.read(network)[None])
    _, variance = loop.layout.norms[0]
    x = network.prepare(by_class)
    expected = network.bottleneck(network.backbone(x, ())).detach().var(0)
    for row in settled[:2]:
        torch.testing.assert_close(variance.of(row), expected, rtol=0.1, atol=0)


def test_fedamp_looks_at_weights_alone(loop: SequentialEngine) -> None:
    servers, _ = rounds(loop, "fedamp", 1)
    fedamp, width = aggregators.build("fedamp"), loop.layout.trained
    expected = fedamp.offer(servers[-1].state, 1, servers[-1].rows[:, :width]).personal
    offered_rows: list[Tensor] = []

    class Watching(type(fedamp)):  # type: ignore[misc]
        def offer(self, state, round, rows):  # type: ignore[no-untyped-def]
            offered_rows.append(rows)
            return super().offer(state, round, rows)

    method = Method("toy", "Toy", Watching(), TwoModel(), (Shot(),))
    _, outcome = run_round(1, servers[-1], method, loop, TRAINING, Keys(1), DOMAINS)
    assert offered_rows[0].shape[1] == width
    assert torch.allclose(outcome.weights, expected[:, 0])


def test_a_penalty_without_anchors_pulls(loop: SequentialEngine) -> None:
    class Shrink(Proximal):
        @property
        def anchors(self) -> tuple[str, ...]:  # type: ignore[override]
            return ()

        def penalty(self, parameters, anchors):  # type: ignore[no-untyped-def]
            return parameters.square().sum()

    plain, pulled = rounds(loop, "fedavg", 1)[0][-1], rounds(loop, "fedavg", 1, Shrink())[0][-1]
    width = loop.layout.trained
    assert pulled.rows[0, :width].norm() < plain.rows[0, :width].norm()


def test_a_penalty_does_not_mind_other_clients_at_work(loop: SequentialEngine) -> None:
    class Meanwhile(Proximal):
        def penalty(self, parameters, anchors):  # type: ignore[no-untyped-def]
            value = parameters.square().sum()
            loop.bank.mul_(1)  # as a step of another client on another thread
            return value

    assert bool(rounds(loop, "fedavg", 1, Meanwhile())[0][-1].rows.isfinite().all())


@pytest.mark.parametrize("labels", [[0, 0, 2, 2], [-1, 0, 0, 0], [0, 0, 0], [0.0, 0.0, 1.0, 1.0]], ids=str)
def test_a_clusterer_that_numbers_wrongly_is_told(loop: SequentialEngine, labels: list[float]) -> None:
    class Odd(clusterers.get("single")):  # type: ignore[misc]
        def __call__(self, signatures):  # type: ignore[no-untyped-def]
            return torch.tensor(labels)

    method = Method("toy", "Toy", aggregators.build("one_hot"), TwoModel(), (Shot(),), Odd())
    with pytest.raises(FedwcaError, match="0 to C-1 without gaps"):
        run_round(0, init_server(loop), method, loop, TRAINING, Keys(1), DOMAINS)


def test_local_statistics_stay_as_they_were_received(network: Network, images: list[ClientImages]) -> None:
    loop = SequentialEngine(network, images, "cpu", 1, "local")
    logit_sums: list[Tensor] = []

    class Watching(TwoModel):
        def __call__(self, predictions, draws):  # type: ignore[no-untyped-def]
            logit_sums.append(predictions["cluster"].logits.sum())
            return super().__call__(predictions, draws)

    method = Method(
        "toy", "Toy", aggregators.build("one_hot"), Watching(renew="epoch"), (Shot(),), clusterers.build("true")
    )
    server, _ = run_round(0, init_server(loop), method, loop, TRAINING, Keys(1), DOMAINS)
    logit_sums.clear()
    run_round(1, server, method, loop, Training(epochs=3, lr=0.05, batch_size=8), Keys(1), DOMAINS)
    assert len(logit_sums) == 4 * 3
    assert all(torch.equal(logit_sums[3 * k], value) for k in range(4) for value in logit_sums[3 * k : 3 * k + 3])


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [4, 10])
def test_ifca_keeps_two_clusters_on_digits_mini(rounds: int) -> None:
    # Large enough that rounding does not decide the outcome: with 8 clients of 19 images, all may choose one cluster.
    config = RunConfig(
        clients=4,
        samples=50,
        rounds=rounds,
        baselines=("ifca",),
        device="cpu",
        training=Training(epochs=3, lr=3e-3),
        source_training=SourceTraining(epochs=10, lr=1e-2),
    )
    dataset, source = load(config)
    ifca = [pair for pair in compose(config) if pair[0].name == "ifca"]
    records = [r for r in run_bench(config, ifca, TrialSplits(config, dataset, source)) if r["round"] >= 0]
    assert len(records) == rounds
    for record in records:
        assert len(record["labels"].unique()) >= 2
        # The clusters need not be the domains, since the labels are the models' own predictions.
        assert sum(record["clustering"]["sizes"]) == 16
