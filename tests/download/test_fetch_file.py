"""A file is downloaded completely and as published, or not at all; what has been downloaded is not fetched twice."""

from __future__ import annotations

import errno
import hashlib
import re
import urllib.request
from pathlib import Path

import pytest

from fedwca.core.remote_files import RemoteFile
from fedwca.download import fetch_file as module
from fedwca.download.fetch_file import TRIES, fetch_file
from fedwca.errors import FedwcaError

from .conftest import LocalServer, break_off, chunks, hang, md5, redirect, refuse

CONTENT = bytes(range(256)) * 4000


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_file_comes_whole_and_once(server: LocalServer, tmp_path: Path) -> None:
    url = server.add("/a.bin", CONTENT)
    file = RemoteFile((url,), "raw/a.bin", md5(CONTENT), hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
    progress: list[tuple[str, int, int | None]] = []
    assert fetch_file(file, tmp_path, lambda *call: progress.append(call)).read_bytes() == CONTENT
    assert progress[0] == ("a.bin", 0, len(CONTENT))
    assert progress[-1] == ("a.bin", len(CONTENT), len(CONTENT))
    fetch_file(file, tmp_path)
    assert server.files["/a.bin"].asked == [""]
    assert left(tmp_path) == ["a.bin"]


def test_a_broken_connection_goes_on_at_the_next_byte(server: LocalServer, tmp_path: Path) -> None:
    url = server.add("/a.bin", CONTENT, break_off(300_000), refuse(503), break_off(300_000))
    assert fetch_file(RemoteFile((url,), "a.bin", md5(CONTENT)), tmp_path).read_bytes() == CONTENT
    assert server.files["/a.bin"].asked == ["", "bytes=300000-", "bytes=300000-", "bytes=600000-"]


def test_a_later_call_goes_on(server: LocalServer, tmp_path: Path) -> None:
    url = server.add("/a.bin", CONTENT, break_off(300_000), *[refuse(500)] * TRIES)
    file = RemoteFile((url,), "a.bin", md5(CONTENT))
    with pytest.raises(FedwcaError, match=r"failed 5 times in a row \(HTTP 500\)\. 300,000 bytes are kept"):
        fetch_file(file, tmp_path)
    assert not (tmp_path / "a.bin").exists()
    assert fetch_file(file, tmp_path).read_bytes() == CONTENT
    assert server.files["/a.bin"].asked[-1] == "bytes=300000-"


@pytest.mark.parametrize("etag", ['"first"', None, 'W/"weak"'])
@pytest.mark.parametrize("checked", [True, False])
def test_another_edition_is_not_mixed_with_the_first(
    server: LocalServer, tmp_path: Path, etag: str | None, checked: bool
) -> None:
    second_edition = CONTENT[::-1]
    url = server.add("/a.bin", CONTENT, break_off(300_000), *[refuse(500)] * TRIES, etag=etag)
    file = RemoteFile((url,), "a.bin", md5(second_edition) if checked else None)
    with pytest.raises(FedwcaError):
        fetch_file(file, tmp_path)
    served = server.files["/a.bin"]
    served.content, served.etag = second_edition, etag and etag.replace("first", "second")
    assert fetch_file(file, tmp_path).read_bytes() == second_edition


def test_a_server_without_ranges_begins_anew(server: LocalServer, tmp_path: Path) -> None:
    url = server.add("/a.bin", CONTENT, break_off(300_000), ranges=False)
    assert fetch_file(RemoteFile((url,), "a.bin", md5(CONTENT)), tmp_path).read_bytes() == CONTENT


def test_all_bytes_were_there_already(server: LocalServer, tmp_path: Path) -> None:
    url = server.add("/a.bin", CONTENT)
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    assert fetch_file(RemoteFile((url,), "a.bin", md5(CONTENT)), tmp_path).read_bytes() == CONTENT
    assert left(tmp_path) == ["a.bin"]


def test_a_corrupt_file_leaves_nothing(server: LocalServer, tmp_path: Path) -> None:
    url = server.add("/a.bin", b"x" + CONTENT[1:])
    with pytest.raises(FedwcaError, match=rf"has the MD5 \w+, not {md5(CONTENT)}; what was fetched is removed"):
        fetch_file(RemoteFile((url,), "a.bin", md5(CONTENT)), tmp_path)
    assert left(tmp_path) == []


def test_another_size_is_refused_before_a_byte(server: LocalServer, tmp_path: Path) -> None:
    url = server.add("/a.bin", CONTENT)
    with pytest.raises(FedwcaError, match="offers 1,024,000 bytes, not 5"):
        fetch_file(RemoteFile((url,), "a.bin", size=5), tmp_path)
    assert left(tmp_path) == []


def test_a_file_that_was_damaged_later_is_fetched_anew(server: LocalServer, tmp_path: Path) -> None:
    url = server.add("/a.bin", CONTENT)
    (tmp_path / "a.bin").write_bytes(b"other")
    assert fetch_file(RemoteFile((url,), "a.bin", md5(CONTENT)), tmp_path).read_bytes() == CONTENT


def test_a_dead_connection_is_given_up(server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.3)
    url = server.add("/a.bin", CONTENT, hang(60))
    assert fetch_file(RemoteFile((url,), "a.bin", md5(CONTENT)), tmp_path).read_bytes() == CONTENT
    assert len(server.files["/a.bin"].asked) == 2


def test_redirections_are_followed(server: LocalServer, tmp_path: Path) -> None:
    target = server.add("/real.bin", CONTENT)
    url = server.add("/a.bin", b"", *[redirect(target)] * 2)
    server.files["/real.bin"].misbehave.append(break_off(1000))
    assert fetch_file(RemoteFile((url,), "a.bin", md5(CONTENT)), tmp_path).read_bytes() == CONTENT


def test_endless_redirections_end(server: LocalServer, tmp_path: Path) -> None:
    url = server.address + "/a.bin"
    server.add("/a.bin", b"", *[redirect(url)] * 100)
    with pytest.raises(FedwcaError, match="HTTP 302"):
        fetch_file(RemoteFile((url,), "a.bin"), tmp_path)


def test_an_encrypted_address_leads_to_no_other() -> None:
    handler, request = module._NoDowngrade(), urllib.request.Request("https://example.org/a")
    with pytest.raises(module._Unavailable, match=r"leads to http://example\.org/a, which is not encrypted"):
        handler.redirect_request(request, None, 302, "", {}, "http://example.org/a")  # type: ignore[arg-type]


def test_the_next_address_is_tried(server: LocalServer, tmp_path: Path) -> None:
    urls = (server.address + "/gone.bin", server.add("/a.bin", CONTENT))
    assert fetch_file(RemoteFile(urls, "a.bin", md5(CONTENT)), tmp_path).read_bytes() == CONTENT


def test_all_addresses_are_named(server: LocalServer, tmp_path: Path) -> None:
    urls = (server.address + "/gone.bin", "http://127.0.0.1:9/a.bin", "nonsense")
    with pytest.raises(FedwcaError) as caught:
        fetch_file(RemoteFile(urls, "a.bin"), tmp_path)
    message = str(caught.value)
    assert re.match(r"a\.bin could not be fetched: http://127\.0\.0\.1:\d+/gone\.bin answers HTTP 404", message)
    assert "http://127.0.0.1:9/a.bin failed 5 times in a row" in message
    assert "nonsense is no address" in message


def test_a_full_disk(server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = server.add("/a.bin", CONTENT)

    class Usage:
        free = 1000

    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: Usage)
    with pytest.raises(FedwcaError, match="takes 1 MB more, and 0 MB are free"):
        fetch_file(RemoteFile((url,), "a.bin"), tmp_path)


def test_a_pipe_in_the_way(server: LocalServer, tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "a.bin.part")
    with pytest.raises(FedwcaError, match=r"a\.bin: cannot be written \(is a pipe, not a file\)"):
        fetch_file(RemoteFile((server.add("/a.bin", CONTENT),), "a.bin"), tmp_path)


@pytest.mark.parametrize(("size", "most"), [(400_000, None), (None, 400_000), (400_000, 10**9)])
def test_no_more_is_written_than_was_declared(
    server: LocalServer, tmp_path: Path, size: int | None, most: int | None
) -> None:
    url, written = server.add("/a.bin", CONTENT, chunks), [0]
    with pytest.raises(FedwcaError, match=r"gives more than 400,000 bytes; what was fetched is removed$"):
        fetch_file(
            RemoteFile((url,), "a.bin", size=size), tmp_path, lambda name, done, total: written.append(done), most
        )
    assert max(written) <= 400_000
    assert left(tmp_path) == []


def test_chunks_of_unknown_length(server: LocalServer, tmp_path: Path) -> None:
    url = server.add("/a.bin", CONTENT, chunks)
    assert fetch_file(RemoteFile((url,), "a.bin"), tmp_path).read_bytes() == CONTENT


def test_a_lost_route_is_tried_again_and_not_blamed_on_the_file() -> None:
    class Lost:
        def read(self, size: int) -> bytes:
            raise OSError(errno.EHOSTUNREACH, "No route to host")

    with pytest.raises(ConnectionError, match="No route to host"):
        module._read(Lost())


def test_a_route_lost_before_the_headers_is_tried_again(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # OpenerDirector.open gives errors of waiting for the headers as they are, those of connecting as URLError.
    real, url, failures = urllib.request.build_opener(), server.add("/a.bin", CONTENT), [True]

    class Opener:
        def open(self, request: urllib.request.Request, timeout: float) -> object:
            if failures and failures.pop():
                raise OSError(errno.EHOSTUNREACH, "No route to host")
            return real.open(request, timeout=timeout)

    monkeypatch.setattr("urllib.request.build_opener", lambda *handlers: Opener())
    assert fetch_file(RemoteFile((url,), "a.bin", md5(CONTENT)), tmp_path).read_bytes() == CONTENT
