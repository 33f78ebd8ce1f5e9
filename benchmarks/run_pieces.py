"""The command line of studies that run a piece at a time and go on where they were stopped; no script."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from time_limit import StopsAfter, TimeIsUp

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
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of data sets")
    parser.add_argument("--weights", type=Path, default=Path("../shared/data/weights/resnet18_imagenet_fp16.pth"))
    parser.add_argument("--runs", type=Path, default=Path("runs") / results.name, help="where run folders are")
    parser.add_argument("--out", type=Path, default=results, help="where results are written")
    parser.add_argument("--small", action="store_true", help="tiny runs, to rehearse; needs another --out")
    return parser


def check_pieces(parser: argparse.ArgumentParser, given: argparse.Namespace, known: Iterable[str]) -> None:
    """End with a sentence where a piece is not known, or a rehearsal would be kept among the results."""
    if given.small and given.out == parser.get_default("out"):
        parser.error("--small is a rehearsal, whose results are not kept: give another --out")
    if unknown := sorted(set(given.pieces) - set(known)):
        parser.error(f"no piece {unknown[0]!r} of the data in {given.data}; --list names them")


def find_results(name: str, given: argparse.Namespace, results: Path) -> list[Path]:
    """Files with results of a piece: those that are kept, then those in --out, which win."""
    folders = dict.fromkeys((*([] if given.small else [results]), given.out))
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
    for name, piece in pieces.items():
        if given.list:
            print(f"{name} {describe(piece, given)}".strip())
            continue
        try:
            run(piece, given, clock)
        except TimeIsUp:
            print(f"stopped after {given.minutes:g} minutes; the same command goes on")
            break
        print(name, flush=True)
