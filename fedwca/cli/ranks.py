"""Under `torchrun`: one process speaks, all share the work, and all end together, with one sentence."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from fedwca.core.environment_variables import count_ranks, is_distributed, number_in_environment
from fedwca.errors import RankFailed, UsageError

if TYPE_CHECKING:
    from fedwca.engine.distributed.process_group import RankWorld
    from fedwca.runs.finished_run import FinishedRun
    from fedwca.runs.run_request import RunRanks

LISTENING = 20.0
"""Seconds that a rank which cannot go on waits for rank 0 to say so, before it says so itself."""
_joined: list[RankWorld] = []


def run_on_ranks(per_trial: int | None, work: Callable[[RunRanks], FinishedRun]) -> FinishedRun:
    """What a run came to, made by all ranks there are; every rank but the first does its share and leaves here.

    Args:
        per_trial: ranks that are to share a trial's clients, as the user says.
        work: makes the run, or continues it.

    Raises:
        UsageError: the ranks cannot be divided so.
    """
    with joined_ranks(per_trial) as world:
        from fedwca.runs.rank_lifecycle import follow_run
        from fedwca.runs.run_request import RunRanks

        if world is None or world.rank == 0:
            return work(RunRanks(world, per_trial))
        follow_run(world)
    raise typer.Exit


@contextmanager
def joined_ranks(per_trial: int | None = None) -> Iterator[RankWorld | None]:
    """The other ranks, while inside; None for a process on its own.

    Whatever ends one rank inside is told to the others, which then end too.

    Args:
        per_trial: ranks that are to share a trial's clients, as the user says.

    Raises:
        UsageError: the ranks cannot be divided so.
    """
    ranks = count_ranks()
    if per_trial is not None and (per_trial < 1 or ranks % per_trial):
        raise UsageError(
            f"--ranks-per-trial {per_trial}: does not divide the {ranks} ranks that there are"
            + ("" if is_distributed() else "; torchrun starts more")
        )
    if not is_distributed():
        yield None
        return
    if missing := [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]:
        raise UsageError(
            f"WORLD_SIZE is {ranks}, but {', '.join(missing)} not set: torchrun sets them all; start with it, or unset "
            "WORLD_SIZE for a process on its own"
        )
    if number_in_environment("RANK", 0) >= ranks:
        raise UsageError(f"RANK is {os.environ['RANK']}, but WORLD_SIZE is {ranks}: ranks are counted from 0")
    number_in_environment("MASTER_PORT", 0)
    import torch.distributed as dist

    from fedwca.engine.distributed.process_group import join_ranks

    world = join_ranks()
    _joined.append(world)
    try:
        yield world
    except RankFailed:
        raise
    except KeyboardInterrupt:
        world.fail("stopped", 130)
        raise
    except BaseException as error:
        world.fail(str(error), getattr(error, "exit_code", 1))
        raise
    dist.destroy_process_group()
    _joined.clear()


def mute_rank() -> io.StringIO | None:
    """Silence every rank but the first; what it would have said on stderr is kept in what is returned."""
    if not is_distributed() or os.environ.get("RANK", "0") == "0":
        return None
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    return sys.stderr


def leave_ranks(code: int, unsaid: io.StringIO | None) -> None:
    """End this rank after a failure: rank 0 once it has spoken, the others once it has, and at once if it does not.

    `torchrun` stops all others as soon as one has failed, and communication that was begun would keep an interpreter
    from ending.
    """
    if not is_distributed() or code == 0:
        return
    heard = False
    if unsaid is None:
        for world in _joined:
            world.conclude()
    else:
        try:
            heard = bool(_joined) and _joined[0].concluded(LISTENING)
        except RuntimeError:
            heard = True  # rank 0 is gone, and with it the store
        if not _joined:
            time.sleep(3)  # a mistake that rank 0 made too has been told by then, and this process stopped
        if not heard and sys.__stderr__ is not None:
            last = [line for line in unsaid.getvalue().splitlines() if line.startswith("Error")]
            print(f"rank {os.environ.get('RANK')}: {' '.join(last[-1:])}", file=sys.__stderr__)
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    os._exit(code)
