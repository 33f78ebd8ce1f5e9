"""`fedwca predict`: classes of images by an exported model, or by a client's model in a run folder."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedwca.cli.shared_options import Device, PlainJson, SourceModel, Trial
from fedwca.cli.terminal import make_console, say
from fedwca.core.count_of import count_of
from fedwca.errors import FedwcaError, UsageError

if TYPE_CHECKING:
    from fedwca.export.load_model import LoadedModel
    from fedwca.export.predict import Answer


def command(
    model: Annotated[Path, typer.Argument(help="File that `fedwca export` wrote; or a run folder, with --client.")],
    images: Annotated[list[Path], typer.Argument(help="Image files, folders of them, or .npz archives.")],
    out: Annotated[Path | None, typer.Option("--out", help="CSV file; default: standard output.")] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, max=1_000_000, help="Images at once.")] = 64,
    top: Annotated[int, typer.Option("--top", min=1, max=1_000_000, help="Classes to name for each image.")] = 1,
    device: Device = "cpu",
    client: Annotated[
        int | None, typer.Option("--client", min=0, help="For a run folder: whose model, counted from 0.")
    ] = None,
    method: Annotated[
        str | None, typer.Option("--method", help="For a run folder: which method; default: the composed one.")
    ] = None,
    round_: Annotated[
        int | None,
        typer.Option("--round", min=0, help="For a run folder: after how many rounds; default: the table's."),
    ] = None,
    source_model: SourceModel = 0,
    trial: Trial = 0,
    trust_code: Annotated[
        bool,
        typer.Option(
            "--trust-code",
            help="Open a .pt2 file too. Such a file is a program and runs with your rights: open only files you made.",
        ),
    ] = False,
    as_json: PlainJson = False,
) -> None:
    """Write the class of each image as CSV: file, label, probability, error.

    For example: fedwca predict model.safetensors photos/ --out labels.csv
    """
    from fedwca.core.deployment_files import is_deployment
    from fedwca.export.load_model import open_model
    from fedwca.export.predict import predict
    from fedwca.export.read_images import find_images, load_pictures
    from fedwca.results.find_runs import ROOT
    from fedwca.runs.resources.choose_device import resolve_device

    if as_json and out is not None:
        raise UsageError(f"--out {out}: is for CSV; --json prints to standard output, so leave out one of both")
    if model.is_file() and (any(value is not None for value in (client, method, round_)) or source_model or trial):
        raise UsageError(
            f"{model}: --client, --method, --round, --source-model and --trial are for run folders; this is one "
            "client's model"
        )
    if is_deployment(model):
        raise UsageError(f"{model}: is a deployment; write a model of it first, with fedwca export")
    is_name = not model.exists() and (ROOT / model).is_dir()
    from_run = model.is_dir() or is_name or client is not None
    if not model.exists() and not from_run:
        raise UsageError(f"{model}: no such file or run; a model is a file that `fedwca export` wrote")
    opened = (
        open_run_model(model, client, method, (source_model, trial, round_), resolve_device(device))
        if from_run
        else open_model(model, device, trust_code=trust_code)
    )
    files = find_images(images)
    with counting(len(set(files))) as on_batch:
        answers = predict(opened, load_pictures(files, opened.about.side, opened.about.stretch), batch_size, top)
        counted = count_progress(answers, on_batch)
        if as_json:
            read, unread = print_answers(counted)
        else:
            read, unread = write_answers(out, counted, min(top, len(opened.about.classes)))
    if out is not None:
        say(f"wrote {out}: {count_of(read, 'image')}")
    if unread:
        place = "error" if as_json else "the column error"
        say(f"Warning: {unread} of {read + unread} could not be read; {place} says why", err=True)
    if not read:
        raise FedwcaError("no image could be read")


def open_run_model(
    run: Path, client: int | None, method: str | None, place: tuple[int, int, int | None], device: str
) -> LoadedModel:
    """Load the model that a client of a run was given; ``place`` holds the source model, the trial and the round."""
    from fedwca.export.load_model import serve_model
    from fedwca.export.model_from_run import model_of
    from fedwca.results.find_runs import find_run
    from fedwca.runs.open_run import open_run

    path = find_run(run)
    if client is None:
        raise UsageError(f"{run}: a run folder holds many models; say whose with --client")
    opened = open_run(path, method, *place, download=False)
    if opened.choice:
        say(opened.choice, err=True)
    return serve_model(*model_of(opened, client=client), device)


def write_answers(out: Path | None, answers: Iterable[list[Answer]], top: int) -> tuple[int, int]:
    """Write the answers as CSV, a file atomically; returns how many images were read and how many were not.

    Raises:
        FedwcaError: the file cannot be written.
    """
    from fedwca.core.files import name_unwritable, write_atomically
    from fedwca.results.tables import spreadsheet_cell

    counts = [0, 0]

    def write_rows(file: Any) -> None:
        table = csv.writer(file, lineterminator="\n")
        further_columns = [name for rank in range(2, top + 1) for name in (f"label_{rank}", f"probability_{rank}")]
        table.writerow(["file", "label", "probability", *further_columns, "error"])
        for batch in answers:
            for answer in batch:
                counts[not answer.best] += 1
                cells = [cell for name, value in answer.best for cell in (name, f"{value:.6f}")]
                row = [answer.file, *(cells or [""] * 2 * top), answer.error]
                table.writerow(map(spreadsheet_cell, row))
            file.flush()

    def write_file(path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            write_rows(file)

    if out is None:
        write_rows(sys.stdout)
        return counts[0], counts[1]
    with name_unwritable(f"--out {out}"):
        write_atomically(out, write_file)
    return counts[0], counts[1]


def print_answers(answers: Iterable[list[Answer]]) -> tuple[int, int]:
    """Print the answers as JSON; returns how many images were read and how many were not."""
    from fedwca.results.json_output.printed_predict import PredictedClass, PrintedPrediction

    printed = [
        PrintedPrediction(
            file=answer.file,
            best=[PredictedClass(label=label, probability=probability) for label, probability in answer.best],
            error=answer.error or None,
        )
        for batch in answers
        for answer in batch
    ]
    say(json.dumps([prediction.model_dump(mode="json") for prediction in printed], indent=2))
    read = sum(bool(prediction.best) for prediction in printed)
    return read, len(printed) - read


def count_progress(answers: Iterable[list[Answer]], on_batch: Any) -> Iterator[list[Answer]]:
    """Yield the batches of answers, each after a call of ``on_batch`` with it."""
    for batch in answers:
        on_batch(batch)
        yield batch


@contextmanager
def counting(files: int) -> Iterator[Any]:
    """A callback that shows progress in files and images per second on stderr; it does nothing without a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = make_console(stderr=True)
    if not console.is_terminal:
        yield lambda batch: None
        return
    columns = TextColumn("files"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}")
    # Standard output stays what it is: the rows are written to it while the bar is shown.
    with Progress(*columns, TimeRemainingColumn(), console=console, redirect_stdout=False) as bar:
        task = bar.add_task("files", total=files, rate="")
        seen_files: set[str] = set()
        images = 0

        def update_bar(batch: list[Answer]) -> None:
            nonlocal images
            images += len(batch)
            seen_files.update(re.sub(r"(?i)(\.npz)\[\d+\]$", r"\1", answer.file) for answer in batch)
            elapsed = bar.tasks[task].elapsed
            rate = f"{images} images, {images / elapsed:.0f}/s" if elapsed else ""
            bar.update(task, completed=len(seen_files), rate=rate)

        yield update_bar
