"""What `fedwca data get` prints: what it will fetch, and its progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from fedwca.cli.terminal import say

if TYPE_CHECKING:
    from fedwca.datasets import DatasetSource
    from fedwca.download.download_dataset import DownloadPlan
    from fedwca.download.fetch_file import Report


def describe_download(plan: DownloadPlan, source: DatasetSource) -> Iterator[str]:
    """Lines with licence and size, with each address, and with each part that has to be downloaded by hand."""
    from fedwca.core.remote_files import HubCopy

    if plan.parts:
        qualifier = "less than " if plan.present_parts else "about "
        size = f"{qualifier}{plan.size / 1e6:,.0f} MB to {plan.folder}"
        yield f"{source.label} ({source.licence or 'licence unknown'}): {size}"
    else:
        yield f"{source.label}: all that can be fetched is in {plan.folder}"
    for part in plan.parts:
        if isinstance(part, HubCopy):
            yield f"  Hugging Face hub, {part.repository} at {part.revision[:12]}"
        else:
            checksum_note = "MD5 checked" if part.md5 else "no checksum known"
            yield f"  {part.urls[0]} ({checksum_note})"
    for manual_part in plan.manual_parts:
        yield f"  not fetched: {manual_part.part}; no lasting address is known, people get it from {manual_part.page}"
    if plan.parts and source.citation:
        yield f"Please cite: {source.citation}"


@contextmanager
def showing_bytes(console: Console) -> Iterator[Report]:
    """A callback that shows progress: a bar per file on a terminal, elsewhere a line when a file is complete."""
    if not console.is_terminal:
        yield _say_when_done
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description:<28}", markup=False), BarColumn(), DownloadColumn())
    with Progress(*columns, TransferSpeedColumn(), TimeRemainingColumn(), console=console) as bars:
        tasks: dict[str, int] = {}

        def report(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name)
            bars.update(tasks[name], completed=done, total=total)  # type: ignore[arg-type]

        yield report


def _say_when_done(name: str, done: int, total: int | None) -> None:
    if done == total:
        say(f"{name}: {done / 1e6:,.1f} MB", err=True)
