"""Numbers arrive where a logger sends them, and no logger stops a run."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedwca.loggers import Log, Logger, loggers, series
from fedwca.results.run_schemas import read_records

from ..cli.conftest import SMALL, Run, call
from ..shades import write_shades

PLUGIN = '''
import json
from contextlib import contextmanager
from fedwca.loggers import Logger, series, title

class Lines(Logger):
    """One line a record."""

    file: str = "lines.txt"
    """Where."""

    @contextmanager
    def open(self, run, config):
        with (run / self.file).open("a") as file:
            file.write(f"begin {config['seed']}\\n")
            yield lambda record: file.write(f"{title(record)} {record['round']} {json.dumps(series(record))}\\n")
            file.write("end\\n")
'''
RECORD = {"method": "wca", "source_model": 0, "trial": 1, "accuracy": [50.0, None, 70.0], "seconds": {"train": 2.5}}
RECORDS = [{**RECORD, "round": -1, "source_digest": "abc"}, {**RECORD, "round": 0, "weights": [[1.0]], "labels": [0]}]
CONFIG = {"seed": 3, "training": {"lr": 0.1}}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    folder = tmp_path_factory.mktemp("loggers")
    shades = write_shades(folder / "shades")

    def started(out: Path, *arguments: str) -> Run:
        given = ["--data", str(shades), *SMALL, "--baseline", "none", "--out", str(out), *arguments]
        return call("bench", *given, folder=out)

    return started


def log(logger: Logger, run: Path, times: int = 2) -> None:
    """The same records in sessions one after another, as a continued run gives them."""
    run.mkdir(exist_ok=True)
    for _ in range(times):
        with logger.open(run, CONFIG) as take:
            for record in RECORDS:
                take(record)


def test_series() -> None:
    assert series(RECORDS[1]) == {"accuracy": 60.0, "seconds/train": 2.5}
    assert series({"round": 1, "accuracy": [float("nan")], "bytes_up": 8}) == {"bytes_up": 8.0}


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = loggers.build("tensorboard")
    logger.ready()
    log(logger, tmp_path / "run", 1)
    events = EventAccumulator(str(tmp_path / "run/tensorboard/wca/0-1"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("accuracy")] == [(0, 60.0), (1, 60.0)]
    log(loggers.build(f"tensorboard:folder={tmp_path / 'elsewhere'}"), tmp_path / "run", 1)
    assert list((tmp_path / "elsewhere/wca/0-1").iterdir())


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    log(loggers.build("mlflow:experiment=mine"), tmp_path / "run")
    client = mlflow.MlflowClient((tmp_path / "run/mlflow").as_uri())
    (found,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert (found.info.status, found.data.params["seed"]) == ("FINISHED", "3")
    history = client.get_metric_history(found.info.run_id, "wca/0-1/accuracy")
    assert sorted({(metric.step, metric.value) for metric in history}) == [(0, 60.0), (1, 60.0)]


def test_wandb(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    # In a process of its own, for the library starts another and leaves threads behind.
    code = (
        "from tests.loggers.test_loggers import *\n"
        f"log(loggers.build('wandb:project=mine'), Path({str(tmp_path / 'run')!r}), 1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "run/wandb").glob("offline-run-*/*.wandb")
    assert b"wca/0-1/accuracy" in file.read_bytes()


def installed(folder: Path) -> dict[str, str]:
    """An environment in which the plugin is installed from a folder."""
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
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    lines = (run / "mine.txt").read_text().splitlines()
    accuracies = [sum(record["accuracy"]) / 4 for record in read_records(run)]
    assert (lines[0], lines[-1]) == ("begin 0", "end")
    assert [line.split()[:2] for line in lines[1:-1]] == [["wca/0-0", str(number)] for number in (-1, 0, 1)]
    assert f'"accuracy": {accuracies[-1]}' in lines[-2]
    # Continued: the loggers of the run's configuration are there again.
    (run / "summary.json").unlink()
    again = [sys.executable, "-m", "fedwca", "resume", str(run), "--json"]
    assert subprocess.run(again, env=environment, capture_output=True, timeout=250, check=False).returncode == 0
    assert (run / "mine.txt").read_text().count("begin") == 2


class Fails(Logger):
    """Fails where it is told to."""

    at: str = "log"
    """Where."""

    @contextmanager
    def open(self, run: Path, config: Any) -> Iterator[Log]:
        def take(record: Any) -> None:
            if self.at == "log":
                raise RuntimeError("no connection")

        if self.at == "open":
            raise RuntimeError("no account")
        yield take
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
        ("close", "Warning: logger fails could not be closed (no flush)"),
    ],
)
def test_a_logger_that_fails_stops_nothing(bench: Callable[..., Run], tmp_path: Path, at: str, sentence: str) -> None:
    run = bench(tmp_path / "run", "--logger", f"fails:at={at}")
    assert run.code == 0
    assert run.err.count(sentence) == 1
    assert len(read_records(run.folder)) == 3


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_without_the_library(
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
