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


def piece_options(description: str, results: Path) -> argparse.ArgumentParser:
    """A parser with the options that all such studies have.

    Args:
        description: of the study; its first line is shown by --help.
        results: folder of the results that are kept; run folders are by default in runs/, in a folder of its name.
    """
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
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


def check_pieces(parser: argparse.ArgumentParser, options: argparse.Namespace, piece_names: Iterable[str]) -> None:
    """Check the options, and with --small or --again choose another folder for runs unless one was given.

    Raises:
        SystemExit: there is no piece of a name, --small or --again would write to the kept results, or --again has no
            names.
    """
    if (options.small or options.again) and options.out.resolve() == options.kept.resolve():
        reason = "--small is a rehearsal" if options.small else "--again repeats what is kept"
        parser.error(f"{reason}, and its results are not: give another --out")
    if options.again and not options.pieces:
        parser.error("--again repeats what is named: give names of pieces; --list has them")
    if (options.small or options.again) and options.runs == parser.get_default("runs"):
        options.runs = options.out / "runs"  # an earlier run folder would be resumed instead
    if unknown := sorted(set(options.pieces) - set(piece_names)):
        parser.error(f"no piece {unknown[0]!r} of the data in {options.data}; --list names them")


def find_results(name: str, options: argparse.Namespace, results: Path) -> list[Path]:
    """Existing files with results of a piece: first in ``results``, then in --out, which takes precedence.

    With --small or --again only the file in --out counts.
    """
    folders = dict.fromkeys((*([] if options.small or options.again else [results]), options.out))
    return [file for folder in folders if (file := folder / f"{name}.json").is_file()]


def run_pieces(
    pieces: Mapping[str, P],
    options: argparse.Namespace,
    run: Callable[[P, argparse.Namespace, StopsAfter], Any],
    describe: Callable[[P, argparse.Namespace], str],
) -> None:
    """Run pieces until the time is up; with --list only print what is done of each.

    Args:
        pieces: by name.
        options: those of `piece_options`.
        run: runs what is missing of a piece, and keeps its results.
        describe: says what is done of a piece.
    """
    clock = StopsAfter(options.minutes)
    if options.list:
        for name, piece in pieces.items():
            print(f"{name} {describe(piece, options)}".strip())
        return
    if options.at_once > 1:
        ended = run_side_by_side(pieces, options, run, clock)
    else:
        ended = all(ends_in_time(name, piece, options, run, clock) for name, piece in pieces.items())
    if not ended:
        print(f"stopped after {options.minutes:g} minutes; the same command goes on")


def run_side_by_side(
    pieces: Mapping[str, P],
    options: argparse.Namespace,
    run: Callable[[P, argparse.Namespace, StopsAfter], Any],
    clock: StopsAfter,
) -> bool:
    """Run pieces in several processes on one GPU; returns whether all ended before the time was up.

    A piece that fails does not stop the others. Small models leave most of a GPU idle while the host prepares the next
    step, so several processes use it better.

    Raises:
        SystemExit: a piece failed; the exit code is 1.
    """
    failed, outcomes = False, []
    with ProcessPoolExecutor(options.at_once, get_context("spawn"), share_threads, (options.at_once,)) as pool:
        names = {pool.submit(ends_in_time, name, piece, options, run, clock): name for name, piece in pieces.items()}
        try:
            for future in as_completed(names):
                try:
                    outcomes.append(future.result())
                except (Exception, SystemExit) as error:
                    print(f"{names[future]}: failed", file=sys.stderr)
                    traceback.print_exception(error)
                    failed = True
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # begin no further piece
            raise
    if failed:
        sys.exit(1)
    return all(outcomes)


def share_threads(processes: int) -> None:
    """Set this process's number of torch threads so that all processes together have as many as one would."""
    torch.set_num_threads(max(1, torch.get_num_threads() // processes))


def ends_in_time(
    name: str,
    piece: P,
    options: argparse.Namespace,
    run: Callable[[P, argparse.Namespace, StopsAfter], Any],
    clock: StopsAfter,
) -> bool:
    """Run what is missing of a piece and print its name; returns False if the time was up before it ended."""
    try:
        run(piece, options, clock)
    except TimeIsUp:
        return False
    print(name, flush=True)
    if options.again:
        print_beside_kept(f"{name}.json", options)
    return True


def run_bench(folder: Path, settings: Mapping[str, Any], options: argparse.Namespace, clock: StopsAfter) -> Run:
    """Run what is missing of a run folder, and read it; in a rehearsal source models train for one epoch.

    Args:
        folder: of the run.
        settings: for `fedwca.bench`.
        options: those of `piece_options`: device, engine, and --data, which digits_mini does not need.
        clock: stops the run when the time is up.

    Raises:
        TimeIsUp: the time is up.
    """
    clock.check()
    option_settings: dict[str, Any] = {"device": options.device, "engine": options.engine}
    if settings["dataset"] != "digits_mini":
        option_settings["data"] = str(options.data)
    if options.small:
        option_settings["overrides"] = {**settings.get("overrides", {}), "source_training.epochs": 1}
    bench(out=folder, resume=True, keep="none", reporter=clock, **{**settings, **option_settings})
    return read_run(folder)


def print_beside_kept(file_name: str, options: argparse.Namespace) -> None:
    """Print the mean accuracies of a piece that was run again, beside those that are kept."""
    kept_means = list_means(options.kept / file_name)
    for method, mean in list_means(options.out / file_name).items():
        kept_text = f"{kept_means[method]:.1f}" if method in kept_means else "nothing"
        print(f"  {method}: {mean:.1f} % (kept: {kept_text})", flush=True)


def list_means(file: Path) -> dict[str, float]:
    """Mean accuracy in percent by method, over trials and clients with test images; empty if there is no file."""
    result = json.loads(file.read_text()) if file.is_file() else {}
    entries = result.get("methods", result).items()
    accuracies = {name: entry["accuracy"] for name, entry in entries if isinstance(entry, dict) and "accuracy" in entry}
    values_by_method = {
        name: [value for trial in accuracy for value in (trial if isinstance(trial, list) else [trial])]
        for name, accuracy in accuracies.items()
    }
    return {name: mean_of_known(values) for name, values in values_by_method.items() if known_values(values)}
