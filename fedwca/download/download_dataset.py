"""Download a data set: plan what is missing, then fetch, check and unpack each part."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedwca.core.file_locks import hold_alone
from fedwca.core.files import write_text_atomically
from fedwca.core.remote_files import RECORD, Download, HubCopy, ManualDownload, RemoteFile, TorchvisionFiles
from fedwca.data.cache import make_folder
from fedwca.data.find_domains import find_dataset_path, find_domains, is_archive
from fedwca.datasets import DatasetSource, datasets
from fedwca.download.fetch_file import Report, fetch_file
from fedwca.download.fetch_hub_copy import fetch_hub_copy
from fedwca.download.torchvision_files import torchvision_files
from fedwca.download.unpack_archive import unpack_archive
from fedwca.errors import FedwcaError, UsageError

UNPACKED = 1.3
"""Disk space for unpacking, beside the download itself, as a multiple of the size of the download."""


@dataclass(frozen=True)
class DownloadPlan:
    """What has to be downloaded for a data set."""

    name: str
    folder: Path
    """Folder of the data set."""
    parts: tuple[RemoteFile | HubCopy, ...]
    """Parts that are not there yet."""
    present_parts: int
    """Number of parts that are there already."""
    manual_parts: tuple[ManualDownload, ...]
    """Parts that users have to get by hand."""
    size: int
    """Approximate bytes of the whole download, including parts that are there already."""


def plan_download(source: DatasetSource) -> DownloadPlan:
    """Find which parts of a catalogued data set are missing; nothing is fetched.

    Raises:
        UsageError: fedwca cannot fetch the data set; the message says where people get it.
    """
    if not source.downloads:
        raise UsageError(
            f"{source.name} is not fetched: {source.origin or source.source_url}. Those that are: "
            + ", ".join(filter(_is_fetched, datasets.names()))
        )
    folder = find_dataset_path(source.root_folder, source.name) or source.root_folder / source.name
    only_domain_is_there = len(source.domains) == 1 and source.has_domain(source.domains[0], folder)
    if only_domain_is_there or folder.is_file():  # a file is the whole data set as one archive
        return DownloadPlan(source.name, source.own_folder, (), 1, (), source.download_size)
    # If each of several domains has a download of its own, those that are there in another form are not fetched.
    apart = len(source.domains) == len(source.downloads) > 1
    domains = source.domains if apart else [""] * len(source.downloads)
    remaining = [
        download
        for download, domain in zip(source.downloads, domains, strict=True)
        if not (domain and source.has_domain(domain, folder))
    ]
    parts = [part for download in remaining for part in _resolve(download)]
    fetchable = [part for part in parts if not isinstance(part, ManualDownload)]
    missing = tuple(part for part in fetchable if not _is_there(part, source, folder))
    manual = tuple(part for part in parts if isinstance(part, ManualDownload))
    return DownloadPlan(
        source.name,
        folder,
        missing,
        len(fetchable) - len(missing) + len(source.downloads) - len(remaining),
        manual,
        source.download_size,
    )


def _is_fetched(name: str) -> bool:
    try:
        return bool(datasets.get(name).downloads)
    except FedwcaError:  # a broken plugin
        return False


def _resolve(download: Download) -> Iterator[RemoteFile | HubCopy | ManualDownload]:
    if isinstance(download, TorchvisionFiles):
        yield from torchvision_files(download)
    else:
        yield download


def _is_there(part: RemoteFile | HubCopy, source: DatasetSource, folder: Path) -> bool:
    if isinstance(part, RemoteFile):
        return (folder / (part.unpacked_path or part.path)).exists()
    path_by_domain = find_domains(folder) if folder.is_dir() else {}
    if part.saved_as == "archive":  # the only form of it that is read
        path_by_domain = {name: path for name, path in path_by_domain.items() if is_archive(path)}
    return all(name in path_by_domain for name in ((part.only_domain,) if part.only_domain else source.domains))


def download_dataset(plan: DownloadPlan, report: Report = lambda name, done, total: None) -> Counter[str]:
    """Fetch the missing parts; a second call goes on where the first one was interrupted.

    Args:
        plan: from `plan_download`.
        report: called while bytes arrive.

    Returns:
        Number of images of each domain that came from the hub; other parts are counted when they are read.

    Raises:
        FedwcaError: a part cannot be fetched or the disk is too small.
        DataError: a part does not hold what it should; the data set gets none of it.
    """
    made = [path for path in (plan.folder, *plan.folder.parents) if not path.exists()]
    make_folder(plan.folder)
    lock = plan.folder / ".download.lock"
    problem = FedwcaError(f"{plan.folder}: another `fedwca data get` is at work on it")
    with hold_alone(lock, problem), _removing_what_stays_empty(lock, made):
        _check_room(plan)
        counts: Counter[str] = Counter()
        for number, part in enumerate(plan.parts, start=1):
            if isinstance(part, HubCopy):
                counts += fetch_hub_copy(part, plan.folder, report)
            else:
                # The catalogue's size is approximate; a server that states no size must not fill the disk.
                path = fetch_file(part, plan.folder, report, 2 * plan.size or None)
                if part.unpack:
                    unpack_archive(part, path, plan.folder)
            _write_record(replace(plan, parts=plan.parts[:number]), counts)
        _write_record(plan, counts, digest_files(plan.folder))
    return counts


@contextmanager
def _removing_what_stays_empty(lock: Path, made: list[Path]) -> Iterator[None]:
    """Where the block fails, remove the folders ``made``, innermost first, if they hold nothing but ``lock``."""
    try:
        yield
    except BaseException:  # also Ctrl-C
        with suppress(OSError):  # a folder holds something; on Windows, the lock is still open
            inner_folders = [path for path in lock.parent.rglob("*") if made and path.is_dir()]
            for path in sorted(inner_folders, reverse=True):
                path.rmdir()
            if made and list(lock.parent.iterdir()) == [lock]:
                lock.unlink()
                for path in made:
                    path.rmdir()
        raise


def _check_room(plan: DownloadPlan) -> None:
    need, free = int(plan.size * (1 + UNPACKED)) if plan.parts else 0, shutil.disk_usage(plan.folder).free
    if need > free and (need := need - _bytes_there(plan.folder)) > free:
        raise FedwcaError(
            f"{plan.name} takes about {need / 1e9:.1f} GB more in {plan.folder} while it is unpacked, and "
            f"{free / 1e9:.1f} GB are free; name another disk with --data"
        )


def _bytes_there(folder: Path) -> int:
    """Bytes that earlier calls left in a folder, by which less is still to be written."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _write_record(plan: DownloadPlan, counts: Counter[str], digest: str | None = None) -> None:
    """Write beside the files when and from where they came, and in the end a digest of all of them."""
    file, now = plan.folder / RECORD, datetime.now(UTC).isoformat(timespec="seconds")
    sources = [
        {"repository": part.repository, "revision": part.revision}
        if isinstance(part, HubCopy)
        else {"url": part.urls[0], "md5": part.md5, "sha256": part.sha256}
        for part in plan.parts
    ]
    previous = _read_record(file)  # what earlier calls fetched is there too
    sources = [*(source for source in previous.get("from", ()) if source not in sources), *sources]
    images = {**previous.get("images", {}), **counts}
    record = {"time": now, "from": sources, "images": images, "digest": digest}
    write_text_atomically(file, json.dumps(record, indent=1) + "\n")


def _read_record(file: Path) -> dict[str, Any]:
    """The record of earlier calls; empty if there is none, or it is damaged."""
    try:
        record = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    is_whole = isinstance(record, dict) and isinstance(record.get("from"), list)
    return record if is_whole and isinstance(record.get("images"), dict) else {}


def digest_files(folder: Path) -> str:
    """SHA-256 of names and contents of all files in a folder but hidden ones and the record, as 64 hex digits."""
    sha = hashlib.sha256()
    for path in sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.parts):
        name = path.relative_to(folder)
        if name.as_posix() == RECORD or any(part.startswith(".") for part in name.parts):
            continue
        sha.update(os.fsencode(name.as_posix()) + b"\0")
        with path.open("rb") as file:
            sha.update(hashlib.file_digest(file, "sha256").digest())
    return sha.hexdigest()
