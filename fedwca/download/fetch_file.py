"""Fetch one file over HTTP: resume where it broke off, check it, and only then give it its name."""

from __future__ import annotations

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
from fedwca.data.archives import file_hash
from fedwca.errors import FedwcaError

Report = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes received so far, and the total bytes (None: unknown)."""

TRIES = 5
"""Failed connections in a row, without a new byte, after which an address is given up."""
PATIENCE = 30.0
"""Seconds without a byte after which a connection counts as failed."""
FIRST_PAUSE = 1.0
"""Seconds before the second try; doubled before each further one."""
PIECE = 1 << 18
"""Bytes read at once."""


class _Unavailable(Exception):
    """An address cannot give the file, however often it is tried."""


class _NoDowngrade(urllib.request.HTTPRedirectHandler):
    """Follows redirections, but never from an encrypted address to an unencrypted one."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise _Unavailable(f"leads to {newurl}, which is not encrypted")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch_file(
    file: RemoteFile, folder: Path, report: Report = lambda name, done, total: None, most: int | None = None
) -> Path:
    """Fetch a file to ``folder / file.path``, unless it is already there and complete.

    Bytes are kept in ``<name>.part`` until all are there and the checksum is as published. A connection that breaks off
    is opened again and resumes at the next byte, also in a later call; if the file on the server has changed meanwhile,
    the download starts again.

    Args:
        file: the remote file.
        folder: of the data set.
        report: called while bytes arrive.
        most: most bytes that are accepted if neither catalogue nor server states a size; None: no bound.

    Raises:
        FedwcaError: no address gives the file, it is not the published one, or it cannot be written; what was fetched
            of a wrong file is removed.
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
        failures = []
        for url in file.urls:
            try:
                _fetch_url(url, file, part, report, most)
            except _Unavailable as error:
                failures.append(f"{url} {error}")
                continue
            part.replace(target)
            _etag_file(part).unlink(missing_ok=True)
            return target
    except OSError as error:
        kept_note = f"; {part.stat().st_size:,} bytes are kept, the same command goes on" if part.is_file() else ""
        raise FedwcaError(f"{target}: cannot be written ({error.strerror or error}){kept_note}") from None
    kept_note = f". {part.stat().st_size:,} bytes are kept, the same command goes on" if part.is_file() else ""
    raise FedwcaError(f"{target.name} could not be fetched: {'; '.join(failures)}{kept_note}")


def find_mismatch(file: RemoteFile, path: Path) -> str | None:
    """How a file differs from the published one, as half a sentence; None if it does not.

    Raises:
        DataError: the file cannot be read.
    """
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        return f"has {size:,} bytes, not {file.size:,}"
    for name, published in (("md5", file.md5), ("sha256", file.sha256)):
        if published is not None and (digest := file_hash(path, name)) != published:
            return f"has the {name.upper()} {digest}, not {published}"
    return None


def _etag_file(part: Path) -> Path:
    """The file that holds the ETag of the version to which the bytes of ``part`` belong."""
    return part.with_name(part.name + ".etag")


def _fetch_url(url: str, file: RemoteFile, part: Path, report: Report, most: int | None) -> None:
    """Download all bytes to ``part``, resuming after those that are there.

    Raises:
        _Unavailable: the server refuses, or breaks off again and again, or its file is not the published one.
        OSError: ``part`` cannot be written.
    """
    failures, restarted = 0, False
    while True:
        size_before = part.stat().st_size if part.is_file() else 0
        try:
            _go_on(url, file, part, report, most)
        except (http.client.HTTPException, urllib.error.URLError, TimeoutError, ConnectionError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            failures = 1 if part.is_file() and part.stat().st_size > size_before else failures + 1
            if failures >= TRIES:
                raise _Unavailable(f"failed {TRIES} times in a row ({reason or type(error).__name__})") from None
            time.sleep(FIRST_PAUSE * 2 ** (failures - 1))
            continue
        mismatch = find_mismatch(file, part)
        if mismatch is None:
            return
        _remove_part(part)
        # Earlier bytes may belong to another version of the file: try once more from the first byte.
        if restarted or not size_before:
            raise _Unavailable(f"{mismatch}; what was fetched is removed")
        restarted = True


def _go_on(url: str, file: RemoteFile, part: Path, report: Report, most: int | None) -> None:
    """Open the address once and append what it sends to ``part``."""
    received, etag_path = part.stat().st_size if part.is_file() else 0, _etag_file(part)
    headers = {"User-Agent": f"fedwca/{__version__}", "Accept-Encoding": "identity"}
    known_etag = etag_path.read_text() if etag_path.is_file() else ""
    if received and known_etag:
        headers |= {"Range": f"bytes={received}-", "If-Range": known_etag}
    elif received and (file.md5 or file.sha256):  # else bytes of another version would go unnoticed
        headers["Range"] = f"bytes={received}-"
    try:
        response = _open(url, headers)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and received:
                return  # all bytes are there, or too many: the checksum tells
            if error.code in (http.HTTPStatus.TOO_MANY_REQUESTS, http.HTTPStatus.REQUEST_TIMEOUT) or error.code >= 500:
                raise ConnectionError(f"HTTP {error.code}") from None
            raise _Unavailable(f"answers HTTP {error.code} ({error.reason})") from None
    with response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT and _range_start(response) == received
        received = received if resumed else 0
        length = response.headers.get("Content-Length", "")
        total = received + int(length) if length.isdecimal() else file.size
        if file.size is not None and total is not None and total != file.size:
            raise _Unavailable(f"offers {total:,} bytes, not {file.size:,}")
        _check_room(part, total, received)
        # Only a strong ETag guarantees the same bytes.
        new_etag = response.headers.get("ETag", "")
        if new_etag and not new_etag.startswith("W/"):
            etag_path.write_text(new_etag)
        else:
            etag_path.unlink(missing_ok=True)
        _write(response, part, received, total, report, most)


def _open(url: str, headers: dict[str, str]) -> Any:
    """The response of an address.

    Raises:
        _Unavailable: the address is none, or leads to one that is not encrypted.
        URLError: the server refuses, or cannot be connected to.
        ConnectionError: the connection failed before the headers came.
    """
    opener = urllib.request.build_opener(_NoDowngrade)
    try:
        return opener.open(urllib.request.Request(url, headers=headers), timeout=PATIENCE)
    except urllib.error.URLError:
        raise
    except ValueError as error:
        raise _Unavailable(f"is no address ({error})") from None
    except OSError as error:
        raise _connection_error(error) from error


def _range_start(response: Any) -> int | None:
    """Position of the first byte of a partial response; None if the response does not state it."""
    start = str(response.headers.get("Content-Range", "")).removeprefix("bytes ").partition("-")[0]
    return int(start) if start.isdecimal() else None


def _check_room(part: Path, total: int | None, received: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if total is not None and total - received > free:
        raise _Unavailable(f"takes {(total - received) / 1e6:,.0f} MB more, and {free / 1e6:,.0f} MB are free")


def _read(response: Any) -> bytes:
    """The next bytes of a response.

    Raises:
        ConnectionError: the connection failed, also where the system has another `OSError` for it.
    """
    try:
        return bytes(response.read(PIECE))
    except OSError as error:
        raise _connection_error(error) from error


def _connection_error(error: OSError) -> ConnectionError:
    """A failed connection as one, where the system has another `OSError` for it, which would blame the file."""
    return ConnectionError(error.strerror or str(error))


def _write(response: Any, part: Path, received: int, total: int | None, report: Report, most: int | None) -> None:
    name, limit = part.name.removesuffix(".part"), most if total is None else total
    with part.open("ab" if received else "wb") as file:
        report(name, received, total)
        while piece := _read(response):
            received += len(piece)
            if limit is not None and received > limit:
                break
            file.write(piece)
            report(name, received, total)
    if limit is not None and received > limit:
        _remove_part(part)
        raise _Unavailable(f"gives more than {limit:,} bytes; what was fetched is removed")
    if total is not None and received < total:
        raise ConnectionError(f"broke off after {received:,} of {total:,} bytes")


def _remove_part(part: Path) -> None:
    part.unlink()
    _etag_file(part).unlink(missing_ok=True)
