"""Loggers send the numbers of a run to their libraries, and no failing logger stops a run."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from fedwca.core.tracking_id import tracking_id
from fedwca.loggers import Logger, LogSession, RunEnd, loggers, scalars
from fedwca.results.read_run_files import read_records
from fedwca.runs.log_to import log_records

from ..cli.conftest import SMALL, Run, call
from ..shades import write_shades

PLUGIN = '''
import json
from contextlib import contextmanager
from fedwca.loggers import Logger, curve_name, scalars

class Lines(Logger):
    """One line a record."""

    file: str = "lines.txt"
    """Where."""

    @contextmanager
    def open(self, run, config):
        with (run / self.file).open("a") as file:
            file.write(f"begin {config['seed']}\\n")
            yield lambda record: file.write(f"{curve_name(record)} {record['round']} {json.dumps(scalars(record))}\\n")
            file.write("end\\n")
'''
RECORD = {"method": "wca", "source_model": 0, "trial": 1, "accuracy": [50.0, None, 70.0], "seconds": {"train": 2.5}}
RECORDS = [{**RECORD, "round": -1, "source_digest": "abc"}, {**RECORD, "round": 0, "weights": [[1.0]], "labels": [0]}]
CONFIG = {"seed": 3, "rounds": 2, "source": None, "training": {"lr": 0.1}, "baselines": ["local", "fedavg"]}
PIXELS = np.zeros((4, 6, 3), np.uint8)
END = RunEnd({"local": {}, "wca": {"wca/0-1": 60.0, "wca/1-1": 70.0}}, {"overview": PIXELS, "confusion": PIXELS})


@pytest.fixture(scope="module")
def bench(shades: Path) -> Callable[..., Run]:
    def started(out: Path, *arguments: str) -> Run:
        words = ["--data", str(shades), *SMALL, "--baseline", "none", "--out", str(out), *arguments]
        return call("bench", *words, folder=out)

    return started


def log(logger: Logger, run: Path, times: int = 2) -> None:
    """Log the same records in so many sessions, one after another, as a continued run does."""
    run.mkdir(exist_ok=True)
    for _ in range(times):
        with log_records([logger], run, CONFIG, pytest.fail) as session:
            for record in RECORDS:
                session.on_record(record)
            session.on_end(END)


def test_series_are_means_and_plain_numbers() -> None:
    assert scalars(RECORDS[1]) == {"accuracy": 60.0, "seconds/train": 2.5}
    assert scalars({"round": 1, "accuracy": [float("nan")], "bytes_up": 8}) == {"bytes_up": 8.0}
    assert scalars({"round": 1, "seconds": {"round": 3.5, "train": 2}}) == {"seconds/round": 3.5, "seconds/train": 2.0}
    numbered = {"labels": [0, 1], "clustering": {"nearest": [1, 0], "margins": [1.0, 2.0]}}
    assert scalars({"round": 0, "probes": {"finch": {"labels": [0, 1]}}, **numbered}) == {"clustering/margins": 1.5}
    counts = {"before": {"4": [2, 3]}, "after": {"4": [5, 0]}, "agreement": {"4": 0.5}}
    assert scalars({"round": 2, "shift": counts}) == {"shift/agreement/4": 0.5}


def test_accuracy_before_an_adaptation_is_of_the_clients_whose_accuracy_is_given() -> None:
    adaptation = {"accuracy_before": [90.0, 20.0, 40.0], "steps": [1, 2, 3]}
    record = {"round": 1, "accuracy": [float("nan"), 30.0, 50.0], "adaptation": adaptation}
    expected = {"accuracy": 40.0, "adaptation/accuracy_before": 30.0, "adaptation/steps": 2.0}
    assert scalars(record) == expected
    assert scalars({**record, "accuracy": [None, 30.0, 50.0]}) == expected


def test_a_folders_id_is_drawn_once_and_is_anothers_in_another_folder_of_that_name(tmp_path: Path) -> None:
    run = tmp_path / "it's"
    run.mkdir()
    first = tracking_id(run)
    assert re.fullmatch("[0-9a-f]{32}", first)
    assert tracking_id(run) == first
    shutil.rmtree(run)
    run.mkdir()
    assert tracking_id(run) != first


def test_tensorboard_gets_accuracies_by_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = loggers.build("tensorboard")
    logger.check_installed()
    log(logger, tmp_path / "run", 1)
    events = EventAccumulator(str(tmp_path / "run/tensorboard/wca/0-1"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("accuracy")] == [(0, 60.0), (1, 60.0)]
    log(loggers.build(f"tensorboard:folder={tmp_path / 'elsewhere'}"), tmp_path / "run", 1)
    assert list((tmp_path / "elsewhere/run/wca/0-1").iterdir())
    monkeypatch.chdir(tmp_path / "run")
    log(loggers.build(f"tensorboard:folder={tmp_path / 'from inside'}"), Path(), 1)
    assert [path.name for path in (tmp_path / "from inside").iterdir()] == ["run"]


def test_tensorboard_gets_final_accuracies_and_pictures(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    log(loggers.build("tensorboard"), tmp_path / "run", 1)
    for name, accuracy in (("0-1", 60.0), ("1-1", 70.0)):
        events = EventAccumulator(str(tmp_path / "run/tensorboard/wca" / name))
        events.Reload()
        assert [event.value for event in events.Scalars("final/accuracy")] == [accuracy]
        session_start = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
        hparams = plugin_data_pb2.HParamsPluginData.FromString(session_start).session_start_info.hparams
        assert (hparams["method"].string_value, hparams["baselines"].string_value) == ("wca", "local, fedavg")
        assert (hparams["seed"].number_value, hparams["training.lr"].number_value) == (3, 0.1)
        assert "source" not in hparams
    events = EventAccumulator(str(tmp_path / "run/tensorboard/pictures"))
    events.Reload()
    assert {
        name: (*map(int, (i.width, i.height)),) for name in events.Tags()["images"] for i in events.Images(name)
    } == {
        "overview": (6, 4),
        "confusion": (6, 4),
    }


class FakeMlflow:
    """A client of MLflow that keeps what it is given, as pairs of a kind and a value."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self.runs: list[Any] = []

    def __call__(self, uri: str) -> FakeMlflow:
        self.told.append(("uri", uri))
        return self

    def get_experiment_by_name(self, name: str) -> None:
        return None

    def create_experiment(self, name: str) -> str:
        return "7"

    def search_runs(self, experiments: list[str], mark: str, max_results: int) -> list[Any]:
        return self.runs

    def create_run(self, experiment: str, run_name: str, tags: dict[str, str]) -> Any:
        return SimpleNamespace(info=SimpleNamespace(run_id="1"))

    def update_run(self, run: str, state: str) -> None:
        self.told.append(("state", state))

    def log_batch(self, run: str, metrics: Sequence[Any] = (), params: Sequence[Any] = ()) -> None:
        assert len(params) <= 100
        self.told += [("param", param) for param in params] + [("metric", metric[:2]) for metric in metrics]

    def log_image(self, run: str, pixels: Any, artifact_file: str) -> None:
        self.told.append(("picture", (artifact_file, pixels.shape)))

    def set_terminated(self, run: str, state: str) -> None:
        self.told.append(("state", state))


@pytest.mark.parametrize("made", [True, False])
def test_an_experiment_that_another_run_makes_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    found, used = iter([None, SimpleNamespace(experiment_id="8") if made else None]), []

    class Server(FakeMlflow):
        def get_experiment_by_name(self, name: str) -> Any:
            return next(found)

        def create_experiment(self, name: str) -> str:
            raise ValueError("RESOURCE_ALREADY_EXISTS" if made else "PERMISSION_DENIED")

        def search_runs(self, experiments: list[str], mark: str, max_results: int) -> list[Any]:
            used.extend(experiments)
            return self.runs

    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=Server()))
    entities = SimpleNamespace(Metric=lambda *values: values, Param=lambda *values: values)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    with (
        nullcontext() if made else pytest.raises(ValueError, match="PERMISSION_DENIED"),
        loggers.build("mlflow:uri=x").open(tmp_path / "run", {}),
    ):
        pass
    assert used == (["8"] if made else [])


def test_what_mlflow_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=fake))
    entities = SimpleNamespace(Metric=lambda *values: values, Param=lambda *values: values)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    log(loggers.build("mlflow:uri=x"), tmp_path / "run", 1)
    params = dict(value for kind, value in fake.told if kind == "param")
    assert params == {"seed": "3", "rounds": "2", "training.lr": "0.1", "baselines": "local, fedavg"}
    metrics = [value for kind, value in fake.told if kind == "metric"]
    assert metrics.count(("wca/0-1/accuracy", 60.0)) == 2
    assert metrics[-1] == ("wca/final_accuracy", 65.0)
    pictures = [value for kind, value in fake.told if kind == "picture"]
    assert pictures == [("pictures/overview.png", (4, 6, 3)), ("pictures/confusion.png", (4, 6, 3))]
    assert fake.told[-1] == ("state", "FINISHED")
    many = {str(number): number for number in range(250)}
    with loggers.build("mlflow:uri=x").open(tmp_path / "run", many):
        pass
    assert [value for kind, value in fake.told if kind == "param"][-1] == ("249", "249")


def test_settings_that_mlflow_was_not_told_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeMlflow()
    fake.runs = [SimpleNamespace(info=SimpleNamespace(run_id="1"), data=SimpleNamespace(params={"workers": "4"}))]
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=fake))
    entities = SimpleNamespace(Metric=lambda *values: values, Param=lambda *values: values)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    with loggers.build("mlflow:uri=x").open(tmp_path / "run", {"seed": 3, "workers": 2}):
        pass
    assert [value for kind, value in fake.told if kind == "param"] == [("seed", "3")]


@pytest.mark.parametrize(("error", "state"), [(ValueError(), "FAILED"), (KeyboardInterrupt(), "KILLED")])
def test_mlflow_is_told_how_a_run_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, state: str
) -> None:
    fake = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=fake))
    entities = SimpleNamespace(Metric=lambda *values: values, Param=lambda *values: values)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    with pytest.raises(type(error)), loggers.build("mlflow:uri=x").open(tmp_path / "run", {}):
        raise error
    assert fake.told[-1] == ("state", state)


class FakeWandb:
    """A session of W&B that keeps what it is given."""

    def __init__(self) -> None:
        self.begun: dict[str, Any] = {}
        self.logged: list[dict[str, Any]] = []
        self.summary: dict[str, Any] = {}
        self.code: int | None = None

    def init(self, **arguments: Any) -> FakeWandb:
        self.begun = arguments
        return self

    def define_metric(self, name: str, step_metric: str) -> None:
        pass

    def log(self, values: dict[str, Any]) -> None:
        self.logged.append(values)

    def finish(self, exit_code: int) -> None:
        self.code = exit_code


def test_what_wandb_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandb()
    module = SimpleNamespace(init=fake.init, Settings=lambda **_: None, Image=np.shape)
    monkeypatch.setitem(sys.modules, "wandb", module)
    log(loggers.build("wandb"), tmp_path / "run", 1)
    assert fake.begun["config"] == CONFIG
    assert fake.logged[0]["wca/0-1/accuracy"] == 60.0
    assert fake.logged[-1] == {"pictures/overview": (4, 6, 3), "pictures/confusion": (4, 6, 3)}
    assert (fake.summary, fake.code) == ({"wca/final_accuracy": 65.0}, 0)
    with pytest.raises(KeyboardInterrupt), loggers.build("wandb").open(tmp_path / "run", CONFIG):
        raise KeyboardInterrupt
    assert (len(fake.logged), fake.code) == (3, 1)


def test_mlflow_has_one_run_of_two_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    log(loggers.build("mlflow:experiment=mine"), tmp_path / "run")
    client = mlflow.MlflowClient((tmp_path / "run/mlflow").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert (run.info.status, run.data.params["seed"]) == ("FINISHED", "3")
    history = client.get_metric_history(run.info.run_id, "wca/0-1/accuracy")
    assert sorted({(metric.step, metric.value) for metric in history}) == [(0, 60.0), (1, 60.0)]


def test_wandb_writes_an_offline_run(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    # In a process of its own: the library starts another process and leaves threads behind.
    code = (
        "from tests.loggers.test_loggers import *\n"
        f"log(loggers.build('wandb:project=mine'), Path({str(tmp_path / 'run')!r}), 1)"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=False)
    assert completed.returncode == 0, completed.stderr
    (file,) = (tmp_path / "run/wandb").glob("offline-run-*/*.wandb")
    assert b"wca/0-1/accuracy" in file.read_bytes()


def installed(folder: Path) -> dict[str, str]:
    """Install the plugin in a folder; environment variables with which it is found there."""
    (folder / "plugin_lines.py").write_text(PLUGIN)
    info = folder / "plugin_lines-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-lines\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fedwca.loggers]\nlines = plugin_lines:Lines\n")
    root = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), root])}


@pytest.mark.slow
def test_a_plugin_of_ones_own(tmp_path: Path) -> None:
    shades, run = write_shades(tmp_path / "shades"), tmp_path / "run"
    arguments = ["bench", "--data", str(shades), *SMALL, "--baseline", "none", "--out", str(run), "--json"]
    command = [sys.executable, "-m", "fedwca", *arguments, "--logger", "lines:file=mine.txt"]
    environment = installed(tmp_path)
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert completed.returncode == 0, completed.stderr
    lines = (run / "mine.txt").read_text().splitlines()
    accuracies = [sum(record["accuracy"]) / 4 for record in read_records(run)]
    assert (lines[0], lines[-1]) == ("begin 0", "end")
    assert [line.split()[:2] for line in lines[1:-1]] == [["wca/0-0", str(number)] for number in (-1, 0, 1)]
    assert f'"accuracy": {accuracies[-1]}' in lines[-2]
    # A continued run has the loggers of its configuration again.
    (run / "summary.json").unlink()
    again = [sys.executable, "-m", "fedwca", "resume", str(run), "--json"]
    assert subprocess.run(again, env=environment, capture_output=True, timeout=250, check=False).returncode == 0
    assert (run / "mine.txt").read_text().count("begin") == 2


class Fails(Logger):
    """Fails at one point of a run, or, at "nowhere", writes what it is given at the end to ``seen.json``."""

    at: str = "log"
    """open, log, end, interrupt (at the end), close or nowhere."""

    @contextmanager
    def open(self, run: Path, config: Any) -> Iterator[LogSession]:
        def take(record: Any) -> None:
            if self.at == "log":
                raise RuntimeError("no connection")

        if self.at == "open":
            raise RuntimeError("no account")

        def end(run_end: RunEnd) -> None:
            if self.at == "end":
                raise RuntimeError("no room")
            if self.at == "interrupt":
                raise KeyboardInterrupt
            if self.at == "nowhere":
                runs = {name: len(values) for name, values in run_end.accuracies.items()}
                (run / "seen.json").write_text(json.dumps([runs, list(run_end.pictures)]))

        yield LogSession(take, end)
        if self.at == "close":
            raise RuntimeError("no flush")


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(loggers._classes, "fails", Fails)
    monkeypatch.setattr(Fails, "name", "fails")


@pytest.mark.usefixtures("fails")
@pytest.mark.parametrize(
    ("at", "sentence"),
    [
        ("open", "Warning: logger fails could not be started, the run goes on without it (no account)"),
        ("log", "Warning: logger fails failed, the run goes on without it (no connection)"),
        ("end", "Warning: logger fails failed, the run goes on without it (no room)"),
        ("close", "Warning: logger fails could not be closed (no flush)"),
    ],
)
def test_a_logger_that_fails_stops_nothing(bench: Callable[..., Run], tmp_path: Path, at: str, sentence: str) -> None:
    run = bench(tmp_path / "run", "--logger", f"fails:at={at}")
    assert run.code == 0
    assert run.err.count(sentence) == 1
    assert len(read_records(run.folder)) == 3


@pytest.mark.usefixtures("fails")
def test_a_run_that_is_complete_stays_so_where_its_loggers_are_stopped(
    bench: Callable[..., Run], tmp_path: Path
) -> None:
    run = bench(tmp_path / "run", "--logger", "fails:at=interrupt")
    assert run.code == 130
    assert run.summary["complete"] is True
    assert f"Stopped while its loggers ended; the run in {run.folder} is complete" in run.err
    assert "continue with" not in run.err


def test_a_run_that_is_stopped_before_its_first_round_took_no_time_for_rounds(
    bench: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedwca.runs.execute_run.run_bench", Mock(side_effect=KeyboardInterrupt))
    run = bench(tmp_path / "run")
    assert (run.code, run.summary["complete"]) == (130, False)
    timing = run.summary["timing"]
    assert timing["run_seconds"] == 0 < timing["setup_seconds"] == timing["total_seconds"]


class Unmanaged(Logger):
    """Opens something else than a session."""

    @staticmethod
    @contextmanager
    def empty() -> Iterator[None]:
        """A context without a function."""
        yield

    def open(self, run: Path, config: Any) -> Any:
        """What the name of the run folder says."""
        return {"function": print, "generator": (x for x in "ab"), "empty": self.empty()}[run.name]


@pytest.mark.parametrize(
    ("opened", "said"),
    [
        ("function", "open gave a builtin_function_or_method; put @contextmanager above it, and yield once"),
        ("generator", "open gave a generator; put @contextmanager above it, and yield once"),
        ("empty", "open yields nothing; right is a function that takes a record"),
    ],
)
def test_a_logger_is_told_what_open_gives(opened: str, said: str) -> None:
    warned: list[str] = []
    with log_records([Unmanaged()], Path(opened), {}, warned.append) as session:
        session.on_record({})
    assert [warning[-len(said) - 2 :] for warning in warned] == [f"({said})"]


@pytest.mark.usefixtures("fails")
def test_at_the_end_there_are_accuracies_and_pictures(bench: Callable[..., Run], tmp_path: Path) -> None:
    run = bench(tmp_path / "run", "--logger", "fails:at=nowhere")
    assert run.code == 0, run.err
    assert json.loads((run.folder / "seen.json").read_text()) == [{"wca": 1}, ["overview", "confusion"]]
    without_checkpoints = bench(tmp_path / "none", "--logger", "fails:at=nowhere", "--keep", "none")
    assert json.loads((without_checkpoints.folder / "seen.json").read_text())[1] == ["overview"]
    assert "could not be drawn" not in without_checkpoints.err


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_logger_without_its_library_is_refused(
    bench: Callable[..., Run], tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.import_module
    monkeypatch.setattr("fedwca.loggers.importlib.import_module", lambda m: real("no_such_module" if m == name else m))
    run = bench(tmp_path / "run", "--logger", name)
    assert run.code == 2
    assert run.err == f"Error: --logger {name} needs {name}: pip install 'fedwca[{name}]'\n"
    assert not run.folder.exists()
    unknown = bench(tmp_path / "run", "--logger", "tensorbord")
    assert "no logger 'tensorbord'; did you mean 'tensorboard'?" in unknown.err
