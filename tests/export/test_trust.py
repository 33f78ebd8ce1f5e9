"""A `.pt2` file is a program: nothing in it runs unless the user allows it by `--trust-code`."""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedwca.core.model_description import ModelDescription
from fedwca.core.network import Network
from fedwca.errors import CheckpointError, UsageError
from fedwca.export.load_model import open_model
from fedwca.export.write_model import export

from ..cli.conftest import call

COMMAND = "echo > sprung"


class Payload:
    """Runs `COMMAND` when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, (COMMAND,)


def put_pickle(name: str, content: bytes) -> bytes:
    """Put a pickle in place of the sample inputs; torch unpickles these in full if it cannot do so without objects."""
    return pickle.dumps(Payload()) if name.endswith("sample_inputs/model.pt") else content


def put_expression(name: str, content: bytes) -> bytes:
    """Put Python code in place of the graph's symbolic sizes, which sympy evaluates."""
    if not name.endswith("models/model.json"):
        return content
    changed, places = re.subn(
        rb'"expr_str": "[^"]*"', f"\"expr_str\": \"__import__('os').system('{COMMAND}')\"".encode(), content
    )
    assert places
    return changed


@pytest.fixture
def program(tmp_path: Path, network: Network, about: ModelDescription, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model as `export` writes it, in the working directory, where a payload would leave the file ``sprung``."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "program.pt2"
    export(path, "torch-export", network, about)
    return path


@pytest.mark.parametrize("change", [put_pickle, put_expression])
def test_no_payload_runs_without_the_flag(change: Callable[[str, bytes], bytes], program: Path) -> None:
    crafted = program.with_name("crafted.pt2")
    with zipfile.ZipFile(program) as original, zipfile.ZipFile(crafted, "w") as copy:
        records = {name: (original.read(name), change(name, original.read(name))) for name in original.namelist()}
        for name, (_, content) in records.items():
            copy.writestr(name, content)
    assert sum(before != after for before, after in records.values()) == 1
    run = call("predict", str(crafted), ".")
    assert not Path("sprung").exists()
    assert (run.code, run.out) == (2, "")
    assert "--trust-code" in run.err
    with pytest.raises(UsageError, match="open only files you made"):
        open_model(crafted)
    assert not Path("sprung").exists()


def test_a_refused_program_is_not_even_looked_into(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("torch was given the file")

    monkeypatch.setattr("torch.export.load", reached)
    monkeypatch.setattr("torch.export.pt2_archive._package.PT2ArchiveReader", reached)
    with pytest.raises(UsageError, match="--trust-code"):
        open_model(program)


def test_trust_does_not_open_other_kinds_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(Payload()))
    with pytest.raises(CheckpointError, match="not an exported model"):
        open_model(tmp_path / "model.pkl", trust_code=True)
    assert not Path("sprung").exists()
