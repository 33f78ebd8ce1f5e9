"""Processes that `torchrun` started together: how they meet, what they exchange, and how they fail as one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from fedwca.core.environment_variables import number_in_environment
from fedwca.engine.distributed.serialize import from_bytes, to_bytes
from fedwca.errors import RankFailed, first_line

if TYPE_CHECKING:
    from torch._C._distributed_c10d import ProcessGroup, Store

T = TypeVar("T")
FAILED, HEARD = "failed", "heard"
PATIENCE = timedelta(days=7)
"""Of the library's own clock: a rank may wait for another's source model. Whoever dies is noticed otherwise."""


class RankWorld:
    """One process among all of a run.

    Args:
        rank: its number, from 0.
        size: how many there are.
        store: what all can look up.
    """

    def __init__(self, rank: int, size: int, store: Store) -> None:
        self.rank, self.size, self.store = rank, size, store
        everyone = self.subgroup(range(size))
        assert everyone is not None
        self.everyone = everyone

    def fail(self, sentence: str, code: int) -> None:
        """Tell all ranks that this one cannot go on; the first one to say so is heard."""
        if not self.store.check([FAILED]):
            self.store.set(FAILED, json.dumps([self.rank, sentence, code]))

    def check(self) -> None:
        """Nothing while all is well.

        Raises:
            RankFailed: a rank has said that it cannot go on.
        """
        if self.store.check([FAILED]):
            rank, sentence, code = json.loads(self.store.get(FAILED))
            raise RankFailed(f"rank {rank}: {sentence}", code)

    def conclude(self) -> None:
        """Rank 0: what went wrong has been said to the user and is written down."""
        self.store.set(HEARD, "1")

    def concluded(self, seconds: float) -> bool:
        """Whether rank 0 has said and written all it wanted, which is waited for so long."""
        until = time.monotonic() + seconds
        while not self.store.check([HEARD]):
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def subgroup(self, members: Sequence[int]) -> Ranks | None:
        """The ranks of a part of the world; None on a rank that is not in it. Every rank asks for every subgroup."""
        group = cast("ProcessGroup", dist.new_group(list(members), timeout=PATIENCE))
        return Ranks(tuple(members), self, group) if self.rank in members else None


def join_ranks() -> RankWorld:
    """Meet the other ranks at the address that the environment names."""
    from torch.distributed import PrefixStore, rendezvous  # type: ignore[attr-defined]

    store, rank, size = next(rendezvous("env://", timeout=timedelta(minutes=10)))
    backend = "gloo"
    if torch.cuda.is_available() and torch.cuda.device_count() >= number_in_environment("LOCAL_WORLD_SIZE", size):
        torch.cuda.set_device(number_in_environment("LOCAL_RANK", rank))
        backend = "cpu:gloo,cuda:nccl"
    inner = PrefixStore("groups", store)
    dist.init_process_group(backend, store=inner, rank=rank, world_size=size, timeout=PATIENCE)
    return RankWorld(rank, size, PrefixStore("fedwca", store))


class Ranks:
    """Some ranks that do the same things in the same order.

    Args:
        members: their numbers in the world.
        world: asked while waiting whether all is well.
        group: through which they speak.
    """

    def __init__(self, members: tuple[int, ...], world: RankWorld, group: ProcessGroup) -> None:
        self.members, self.world, self.group = members, world, group
        self.index, self.size = members.index(world.rank), len(members)

    def broadcast(self, tensor: Tensor, root: int) -> None:
        """Fill every member's tensor from that of the member with the number ``root``, counted in ``members``.

        Raises:
            RankFailed: another rank cannot go on, or is gone.
        """
        if tensor.numel():
            with watch_ranks(self.world):
                wait_for_ranks(dist.broadcast(tensor, self.members[root], self.group, async_op=True), self.world)

    def broadcast_object(self, value: T | None, root: int = 0) -> T:
        """A member's value for everybody; what the others bring is not looked at. Tensors arrive on the CPU."""
        mine = root == self.index
        payload = to_bytes(value) if mine else torch.empty(0, dtype=torch.uint8)
        length = torch.tensor([len(payload)])
        self.broadcast(length, root)
        payload = payload if mine else torch.empty(int(length), dtype=torch.uint8)
        self.broadcast(payload, root)
        return cast(T, from_bytes(payload))

    def all_gather(self, value: T) -> list[T]:
        """Everybody's values, in the order of ``members``."""
        return [self.broadcast_object(value, root) for root in range(self.size)]


class RankZeroChannel:
    """Values on their way to rank 0, in the order in which each rank sends them; a channel of its own.

    Every rank of the world makes one, at the same time.
    """

    def __init__(self, world: RankWorld) -> None:
        self.world = world
        self.group = cast("ProcessGroup", dist.new_group(backend="gloo", timeout=PATIENCE))

    def send(self, value: Any) -> None:
        """Send a value; returns when it has left.

        Raises:
            RankFailed: rank 0 cannot go on, or is gone.
        """
        payload = to_bytes(value)
        with watch_ranks(self.world):
            dist.send(torch.tensor([len(payload)]), 0, self.group)
            dist.send(payload, 0, self.group)

    def receive(self, rank: int) -> Any:
        """The next value of a rank, once it is there; called in a thread, for it looks at nothing else meanwhile."""
        with watch_ranks(self.world):
            length = torch.empty(1, dtype=torch.int64)
            dist.recv(length, rank, self.group)
            payload = torch.empty(int(length), dtype=torch.uint8)
            dist.recv(payload, rank, self.group)
        return from_bytes(payload)


def wait_for_ranks(work: dist.Work | None, world: RankWorld) -> None:
    """Until a collective is done, with an eye on the other ranks.

    Raises:
        RankFailed: one of them cannot go on.
    """
    pause, looked = 1e-5, time.monotonic()
    while work is not None and not work.is_completed():
        if time.monotonic() - looked > 0.25:
            world.check()
            looked = time.monotonic()
        time.sleep(pause)
        pause = min(1.5 * pause, 0.01)
    if work is not None:
        work.wait()


@contextmanager
def watch_ranks(world: RankWorld) -> Iterator[None]:
    """What the library says of a connection that broke, as what broke it.

    Raises:
        RankFailed: another rank cannot go on, or is gone.
    """
    try:
        yield
    except RuntimeError as error:
        # A rank that ends tells the others why first; one that was killed does not.
        time.sleep(0.5)
        world.check()
        why = first_line(error)
        raise RankFailed(f"another rank ended without a word; was its memory full? ({why})", 1) from error
