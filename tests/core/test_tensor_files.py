"""Files of tensors: complete, readable by other users, and refused where damaged or of a wrong type."""

from __future__ import annotations

import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedwca.core.tensor_files import checksum, fill_module, open_tensors, read_tensors, write_tensors
from fedwca.errors import CheckpointError

TENSORS = {"weight": torch.arange(6.0).view(2, 3), "bias": torch.ones(2)}


def test_tensors_come_back(tmp_path: Path) -> None:
    shared = {**TENSORS, "turned": TENSORS["weight"].T, "alias": TENSORS["weight"]}
    write_tensors(tmp_path / "a.safetensors", shared, {"note": "x"})
    file = open_tensors(tmp_path / "a.safetensors")
    assert file.metadata == {"note": "x"}
    assert file.checksum() == checksum(file.tensors()) == checksum(shared)
    assert all(torch.equal(tensor, shared[name]) for name, tensor in file.tensors().items())
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


def test_others_may_read_what_is_handed_on(tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        write_tensors(tmp_path / "a.safetensors", TENSORS)
        write_tensors(tmp_path / "b.safetensors", TENSORS, private=True)
    finally:
        os.umask(umask)
    modes = [(tmp_path / f"{name}.safetensors").stat().st_mode & 0o777 for name in "ab"]
    assert modes == [0o644, 0o600]


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b + b"x", lambda b: b"", lambda b: b"\xff" * 8 + b[8:]])
def test_a_file_holds_what_its_header_declares(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "a.safetensors"
    write_tensors(file, TENSORS)
    file.write_bytes(damage(file.read_bytes()))
    for read in (open_tensors, lambda path: read_tensors(path, "it takes")):
        with pytest.raises(CheckpointError, match="not a readable checkpoint"):
            read(file)


def test_whole_numbers_and_complex_ones_are_no_weights(tmp_path: Path) -> None:
    module = nn.Linear(3, 2)
    for kind in (torch.int64, torch.complex64):
        save_file({name: tensor.to(kind) for name, tensor in TENSORS.items()}, str(tmp_path / "a.safetensors"))
        tensors = read_tensors(tmp_path / "a.safetensors", "it takes")
        with pytest.raises(CheckpointError, match=f"weight holds {str(kind)[6:]}; this model needs float32"):
            fill_module(module, tensors, tmp_path / "a.safetensors")


def test_a_number_that_is_too_large_for_the_models_type_is_not_finite(tmp_path: Path) -> None:
    tensors = {name: tensor.double() for name, tensor in TENSORS.items()}
    tensors["weight"] = tensors["weight"] + 1e300
    with pytest.raises(CheckpointError, match="weight has values that are not finite"):
        fill_module(nn.Linear(3, 2), tensors, tmp_path / "a.safetensors")


def test_threads_that_read_leave_the_filters_of_warnings_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save(TENSORS, tmp_path / "a.pt")
    load, begun, ended = torch.load, Event(), Event()

    def staggered(*arguments: Any, **options: Any) -> Any:
        """What begins first ends first."""
        if begun.is_set():
            second_begun.set()
            ended.wait(2)
        begun.set()
        second_begun.wait(0.3)
        return load(*arguments, **options)

    second_begun = Event()
    monkeypatch.setattr(torch, "load", staggered)
    filters = list(warnings.filters)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(read_tensors, tmp_path / "a.pt", "this takes")
        first.add_done_callback(lambda _: ended.set())
        assert begun.wait(10)
        assert pool.submit(read_tensors, tmp_path / "a.pt", "this takes").result().keys() == TENSORS.keys()
    assert warnings.filters == filters


def test_a_full_disk_is_the_systems_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors import SafetensorError

    def full(*_: object) -> None:
        raise SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr("fedwca.core.tensor_files.save_file", full)
    with pytest.raises(OSError, match="No space left"):
        write_tensors(tmp_path / "a.safetensors", TENSORS)
    assert list(tmp_path.iterdir()) == []
