"""Clients distributed over two processes: the same rows, classes and uploads, and a failure of one stops both."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from fedwca.aggregators.wca import WCA
from fedwca.clusterers.ladd import LaddClusterer
from fedwca.core.messages import Targets
from fedwca.core.training_settings import Training
from fedwca.data.federation import ClientImages
from fedwca.engine.distributed.process_group import RankWorld, RankZeroChannel, join_ranks
from fedwca.engine.distributed.serialize import from_bytes, to_bytes
from fedwca.engine.distributed.sharded_engine import ShardedEngine, without_other_images
from fedwca.engine.interface import Engine, SingleStep
from fedwca.engine.randomness import Keys
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine
from fedwca.engine.test_time_adaptation import AdaptedModel
from fedwca.errors import FedwcaError, RankFailed
from fedwca.federated.method import Method
from fedwca.federated.round import init_server, run_round
from fedwca.federated.server import offer_source
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.two_model import TwoModel
from tests.engine.federations import SIDE, Thin

from ..fork_server import CommandLine, ForkServer

KEYS, TRAINING = Keys(3), Training(epochs=1, lr=0.01, batch_size=8)


def clients() -> list[ClientImages]:
    generator = torch.Generator().manual_seed(0)

    def some(n: int) -> torch.Tensor:
        drawn = torch.randint(0, 256, (n, SIDE, SIDE, 3), dtype=torch.uint8, generator=generator)
        return drawn.permute(0, 3, 1, 2)

    return [ClientImages(some(n), some(t)) for n, t in ((13, 5), (20, 0), (9, 4), (16, 3), (11, 2))]


def engine(images: list[ClientImages], kind: str = "same") -> SequentialEngine | StackedEngine:
    network = Thin(bottleneck=16).build(3, seed=1)
    if kind == "stacked":
        return StackedEngine(network.double(), images, "cpu")
    return SequentialEngine(network, images, "cpu", workers=1)


def results(engine: Engine) -> dict[str, Any]:
    """Run two rounds with 60 % participation; returns the bank, the server's rows and all predictions after them."""
    method = Method("wca", "WCA", WCA(), TwoModel(), (Shot(),), LaddClusterer(share=0.1, most=3))
    server, seen, domains = init_server(engine), list[int](), torch.arange(5) // 2
    for number in range(2):
        server, outcome = run_round(number, server, method, engine, TRAINING, KEYS, domains, 0.6, seen.append)
    weights = method.aggregator.deliver(server.state, len(server.rows))
    targets = {k: (u.targets.labels, u.targets.weights, u.targets.models_agree) for k, u in outcome.uploads.items()}
    return {
        "bank": engine.bank,
        "rows": server.rows,
        "state": dict(server.state),
        "weights": outcome.weights,
        "targets": targets,
        "seen": sorted(seen),
        "tests": [part for predictions in engine.predict_tests(weights, server.rows) for part in predictions],
        "own tests": [part for predictions in engine.predict_tests() for part in predictions],
        "delivered": engine.deliver(weights, server.rows),
    }


KINDS = ("same", "stacked", "differ", "fail")


def work(rank: int, ports: list[int], folder: str) -> None:
    """Run every kind of federation as one rank, each in a process group of its own; results go into files."""
    torch.set_num_threads(1)
    for kind, port in zip(KINDS, ports, strict=True):
        with pytest.MonkeyPatch.context() as patch:
            world_of_two = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            for name, value in world_of_two.items():
                patch.setenv(name, str(value))
            torch.save(found(kind, join_ranks()), Path(folder) / f"{kind}-{rank}.pt")
        dist.destroy_process_group()


def start(ports: list[int], folder: str) -> None:
    """Run both ranks to their end, as forks of a process that has computed nothing."""
    mp.start_processes(work, (ports, folder), nprocs=2, start_method="fork")


def found(kind: str, world: RankWorld) -> Any:
    """The results or the error with which one rank of a federation of this kind ends."""
    channel = RankZeroChannel(world)
    all_ranks, images = world.everyone, clients()
    sharded = ShardedEngine(engine(without_other_images(images, all_ranks), kind), all_ranks, images)
    if kind == "stacked":
        return results(sharded)
    if kind == "same":
        outcome = results(sharded)
        if world.rank:
            channel.send({"from": world.rank, "x": torch.arange(3)})
        else:
            outcome["sent"] = channel.receive(1)
        return outcome
    try:
        if kind == "differ":
            offer = method_offer(0.5 + world.rank / 4)
            sharded.run(SingleStep(offer, sharded.bank[:2], lambda k: None, [], lambda worker: []))  # type: ignore[arg-type, return-value]
        elif world.rank:
            raise FedwcaError("the cat sat on the disk")
        else:
            all_ranks.all_gather(0)
    except FedwcaError as error:
        if not isinstance(error, RankFailed):
            world.fail(str(error), 7)
        if world.rank == 0:
            world.conclude()
        else:
            with contextlib.suppress(RuntimeError):  # rank 0 has ended, and the store with it
                world.concluded(20)
        return type(error).__name__, str(error), error.exit_code
    return "nothing"


def method_offer(share: float) -> Any:
    from fedwca.core.messages import Offer

    weights = torch.tensor([share, 1 - share], dtype=torch.float64)
    return Offer(weights.expand(5, 1, 2), torch.zeros(0, 2, dtype=torch.float64))


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> dict[str, list[Any]]:
    """The results or errors of two ranks, by the kind of federation."""
    folder, ports = tmp_path_factory.mktemp("ranks"), []
    for _ in KINDS:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            ports.append(sock.getsockname()[1])
    code = f"from {__name__} import start; start({ports}, {str(folder)!r})"
    command = fork_server.run(CommandLine(["--version"], str(folder), dict(os.environ), code))
    assert command.code == 0, command.err
    return {kind: [torch.load(folder / f"{kind}-{r}.pt", weights_only=False) for r in (0, 1)] for kind in KINDS}


def test_two_ranks_give_the_numbers_of_one_process(ended: dict[str, list[Any]]) -> None:
    rank_zero, rank_one = ended["same"]
    sent = rank_zero.pop("sent")
    assert sent["from"] == 1
    assert sent["x"].tolist() == [0, 1, 2]
    alone = results(engine(clients()))
    assert alone["seen"] == rank_zero["seen"] == rank_one["seen"]
    torch.testing.assert_close(rank_zero, alone, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(rank_one, alone, rtol=0, atol=0, equal_nan=True)


def test_with_the_stacked_engine_two_ranks_give_them_up_to_the_last_digits(ended: dict[str, list[Any]]) -> None:
    alone = results(engine(clients(), "stacked"))
    for rank in ended["stacked"]:
        torch.testing.assert_close(rank, alone, rtol=1e-9, atol=1e-9, equal_nan=True)


def test_a_failure_of_one_rank_is_the_failure_of_all(ended: dict[str, list[Any]]) -> None:
    assert ended["fail"] == [
        ("RankFailed", "rank 1: the cat sat on the disk", 7),
        ("FedwcaError", "the cat sat on the disk", 1),
    ]


def test_ranks_that_would_send_different_models_stop(ended: dict[str, list[Any]]) -> None:
    for kind, sentence, _ in ended["differ"]:
        assert kind in ("FedwcaError", "RankFailed")
        assert "came to different numbers" in sentence


def test_values_travel_without_what_nobody_reads() -> None:
    targets = Targets(torch.arange(4), torch.ones(4), torch.arange(4), torch.zeros(4), torch.ones(4).bool())
    large = torch.arange(10_000.0)
    received = from_bytes(to_bytes({"targets": targets, "view": large[:2], "none": torch.tensor(torch.nan)}))
    assert received["targets"].labels.tolist() == [0, 1, 2, 3]
    assert len(received["targets"].partners) == 0
    assert received["view"].tolist() == [0, 1]
    assert len(to_bytes(large[:2])) < 1000
    adapted = from_bytes(to_bytes(AdaptedModel(large, large[:2], (0.5,), 1)))
    assert (len(adapted.model), adapted.logits.tolist(), adapted.entropies, adapted.taken) == (0, [0, 1], (0.5,), 1)


@pytest.mark.parametrize("trains", [False, True])
def test_models_are_sent_to_other_ranks_where_they_are_trained(trains: bool) -> None:
    class Alone:
        """A process group of one rank that records what it would send."""

        index, size, members = 0, 1, (0,)
        sent: ClassVar[list[tuple[int, ...]]] = []

        def all_gather(self, value: Any) -> list[Any]:
            return [value]

        def broadcast(self, rows: torch.Tensor, rank: int) -> None:
            self.sent.append(tuple(rows.shape))

    Alone.sent.clear()
    sharded = ShardedEngine(engine(clients()), Alone(), clients())  # type: ignore[arg-type]
    task = lambda client: None  # noqa: E731
    step = SingleStep(offer_source(5), sharded.bank[:1], task, [0, 1], lambda work: [0], trains=trains)  # type: ignore[arg-type, return-value]
    sharded.run(step)
    assert [shape[0] for shape in Alone.sent] == [2] * trains


def test_each_rank_holds_images_of_its_own_clients_alone() -> None:
    class Second:
        index, size = 1, 2

    held = without_other_images(clients(), Second())  # type: ignore[arg-type]
    assert [len(c.train) for c in held] == [0, 20, 0, 16, 0]
