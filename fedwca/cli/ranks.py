"""Under `torchrun`: rank 0 prints, all ranks share the work, and all end together, with one error message."""

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
"""Seconds that a failed rank waits for rank 0 to print the error before it prints its own."""
_joined: list[RankWorld] = []


def run_on_ranks(per_trial: int | None, work: Callable[[RunRanks], FinishedRun]) -> FinishedRun:
    """The result of a run made by all ranks; returns on rank 0 only, the other ranks do their share and exit here.

    Args:
        per_trial: number of ranks that share a trial's clients; None: not set by the user.
        work: makes or continues the run.

    Raises:
        UsageError: ``per_trial`` does not divide the number of ranks, or torchrun's variables are incomplete.
    """
    with joined_ranks(per_trial) as world:
        from fedwca.runs.ranks.rank_lifecycle import follow_run
        from fedwca.runs.run_request import RunRanks

        if world is None or world.rank == 0:
            return work(RunRanks(world, per_trial))
        follow_run(world)
    raise typer.Exit


@contextmanager
def joined_ranks(per_trial: int | None) -> Iterator[RankWorld | None]:
    """Join the other ranks while inside; yields None in a process that is not distributed.

    An exception inside on one rank is reported to the others, which then end too.

    Args:
        per_trial: number of ranks that share a trial's clients; None: not set by the user.

    Raises:
        UsageError: ``per_trial`` does not divide the number of ranks, or torchrun's variables are incomplete.
    """
    ranks = count_ranks()
    if per_trial is not None and (per_trial < 1 or ranks % per_trial):
        raise UsageError(
            f"--ranks-per-trial {per_trial}: does not divide the number of ranks, {ranks}"
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
    """Silence every rank but rank 0; returns the buffer that collects its stderr, or None if nothing is silenced."""
    if not is_distributed() or os.environ.get("RANK", "0") == "0":
        return None
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    return sys.stderr


def leave_ranks(code: int, muted_stderr: io.StringIO | None) -> None:
    """End this rank's process after a failure; the other ranks first wait until rank 0 has printed the error.

    A rank prints its own last error if rank 0 prints none within `LISTENING` seconds. The order matters since
    `torchrun` stops all ranks as soon as one has failed; `os._exit` is needed since unfinished communication would keep
    the interpreter from ending.

    Args:
        code: exit code; nothing happens if it is 0.
        muted_stderr: what `mute_rank` returned.
    """
    if not is_distributed() or code == 0:
        return
    reported = False
    if muted_stderr is None:
        for world in _joined:
            world.conclude()
    else:
        try:
            reported = bool(_joined) and _joined[0].concluded(LISTENING)
        except RuntimeError:
            reported = True  # rank 0 has ended, and the store with it
        if not _joined:
            time.sleep(3)  # if rank 0 has the same error, it has printed it by then, and this process was stopped
        muted_text = f"\n{muted_stderr.getvalue()}"
        start = max(muted_text.rfind("\nError"), muted_text.rfind("\nTraceback"))  # a traceback with --debug
        if start >= 0 and not reported and sys.__stderr__ is not None:
            print(f"rank {os.environ.get('RANK')}: {muted_text[start:].strip()}", file=sys.__stderr__)
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    os._exit(code)
