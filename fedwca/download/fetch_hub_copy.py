"""Download a data set of the Hugging Face hub: fetch and check its parquet files, and rewrite them as domains."""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import numpy as np

from fedwca.core.files import name_unwritable, write_atomically
from fedwca.core.remote_files import HubCopy, RemoteFile
from fedwca.data.dataset import canonical_domain
from fedwca.data.find_domains import find_domains
from fedwca.download.fetch_file import Report, fetch_file
from fedwca.errors import DataError, FedwcaError, UsageError, first_line

INSTALL = "needs libraries that are not installed: pip install 'fedwca[hub]'"
ROWS = 256
"""Rows read at once, which bounds the memory for writing folders."""
SUFFIXES = ((b"\x89PNG", ".png"), (b"\xff\xd8", ".jpg"), (b"GIF8", ".gif"), (b"BM", ".bmp"), (b"RIFF", ".webp"))
KEPT = ".hub"
"""Folder that holds the parquet files until all of them are fetched and rewritten."""


@dataclass(frozen=True)
class HubRow:
    """One image and its annotations."""

    image: bytes
    """Encoded image, as in the file."""
    label: int
    domain: str
    part: int
    """0 of a training split, 1 of a test split."""
    unit: object


def list_hub_files(copy: HubCopy) -> list[RemoteFile]:
    """List the parquet files of a copy, with the sizes and checksums that the hub states.

    Raises:
        UsageError: huggingface_hub or pyarrow is not installed.
        FedwcaError: the hub cannot be reached, or has no such copy.
        DataError: the copy has no parquet file.
    """
    try:
        import pyarrow.parquet  # noqa: F401
        from huggingface_hub import HfApi, constants
    except ImportError:
        raise UsageError(f"{copy.repository} of the Hugging Face hub {INSTALL}") from None
    try:
        info = HfApi(constants.ENDPOINT).dataset_info(
            copy.repository, revision=copy.revision, files_metadata=True, timeout=30
        )
    except Exception as error:  # the library's own, and those of network and system
        reason = first_line(error)
        raise FedwcaError(
            f"the Hugging Face hub does not show {copy.repository} at {copy.revision}: {reason}"
        ) from None
    files = []
    for sibling in sorted(info.siblings or [], key=lambda sibling: sibling.rfilename):
        if sibling.rfilename.endswith(".parquet"):
            url = f"{constants.ENDPOINT}/datasets/{copy.repository}/resolve/{copy.revision}/{quote(sibling.rfilename)}"
            sha256 = sibling.lfs.sha256 if sibling.lfs else None
            name = f"{KEPT}/{sibling.rfilename.replace('/', '--')}"
            files.append(RemoteFile((url,), name, sha256=sha256, size=sibling.size))
    if not files:
        raise DataError(f"{copy.repository} at {copy.revision} holds no parquet file")
    return files


def fetch_hub_copy(copy: HubCopy, folder: Path, report: Report) -> Counter[str]:
    """Fetch a copy into ``folder`` in the layout that its readers expect; returns the number of images of each domain.

    Raises:
        UsageError: huggingface_hub or pyarrow is not installed.
        FedwcaError: a file cannot be fetched or written.
        DataError: a file is not what the copy's description says; the message names it.
    """
    paths = [fetch_file(file, folder, report) for file in list_hub_files(copy)]
    counts = (write_folders if copy.saved_as == "folders" else write_archives)(copy, paths, folder)
    shutil.rmtree(folder / KEPT, ignore_errors=True)
    return counts


def write_folders(copy: HubCopy, paths: list[Path], folder: Path) -> Counter[str]:
    """Write ``<domain>/<class>/<image>``, images as they are encoded; a domain appears only when it is complete."""
    names, unfinished, counts = class_names(copy, paths), folder / ".unfinished", Counter[str]()
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        for row in read_rows(copy, paths):
            class_folder = unfinished / row.domain / names[row.label]
            class_folder.mkdir(parents=True, exist_ok=True)
            suffix = next((suffix for magic, suffix in SUFFIXES if row.image.startswith(magic)), ".img")
            (class_folder / f"{counts[row.domain]:06d}{suffix}").write_bytes(row.image)
            counts[row.domain] += 1
        existing = find_domains(folder)  # complete domains of a call that was interrupted
        for domain in (domain for domain in counts if domain not in existing):
            for name in names:  # a class may be empty, its folder must be there
                (unfinished / domain / name).mkdir(exist_ok=True)
            (unfinished / domain).rename(folder / domain)
    except OSError as error:
        raise FedwcaError(f"{error.filename or folder}: cannot be written ({error.strerror or error})") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return counts


def write_archives(copy: HubCopy, paths: list[Path], folder: Path) -> Counter[str]:
    """Write ``<domain>.npz`` with images, labels and published parts, and with units if the copy has them."""
    from PIL import Image

    rows_by_domain: dict[str, list[tuple[Any, int, int, object]]] = {}
    names = class_names(copy, paths)
    for row in read_rows(copy, paths):
        try:
            with Image.open(io.BytesIO(row.image)) as image:
                pixels = np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))
        except Exception as error:  # decoders raise exceptions of many kinds for damaged images
            raise DataError(f"{copy.repository}: an image of {row.domain} does not decode: {error}") from None
        rows_by_domain.setdefault(row.domain, []).append((pixels, row.label, row.part, row.unit))
    for domain, rows in rows_by_domain.items():
        shapes = {pixels.shape for pixels, *_ in rows}
        if len(shapes) > 1:
            raise DataError(f"{copy.repository}: images of {domain} have {len(shapes)} shapes, an archive takes one")
        arrays = {
            "images": np.stack([pixels for pixels, *_ in rows]),
            "labels": np.array([label for _, label, _, _ in rows], np.int64),
            "part": np.array([part for _, _, part, _ in rows], np.int64),
            "classes": np.array(names),
        }
        if copy.unit:
            arrays["units"] = np.unique([str(unit) for *_, unit in rows], return_inverse=True)[1].astype(np.int64)
        with name_unwritable(archive := folder / f"{domain}.npz"):
            write_atomically(archive, lambda path, arrays=arrays: np.savez(path, **arrays))  # type: ignore[misc]
    return Counter({domain: len(rows) for domain, rows in rows_by_domain.items()})


def class_names(copy: HubCopy, paths: list[Path]) -> list[str]:
    """Class names as the first file declares them; they become folders, so they must be names of folders.

    Raises:
        DataError: the file declares no names, or one that is not the name of a folder.
    """
    names = _features(paths[0]).get(copy.label, {}).get("names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{paths[0].name} of {copy.repository}: column {copy.label!r} declares no names of classes")
    for name in names:
        _check_name(copy, name)
    return names


def _check_name(copy: HubCopy, name: str) -> None:
    if not name.strip() or name.startswith(".") or PurePosixPath(name.replace("\\", "/")).name != name:
        raise DataError(f"{copy.repository} has {name!r} for a class or domain, which is no name of a folder")


def read_rows(copy: HubCopy, paths: list[Path]) -> Iterator[HubRow]:
    """Yield the rows of all files, reading a few at a time.

    Raises:
        DataError: a file is damaged, lacks a column, or a value is not what the column should hold.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [name for name in (copy.image, copy.label, copy.domain, copy.unit) if name]
    for path in paths:
        features = _features(path)
        classes = len(features.get(copy.label, {}).get("names") or ())
        domain_names = features.get(copy.domain or "", {}).get("names")
        part = int("test" in PurePosixPath(path.name.replace("--", "/")).as_posix().rpartition("/")[2])
        part = part or int("/test/" in path.name.replace("--", "/"))
        try:
            with pq.ParquetFile(path) as file:
                if missing_columns := [name for name in columns if name not in file.schema_arrow.names]:
                    raise DataError(f"{path.name} of {copy.repository} has no column {', '.join(missing_columns)}")
                for batch in file.iter_batches(ROWS, columns=columns):
                    for row in batch.to_pylist():
                        yield _row(copy, row, classes, domain_names, part)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path} cannot be read as parquet: {error}") from None


def _row(copy: HubCopy, row: Mapping[str, Any], classes: int, domain_names: list[str] | None, part: int) -> HubRow:
    image, label = row[copy.image], row[copy.label]
    image = image.get("bytes") if isinstance(image, dict) else image
    if not isinstance(image, bytes):
        raise DataError(f"{copy.repository}: column {copy.image!r} holds no encoded images")
    if not isinstance(label, int) or not 0 <= label < classes:
        raise DataError(f"{copy.repository}: column {copy.label!r} holds {label!r}; 0 to {classes - 1} is right")
    value = row[copy.domain] if copy.domain else copy.only_domain
    if isinstance(value, int) and domain_names:
        if not 0 <= value < len(domain_names):
            raise DataError(
                f"{copy.repository}: column {copy.domain!r} holds {value}; 0 to {len(domain_names) - 1} is right"
            )
        value = domain_names[value]
    value = copy.domain_names.get(str(value), str(value))
    _check_name(copy, value)
    return HubRow(image, label, canonical_domain(value), part, row[copy.unit] if copy.unit else None)


def _features(path: Path) -> dict[str, Any]:
    """Features of the columns by name, from the metadata that ``datasets`` writes into the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(path).metadata or {}
        features = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    except (pa.ArrowException, OSError, ValueError, AttributeError) as error:
        raise DataError(f"{path} cannot be read as parquet: {error}") from None
    return {name: value for name, value in features.items() if isinstance(value, dict)}
