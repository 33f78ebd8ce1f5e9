"""``fedwca data``: list, download, check and show data sets."""

from __future__ import annotations

import json
import textwrap
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from fedwca.cli.download_progress import describe_download, showing_bytes
from fedwca.cli.shared_options import PlainJson
from fedwca.cli.terminal import make_console, say
from fedwca.core.printable import quote_path
from fedwca.datasets import DatasetSource, datasets, find_dataset
from fedwca.errors import FedwcaError

if TYPE_CHECKING:
    from fedwca.data import FederatedDataset
    from fedwca.results.json_output.printed_data import CheckedDataset

app = typer.Typer(
    help="Data sets: which there are, how to get them, whether yours is complete, what it looks like.",
    no_args_is_help=True,
)

Name = Annotated[
    str, typer.Argument(help="A data set of `fedwca data list`, or a folder in --data.", show_default=False)
]
Catalogued = Annotated[str, typer.Argument(help="A published data set of `fedwca data list`.", show_default=False)]
Data = Annotated[Path | None, typer.Option("--data", help="Folder that holds the data set. [default: FEDWCA_DATA]")]
Plan = Annotated[bool, typer.Option("--dry-run", help="Only say what would be fetched.")]
Out = Annotated[Path, typer.Option("--out", help="PNG to write.")]
MOST = 12
"""Largest number of classes that `draw_sheet` shows."""


@app.command("list")
def list_datasets() -> None:
    """List the data sets fedwca knows, and below where they are from."""
    from fedwca.cli.wide_tables import align_heads

    table = Table(Column("name", no_wrap=True), "domains", "classes", "images")
    origins = {}
    for name in datasets.names():
        try:
            cls = datasets.get(name)
        except FedwcaError as error:  # a broken plugin must not keep the others from being listed
            origins[name] = f"({error})"
            continue
        size_cells = [str(len(cls.classes)), f"{sum(cls.image_counts.values()):,}"] if cls.classes else ["any", "any"]
        table.add_row(name, ", ".join(cls.domains) or "any", *size_cells)
        origins[name] = cls.origin or cls.source_url
    make_console().print(table)
    # Not in the table, whose columns would break addresses.
    say("\n".join(align_heads(list(origins), list(origins.values()))))


@app.command("get")
def get_dataset(name: Catalogued, data: Data = None, plan: Plan = False) -> None:
    """Fetch a catalogued data set, check it, and lay it out as its reader wants it.

    Goes on where it was broken off. Addresses, licence and size are said before the first byte.
    """
    from fedwca.download.download_dataset import download_dataset, plan_download

    source = find_dataset(name, data)
    download_plan = plan_download(source)
    console = make_console(stderr=True)
    for line in describe_download(download_plan, source):
        console.print(line, soft_wrap=True)
    if plan or not download_plan.parts:
        return
    with showing_bytes(console) as report:
        counts = download_dataset(download_plan, report)
    for domain, count in counts.items():
        expected = source.image_counts.get(domain)
        mismatch = f", published are {expected:,}" if expected not in (None, count) else ""
        console.print(f"{domain}: {count:,} images{mismatch}", soft_wrap=True)
    data_option = f" --data {quote_path(data)}" if data else ""
    make_console().print(
        f"{download_plan.folder}\nCheck it: fedwca data check {source.name}{data_option}", soft_wrap=True
    )


@app.command("check")
def check_dataset(name: Name, data: Data = None, as_json: PlainJson = False) -> None:
    """Load a data set, count its images, and print its digest."""
    from fedwca.results.json_output.printed_data import CheckedDataset

    source = find_dataset(name, data)
    verified = source.verify_checksums()
    dataset = _loaded(source)
    checked = CheckedDataset(
        name=dataset.name,
        classes=list(dataset.classes),
        counts={name: domain.class_counts(len(dataset.classes)) for name, domain in dataset.domains.items()},
        expected={name: source.image_counts.get(name, 0) for name in dataset.domains} if source.image_counts else None,
        verified=verified,
        digest=dataset.digest(),
    )
    if as_json:
        say(json.dumps(checked.model_dump(mode="json"), indent=2))
    else:
        _print_checked(checked)


def _print_checked(checked: CheckedDataset) -> None:
    columns = checked.counts
    table = Table("class", *(Column(name, justify="right") for name in columns))
    empty_labels = {
        label for label in range(len(checked.classes)) if not any(counts[label] for counts in columns.values())
    }
    # Rows of many empty classes would bury those of the others.
    hidden_labels = empty_labels if 2 * len(empty_labels) > len(checked.classes) else set()
    for label, title in enumerate(checked.classes):
        if label not in hidden_labels:
            table.add_row(title, *(f"{counts[label]:,}" for counts in columns.values()))
    if hidden_labels:
        table.add_row(f"{len(hidden_labels):,} more", *("0" for _ in columns))
    table.add_section()
    table.add_row("images", *(f"{sum(counts):,}" for counts in columns.values()))
    if checked.expected is not None:
        table.add_row("expected", *(f"{count:,}" for count in checked.expected.values()))
    console = make_console()
    console.print(table)
    if checked.verified:
        console.print(f"MD5 as published: {', '.join(checked.verified)}", soft_wrap=True)
    console.print(f"digest of {checked.name}: {checked.digest}", soft_wrap=True)


@app.command("show")
def show_dataset(name: Name, data: Data = None, out: Out = Path("samples.png")) -> None:
    """Draw two images of every class and domain into a PNG."""
    from fedwca.core.files import name_unwritable
    from fedwca.errors import UsageError

    if out.suffix.lower() != ".png":
        raise UsageError(f"--out {out}: the picture is a PNG; name a file that ends in .png")
    dataset = _loaded(find_dataset(name, data))
    with name_unwritable(f"--out {out}"):
        draw_sheet(dataset, out)
    make_console().print(f"wrote {out}", soft_wrap=True)


def _loaded(source: DatasetSource) -> FederatedDataset:
    """Load a data set, with all warnings about it."""
    from fedwca.data import DatasetWarning

    with warnings.catch_warnings(action="always", category=DatasetWarning):
        return source.load()


def draw_sheet(dataset: FederatedDataset, path: Path) -> None:
    """Draw samples as a PNG: two rows per domain, one column per class, of the first `MOST` classes."""
    import numpy as np

    from fedwca.results.pictures import style

    classes, rows = dataset.classes[:MOST], 2
    title = f"{dataset.name}: {len(dataset.domains)} domains, {len(dataset.classes)} classes"
    figure = style.figure(1.6 + 0.9 * len(classes), 0.5 + 0.9 * rows * len(dataset.domains), title)
    axes = figure.subplots(rows * len(dataset.domains), len(classes), squeeze=False)
    for index, domain in enumerate(dataset.domains.values()):
        for label, title in enumerate(classes):
            matching = np.flatnonzero(domain.labels == label)
            samples = matching[np.unique([0, len(matching) // 2])] if len(matching) else matching
            for row in range(rows):
                axis = axes[rows * index + row, label]
                axis.set(xticks=[], yticks=[], frame_on=False)
                if row < len(samples):
                    axis.imshow(domain.images[samples[row]], interpolation="nearest")
                if index == row == 0:
                    # A long name on one line would run into its neighbour's.
                    axis.set_title(textwrap.fill(title, 14), fontsize=8)
                if label == row == 0:
                    axis.set_ylabel(domain.name, rotation=0, ha="right", va="center")
    style.save(figure, path, 100)
