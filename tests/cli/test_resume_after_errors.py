"""A run that a full disk, a file that cannot be read or too little memory ended says so and goes on."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors import SafetensorError

from fedwca.core import tensor_files

from .conftest import THREE_ROUNDS, call
from .resumed_runs import Make, result, resume


@pytest.mark.parametrize("way", ["checkpoint", "serialized", "line"])
def test_a_disk_that_fills_up_loses_nothing(
    bench: Make, finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    folder, calls = tmp_path / "run", 0
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    real_save = tensor_files.save_file

    def save(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > 4:
            raise full if way == "checkpoint" else SafetensorError("I/O error: No space left on device (os error 28)")
        real_save(*arguments)

    def fsync(line: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 6:
            os.ftruncate(line, os.fstat(line).st_size - 40)
            raise full

    with monkeypatch.context() as patch:
        patch.setattr("fedwca.runs.write_summary.overview", Mock(side_effect=full))
        if way == "line":
            patch.setattr("fedwca.results.write_run.os", SimpleNamespace(fsync=fsync))
        else:
            patch.setattr(tensor_files, "save_file", save)
        run = bench(*THREE_ROUNDS, "--quiet", out=folder)
    assert run.code == 1
    (sentence,) = [line for line in run.err.splitlines() if "source model" not in line]
    file = folder / ("rounds.jsonl" if way == "line" else "checkpoints/0-0-fedavg/000003.safetensors")
    problem = f"Error: {file}: cannot be written (No space left on device)"
    assert sentence == f"{problem}; what was written is kept, continue with: fedwca resume {folder}"
    assert run.summary["complete"] is False
    assert resume(folder).code == 0
    assert result(folder) == result(finished_run)


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a.csv"), "a.csv: No such file or directory"),
        (OSError(errno.EIO, "Input/output error"), "reading or writing failed (Input/output error)"),
    ],
)
def test_what_cannot_be_read_is_not_said_to_be_unwritable(
    bench: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, problem: str
) -> None:
    monkeypatch.setattr("fedwca.runs.run_trials_and_methods.run_rounds", Mock(side_effect=error))
    run = bench("--rounds", "1", "--baseline", "none", "--quiet", out=tmp_path / "run")
    assert run.code == 1
    assert run.err == f"Error: {problem}; what was written is kept, continue with: fedwca resume {tmp_path / 'run'}\n"


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried 2 GiB"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_memory_that_runs_out_ends_in_a_sentence_and_the_run_goes_on(
    bench: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("fedwca.runs.run_trials_and_methods.run_rounds", Mock(side_effect=error))
        patch.setattr("fedwca.runs.write_summary.overview", Mock(side_effect=MemoryError))
        run = bench("--rounds", "1", "--baseline", "none", "--quiet", out=folder)
    assert run.code == 1
    assert run.err == (
        f"Error: memory ran out on cpu ({str(error) or 'MemoryError'}); what was written is kept, continue with: "
        f"fedwca resume {folder} or, with one client at a time, fedwca bench --config {folder}/config.json "
        f"--out {folder} --resume --workers 1; "
        "in a new run a smaller --batch-size or fewer --clients take less memory\n"
    )
    options = ("--config", str(folder / "config.json"), "--out", str(folder), "--resume", "--workers", "1")
    assert call("bench", *options).code == 0
