"""The command line of studies that run a piece at a time and go on where they were stopped; no script."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch
from domain_means import known_values, mean_of_known
from time_limit import StopsAfter, TimeIsUp

from fedwca import bench
from fedwca.results.read_run import Run, read_run

P = TypeVar("P")


def piece_options(what: str, results: Path) -> argparse.ArgumentParser:
    """The options that all such studies have.

    Args:
        what: the study, in its file's first line.
        results: folder of the results that are kept; run folders are in runs/ by its name.
    """
    parser = argparse.ArgumentParser(description=what.partition("\n")[0])
    parser.add_argument("pieces", nargs="*", help="names of pieces")
    parser.add_argument("--list", action="store_true", help="name all pieces, with what is done of each")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many, between two rounds")
    parser.add_argument("--at-once", type=int, default=1, help="pieces side by side, which fill a GPU")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of data sets")
    parser.add_argument("--weights", type=Path, default=Path("../shared/data/weights/resnet18_imagenet_fp16.pth"))
    parser.add_argument("--device", default="cpu", help="where runs compute")
    parser.add_argument("--engine", default="auto", help="how clients are run there")
    parser.add_argument("--runs", type=Path, default=Path("runs") / results.name, help="where run folders are")
    parser.add_argument("--out", type=Path, default=results, help="where results are written")
    parser.add_argument("--small", action="store_true", help="tiny runs, to rehearse; needs another --out")
    parser.add_argument("--again", action="store_true", help="run what is kept anew, beside it; needs another --out")
    parser.set_defaults(kept=results)
    return parser


def check_pieces(parser: argparse.ArgumentParser, given: argparse.Namespace, known: Iterable[str]) -> None:
    """End with a sentence where a piece is not known, or what is not to be kept would be."""
    if (given.small or given.again) and given.out.resolve() == given.kept.resolve():
        what = "--small is a rehearsal" if given.small else "--again repeats what is kept"
        parser.error(f"{what}, and its results are not: give another --out")
    if given.again and not given.pieces:
        parser.error("--again repeats what is named: give names of pieces; --list has them")
    if given.again and given.runs == parser.get_default("runs"):
        given.runs = given.out / "runs"  # a run folder that is there already would be taken for this one
    if unknown := sorted(set(given.pieces) - set(known)):
        parser.error(f"no piece {unknown[0]!r} of the data in {given.data}; --list names them")


def find_results(name: str, given: argparse.Namespace, results: Path) -> list[Path]:
    """Files with results of a piece: those that are kept, then those in --out, which win."""
    folders = dict.fromkeys((*([] if given.small or given.again else [results]), given.out))
    return [file for folder in folders if (file := folder / f"{name}.json").is_file()]


def run_pieces(
    pieces: Mapping[str, P],
    given: argparse.Namespace,
    run: Callable[[P, argparse.Namespace, StopsAfter], Any],
    describe: Callable[[P, argparse.Namespace], str],
) -> None:
    """Run pieces one after the other until the time is up, or say what is done of each.

    Args:
        pieces: by name.
        given: of `piece_options`.
        run: runs what is missing of a piece, and keeps it.
        describe: what is done of a piece.
    """
    clock = StopsAfter(given.minutes)
    if given.list:
        for name, piece in pieces.items():
            print(f"{name} {describe(piece, given)}".strip())
        return
    if given.at_once > 1:
        ended = run_side_by_side(pieces, given, run, clock)
    else:
        ended = all(ends_in_time(name, piece, given, run, clock) for name, piece in pieces.items())
    if not ended:
        print(f"stopped after {given.minutes:g} minutes; the same command goes on")


def run_side_by_side(
    pieces: Mapping[str, P],
    given: argparse.Namespace,
    run: Callable[[P, argparse.Namespace, StopsAfter], Any],
    clock: StopsAfter,
) -> bool:
    """Run pieces in several processes on one GPU; whether all ended before the time was up. One that fails stops no
    other, and the exit code is 1.

    Small models leave most of a GPU idle while the host prepares the next step, so that many processes fill it.
    """
    failed, ended = False, []
    with ProcessPoolExecutor(given.at_once, get_context("spawn"), share_threads, (given.at_once,)) as pool:
        begun = {pool.submit(ends_in_time, name, piece, given, run, clock): name for name, piece in pieces.items()}
        try:
            for future in as_completed(begun):
                try:
                    ended.append(future.result())
                except (Exception, SystemExit) as problem:
                    print(f"{begun[future]}: failed", file=sys.stderr)
                    traceback.print_exception(problem)
                    failed = True
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # no other piece is begun
            raise
    if failed:
        sys.exit(1)
    return all(ended)


def share_threads(processes: int) -> None:
    """Let torch's own threads of some processes be no more than those of one."""
    torch.set_num_threads(max(1, torch.get_num_threads() // processes))


def ends_in_time(
    name: str,
    piece: P,
    given: argparse.Namespace,
    run: Callable[[P, argparse.Namespace, StopsAfter], Any],
    clock: StopsAfter,
) -> bool:
    """Run what is missing of a piece and say that it ended; False: the time was up before."""
    try:
        run(piece, given, clock)
    except TimeIsUp:
        return False
    print(name, flush=True)
    if given.again:
        print_beside_kept(f"{name}.json", given)
    return True


def run_bench(folder: Path, settings: Mapping[str, Any], given: argparse.Namespace, clock: StopsAfter) -> Run:
    """Run what is missing of a run folder, where the options say, and read it; to rehearse, source models train little.

    Args:
        folder: of the run.
        settings: what `fedwca.bench` is given.
        given: of `piece_options`; the data set of ``fedwca`` itself needs no --data.
        clock: stops it.
    """
    clock.check()
    more: dict[str, Any] = {"device": given.device, "engine": given.engine}
    if settings["dataset"] != "digits_mini":
        more["data"] = str(given.data)
    if given.small:
        more["overrides"] = {"source_training.epochs": 1}
    bench(out=folder, resume=True, keep="none", reporter=clock, **{**settings, **more})
    return read_run(folder)


def print_beside_kept(file: str, given: argparse.Namespace) -> None:
    """Say what a piece that was run anew comes to, beside what is kept of it."""
    kept = list_means(given.kept / file)
    for method, mean in list_means(given.out / file).items():
        beside = f"{kept[method]:.1f}" if method in kept else "nothing"
        print(f"  {method}: {mean:.1f} % (kept: {beside})", flush=True)


def list_means(file: Path) -> dict[str, float]:
    """Mean accuracy by method, over clients with test images and trials, as a file of results has it."""
    found = json.loads(file.read_text()) if file.is_file() else {}
    entries = found.get("methods", found).items()
    accuracies = {name: entry["accuracy"] for name, entry in entries if isinstance(entry, dict) and "accuracy" in entry}
    flat = {
        name: [value for own in some for value in (own if isinstance(own, list) else [own])]
        for name, some in accuracies.items()
    }
    return {name: mean_of_known(some) for name, some in flat.items() if known_values(some)}
