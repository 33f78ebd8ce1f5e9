"""One file over HTTP: gone on with where it broke off, checked, and only then under its name."""

from __future__ import annotations

import hashlib
import http.client
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from fedwca._version import __version__
from fedwca.core.input_files import check_not_special
from fedwca.core.remote_files import RemoteFile
from fedwca.errors import DataError, FedwcaError

Report = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes that are there, and the bytes there will be (None: unknown)."""

TRIES = 5
"""Times in a row that a connection may fail without a byte more."""
PATIENCE = 30.0
"""Seconds without a byte after which a connection is taken for dead."""
FIRST_PAUSE = 1.0
"""Seconds before the second try; twice as long before each further one."""
PIECE = 1 << 18
"""Bytes read at once."""


class _Unavailable(Exception):
    """An address that will not give the file however often it is asked."""


class _NoDowngrade(urllib.request.HTTPRedirectHandler):
    """Follows redirections, but never from an encrypted address to one that is not."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise _Unavailable(f"leads to {newurl}, which is not encrypted")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch_file(
    file: RemoteFile, folder: Path, report: Report = lambda name, done, total: None, most: int | None = None
) -> Path:
    """Bring a file to ``folder / file.path``; what is there already, whole, is not fetched again.

    Bytes are kept in ``<name>.part`` until all are there and the checksum is as published. A connection that breaks off
    is opened again and goes on at the next byte, also in a later call; a server whose file changed meanwhile begins
    anew.

    Args:
        file: what is fetched.
        folder: the data set's.
        report: called while bytes come.
        most: bytes that are taken where nothing says how many there will be; None: as many as come.

    Raises:
        FedwcaError: no address gives the file, it is not the published one, or it cannot be written; nothing of a wrong
            file stays.
    """
    target = folder / file.path
    if target.is_file() and find_mismatch(file, target) is None:
        report(target.name, target.stat().st_size, target.stat().st_size)
        return target
    part = target.with_name(target.name + ".part")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        if part.exists():
            check_not_special(part)
        said = []
        for url in file.urls:
            try:
                _fetch_url(url, file, part, report, most)
            except _Unavailable as error:
                said.append(f"{url} {error}")
                continue
            part.replace(target)
            _etag_file(part).unlink(missing_ok=True)
            return target
    except OSError as error:
        kept = f"; {part.stat().st_size:,} bytes are kept, the same command goes on" if part.is_file() else ""
        raise FedwcaError(f"{target}: cannot be written ({error.strerror or error}){kept}") from None
    kept = f". {part.stat().st_size:,} bytes are kept, the same command goes on" if part.is_file() else ""
    raise FedwcaError(f"{target.name} could not be fetched: {'; '.join(said)}{kept}")


def find_mismatch(file: RemoteFile, path: Path) -> str | None:
    """How a file differs from the published one, as half a sentence; None where it does not.

    Raises:
        DataError: it cannot be read.
    """
    found = path.stat().st_size
    if file.size is not None and found != file.size:
        return f"has {found:,} bytes, not {file.size:,}"
    for name, published in (("md5", file.md5), ("sha256", file.sha256)):
        if published is not None and (there := _hash(path, name)) != published:
            return f"has the {name.upper()} {there}, not {published}"
    return None


def _hash(path: Path, name: str) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.new(name, usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None


def _etag_file(part: Path) -> Path:
    """Where it is kept of which edition of the file the bytes are."""
    return part.with_name(part.name + ".etag")


def _fetch_url(url: str, file: RemoteFile, part: Path, report: Report, most: int | None) -> None:
    """Bring all bytes to ``part``; what is there is gone on with.

    Raises:
        _Unavailable: the server refuses, or breaks off again and again, or its file is not the published one.
        OSError: ``part`` cannot be written.
    """
    failed, fresh = 0, False
    while True:
        before = part.stat().st_size if part.is_file() else 0
        try:
            _go_on(url, file, part, report, most)
        except (http.client.HTTPException, urllib.error.URLError, TimeoutError, ConnectionError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            failed = 1 if part.is_file() and part.stat().st_size > before else failed + 1
            if failed >= TRIES:
                raise _Unavailable(f"failed {TRIES} times in a row ({reason or type(error).__name__})") from None
            time.sleep(FIRST_PAUSE * 2 ** (failed - 1))
            continue
        mismatch = find_mismatch(file, part)
        if mismatch is None:
            return
        _remove_part(part)
        # Bytes of an earlier call may have been of another edition: one more try from the first byte.
        if fresh or not before:
            raise _Unavailable(f"{mismatch}; what was fetched is removed")
        fresh = True


def _go_on(url: str, file: RemoteFile, part: Path, report: Report, most: int | None) -> None:
    """Open the address once and write what it gives, behind what is there."""
    have, etag = part.stat().st_size if part.is_file() else 0, _etag_file(part)
    headers = {"User-Agent": f"fedwca/{__version__}", "Accept-Encoding": "identity"}
    edition = etag.read_text() if etag.is_file() else ""
    if have and edition:
        headers |= {"Range": f"bytes={have}-", "If-Range": edition}
    elif have and (file.md5 or file.sha256):  # else nothing would tell another edition's bytes
        headers["Range"] = f"bytes={have}-"
    opener = urllib.request.build_opener(_NoDowngrade)
    try:
        answer = opener.open(urllib.request.Request(url, headers=headers), timeout=PATIENCE)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
                return  # all bytes are there, or more: the checksum tells
            if error.code in (http.HTTPStatus.TOO_MANY_REQUESTS, http.HTTPStatus.REQUEST_TIMEOUT) or error.code >= 500:
                raise ConnectionError(f"HTTP {error.code}") from None
            raise _Unavailable(f"answers HTTP {error.code} ({error.reason})") from None
    except ValueError as error:
        raise _Unavailable(f"is no address ({error})") from None
    with answer:
        goes_on = answer.status == http.HTTPStatus.PARTIAL_CONTENT and _range_start(answer) == have
        have = have if goes_on else 0
        length = answer.headers.get("Content-Length", "")
        total = have + int(length) if length.isdigit() else file.size
        if file.size is not None and total is not None and total != file.size:
            raise _Unavailable(f"offers {total:,} bytes, not {file.size:,}")
        _check_room(part, total, have)
        # Only a strong mark names the very bytes.
        mark = answer.headers.get("ETag", "")
        if mark and not mark.startswith("W/"):
            etag.write_text(mark)
        else:
            etag.unlink(missing_ok=True)
        _write(answer, part, have, total, report, most)


def _range_start(answer: Any) -> int | None:
    """First byte that a partial answer gives."""
    start = str(answer.headers.get("Content-Range", "")).removeprefix("bytes ").partition("-")[0]
    return int(start) if start.isdigit() else None


def _check_room(part: Path, total: int | None, have: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if total is not None and total - have > free:
        raise _Unavailable(f"takes {(total - have) / 1e6:,.0f} MB more, and {free / 1e6:,.0f} MB are free")


def _write(answer: Any, part: Path, have: int, total: int | None, report: Report, most: int | None) -> None:
    name, limit = part.name.removesuffix(".part"), most if total is None else total
    with part.open("ab" if have else "wb") as file:
        report(name, have, total)
        while piece := answer.read(PIECE):
            have += len(piece)
            if limit is not None and have > limit:
                break
            file.write(piece)
            report(name, have, total)
    if limit is not None and have > limit:
        _remove_part(part)
        raise _Unavailable(f"gives more than {limit:,} bytes; what was fetched is removed")
    if total is not None and have < total:
        raise ConnectionError(f"broke off after {have:,} of {total:,} bytes")


def _remove_part(part: Path) -> None:
    part.unlink()
    _etag_file(part).unlink(missing_ok=True)
