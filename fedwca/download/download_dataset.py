"""All of a data set: what it takes is looked at first, then each of its parts is fetched, checked and unpacked."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from fedwca.core.files import write_atomically
from fedwca.core.remote_files import Download, Elsewhere, HubCopy, RemoteFile, TorchvisionFiles
from fedwca.data.cache import make_folder
from fedwca.data.read_domains import find_dataset_path, find_domains
from fedwca.datasets import DatasetSource, datasets
from fedwca.download.fetch_file import Report, fetch_file
from fedwca.download.fetch_hub_copy import fetch_hub_copy
from fedwca.download.torchvision_files import torchvision_files
from fedwca.download.unpack_archive import unpack_archive
from fedwca.errors import FedwcaError, UsageError

UNPACKED = 1.3
"""Room that images take once more while they are unpacked, as a multiple of what is downloaded."""
RECORD = "download.json"


@dataclass(frozen=True)
class DownloadPlan:
    """What getting a data set takes."""

    name: str
    folder: Path
    """Where it will lie."""
    parts: tuple[RemoteFile | HubCopy, ...]
    """What is not there yet."""
    there: int
    """Parts that are there already."""
    elsewhere: tuple[Elsewhere, ...]
    """What has to be got by hand."""
    size: int
    """Bytes of the whole download, about; less where parts are there already."""


def plan_download(source: DatasetSource) -> DownloadPlan:
    """What is missing of a catalogued data set, and where it will lie; nothing is fetched.

    Raises:
        UsageError: it is not fetched by fedwca; says where people get it.
    """
    if not source.downloads:
        raise UsageError(
            f"{source.name} is not fetched: {source.where or source.source_url}. Those that are: "
            + ", ".join(name for name in datasets.names() if datasets.get(name).downloads)
        )
    folder = find_dataset_path(source.folder, source.name) or source.folder / source.name
    if folder.is_file():  # the whole of it as one archive
        return DownloadPlan(source.name, folder, (), 1, (), source.download_size)
    # Of a set with a download for each domain, those that are there in another form are not fetched beside it.
    domains = source.domains if len(source.domains) == len(source.downloads) else [""] * len(source.downloads)
    left = [
        given
        for given, domain in zip(source.downloads, domains, strict=True)
        if not (domain and source.is_there(domain, folder))
    ]
    parts = [part for given in left for part in _resolve(given)]
    wanted = [part for part in parts if not isinstance(part, Elsewhere)]
    missing = tuple(part for part in wanted if not _is_there(part, source, folder))
    elsewhere = tuple(part for part in parts if isinstance(part, Elsewhere))
    return DownloadPlan(
        source.name,
        folder,
        missing,
        len(wanted) - len(missing) + len(source.downloads) - len(left),
        elsewhere,
        source.download_size,
    )


def _resolve(given: Download) -> Iterator[RemoteFile | HubCopy | Elsewhere]:
    if isinstance(given, TorchvisionFiles):
        yield from torchvision_files(given)
    else:
        yield given


def _is_there(part: RemoteFile | HubCopy, source: DatasetSource, folder: Path) -> bool:
    if isinstance(part, RemoteFile):
        return (folder / (part.gives or part.path)).exists()
    found = find_domains(folder) if folder.is_dir() else {}
    return all(name in found for name in ((part.only,) if part.only else source.domains))


def download_dataset(plan: DownloadPlan, report: Report = lambda name, done, total: None) -> Counter[str]:
    """Fetch what is missing; a second call, also after a kill, goes on where the first one was.

    Args:
        plan: of `plan_download`.
        report: called while bytes come.

    Returns:
        Images of each domain that came from the hub; other parts are counted when they are read.

    Raises:
        FedwcaError: a part cannot be fetched or the disk is too small.
        DataError: a part is not as published; nothing of it stays.
    """
    make_folder(plan.folder)
    need, free = int(plan.size * (1 + UNPACKED)) if plan.parts else 0, shutil.disk_usage(plan.folder).free
    if need > free and (need := need - _bytes_there(plan.folder)) > free:
        raise FedwcaError(
            f"{plan.name} takes about {need / 1e9:.1f} GB more in {plan.folder} while it is unpacked, and "
            f"{free / 1e9:.1f} GB are free; name another disk with --data"
        )
    counts: Counter[str] = Counter()
    try:
        with FileLock(plan.folder / ".download.lock", timeout=0):
            for part in plan.parts:
                if isinstance(part, HubCopy):
                    counts += fetch_hub_copy(part, plan.folder, report)
                    continue
                # What the catalogue says is about right; a server that says nothing must not fill the disk.
                path = fetch_file(part, plan.folder, report, 2 * plan.size or None)
                if part.unpack:
                    unpack_archive(part, path, plan.folder)
            _write_record(plan, counts)
    except Timeout:
        raise FedwcaError(f"{plan.folder}: another `fedwca data get` is at work on it") from None
    return counts


def _bytes_there(folder: Path) -> int:
    """What an earlier call left, unpacked, fetched or in part: so much less of the whole is still to be written."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _write_record(plan: DownloadPlan, counts: Counter[str]) -> None:
    """Keep beside the files when and from where they came, and a digest of what was written."""
    file, now = plan.folder / RECORD, datetime.now(UTC).isoformat(timespec="seconds")
    came = [
        {"repository": part.repository, "revision": part.revision}
        if isinstance(part, HubCopy)
        else {"url": part.urls[0], "md5": part.md5, "sha256": part.sha256}
        for part in plan.parts
    ]
    before = json.loads(file.read_text()) if file.is_file() else {}  # what earlier calls fetched is there too
    came = [*(one for one in before.get("from", ()) if one not in came), *came]
    images = {**before.get("images", {}), **counts}
    kept = {"time": now, "from": came, "images": images, "digest": digest_files(plan.folder)}
    write_atomically(file, lambda path: _write_json(path, kept))


def _write_json(path: Path, values: Mapping[str, object]) -> None:
    path.write_text(json.dumps(values, indent=1) + "\n")


def digest_files(folder: Path) -> str:
    """Sha256 over names and contents of all files in a folder, hidden ones and the record left out; 64 hex digits."""
    sha = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder)
        if name.as_posix() == RECORD or any(part.startswith(".") for part in name.parts):
            continue
        sha.update(name.as_posix().encode() + b"\0")
        with path.open("rb") as file:
            sha.update(hashlib.file_digest(file, "sha256").digest())
    return sha.hexdigest()
