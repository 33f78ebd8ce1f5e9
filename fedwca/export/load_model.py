"""Reading exported models back: safetensors and ONNX, and with the user's word `.pt2`, which is code."""

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
from fedwca.core.tensor_files import check_fits, check_no_other_tensors, fill_module, open_tensors
from fedwca.engine.precision import matmul_precision
from fedwca.errors import CheckpointError, UnknownComponent, UsageError, first_line
from fedwca.export.inference import InferenceModel
from fedwca.models import models


@dataclass(frozen=True)
class LoadedModel:
    """A model that is ready to predict."""

    about: ModelDescription
    run: Callable[[Tensor], Tensor]
    """uint8 images ``[N, 3, side, side]`` to logits ``[N, M]`` on the CPU."""

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """Logits ``[N, M]`` of uint8 images ``[N, 3, side, side]``."""
        return self.run(images)

    def probabilities(self, images: Tensor) -> Tensor:
        """Softmax of the logits ``[N, M]``."""
        return self.logits(images).softmax(1)


def serve_model(network: Network, about: ModelDescription, device: str = "cpu") -> LoadedModel:
    """A network in memory, ready to predict."""
    served = InferenceModel(network).to(device)

    def run(images: Tensor) -> Tensor:
        with matmul_precision("fp32", device):
            found: Tensor = served(images.to(device))
        return found.cpu()

    return LoadedModel(about, run)


def open_model(path: str | Path, device: str = "cpu", *, trust_code: bool = False) -> LoadedModel:
    """An exported model, by the suffix of its file.

    Args:
        path: of a ``.safetensors``, ``.onnx`` or ``.pt2`` file.
        device: where it is to run, for example ``cuda:1``.
        trust_code: open a ``.pt2`` file too: `torch.export.load` runs what is in it, so only for files you made.

    Raises:
        CheckpointError: the file is missing, damaged, or not one that fedwca exported.
        UsageError: its format needs a library or a device that is not there, or code that is not trusted.
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
    try:
        return readers[path.suffix](path, device)
    except (CheckpointError, UsageError):
        raise
    except Exception as error:
        raise CheckpointError(f"{path}: not a readable model ({first_line(error)})") from error


def _safetensors(path: Path, device: str) -> LoadedModel:
    return serve_model(*read_exported(path), device)


def read_exported(path: Path) -> tuple[Network, ModelDescription]:
    """The network in a ``.safetensors`` file of `fedwca export` or of a deployed client, and what is said of it.

    Raises:
        CheckpointError: the file is damaged, of another architecture than it says, or not one of these.
    """
    file = open_tensors(path)
    about = ModelDescription.read(file.metadata.get(KEY), path)
    try:
        architecture = models.build(about.model)
    except UnknownComponent as error:
        raise CheckpointError(f"{path}: its architecture is not installed here ({error})") from None
    tensors = file.tensors()
    # A file says how wide its model is: that is compared with what it holds before memory is taken for it.
    try:
        with torch.device("meta"):
            outline = architecture.build(len(about.classes), pretrained=False)
    except Exception:  # a plugin's may read values while it is built, of which there are none
        pass
    else:
        check_fits(outline, tensors, path)
    network = architecture.build(len(about.classes), pretrained=False)
    fill_module(network, tensors, path)
    check_no_other_tensors(network, tensors, path)
    return network.eval(), about


def _onnx(path: Path, device: str) -> LoadedModel:
    if importlib.util.find_spec("onnxruntime") is None:
        raise UsageError(f"{path}: needs onnxruntime, which is not installed: pip install 'fedwca[onnx]'")
    import onnxruntime

    provider = "CUDAExecutionProvider" if device.startswith("cuda") else "CPUExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise UsageError(f"--device {device}: the installed onnxruntime runs ONNX files on the CPU alone")
    options = {"device_id": device.partition(":")[2] or "0"} if device.startswith("cuda") else {}
    session = onnxruntime.InferenceSession(str(path), providers=[(provider, options)])
    about = ModelDescription.read(session.get_modelmeta().custom_metadata_map.get(KEY), path)
    return LoadedModel(about, lambda images: torch.from_numpy(session.run(None, {"images": images.cpu().numpy()})[0]))


def _torch_export(path: Path, device: str) -> LoadedModel:
    about = ModelDescription.read(inspect_model(path), path)
    program = torch.export.load(str(path))
    if device != "cpu":
        from torch.export.passes import move_to_device_pass

        program = move_to_device_pass(program, device)
    module: Any = program.module()
    return LoadedModel(about, lambda images: module(images.to(device)).cpu())


RECORDS = re.compile(
    r"models/model\.json|data/(weights/weight_\d+|constants/tensor_\d+|sample_inputs/model\.pt)|extra/fedwca\.json"
    r"|data/(weights/model_weights|constants/model_constants)_config\.json|archive_format|archive_version|byteorder"
    r"|\.data/(version|serialization_id)"
)
"""All that an exported model has."""


def inspect_model(path: Path) -> str | None:
    """The description in a ``.pt2`` archive, None if there is none; looks without loading.

    This finds archives that are not ours, not all that are malicious: `torch.export.load` also unpickles the sample
    inputs where it cannot read them otherwise, and evaluates expressions of the graph as Python.

    Raises:
        CheckpointError: the archive holds a pickle or anything else that a model of ours has not.
    """
    from torch.export.pt2_archive._package import PT2ArchiveReader

    # The reader that torch loads with: another one might see other records in a crafted file.
    with PT2ArchiveReader(str(path)) as archive:
        names = archive.get_file_names()
        if strange := [name for name in names if not RECORDS.fullmatch(name)]:
            raise CheckpointError(f"{path}: holds {strange[0]!r}, which no model exported by fedwca has; not loaded")
        for name in names:
            if name.endswith("_config.json"):
                for entry in json.loads(archive.read_string(name))["config"].values():
                    if entry["use_pickle"] is not False or not re.fullmatch(r"(weight|tensor)_\d+", entry["path_name"]):
                        raise CheckpointError(f"{path}: holds a pickle, which could run code; not loaded")
        description = f"extra/{KEY}.json"
        return archive.read_string(description) if description in names else None
