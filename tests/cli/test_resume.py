"""A run that was stopped goes on to the same bits as one that was not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from fedwca.errors import UsageError
from fedwca.models.lenet import LeNet
from fedwca.results.environment import describe_environment
from fedwca.results.read_run_files import read_notes
from fedwca.runs.execute_run import execute_run
from fedwca.runs.run_request import RunRequest
from fedwca.runs.start_run import start_run

from ..conftest import SMALL_MODEL
from .conftest import SIZE, THREE_ROUNDS, call, leave_half_written
from .resumed_runs import ORDER, TOGETHER, Make, edit_config, result, resume, stopped


@pytest.mark.parametrize(
    ("records", "behind", "tail"),
    [(0, 0, ""), (1, 1, ""), (1, 0, '{"schema": 2, "met'), (4, 0, ""), (5, 1, ""), (8, 2, "{"), (9, 0, "")],
)
def test_from_any_point_to_the_same_bits(
    all_checkpoints: Path, tmp_path: Path, records: int, behind: int, tail: str
) -> None:
    folder = stopped(all_checkpoints, tmp_path / "run", records, behind=behind, tail=tail)
    (folder / "checkpoints/0-0-wca").mkdir(parents=True, exist_ok=True)
    for file in (folder / "checkpoints/0-0-wca/000009.safetensors", folder / "summary.json"):
        leave_half_written(file)
    run = resume(folder)
    assert run.code == 0, run.err
    assert result(folder) == result(all_checkpoints)
    timing = json.loads((folder / "summary.json").read_text())["timing"]
    assert timing["run_seconds"] >= sum(timing["methods"].values()) - 1e-6
    rounds_done = sum(number >= 0 for _, number in ORDER[: records - behind])
    assert f"Going on after {rounds_done} of 6 rounds" in run.out
    assert not list(folder.glob(f".*{'a' * 32}*"))


def test_the_stacked_engine_goes_on_to_the_same_bits(bench: Make, tmp_path: Path) -> None:
    uninterrupted = bench(*THREE_ROUNDS, "--keep", "all", "--quiet", "--engine", "stacked")
    assert uninterrupted.code == 0, uninterrupted.err
    folder = stopped(uninterrupted.folder, tmp_path / "run", 8, behind=1)
    assert resume(folder).code == 0
    assert result(folder) == result(uninterrupted.folder)


def test_kernels_stay_as_they_were(bench: Make) -> None:
    # Kernels that a run began with are not chosen anew, for with other kernels last digits differ.
    run = bench("--rounds", "2", "--engine", "stacked")
    assert run.code == 0, run.err
    assert "Kernels: channels-last (the default)" in run.out
    config, environment = (json.loads((run.folder / f"{name}.json").read_text()) for name in ("config", "environment"))
    assert (config["config"]["kernels"], config["kernels"]) == ("auto", "channels-last")
    assert environment["kernels"] == {
        "chosen": "channels-last",
        "why": "the default",
        "measured": {},
    }
    (run.folder / "config.json").write_text(json.dumps({**config, "kernels": "eager"}))
    (run.folder / "summary.json").unlink()
    again = resume(run.folder)
    assert again.code == 0, again.err
    assert "Kernels: eager (as before)" in again.out


def test_a_run_of_trials_together_goes_on_where_they_cannot_be(bench: Make) -> None:
    run = bench(*TOGETHER, "--json", "--keep", "all")
    assert run.code == 0, run.err
    (run.folder / "summary.json").unlink()
    contents = json.loads((run.folder / "config.json").read_text())
    contents["config"]["engine"], contents["config"]["trials_at_once"] = "auto", None  # as it would have been on a GPU
    (run.folder / "config.json").write_text(json.dumps(contents))
    for file in run.folder.glob("checkpoints/*"):
        shutil.rmtree(file)
    (run.folder / "rounds.jsonl").write_text("")
    again = resume(run.folder)
    assert again.code == 0, again.err
    assert "Warning: 2 trials went through rounds together, and now 1: last digits may differ" in again.err
    assert len((run.folder / "rounds.jsonl").read_text().splitlines()) == 3 * (3 + 3)


def test_a_run_that_goes_on_elsewhere_says_so(all_checkpoints: Path, tmp_path: Path) -> None:
    folder = stopped(all_checkpoints, tmp_path / "run", 5)
    began = json.loads((folder / "environment.json").read_text())
    began["cpu"], began["versions"]["torch"] = "Abacus\x1b[31m", "1.0"
    (folder / "environment.json").write_text(json.dumps(began))
    run = resume(folder)
    assert run.code == 0, run.err
    current = describe_environment("cpu")
    assert (
        f"Warning: begun with cpu Abacus\\x1b[31m, torch 1.0, going on with cpu {current['cpu']}, "
        f"torch {current['versions']['torch']}: last digits may differ" in run.err
    )
    environment = json.loads((folder / "environment.json").read_text())
    assert {key: environment[key] for key in began} == began
    ((rounds, changed),) = environment["resumed"].items()
    assert rounds == "3"
    assert (changed["cpu"], changed["versions.torch"]) == (current["cpu"], current["versions"]["torch"])
    assert "versions.numpy" not in changed


def test_a_run_that_goes_on_where_it_began_warns_of_nothing(all_checkpoints: Path, tmp_path: Path) -> None:
    folder = stopped(all_checkpoints, tmp_path / "run", 5)
    run = resume(folder)
    assert run.code == 0, run.err
    assert "digits may differ" not in run.err


def test_methods_that_begin_later_begin_from_the_same_model(bench: Make, tmp_path: Path) -> None:
    file = tmp_path / "own.pt"

    def put(seed: int) -> None:
        torch.save(LeNet(bottleneck=8).build(2, seed=seed).state_dict(), file)

    put(1)
    arguments = ["--checkpoint", str(file), *SIZE.split(), "--rounds", "1", "--set", "model.bottleneck=8"]
    uninterrupted = bench(*arguments, "--baseline", "fedavg", "--quiet", small=False)
    assert uninterrupted.code == 0, uninterrupted.err
    folder = tmp_path / "run"
    shutil.copytree(uninterrupted.folder, folder)
    (folder / "summary.json").unlink()
    shutil.rmtree(folder / "checkpoints/0-0-wca")
    fedavg_lines = [line for line in uninterrupted.lines if json.loads(line)["method"] == "fedavg"]
    (folder / "rounds.jsonl").write_text("\n".join(fedavg_lines) + "\n")
    put(2)
    refused = resume(folder)
    assert refused.code == 1
    assert f"began from another model than {file} holds now; put that one back" in refused.err
    put(1)
    assert resume(folder).code == 0
    assert result(folder)[0] == result(uninterrupted.folder)[0]


def test_bench_hands_on_what_it_is_to_keep(all_checkpoints: Path, bench: Make, tmp_path: Path) -> None:
    folder = stopped(all_checkpoints, tmp_path / "run", 7)
    arguments = [*THREE_ROUNDS, "--resume", "--profile", "--note", "why", "--tag", "night"]
    run = bench(*arguments, "--keep", "all", out=folder)
    assert run.code == 0, run.err
    assert "asked for now" not in run.err
    assert result(folder) == result(all_checkpoints)
    assert read_notes(folder) == {"note": "why", "tags": ["night"]}
    profile = json.loads((folder / "profile.json").read_text())
    assert (folder / profile["trace"]).is_file()
    assert "Seconds a round" in run.out
    edit_config(folder, loggers=[{"name": "wandb", "project": "mine", "entity": None}])
    again = bench(*arguments, "--keep", "2", out=folder)
    assert again.code == 0, again.err
    assert f"Warning: {folder}: was begun with --keep all and stays so; asked for now: --keep 2" in again.err
    once_more = bench(*arguments, "--trials-at-once", "1", out=folder)
    assert (once_more.code, "trials-at-once" in once_more.err) == (0, False)
    assert (
        f"Warning: {folder}: was begun with --logger wandb:project=mine and stays so; asked for now: no --logger"
        in again.err
    )
    assert "Seconds a round" in again.out
    (folder / "profile.json").unlink()
    assert bench(*arguments, "--keep", "all", out=folder).code == 0


def test_a_finished_run_shows_its_table(finished_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = result(finished_run)
    monkeypatch.setattr("fedwca.runs.execute_run.run_bench", lambda *_: pytest.fail("work has started"))
    run = resume(finished_run)
    assert run.code == 0, run.err
    assert "FedWCA" in run.out
    assert json.loads(resume(finished_run, "--json").out)["methods"] == before[1]["methods"]
    assert result(finished_run) == before


def test_a_run_that_goes_on_shows_the_columns_that_are_asked_for(finished_run: Path) -> None:
    run = call("resume", str(finished_run), "--column", "worst")
    assert run.code == 0, run.err
    assert "worst" in run.out
    assert "did you mean 'worst'?" in call("resume", str(finished_run), "--column", "wrost").err


@pytest.mark.filterwarnings("ignore:.*all clients are in one cluster")
def test_a_request_can_take_up_what_is_there(
    all_checkpoints: Path, shades: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stopped(all_checkpoints, tmp_path / "run", 8)
    layer = {
        "data": shades, "clients": 2, "rounds": 3, "device": "cpu", "baselines": ["source-only", "fedavg"],
        "participation": 0.5, "model": SMALL_MODEL, "training": {"epochs": 1, "lr": 0.01, "batch_size": 16},
    }  # fmt: skip
    pairs = [("source_training.epochs", "1")]

    def request(**values: Any) -> RunRequest:
        return RunRequest({**layer, **values}, pairs, out=folder, keep="all", reuse=True)

    with pytest.raises(UsageError, match="holds a run of another configuration: seed is 0 there, 3 here"):
        start_run(request(seed=3))
    workers: list[int | None] = []
    monkeypatch.setattr(
        "fedwca.runs.resuming.resume_run.execute_run",
        lambda run, *a: (workers.append(run.plan.config.workers), execute_run(run, *a))[1],
    )
    continued = start_run(request(workers=1))
    assert workers == [1]
    rounds, summary, models = result(folder)
    assert summary["config"].pop("workers") == 1
    summary["config"]["workers"] = None
    assert (rounds, summary, models) == result(all_checkpoints)
    monkeypatch.setattr("fedwca.runs.execute_run.run_bench", lambda *_: pytest.fail("work has started"))
    again = start_run(request())
    assert again.summary == continued.summary
    assert [(row.name, row.mean) for row in again.table] == [(row.name, row.mean) for row in continued.table]
    monkeypatch.undo()
    folder = tmp_path / "new"
    assert start_run(request()).summary["methods"] == continued.summary["methods"]
