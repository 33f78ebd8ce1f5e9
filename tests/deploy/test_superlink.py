"""Other machines reach the server's Fleet interface, by its exact paths, and nothing else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedwca.cli.server import command as serve
from fedwca.deploy.flower import processes, server_control, superlink
from fedwca.deploy.flower.addresses import free_port
from fedwca.deploy.flower.processes import ELSEWHERE, run_until_stopped, server_command
from fedwca.deploy.flower.superlink import FleetForOthers, GuardedUvicorn, guard, run_superlink
from fedwca.errors import FedwcaError

HERE, FAR = "192.0.2.1", "192.0.2.77"
START, TASK = "/v1/control/start-run", "/v1/runtime/acquire-task"


def answered(kind: str = "http", client: Any = (FAR, 4000), **fields: Any) -> str:
    """How a connection is answered: ``app`` where it is let through, else the status or the type of the refusal."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        sent.append({"type": "app"})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is read of what is refused")

    scope = {"type": kind, "path": START, "server": (HERE, 8000), "client": client, **fields}
    asyncio.run(FleetForOthers(app)(scope, receive, send))
    return str(sent[0].get("status", sent[0]["type"]))


@pytest.mark.parametrize("path", ["/v1/fleet/get-run", "/v1/fleet/register-node", "/v1/fleet/confirm-message-received"])
def test_another_machine_reaches_fleet(path: str) -> None:
    assert answered(path=path, raw_path=path.encode()) == answered(path=path) == "app"


@pytest.mark.parametrize(
    "path",
    [
        *(
            START,
            TASK,
            "/health",
            "/docs",
            "/openapi.json",
            "/",
            "",
            "*",
            "/v1/fleet",
            "/v1/fleet/",
            "/v1/fleet//get-run",
        ),
        *("//v1/fleet/get-run", "/v1/fleet/../control/start-run", "//v1/fleet/../control/start-run"),
        *("/v1/fleet/..", "/v1/fleet/get-run/", "/v1/fleet/get-run/../../control/start-run", "/V1/FLEET/get-run"),
        *("/v1/fleet/get-run\n", "/v1/fleet/get-run?", "/v1/fleet/get-run#", "/v1/fleet/get-run;", "/v1/fleet/%2e%2e"),
        *("/v1/fleetx/get-run", "v1/fleet/get-run", "http://there/v1/fleet/get-run", "\\v1\\fleet\\get-run"),
        "/v1/fleet/get‐run",
    ],
)
def test_another_machine_reaches_nothing_else(path: str) -> None:
    assert answered(path=path) == "403"
    assert answered(path=path, client=("127.0.0.1", 5)) == "app"


@pytest.mark.parametrize("raw", [b"/v1/%66leet/get-run", b"/v1/fleet%2Fget-run", b"/v1/fleet/%67et-run"])
def test_a_path_that_is_written_in_another_way_is_refused(raw: bytes) -> None:
    assert answered(path="/v1/fleet/get-run", raw_path=raw) == "403"


@pytest.mark.parametrize(
    ("client", "server", "found"),
    [
        *((address, HERE, "app") for address in ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1")),
        *((address, address, "app") for address in (HERE, "2001:db8::1", "fe80::1%2")),
        *((HERE, f"::ffff:{HERE}", "app"), ("2001:db8::1", "2001:0db8::0:1", "app")),
        *((FAR, HERE, "403"), ("2001:db8::2", "2001:db8::1", "403"), ("::ffff:192.0.2.77", HERE, "403")),
        *(
            ("", "", "403"),
            ("localhost", "localhost", "403"),
            ("0.0.0.0", HERE, "403"),
            ("127.0.0.1.evil", HERE, "403"),
        ),
    ],
)
def test_who_is_on_the_same_machine(client: str, server: str, found: str) -> None:
    assert answered(client=(client, 4000), server=(server, 8000)) == found


def test_an_unknown_peer_is_another_machine() -> None:
    assert answered(client=None) == answered(client=None, server=None) == "403"


def test_lifespan_is_let_through_and_websockets_are_refused() -> None:
    assert answered("lifespan", None) == "app"
    assert answered("websocket", path="/v1/fleet/get-run") == answered("websocket") == "websocket.close"
    assert answered("websocket", ("127.0.0.1", 1)) == "app"


def program(run: Callable[..., None]) -> Any:
    """A stand-in for the module of ``flower-superlink``."""
    return SimpleNamespace(uvicorn=SimpleNamespace(run=run, Server=object))


def test_what_is_served_is_guarded_and_no_header_says_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flwr")
    served: list[Any] = []
    command = program(lambda app, **settings: served.append((app, settings)))
    monkeypatch.setenv("FLWR_INTERNAL_GRPC_CONTROL_API", "1")
    guard(command)
    command.uvicorn.run(app=serve, port=1, proxy_headers=True)
    ((app, settings),) = served
    assert isinstance(app, FleetForOthers)
    assert settings == {"port": 1, "proxy_headers": False}
    assert "FLWR_INTERNAL_GRPC_CONTROL_API" not in superlink.os.environ


def test_an_unknown_flower_is_not_started(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(superlink, "version", lambda name: "1.41.3")
    unknown = r"in Flower 1\.4\d\.\d it is not known how to keep the server's control to its own machine"
    for command in (SimpleNamespace(), SimpleNamespace(uvicorn=None), SimpleNamespace(uvicorn=SimpleNamespace())):
        with pytest.raises(FedwcaError, match=unknown):
            guard(command)
    guarded: Any = GuardedUvicorn(program(print).uvicorn)
    for serving in (lambda: guarded.run("flwr.superlink.main:app"), lambda: guarded.Server, lambda: guarded.Config):
        with pytest.raises(FedwcaError, match=unknown):
            serving()
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(superlink, "version", lambda name: "1.42.0")
    monkeypatch.setattr(superlink, "find_command", lambda: program(print))
    with pytest.raises(SystemExit, match=r"^Error: in Flower 1\.42\.0 it is not known .* install Flower 1\.41\.x$"):
        run_superlink()


def test_ctrl_c_while_flower_is_imported_shows_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(superlink, "find_command", interrupted)
    with pytest.raises(SystemExit) as raised:
        run_superlink()
    assert raised.value.code == 130


def test_the_server_is_started_through_the_launcher(tmp_path: Path) -> None:
    command = server_command(tmp_path, "0.0.0.0", 8000, insecure=True)
    assert command[:3] == [sys.executable, "-m", "fedwca.deploy.flower.superlink"]
    assert command[3:] == ["--insecure", "--host", "0.0.0.0", "--port", "8000"]


def test_the_launcher_loads_no_torch() -> None:
    line = "import sys; import fedwca.deploy.flower.superlink; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", line], check=True)


@pytest.mark.usefixtures("flower_installed")
def test_a_server_that_ends_at_once_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processes, "server_command", lambda *_: [sys.executable, "-c", "raise SystemExit(3)"])
    (tmp_path / "server" / "certs").mkdir(parents=True)
    for name in ("federation.json", "certs/ca.crt"):
        (tmp_path / "server" / name).touch()

    def check_answers(flwr: object) -> None:
        if exit_codes:
            pytest.fail("a server that has ended is asked again")

    exit_codes: list[int] = []

    def run(command: list[str], env: dict[str, str], started: Callable[[Any], None]) -> int:
        def start_after_end(process: subprocess.Popen[bytes]) -> None:
            exit_codes.append(process.wait())
            started(process)

        return run_until_stopped(command, env, start_after_end)

    monkeypatch.setattr(server_control, "check_answers", check_answers)
    monkeypatch.setattr(processes, "run_until_stopped", run)
    with pytest.raises(RuntimeError) as raised:
        serve(tmp_path, port=free_port())
    assert (exit_codes, getattr(raised.value, "exit_code", None)) == ([3], 3)


def test_a_run_from_another_machine_is_told_so_at_once() -> None:
    calls: list[int] = []

    def ask() -> None:
        calls.append(1)
        raise FedwcaError(f"flwr list failed: {ELSEWHERE}")

    with pytest.raises(FedwcaError, match="from its own machine alone"):
        server_control.retry(ask)
    assert len(calls) == 1


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The application that Flower's own program serves under our launcher."""
    pytest.importorskip("flwr")
    module = import_module("flwr.superlink.cli.flower_superlink")
    calls: list[Any] = []
    monkeypatch.setattr(module, "uvicorn", SimpleNamespace(run=lambda app, **settings: calls.append((app, settings))))
    monkeypatch.setattr(sys, "argv", ["superlink", *server_command(tmp_path, "0.0.0.0", 8000, insecure=True)[3:]])
    for name, value in processes.QUIET.items():
        monkeypatch.setenv(name, value)
    run_superlink()
    ((app, settings),) = calls
    assert settings["proxy_headers"] is False
    return app


@pytest.mark.filterwarnings("default")  # of Flower
def test_flowers_own_program_is_guarded(served: Any) -> None:
    from fastapi.routing import iter_route_contexts
    from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
    from starlette.testclient import TestClient

    def ask(client: str, path: str, **headers: str) -> int:
        test_client = TestClient(served, client=(client, 4000), raise_server_exceptions=False)
        return int(test_client.post(path, headers={"content-type": PROTOBUF_MEDIA_TYPE, **headers}).status_code)

    paths = {str(item.route.path) for item in iter_route_contexts(served.app.routes) if hasattr(item.route, "path")}
    fleet = {path for path in paths if path.startswith("/v1/fleet/")}
    assert len(fleet) == 12
    assert {START, TASK} <= paths
    assert {path for path in paths if ask(FAR, path) == 403} == paths - fleet
    assert all(ask(FAR, path, **{"x-forwarded-for": "127.0.0.1", "host": "localhost"}) == 403 for path in paths - fleet)
    assert ask("127.0.0.1", "/v1/control/list-runs") == 200
    assert not any(ask("127.0.0.1", path) == 403 for path in (START, TASK))
