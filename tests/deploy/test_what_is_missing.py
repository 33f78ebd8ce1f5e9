"""Folders, servers, keys and images that are missing or unusable are reported at once; no command waits for them."""

from __future__ import annotations

import os
import signal
import site
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("cryptography")

from fedwca.cli.federation_progress import FederationProgress
from fedwca.core.file_locks import hold_alone
from fedwca.deploy.flower.addresses import check_reachable
from fedwca.deploy.flower.check_keys import check_certificate, check_private_key, check_public_key
from fedwca.deploy.flower.client_device import find_device
from fedwca.deploy.flower.flwr_cli import FlwrCli
from fedwca.deploy.flower.keys import certify, make_key
from fedwca.deploy.flower.processes import STEADY, UNWRITABLE, find_flwr, run_with_restarts, server_command
from fedwca.deploy.flower.server_control import forget_registered, register_clients
from fedwca.deploy.server_status import LOG, RUNNING, SUBMITTED
from fedwca.errors import FedwcaError, UsageError

from ..cli.conftest import call

RSA = (
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDh1nayEZZI22Ci27CY/oZWWmy5tzTeCTocCTNUEB/wZpzETTxnZwmoxDW1OS40"
    "Wqiw+5pKW4CDXvqU6fnZ9c7Z7LHeTL4agS/vm1gnKxmIt+s6lc9VyG6lqIdrn6ES10yMSOOjDJ5LiAC/Vhe4V8oTop1+UPwR07i2"
    "YsA4wDw0ew=="
)
"""A public key of another kind."""


def dead_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("flower_installed")
def test_a_folder_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words, sentence in (
        (["deploy", "run", "nosuch"], "nosuch: holds no deployment; make one with fedwca deploy init"),
        (["server", "nosuch"], "nosuch: holds no deployment; make one with fedwca deploy init"),
        (["client", "nosuch", "--data", "."], "nosuch holds no ca.crt"),
    ):
        run = call(*words)
        assert run.code == 2
        assert sentence in run.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("flower_installed")
@pytest.mark.parametrize("held", [RUNNING, SUBMITTED])
def test_a_second_run_of_a_deployment(tmp_path: Path, held: str) -> None:
    for name in ("app", "server"):
        (tmp_path / name).mkdir()
    (tmp_path / "app" / "pyproject.toml").touch()
    (tmp_path / "server" / "federation.json").touch()
    file, problem = tmp_path / "server" / held, UsageError("held")
    with hold_alone(file, problem):
        with pytest.raises(UsageError, match="held"), hold_alone(file, problem):
            pass
        run = call("deploy", "run", str(tmp_path))
    assert run.code == 2
    assert "goes on already: " in run.err
    with hold_alone(file, problem):
        pass


@pytest.mark.usefixtures("flower_installed", "counted_here")
def test_a_server_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "fedwca.deploy.flower.processes.run_until_stopped", lambda *_: pytest.fail("Flower is asked to wait")
    )
    monkeypatch.setattr("fedwca.deploy.flower.processes.PAUSE", 0.01)
    server = f"127.0.0.1:{dead_port()}"
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    arguments = [str(tmp_path), "--data", str(tmp_path), "--server", server, "--insecure", "--device", "cpu"]
    run = call("client", *arguments, "--tries", "1")
    assert run.code == 1
    assert f"--server {server}: no server can be reached there" in run.err
    assert "trying again" not in run.err
    assert "; given up after 1 try" in run.err
    again = call("client", *arguments, "--tries", "3")
    assert again.code == 1
    assert again.err.count("trying again") == 2


def test_addresses_are_checked_and_a_last_try_announces_no_other() -> None:
    for address in ("here", "127.0.0.1:99999", "127.0.0.1:²", "http://127.0.0.1:8199"):
        with pytest.raises(UsageError, match=f"--server {address}: not of the form HOST:PORT"):
            check_reachable(address)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        check_reachable("{}:{}".format(*listening.getsockname()))

    def refuse() -> None:
        raise FedwcaError("not there")

    messages: list[str] = []
    with pytest.raises(FedwcaError, match="not there"):
        run_with_restarts(["true"], {}, 1, messages.append, refuse)
    assert messages == []


@pytest.mark.usefixtures("flower_installed", "counted_here")
def test_a_server_that_listens_and_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def start(command: list[str], env: dict[str, str]) -> int:
        started.append(command)
        return 1  # as Flower's program ends after its longest wait

    monkeypatch.setattr("fedwca.deploy.flower.processes.run_until_stopped", start)
    monkeypatch.setattr("fedwca.deploy.flower.processes.PAUSE", 0.01)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        server = "{}:{}".format(*silent.getsockname())
        Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
        options = ["--data", str(tmp_path), "--server", server, "--insecure", "--tries", "2", "--device", "cpu"]
        run = call("client", str(tmp_path), *options)
    assert run.code == 1
    assert (
        "The server is not there, not ca.crt's, does not let this client in, or its clock differs by seconds; "
        "trying again in 0 s" in run.err
    )
    assert "by seconds; given up after 2 tries" in run.err
    assert len(started) == 2
    wait = started[0][started[0].index("--max-wait-time") + 1]
    assert 0 < float(wait) <= STEADY / 2


@pytest.mark.usefixtures("flower_installed", "counted_here")
def test_a_client_that_waits_ends_at_sigterm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container it is process 1, for which a SIGTERM that nobody handles does nothing."""
    monkeypatch.setattr(
        "fedwca.deploy.flower.processes.time.sleep", lambda seconds: os.kill(os.getpid(), signal.SIGTERM)
    )
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    options = ["--data", str(tmp_path), "--server", f"127.0.0.1:{dead_port()}", "--insecure", "--tries", "2"]
    run = call("client", str(tmp_path), *options, "--device", "cpu")
    assert (run.code, run.err.splitlines()[-1]) == (130, "Stopped.")


def test_a_key_that_is_none_is_named_and_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "already in use"
    keys = folder / "server" / "keys"
    for name in ("aa", "bb", "cc"):
        make_key(keys / name)
    (keys / "private.pub").write_bytes((keys / "aa").read_bytes())
    (keys / "rsa.pub").write_text(RSA)
    (keys / "text.pub").write_text("not a key")
    (keys / "._aa.pub").write_bytes(b"\x00\x05")  # macOS writes such files beside others
    registered: list[str] = []

    def register(self: FlwrCli, words: list[str]) -> None:
        registered.append(Path(words[2]).name)
        if registered[-1] == "bb.pub":
            raise FedwcaError("flwr supernode register failed: Public key already in use")
        if registered[-1] == "cc.pub":
            raise FedwcaError(f"flwr supernode register {words[2]} failed: the disk is full")

    monkeypatch.setattr(FlwrCli, "call", register)
    messages: list[str] = []
    assert register_clients(folder, FlwrCli({}), messages.append) == 1
    assert registered == ["aa.pub", "bb.pub", "cc.pub"]
    for sentence, name in zip(messages, ("the disk is full", "private.pub", "rsa.pub", "text.pub"), strict=True):
        assert sentence.startswith("Warning: a client is not let in: ")
        assert name in sentence
    # Those that the server knows are not registered again, before it is started anew.
    registered.clear()
    assert register_clients(folder, FlwrCli({}), messages.append) == 0
    assert registered == ["cc.pub"]
    with (keys / "aa.pub").open("ab") as file:
        file.write(" of the café".encode("latin-1"))  # the key is the same
    make_key(keys / "dd")
    registered.clear()
    assert register_clients(folder, FlwrCli({}), messages.append) == 1
    assert registered == ["cc.pub", "dd.pub"]
    forget_registered(folder)
    registered.clear()
    register_clients(folder, FlwrCli({}), messages.append)
    assert registered == ["aa.pub", "bb.pub", "cc.pub", "dd.pub"]


def test_a_client_that_ends_by_itself_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [0, UNWRITABLE, 1]

    def start(command: list[str], env: dict[str, str]) -> int:
        if not codes:
            raise KeyboardInterrupt
        return codes.pop()

    monkeypatch.setattr("fedwca.deploy.flower.processes.run_until_stopped", start)
    monkeypatch.setattr("fedwca.deploy.flower.processes.PAUSE", 0.01)
    messages: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        run_with_restarts(["a client"], {}, 5, messages.append)
    assert len(messages) == 3
    assert ["its clock differs" in message for message in messages] == [True, False, True]
    assert messages[1] == "This client's folder cannot be written, as the line above says; trying again in 0 s"


def test_certificates_and_keys_that_cannot_serve(tmp_path: Path) -> None:
    certify(tmp_path, [])
    make_key(tmp_path / "key")
    check_certificate(tmp_path / "ca.crt")
    check_private_key(tmp_path / "key")
    check_public_key(tmp_path / "key.pub")
    with pytest.raises(UsageError, match=r"key is no certificate that can be read"):
        check_certificate(tmp_path / "key")
    with pytest.raises(UsageError, match=r"key\.pub is no private key that can be read"):
        check_private_key(tmp_path / "key.pub")
    with pytest.raises(UsageError, match=r"key is no public key that can be read"):
        check_public_key(tmp_path / "key")


def test_a_certificate_whose_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedwca.deploy.flower.keys.DAYS", -1 / 1440)  # a minute ago
    certify(tmp_path / "server" / "certs", [])
    with pytest.raises(UsageError, match=r"server\.pem was valid until \d{4}-\d\d-\d\d; another fedwca deploy init"):
        server_command(tmp_path / "server", "127.0.0.1", 8000, False)
    monkeypatch.setattr("fedwca.deploy.flower.keys.DAYS", 29)
    certify(tmp_path / "server" / "certs", [])
    with pytest.warns(UserWarning, match=r"server\.pem is valid only until .*; another fedwca deploy init"):
        server_command(tmp_path / "server", "127.0.0.1", 8000, False)


def test_certificates_of_another_deployment_serve_and_its_key_alone_does_not(tmp_path: Path) -> None:
    certs, others = tmp_path / "server" / "certs", tmp_path / "other"
    for folder in (certs, others):
        certify(folder, [])
    (others / "server.key").replace(certs / "server.key")
    with pytest.raises(UsageError, match=r"server\.key is the private key of another certificate than server\.pem"):
        server_command(tmp_path / "server", "127.0.0.1", 8000, False)
    (others / "server.pem").replace(certs / "server.pem")
    assert "--ssl-keyfile" in server_command(tmp_path / "server", "127.0.0.1", 8000, False)
    (certs / "server.key").write_text("x")
    with pytest.raises(UsageError, match=r"server\.key is no private key that can be read"):
        server_command(tmp_path / "server", "127.0.0.1", 8000, False)


def test_an_address_that_the_certificate_does_not_name(tmp_path: Path) -> None:
    certify(tmp_path / "server" / "certs", ["fed.example.org", "192.0.2.7"])
    with pytest.raises(UsageError, match=r"--host 192\.0\.2\.1: .* is for 127\.0\.0\.1, ::1, 192\.0\.2\.7, so nobody"):
        server_command(tmp_path / "server", "192.0.2.1", 8000, False)
    for host in ("192.0.2.7", "0.0.0.0", "::", "fed.example.org", "another.example.org"):
        assert "--host" in server_command(tmp_path / "server", host, 8000, False)
    assert "--insecure" in server_command(tmp_path / "server", "192.0.2.1", 8000, True)


@pytest.mark.parametrize("name", ["server.pem", "server.key", "ca.crt"])
def test_a_file_of_the_server_that_is_missing(tmp_path: Path, name: str) -> None:
    certify(tmp_path / "server" / "certs", [])
    (tmp_path / "server" / "certs" / name).unlink()
    with pytest.raises(UsageError, match=f"certs holds no {name}; copy it back, or say --insecure; another"):
        server_command(tmp_path / "server", "127.0.0.1", 8000, False)


@pytest.mark.usefixtures("flower_installed", "counted_here")
def test_images_that_are_not_there(tmp_path: Path) -> None:
    run = call("client", str(tmp_path), "--data", str(tmp_path), "--insecure", "--tries", "1", "--device", "cpu")
    assert run.code == 1
    assert f"Error: {tmp_path} holds no images; any of " in run.err


@pytest.mark.usefixtures("flower_installed")
def test_a_second_client_in_one_folder(tmp_path: Path) -> None:
    with hold_alone(tmp_path / RUNNING, UsageError("held")):
        run = call("client", str(tmp_path), "--data", str(tmp_path), "--insecure", "--tries", "1")
    assert run.code == 2
    assert run.err == f"Error: a client runs in {tmp_path} already; give each client a folder of its own\n"


@pytest.mark.usefixtures("flower_installed")
def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    run = call("client", str(tmp_path), "--data", str(tmp_path), "--insecure", "--tries", "1", "--device", "cuda:99")
    assert run.code == 2
    assert "Error: --device cuda:99: this machine has" in run.err


def test_a_device_that_is_there_is_found() -> None:
    assert find_device("cpu") == "cpu"
    assert find_device("auto").partition(":")[0] in ("cpu", "cuda")


@pytest.mark.usefixtures("flower_installed")
def test_a_port_that_is_taken_is_named_and_no_server_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "server").mkdir()
    (tmp_path / "app" / "pyproject.toml").touch()
    (tmp_path / "server" / "federation.json").touch()
    monkeypatch.setattr("fedwca.deploy.flower.processes.run_until_stopped", lambda *_: pytest.fail("it is started"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = call("server", str(tmp_path), "--insecure", "--port", str(port))
    assert run.code == 1
    assert f"Error: --host 127.0.0.1 --port {port}: no server can listen there (Address already in use); " in run.err
    elsewhere = call("server", str(tmp_path), "--insecure", "--host", "192.0.2.1", "--port", str(port))
    assert (elsewhere.code, "no server can listen there (" in elsewhere.err) == (1, True)


def runs(process: Path) -> bool:
    """Whether the process of this folder in /proc has not ended."""
    try:
        return "State:\tZ" not in (process / "status").read_text()
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody tells a process that its parent was killed")
def test_who_is_killed_leaves_no_program_behind(tmp_path: Path) -> None:
    text = (
        "import os, sys\n"
        "from fedwca.deploy.flower.processes import run_until_stopped\n"
        "run_until_stopped(['sleep', '600'], dict(os.environ), lambda p: print(p.pid, flush=True))"
    )
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        child = Path("/proc") / waiting.stdout.readline().strip()
        assert (child / "status").is_file()
        waiting.kill()
    deadline = time.monotonic() + 200
    while runs(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert time.monotonic() < deadline


def test_modules_load_where_sigkill_is_missing() -> None:
    """As on Windows, which has no SIGKILL: importing the modules must not need it."""
    text = (
        "import signal\n"
        "del signal.SIGKILL\n"
        "import fedwca.deploy.flower.processes, fedwca.deploy.flower.deployment_folder\n"
        "import fedwca.deploy.flower.server_control"
    )
    completed = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False)
    assert completed.returncode == 0, completed.stderr


@pytest.mark.usefixtures("flower_installed")
def test_what_goes_on_is_said_and_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("app", "server"):
        (tmp_path / name).mkdir()
    (tmp_path / "app" / "pyproject.toml").touch()
    (tmp_path / "server" / "federation.json").touch()

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    running = ["7"]
    control = "fedwca.deploy.flower.server_control"
    monkeypatch.setattr(f"{control}.check_answers", lambda flwr: None)
    monkeypatch.setattr(f"{control}.submit_run", lambda folder, flwr: "7")
    monkeypatch.setattr(f"{control}.watch_run", interrupted)
    monkeypatch.setattr(f"{control}.stop_runs", lambda flwr: [running.pop()] if running else [])
    for words, sentence in (
        ([], "holds no certificates"),
        (["--insecure", "--server", "here"], "not of the form HOST:PORT"),
    ):
        refused = call("deploy", "run", str(tmp_path), *words)
        assert (refused.code, sentence in refused.err) == (2, True), "at once, and not after twenty tries"
    run = call("deploy", "run", str(tmp_path), "--insecure")
    assert run.code == 130
    goes_on = f"Run 7 goes on at the server; fedwca deploy watch {tmp_path} shows it, and fedwca deploy stop {tmp_path}"
    assert f"{goes_on} --insecure ends it\n" in run.err
    assert str(tmp_path / "server") in (tmp_path / "app" / "pyproject.toml").read_text()
    assert call("deploy", "stop", str(tmp_path), "--insecure").out == "Stopped run 7\n"
    assert call("deploy", "stop", str(tmp_path), "--insecure").out == "No run goes on\n"
    assert call("deploy", "stop", str(tmp_path / "nosuch")).code == 2


@pytest.mark.usefixtures("flower_installed")
@pytest.mark.parametrize(
    ("last", "code", "sentence"),
    [
        ("FEDWCA RUN COMPLETE after 3 rounds", 0, ""),
        ("the run failed: FedwcaError: why", 1, "the run has not completed"),
    ],
)
def test_a_run_that_goes_on_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str, code: int, sentence: str
) -> None:
    server = tmp_path / "server"
    server.mkdir()
    (server / "federation.json").touch()
    idle = call("deploy", "watch", str(tmp_path))
    assert (idle.code, "goes on; fedwca deploy run" in idle.err) == (2, True)

    def write_last(self: FederationProgress, seconds: float) -> None:
        (server / LOG).write_text(f"2026-01-01 10:00:00,000 INFO {last}\n")
        self.look()

    monkeypatch.setattr(FederationProgress, "wait", write_last)
    with hold_alone(server / RUNNING, UsageError("held")):
        run = call("deploy", "watch", str(tmp_path))
    assert (run.code, last in run.err, sentence in run.err) == (code, True, True)


def test_a_client_that_lost_its_server_ends_whatever_flower_leaves_running() -> None:
    text = (
        "import threading, time\n"
        "from fedwca.deploy.flower import supernode\n"
        "supernode.run_supernode = lambda: threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "supernode.run_supernode_and_exit()"
    )
    assert subprocess.run([sys.executable, "-c", text], timeout=60, check=False).returncode == 1


def test_flowers_command_is_where_pip_has_put_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not always beside this Python: Debian's has /usr/local/bin, and a user's installation ~/.local/bin."""
    folders = {name: tmp_path / name for name in ("beside", "scripts", "user")}
    for folder in folders.values():
        folder.mkdir()
    monkeypatch.setattr(sys, "executable", str(folders["beside"] / "python"))
    monkeypatch.setattr(site, "ENABLE_USER_SITE", True)
    monkeypatch.setattr(sysconfig, "get_path", lambda name, *scheme: str(folders["user" if scheme else name]))
    with pytest.raises(UsageError, match=r"flwr is not in .*beside or .*scripts or .*user; pip install 'fedwca\["):
        find_flwr()
    for folder in reversed(folders.values()):
        (folder / "flwr").touch(0o755)
        assert find_flwr() == folder / "flwr"
