"""Methods played for some rounds: variants against what they vary, and against loops written by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedwca.aggregators import aggregators
from fedwca.clusterers import clusterers
from fedwca.data.partition import ClientImages
from fedwca.engine.bank import pooled
from fedwca.engine.client import Training
from fedwca.engine.loop import Loop
from fedwca.engine.randomness import Keys
from fedwca.errors import FedwcaError
from fedwca.functional import blend_weights, soft_cluster_weights
from fedwca.network import Network
from fedwca.objectives.proximal import Proximal
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.two_model import TwoModel
from fedwca.round import Method, Outcome, Server, attendance, begin, play

DOMAINS = torch.tensor([0, 0, 1, 1])
TRAINING = Training(epochs=1, lr=0.05, batch_size=8)


def rounds(
    loop: Loop, aggregator: str, count: int, *more: Proximal, participation: float = 1.0
) -> tuple[list[Server], list[Outcome]]:
    """Servers before and after each round."""
    built = aggregators.build(aggregator)
    clusterer = clusterers.build("true") if built.partition == "given" else None
    method = Method("toy", "Toy", built, TwoModel(), (Shot(), *more), clusterer)
    servers, outcomes = [begin(loop)], []
    for number in range(count):
        server, outcome = play(number, servers[-1], method, loop, TRAINING, Keys(1), DOMAINS, participation)
        servers.append(server)
        outcomes.append(outcome)
    return servers, outcomes


def test_revised_with_u_1_is_wca_to_the_bit(loop: Loop) -> None:
    one, other = rounds(loop, "wca", 3)[0], rounds(loop, "revised_wca:u=1", 3)[0]
    assert torch.equal(one[-1].rows, other[-1].rows)


def test_revised_with_u_2_is_the_loop_by_hand(loop: Loop) -> None:
    servers, outcomes = rounds(loop, "revised_wca:u=2,ta=0.05", 5)
    own = torch.nn.functional.one_hot(DOMAINS).double()
    soft = torch.eye(2, dtype=torch.float64)
    v = own
    for number, outcome in enumerate(outcomes[1:], start=1):
        if number in (1, 3):  # clients compute: C + 1 models travel, alpha and beta come back
            assert outcome.offer.models == 3
            alpha, beta = outcome.report["alpha"], outcome.report["beta"]
            v = blend_weights(own, alpha, beta, soft)
            soft = soft_cluster_weights(alpha, beta, DOMAINS)
        else:  # reused: two models travel, nothing is reported
            assert outcome.offer.models == 2
            assert outcome.report == {}
        assert torch.allclose(outcome.weights, v, atol=1e-12), number
    assert not torch.allclose(v, own)
    assert torch.allclose(servers[-1].state["soft"], soft)


def test_fedamp_is_not_local(loop: Loop) -> None:
    local, _ = rounds(loop, "local", 2)
    amp, outcomes = rounds(loop, "fedamp", 2, Proximal(mu=0.1))
    assert torch.equal(outcomes[0].labels, torch.arange(4))
    assert not torch.allclose(local[1].rows, amp[1].rows, atol=1e-7)  # the penalty has a gradient from round 0 on
    weights = outcomes[1].weights
    assert bool((weights.diagonal() > 0.5).all())
    assert bool((weights[~torch.eye(4, dtype=torch.bool)] > 0).all())  # and round 1 starts from a cloud model
    assert not torch.allclose(local[2].rows, amp[2].rows, atol=1e-4)


def test_ifca_deals_clients_out_and_lets_them_choose(loop: Loop) -> None:
    servers, outcomes = rounds(loop, "ifca:clusters=2", 4)
    assert sorted(outcomes[0].labels.tolist()) == [0, 0, 1, 1]
    assert all(len(server.rows) == 2 for server in servers[1:])
    for before, after, outcome in zip(servers[1:-1], servers[2:], outcomes[1:], strict=True):
        assert outcome.offer.models == 2
        for cluster in set(range(2)) - set(outcome.labels.tolist()):
            # A model nobody chose stays as it is.
            assert torch.equal(before.rows[cluster], after.rows[cluster])
        assert torch.equal(outcome.weights.argmax(1), outcome.labels)


@pytest.mark.parametrize("aggregator", [name for name in aggregators.names() if name != "fedamp"])
def test_absent_clients_keep_their_place(loop: Loop, aggregator: str) -> None:
    _, outcomes = rounds(loop, aggregator, 4, participation=0.5)
    assert [len(outcome.uploads) for outcome in outcomes] == [4, 2, 2, 2]
    for outcome in outcomes:
        assert len(outcome.labels) == 4
        absent = ~outcome.present
        assert bool(outcome.weights[absent].isnan().all())
        assert not bool(outcome.weights[outcome.present].isnan().any())


def test_the_mean_uses_those_who_are_there(loop: Loop) -> None:
    servers, outcomes = rounds(loop, "fedavg:weighting=uniform", 2, participation=0.5)
    here = outcomes[-1].present
    assert torch.allclose(servers[-1].rows[0], loop.bank[here].mean(0), atol=1e-6)


def test_attendance_is_drawn_anew_each_round() -> None:
    drawn = [tuple(attendance(number, 20, 0.3, Keys(0))) for number in range(1, 12)]
    assert {len(each) for each in drawn} == {6}
    assert len(set(drawn)) > 5
    assert attendance(0, 20, 0.3, Keys(0)) == list(range(20))


def statistics_of(network: Network, images: list[ClientImages], policy: str) -> tuple[Loop, Server]:
    loop = Loop(network, images, "cpu", 1, policy)  # type: ignore[arg-type]
    return loop, rounds(loop, "fedavg:weighting=uniform", 2)[0][-1]


def test_batch_norm_policies(network: Network, images: list[ClientImages]) -> None:
    mixed, server = statistics_of(network, images, "mixed")
    assert torch.allclose(server.rows[0], mixed.bank.mean(0), atol=1e-6)
    pooling, server = statistics_of(network, images, "pooled")
    uniform = torch.full((1, 4), 0.25)
    assert torch.allclose(server.rows, pooled(uniform, pooling.bank, pooling.layout), atol=1e-6)
    local, server = statistics_of(network, images, "local")
    width = local.layout.trained
    settled = local._settled(2, server.rows[0].clone(), local._replicas.get())
    assert torch.equal(settled[width:], local.bank[2, width:])
    assert torch.equal(settled[:width], server.rows[0, :width])


def test_recalibration_gives_the_images_own_statistics(network: Network, images: list[ClientImages]) -> None:
    loop = Loop(network, images, "cpu", 1, "recalibrated")
    row = loop.layout.read(network)
    settled: Tensor = loop._settled(1, row.clone(), loop._replicas.get())
    x = network.prepare(images[1].train)
    before = network.bottleneck(network.backbone(x, ()))
    expected = torch.cat([before.mean(0), before.var(0)]).detach()
    assert torch.allclose(settled[loop.layout.trained :], expected, atol=1e-5)


def test_fedamp_looks_at_weights_alone(loop: Loop) -> None:
    servers, _ = rounds(loop, "fedamp", 1)
    fedamp, width = aggregators.build("fedamp"), loop.layout.trained
    seen = fedamp.offer(servers[-1].state, 1, servers[-1].rows[:, :width]).personal
    played: list[Tensor] = []

    class Watching(type(fedamp)):  # type: ignore[misc]
        def offer(self, state, round, rows):  # type: ignore[no-untyped-def]
            played.append(rows)
            return super().offer(state, round, rows)

    method = Method("toy", "Toy", Watching(), TwoModel(), (Shot(),))
    _, outcome = play(1, servers[-1], method, loop, TRAINING, Keys(1), DOMAINS)
    assert played[0].shape[1] == width
    assert torch.allclose(outcome.weights, seen[:, 0])


def test_a_penalty_without_anchors_pulls(loop: Loop) -> None:
    class Shrink(Proximal):
        @property
        def anchors(self) -> tuple[str, ...]:  # type: ignore[override]
            return ()

        def penalty(self, parameters, anchors):  # type: ignore[no-untyped-def]
            return parameters.square().sum()

    plain, pulled = rounds(loop, "fedavg", 1)[0][-1], rounds(loop, "fedavg", 1, Shrink())[0][-1]
    width = loop.layout.trained
    assert pulled.rows[0, :width].norm() < plain.rows[0, :width].norm()


def test_a_penalty_does_not_mind_other_clients_at_work(loop: Loop) -> None:
    class Meanwhile(Proximal):
        def penalty(self, parameters, anchors):  # type: ignore[no-untyped-def]
            value = parameters.square().sum()
            loop.bank.mul_(1)  # as a step of another client on another thread
            return value

    assert bool(rounds(loop, "fedavg", 1, Meanwhile())[0][-1].rows.isfinite().all())


@pytest.mark.parametrize("labels", [[0, 0, 2, 2], [-1, 0, 0, 0], [0, 0, 0], [0.0, 0.0, 1.0, 1.0]], ids=str)
def test_a_clusterer_that_numbers_wrongly_is_told(loop: Loop, labels: list[float]) -> None:
    class Odd(clusterers.get("single")):  # type: ignore[misc]
        def __call__(self, signatures):  # type: ignore[no-untyped-def]
            return torch.tensor(labels)

    method = Method("toy", "Toy", aggregators.build("one_hot"), TwoModel(), (Shot(),), Odd())
    with pytest.raises(FedwcaError, match="0 to C-1 without gaps"):
        play(0, begin(loop), method, loop, TRAINING, Keys(1), DOMAINS)


def test_local_statistics_stay_as_they_were_received(network: Network, images: list[ClientImages]) -> None:
    loop = Loop(network, images, "cpu", 1, "local")
    seen: list[Tensor] = []

    class Watching(TwoModel):
        def __call__(self, predictions, draws, mask=None):  # type: ignore[no-untyped-def]
            seen.append(predictions["cluster"].logits.sum())
            return super().__call__(predictions, draws, mask)

    method = Method(
        "toy", "Toy", aggregators.build("one_hot"), Watching(renew="epoch"), (Shot(),), clusterers.build("true")
    )
    server, _ = play(0, begin(loop), method, loop, TRAINING, Keys(1), DOMAINS)
    seen.clear()
    play(1, server, method, loop, Training(epochs=3, lr=0.05, batch_size=8), Keys(1), DOMAINS)
    assert len(seen) == 4 * 3
    assert all(torch.equal(seen[3 * k], value) for k in range(4) for value in seen[3 * k : 3 * k + 3])
