"""Reads exported models: safetensors and ONNX, and, only if the user trusts the file, ``.pt2``, which is code."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedwca.core.files import expand_home
from fedwca.core.model_description import KEY, ModelDescription
from fedwca.core.network import Network
from fedwca.core.tensor_files import check_fits, fill_module, open_tensors
from fedwca.engine.precision import matmul_precision
from fedwca.errors import CheckpointError, InvalidConfig, UnknownComponent, UsageError, first_line
from fedwca.export.inference import InferenceModel
from fedwca.models import models
from fedwca.runs.resources.choose_device import resolve_device


@dataclass(frozen=True)
class LoadedModel:
    """A model that is ready to predict."""

    about: ModelDescription
    run: Callable[[Tensor], Tensor]
    """uint8 images ``[N, 3, side, side]`` to logits ``[N, M]`` on the CPU."""

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """Return the logits ``[N, M]`` of uint8 images ``[N, 3, side, side]``."""
        return self.run(images)

    def probabilities(self, images: Tensor) -> Tensor:
        """Return the softmax of the logits ``[N, M]`` of uint8 images ``[N, 3, side, side]``."""
        return self.logits(images).softmax(1)


def serve_model(network: Network, description: ModelDescription, device: str = "cpu") -> LoadedModel:
    """Return a network in memory as a model that is ready to predict; the network is copied."""
    model = InferenceModel(network).to(device)

    def run(images: Tensor) -> Tensor:
        with matmul_precision("fp32", device):
            logits: Tensor = model(images.to(device))
        return logits.cpu()

    return LoadedModel(description, run)


def open_model(path: str | Path, device: str = "cpu", *, trust_code: bool = False) -> LoadedModel:
    """Open an exported model; the suffix of the file says its format.

    Args:
        path: of a ``.safetensors``, ``.onnx`` or ``.pt2`` file.
        device: where the model runs, for example ``cuda:1``; ``auto``: a GPU if there is one.
        trust_code: whether ``.pt2`` files may be opened: `torch.export.load` runs code in the file, so set it only for
            files you made.

    Raises:
        CheckpointError: the file is missing, damaged, or not one that fedwca exported.
        UsageError: a library or device that it needs is not available, or it is a ``.pt2`` file without ``trust_code``.
    """
    path = expand_home(path)
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file; a model is a file that `fedwca export` wrote")
    readers = {".safetensors": _safetensors, ".onnx": _onnx, ".pt2": _torch_export}
    if path.suffix not in readers:
        raise CheckpointError(f"{path}: not an exported model; these end in {', '.join(readers)}")
    if path.suffix == ".pt2" and not trust_code:
        raise UsageError(
            f"{path}: a .pt2 file is a program and runs with your rights; open only files you made, with --trust-code "
            "(in Python: trust_code=True)"
        )
    resolved = resolve_device(device)
    if path.suffix == ".onnx" and device == "auto" and not _onnx_runs_on(resolved):
        resolved = "cpu"
    try:
        return readers[path.suffix](path, resolved)
    except (CheckpointError, UsageError):
        raise
    except Exception as error:
        raise CheckpointError(f"{path}: not a readable model ({first_line(error)})") from error


def _safetensors(path: Path, device: str) -> LoadedModel:
    return serve_model(*read_exported(path), device)


def read_exported(path: Path) -> tuple[Network, ModelDescription]:
    """Return the network in a ``.safetensors`` file of `fedwca export` or of a deployed client, and its description.

    Raises:
        CheckpointError: the file is damaged, does not have the architecture it names, or is not such a file.
    """
    file = open_tensors(path)
    description = ModelDescription.read(file.metadata.get(KEY), path)
    try:
        architecture = models.build(description.model)
    except UnknownComponent as error:
        raise CheckpointError(f"{path}: its architecture is not installed here ({error})") from None
    except InvalidConfig as error:
        raise CheckpointError(
            f"{path}: its architecture has another version here ({error}); take the one that exported it"
        ) from None
    tensors = file.tensors()
    # The size of the described model is compared with the file's tensors before memory is allocated for it.
    try:
        with torch.device("meta"):
            outline = architecture.build(len(description.classes), pretrained=False)
    except Exception:  # a plugin's architecture may read values while it is built, and meta tensors have none
        pass
    else:
        check_fits(outline, tensors, path)
    network = architecture.build(len(description.classes), pretrained=False)
    fill_module(network, tensors, path)
    return network.eval(), description


def _onnx_runs_on(device: str) -> bool:
    """Return whether the installed onnxruntime can use the device."""
    if importlib.util.find_spec("onnxruntime") is None:
        return False
    import onnxruntime

    return _onnx_provider(device) in onnxruntime.get_available_providers()


def _onnx_provider(device: str) -> str:
    return "CUDAExecutionProvider" if device.startswith("cuda") else "CPUExecutionProvider"


def _onnx(path: Path, device: str) -> LoadedModel:
    if importlib.util.find_spec("onnxruntime") is None:
        raise UsageError(f"{path}: needs onnxruntime, which is not installed: pip install 'fedwca[onnx]'")
    import onnxruntime

    if not _onnx_runs_on(device):
        raise UsageError(f"--device {device}: the installed onnxruntime runs ONNX files on the CPU alone")
    options = {"device_id": device.partition(":")[2] or "0"} if device.startswith("cuda") else {}
    session = onnxruntime.InferenceSession(str(path), providers=[(_onnx_provider(device), options)])
    description = ModelDescription.read(session.get_modelmeta().custom_metadata_map.get(KEY), path)
    return LoadedModel(
        description, lambda images: torch.from_numpy(session.run(None, {"images": images.cpu().numpy()})[0])
    )


def _torch_export(path: Path, device: str) -> LoadedModel:
    description = ModelDescription.read(inspect_model(path), path)
    program = torch.export.load(str(path))
    if device != "cpu":
        from torch.export.passes import move_to_device_pass

        program = move_to_device_pass(program, device)
    module: Any = program.module()

    def predict(images: Tensor) -> Tensor:
        with matmul_precision("fp32", device):
            logits: Tensor = module(images.to(device)).cpu()
        return logits

    return LoadedModel(description, predict)


RECORDS = re.compile(
    r"models/model\.json|data/(weights/weight_\d+|constants/tensor_\d+|sample_inputs/model\.pt)|extra/fedwca\.json"
    r"|data/(weights/model_weights|constants/model_constants)_config\.json|archive_format|archive_version|byteorder"
    r"|\.data/(version|serialization_id)"
)
"""Names of all records that an exported ``.pt2`` archive may hold."""


def inspect_model(path: Path) -> str | None:
    """Return the description in a ``.pt2`` archive without loading the program; None if there is none.

    This detects archives that fedwca did not export, but not every malicious one: `torch.export.load` unpickles the
    sample inputs if it cannot read them otherwise, and evaluates expressions of the graph as Python.

    Raises:
        CheckpointError: the archive holds a pickle, or a record that no model exported by fedwca has.
    """
    from torch.export.pt2_archive._package import PT2ArchiveReader

    # The same reader as torch's loader uses: another one might see other records in a crafted file.
    with PT2ArchiveReader(str(path)) as archive:
        names = archive.get_file_names()
        if unknown_names := [name for name in names if not RECORDS.fullmatch(name)]:
            raise CheckpointError(
                f"{path}: holds {unknown_names[0]!r}, which no model exported by fedwca has; not loaded"
            )
        for name in names:
            if name.endswith("_config.json"):
                for entry in json.loads(archive.read_string(name))["config"].values():
                    if entry["use_pickle"] is not False or not re.fullmatch(r"(weight|tensor)_\d+", entry["path_name"]):
                        raise CheckpointError(f"{path}: holds a pickle, which could run code; not loaded")
        record = f"extra/{KEY}.json"
        return archive.read_string(record) if record in names else None
