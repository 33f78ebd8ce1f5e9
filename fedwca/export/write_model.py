"""Writing a model as safetensors, ONNX or torch.export; a file is there only if it says what the model says."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

import torch

from fedwca.core.files import name_unwritable, write_atomically
from fedwca.core.model_description import KEY, ModelDescription
from fedwca.core.network import Network
from fedwca.core.tensor_files import save_tensors
from fedwca.errors import UsageError
from fedwca.export.card import model_card
from fedwca.export.check_exported import compare_outputs, comparison_images
from fedwca.export.inference import InferenceModel

Kind = Literal["safetensors", "onnx", "torch-export"]
SUFFIXES: dict[Kind, str] = {"safetensors": ".safetensors", "onnx": ".onnx", "torch-export": ".pt2"}


def kind_of(path: Path, asked: str | None = None) -> Kind:
    """The format of a file to write, by what was asked for or by its suffix.

    Raises:
        UsageError: there is no such format, the suffix belongs to another, or its libraries are not installed.
    """
    by_suffix = {suffix: kind for kind, suffix in SUFFIXES.items()}
    known = ", ".join(f"{kind} ({suffix})" for kind, suffix in SUFFIXES.items())
    for kind in get_args(Kind):
        if (asked or by_suffix.get(path.suffix)) == kind:
            if path.suffix != SUFFIXES[kind]:
                raise UsageError(f"--out {path}: a file of format {kind} ends in {SUFFIXES[kind]}")
            if not check_installed(kind):
                raise UsageError("--to onnx needs libraries that are not installed: pip install 'fedwca[onnx]'")
            return kind  # type: ignore[no-any-return]
    if asked:
        raise UsageError(f"--to {asked}: no such format; there are {known}")
    raise UsageError(f"--out {path}: the suffix names no format; there are {known}")


def check_installed(kind: Kind) -> bool:
    """Whether the libraries that a format needs are here."""
    needed = ("onnx", "onnxruntime", "onnxscript") if kind == "onnx" else ()
    return all(importlib.util.find_spec(name) is not None for name in needed)


def export(path: Path, kind: Kind, network: Network, about: ModelDescription) -> Path:
    """Write a model and its card, after reading it back and comparing its outputs.

    Args:
        path: of the model; the card goes beside it, ``.md`` added to its name.
        kind: format.
        network: the model; left as it is.
        about: what is said of it.

    Returns:
        The card's path.

    Raises:
        FedwcaError: the file's outputs differ from the model's, or it cannot be written; nothing is left behind.
    """
    served = InferenceModel(network)

    def checked(file: Path) -> None:
        WRITERS[kind](served, about, file)
        compare_outputs(served, about, file, path)

    beside = path.with_name(f"{path.name}.md")

    def with_card(file: Path) -> None:
        file.write_text(model_card(about, path.name, kind), encoding="utf-8")
        write_atomically(path, checked)  # a model goes nowhere without its card, which is written by now

    with name_unwritable(f"--out {path}"):
        write_atomically(beside, with_card)
    return beside


def _safetensors(served: InferenceModel, about: ModelDescription, file: Path) -> None:
    save_tensors(file, served.network.state_dict(), {KEY: about.text()})


def _torch_export(served: InferenceModel, about: ModelDescription, file: Path) -> None:
    torch.export.save(_program(served, about), str(file), extra_files={f"{KEY}.json": about.text()})


def _onnx(served: InferenceModel, about: ModelDescription, file: Path) -> None:
    with warnings.catch_warnings(action="ignore"):  # about the exporter's own internals
        program = torch.onnx.export(
            _program(served, about), dynamo=True, input_names=["images"], output_names=["logits"], verbose=False
        )
    assert program is not None
    program.model.metadata_props[KEY] = about.text()
    program.save(str(file))


def _program(served: InferenceModel, about: ModelDescription) -> torch.export.ExportedProgram:
    """The model as a graph with any number of images; traced with three, since one would be taken for a constant."""
    batch = torch.export.Dim("batch", min=1)
    return torch.export.export(served, (comparison_images(about.side, 3),), dynamic_shapes={"images": {0: batch}})


WRITERS: dict[Kind, Callable[[InferenceModel, ModelDescription, Path], None]] = {
    "safetensors": _safetensors,
    "onnx": _onnx,
    "torch-export": _torch_export,
}
