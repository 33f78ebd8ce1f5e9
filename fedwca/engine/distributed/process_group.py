"""Processes that `torchrun` started together: how they connect, exchange values, and fail together."""

from __future__ import annotations

import json
import threading
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
"""Timeout of collectives, long because a rank may wait for another's source model.

Ranks that report a failure are noticed by `RankWorld.check`, killed ones by `watch_ranks`."""


class RankWorld:
    """One process among all processes of a run, the world.

    Args:
        rank: its number, from 0.
        size: number of processes.
        store: key-value store that all of them share.
    """

    def __init__(self, rank: int, size: int, store: Store) -> None:
        self.rank, self.size, self.store = rank, size, store
        all_ranks = self.subgroup(range(size))
        assert all_ranks is not None
        self.everyone = all_ranks

    def fail(self, sentence: str, code: int) -> None:
        """Report to all ranks that this one cannot go on; only the first report is stored."""
        if not self.store.check([FAILED]):
            self.store.set(FAILED, json.dumps([self.rank, sentence, code]))

    def check(self) -> None:
        """Check that no rank has reported that it cannot go on.

        Raises:
            RankFailed: a rank has.
        """
        if self.store.check([FAILED]):
            rank, sentence, code = json.loads(self.store.get(FAILED))
            raise RankFailed(f"rank {rank}: {sentence}", code)

    def conclude(self) -> None:
        """Called on rank 0 once the failure has been shown to the user and written down."""
        self.store.set(HEARD, "1")

    def concluded(self, seconds: float) -> bool:
        """Whether rank 0 has called `conclude`, waiting for it up to ``seconds``."""
        deadline = time.monotonic() + seconds
        while not self.store.check([HEARD]):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def subgroup(self, members: Sequence[int]) -> Ranks | None:
        """A group of some ranks; None on a rank that is not in it. Every rank must call this for every group."""
        group = cast("ProcessGroup", dist.new_group(list(members), timeout=PATIENCE))
        return Ranks(tuple(members), self, group) if self.rank in members else None


def join_ranks() -> RankWorld:
    """Connect to the other ranks at the address that the environment variables give."""
    from torch.distributed import PrefixStore, rendezvous  # type: ignore[attr-defined]

    store, rank, size = next(rendezvous("env://", timeout=timedelta(minutes=10)))
    backend = "gloo"
    if torch.cuda.is_available() and torch.cuda.device_count() >= number_in_environment("LOCAL_WORLD_SIZE", size):
        torch.cuda.set_device(number_in_environment("LOCAL_RANK", rank))
        backend = "cpu:gloo,cuda:nccl"
    group_store = PrefixStore("groups", store)
    dist.init_process_group(backend, store=group_store, rank=rank, world_size=size, timeout=PATIENCE)
    return RankWorld(rank, size, PrefixStore("fedwca", store))


class Ranks:
    """A group of ranks that make the same calls in the same order.

    Args:
        members: their numbers in the world.
        world: checked for failures while waiting.
        group: torch's process group of these ranks.
    """

    def __init__(self, members: tuple[int, ...], world: RankWorld, group: ProcessGroup) -> None:
        self.members, self.world, self.group = members, world, group
        self.index, self.size = members.index(world.rank), len(members)

    def broadcast(self, tensor: Tensor, root: int) -> None:
        """Overwrite every member's tensor by that of member ``root``, an index into ``members``.

        Raises:
            RankFailed: another rank cannot go on, or is gone.
        """
        if tensor.numel():
            with watch_ranks(self.world):
                wait_for_ranks(dist.broadcast(tensor, self.members[root], self.group, async_op=True), self.world)

    def broadcast_object(self, value: T | None, root: int = 0) -> T:
        """The value of member ``root``, for all members; others' values are ignored. Tensors arrive on the CPU."""
        is_root = root == self.index
        payload = to_bytes(value) if is_root else torch.empty(0, dtype=torch.uint8)
        length = torch.tensor([len(payload)])
        self.broadcast(length, root)
        payload = payload if is_root else torch.empty(int(length), dtype=torch.uint8)
        self.broadcast(payload, root)
        return cast(T, from_bytes(payload))

    def all_gather(self, value: T) -> list[T]:
        """The values of all members, in the order of ``members``."""
        return [self.broadcast_object(value, root) for root in range(self.size)]


class RankZeroChannel:
    """Sends values to rank 0, in the order in which each rank sends them, through a process group of its own.

    Every rank of the world must create one, at the same point of the program.
    """

    def __init__(self, world: RankWorld) -> None:
        self.world = world
        self.group = cast("ProcessGroup", dist.new_group(backend="gloo", timeout=PATIENCE))
        self._lock = threading.Lock()  # threads of clients may warn at once

    def send(self, value: Any) -> None:
        """Send a value and return when it has been sent.

        Raises:
            RankFailed: rank 0 cannot go on, or is gone.
        """
        payload = to_bytes(value)
        with watch_ranks(self.world), self._lock:
            dist.send(torch.tensor([len(payload)]), 0, self.group)
            dist.send(payload, 0, self.group)

    def receive(self, rank: int) -> Any:
        """Wait for the next value of a rank; called in a thread, because it checks nothing else while it waits."""
        with watch_ranks(self.world):
            length = torch.empty(1, dtype=torch.int64)
            dist.recv(length, rank, self.group)
            payload = torch.empty(int(length), dtype=torch.uint8)
            dist.recv(payload, rank, self.group)
        return from_bytes(payload)


def wait_for_ranks(work: dist.Work | None, world: RankWorld) -> None:
    """Wait until a collective is complete, and check meanwhile whether other ranks have failed.

    Raises:
        RankFailed: one of them cannot go on.
    """
    pause, last_check = 1e-5, time.monotonic()
    while work is not None and not work.is_completed():
        if time.monotonic() - last_check > 0.25:
            world.check()
            last_check = time.monotonic()
        time.sleep(pause)
        pause = min(1.5 * pause, 0.01)
    if work is not None:
        work.wait()


@contextmanager
def watch_ranks(world: RankWorld) -> Iterator[None]:
    """Context that turns the library's error on a broken connection into the failure that caused it.

    Raises:
        RankFailed: another rank cannot go on, or is gone.
    """
    try:
        yield
    except RuntimeError as error:
        # A rank that fails reports the reason before it ends; one that was killed does not.
        time.sleep(0.5)
        world.check()
        reason = first_line(error)
        raise RankFailed(f"another rank ended without a word; was its memory full? ({reason})", 1) from error
