"""Writes a model as safetensors, ONNX or torch.export; a file is kept only if its outputs equal the model's."""

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
from fedwca.errors import FedwcaError, UsageError, first_line
from fedwca.export.card import model_card
from fedwca.export.check_exported import compare_outputs, comparison_images
from fedwca.export.inference import InferenceModel

Kind = Literal["safetensors", "onnx", "torch-export"]
SUFFIXES: dict[Kind, str] = {"safetensors": ".safetensors", "onnx": ".onnx", "torch-export": ".pt2"}


def kind_of(path: Path, requested: str | None = None) -> Kind:
    """Return the format of a file to write: the requested one, else that of the suffix.

    Raises:
        UsageError: there is no such format, the suffix belongs to another one, or its libraries are not installed.
    """
    by_suffix = {suffix: kind for kind, suffix in SUFFIXES.items()}
    formats = ", ".join(f"{kind} ({suffix})" for kind, suffix in SUFFIXES.items())
    for kind in get_args(Kind):
        if (requested or by_suffix.get(path.suffix)) == kind:
            if path.suffix != SUFFIXES[kind]:
                raise UsageError(f"--out {path}: a file of format {kind} ends in {SUFFIXES[kind]}")
            if not check_installed(kind):
                raise UsageError("--to onnx needs libraries that are not installed: pip install 'fedwca[onnx]'")
            return kind  # type: ignore[no-any-return]
    if requested:
        raise UsageError(f"--to {requested}: no such format; there are {formats}")
    raise UsageError(f"--out {path}: the suffix names no format; there are {formats}")


def check_installed(kind: Kind) -> bool:
    """Return whether the libraries that a format needs are installed."""
    libraries = ("onnx", "onnxruntime", "onnxscript") if kind == "onnx" else ()
    return all(importlib.util.find_spec(name) is not None for name in libraries)


def export(path: Path, kind: Kind, network: Network, description: ModelDescription) -> Path:
    """Write a model and its card; the model's file is read back and its outputs are compared before it is kept.

    Args:
        path: of the model; the card is written beside it, with ``.md`` added to the name.
        kind: format.
        network: the model; not changed.
        description: the model's description.

    Returns:
        The card's path.

    Raises:
        FedwcaError: the file's outputs differ from the model's, or it cannot be written, or the model is too large
            for one ONNX file; nothing is left behind.
    """
    model = InferenceModel(network)

    def write_checked(file: Path) -> None:
        try:
            WRITERS[kind](model, description, file)
        except (OSError, FedwcaError):
            raise
        except Exception as error:  # torch raises exceptions of many kinds for what it cannot trace, such as branches
            raise FedwcaError(
                f"--to {kind}: the model cannot be written in this format ({first_line(error)}); take safetensors"
            ) from error
        compare_outputs(model, description, file, path)

    card_path = path.with_name(f"{path.name}.md")

    def write_with_card(file: Path) -> None:
        file.write_text(model_card(description, path.name, kind), encoding="utf-8")
        # The card is written by now, and renamed right after the model; a kill in between leaves the earlier card.
        write_atomically(path, write_checked)

    with name_unwritable(f"--out {path}"):
        write_atomically(card_path, write_with_card)
    return card_path


def _safetensors(model: InferenceModel, description: ModelDescription, file: Path) -> None:
    save_tensors(file, model.network.state_dict(), {KEY: description.text()})


def _torch_export(model: InferenceModel, description: ModelDescription, file: Path) -> None:
    torch.export.save(_program(model, description), str(file), extra_files={f"{KEY}.json": description.text()})


def _onnx(model: InferenceModel, description: ModelDescription, file: Path) -> None:
    with warnings.catch_warnings(action="ignore"):  # they concern the exporter's internals
        program = torch.onnx.export(
            _program(model, description), dynamo=True, input_names=["images"], output_names=["logits"], verbose=False
        )
    assert program is not None
    program.model.metadata_props[KEY] = description.text()
    beside = set(file.parent.iterdir())
    program.save(str(file))
    # torch writes the weights of large models into a second file, which is not kept: a model is one file here.
    if set(file.parent.iterdir()) - beside - {file}:
        raise FedwcaError("--to onnx: the model is too large for one ONNX file; take safetensors")


def _program(model: InferenceModel, description: ModelDescription) -> torch.export.ExportedProgram:
    """Return the model as a graph for any batch size; traced with three images, as size 1 would become a constant."""
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(
        model, (comparison_images(description.side, 3),), dynamic_shapes={"images": {0: batch}}
    )
    # Stack traces hold paths of this machine and lines of the source, which both formats would write into the file.
    graphs = [module.graph for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
    for node in (node for graph in graphs for node in graph.nodes):
        node.meta.pop("stack_trace", None)
    return program


WRITERS: dict[Kind, Callable[[InferenceModel, ModelDescription, Path], None]] = {
    "safetensors": _safetensors,
    "onnx": _onnx,
    "torch-export": _torch_export,
}
