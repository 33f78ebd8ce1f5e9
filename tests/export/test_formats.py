"""An exported model predicts as the original or is not kept; a file that fedwca did not write is not opened."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import fedwca
from fedwca.core.model_description import KEY, ModelDescription
from fedwca.core.network import Network
from fedwca.errors import CheckpointError, FedwcaError, UsageError
from fedwca.export import write_model as formats
from fedwca.export.card import model_card
from fedwca.export.check_exported import comparison_images
from fedwca.export.load_model import open_model
from fedwca.export.model_from_run import check_cluster, labelled_domains
from fedwca.export.write_model import SUFFIXES, Kind, export, kind_of
from fedwca.models import models
from fedwca.runs.opened_run import OpenedRun
from tests.conftest import SMALL_MODEL, a_network

KINDS: list[Any] = [
    "safetensors",
    "torch-export",
    pytest.param(
        "onnx", marks=pytest.mark.skipif(not formats.check_installed("onnx"), reason="the extra onnx is missing")
    ),
]
kinds = pytest.mark.parametrize("kind", KINDS)


def written(tmp_path: Path, kind: Kind, network: Network, about: ModelDescription) -> Path:
    path = tmp_path / f"model{SUFFIXES[kind]}"
    export(path, kind, network, about)
    return path


@kinds
def test_a_model_comes_back_as_it_was(kind: Kind, tmp_path: Path, network: Network, about: ModelDescription) -> None:
    path = written(tmp_path, kind, network, about)
    opened = open_model(path, trust_code=True)
    assert opened.about == about
    network.eval()
    for images in (comparison_images(8, 1), comparison_images(8, 2), comparison_images(8, 9)):
        with torch.no_grad():
            expected = network(network.prepare(images))[0]
        torch.testing.assert_close(opened.logits(images), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(opened.probabilities(images).sum(1), torch.ones(len(images)))
    assert sorted(file.name for file in tmp_path.iterdir()) == [path.name, f"{path.name}.md"]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_file_tells_no_folder_of_the_machine_that_wrote_it(
    kind: Kind, tmp_path: Path, network: Network, about: ModelDescription
) -> None:
    path = written(tmp_path, kind, network, about)
    contents = [path.read_bytes()]
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            contents = [archive.read(name) for name in archive.namelist()]
    for folder in (fedwca, torch):
        assert not any(str(Path(folder.__file__).parent).encode() in content for content in contents)


@pytest.mark.skipif(not formats.check_installed("onnx"), reason="the extra onnx is missing")
def test_auto_is_a_device_that_the_library_has(
    tmp_path: Path, network: Network, about: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, "onnx", network, about)
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr("fedwca.export.load_model.resolve_device", lambda name: "cuda" if name == "auto" else name)
    assert open_model(path, "auto").logits(comparison_images(8, 2)).shape == (2, len(about.classes))
    with pytest.raises(UsageError, match="--device cuda: the installed onnxruntime runs ONNX files on the CPU alone"):
        open_model(path, "cuda")


@kinds
def test_normalisation_is_inside(kind: Kind, tmp_path: Path, network: Network, about: ModelDescription) -> None:
    network.mean.fill_(0.25)  # type: ignore[operator]
    if kind == "safetensors":  # its architecture says how to normalise; weights alone cannot say otherwise
        with pytest.raises(FedwcaError, match="away from the model's"):
            written(tmp_path, kind, network, about)
        assert list(tmp_path.iterdir()) == []
        return
    images, network = comparison_images(8, 3), network.eval()
    with torch.no_grad():
        expected = network(network.prepare(images))[0]
    path = written(tmp_path, kind, network, about)
    torch.testing.assert_close(open_model(path, trust_code=True).logits(images), expected)


def test_weight_normalised_classifiers_travel_too(tmp_path: Path, about: ModelDescription) -> None:
    network = models.build(f"{SMALL_MODEL},classifier=wn").build(3, seed=2)
    about = about.model_copy(update={"model": {**about.model, "classifier": "wn"}})
    written(tmp_path, "safetensors", network, about)
    written(tmp_path, "torch-export", network, about)


def test_the_network_is_left_as_it_was(tmp_path: Path, network: Network, about: ModelDescription) -> None:
    network.train()
    layouts = [p.stride() for p in network.parameters()]
    written(tmp_path, "safetensors", network, about)
    assert network.training
    assert all(p.requires_grad for p in network.parameters())
    assert [p.stride() for p in network.parameters()] == layouts


def test_a_file_that_differs_is_not_kept(
    tmp_path: Path, network: Network, about: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_network = a_network(seed=9)

    def write_other(served: Any, about: ModelDescription, file: Path) -> None:
        save_file(dict(other_network.state_dict()), str(file), metadata={KEY: about.text()})

    other_network.to(memory_format=torch.contiguous_format)
    monkeypatch.setitem(formats.WRITERS, "safetensors", write_other)
    with pytest.raises(FedwcaError, match="away from the model's; it was not kept"):
        written(tmp_path, "safetensors", network, about)
    assert list(tmp_path.iterdir()) == []


class Branching(nn.Linear):
    """Does one thing or another, which torch cannot trace."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As a linear layer, where the inputs are small."""
        return super().forward(x) if x.mean() < 1e9 else x


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_model_that_cannot_be_traced_is_a_sentence(
    kind: Kind, tmp_path: Path, network: Network, about: ModelDescription
) -> None:
    branching = copy.deepcopy(network)
    branching.classifier.__class__ = Branching
    with pytest.raises(FedwcaError, match=f"--to {kind}: the model cannot be written in this format .*; take safe"):
        written(tmp_path, kind, branching, about)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not formats.check_installed("onnx"), reason="the extra onnx is missing")
def test_a_model_that_needs_two_onnx_files_is_refused(
    tmp_path: Path, network: Network, about: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.onnx._internal.exporter._onnx_program._LARGE_MODEL_THRESHOLD", 0)
    with pytest.raises(FedwcaError, match=r"--to onnx: the model is too large for one ONNX file; take safetensors"):
        written(tmp_path, "onnx", network, about)
    assert list(tmp_path.iterdir()) == []


def test_a_card_that_cannot_be_written_leaves_the_model_that_was_there(
    tmp_path: Path, network: Network, about: ModelDescription
) -> None:
    path = written(tmp_path, "safetensors", network, about)
    before, card = path.read_bytes(), Path(f"{path}.md")
    card.unlink()
    card.mkdir()
    with pytest.raises(FedwcaError, match="cannot be written"):
        written(tmp_path, "safetensors", a_network(seed=9), about)
    assert path.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([path.name, card.name])


def test_the_card_says_what_a_user_must_know(tmp_path: Path, network: Network, about: ModelDescription) -> None:
    text = Path(f"{written(tmp_path, 'safetensors', network, about)}.md").read_text()
    for part in ("FedWCA", "client 2", "brass", "75.0 % | 12 |", "50.0 % | 12 |", "0123456789abcdef", "8 × 8"):
        assert part in text
    for part in ("ant, bee, cat", "Do not normalise", "not calibrated", "labelled images of shades: amber", "EXIF"):
        assert part in text
    assert "cropped around the centre" in text
    stretched = about.model_copy(update={"stretch": True})
    assert "stretched to 8 × 8" in model_card(stretched, "model.onnx", "onnx")
    dealt = about.model_copy(update={"domain": None})  # images of all domains
    assert "kept out of training; n is their number" in model_card(dealt, "model.onnx", "onnx")
    unmeasured = about.model_copy(update={"accuracy": None, "domain": None})
    assert "no labels, or no images for a test" in model_card(unmeasured, "model.onnx", "onnx")


@pytest.mark.parametrize(
    ("name", "asked", "sentence"),
    [
        ("model.pt", None, "names no format"),
        ("model.onnx", "safetensors", "ends in .safetensors"),
        ("model.onnx", "tflite", "no such format"),
    ],
)
def test_formats_go_by_name(name: str, asked: str | None, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        kind_of(Path(name), asked)


def test_without_the_extra_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'fedwca\[onnx\]'"):
        kind_of(Path("model.onnx"))


def test_foreign_files_are_refused(tmp_path: Path, network: Network) -> None:
    for name, content in (("a.safetensors", b"nonsense"), ("a.onnx", b"nonsense"), ("a.pt2", b"nonsense")):
        (tmp_path / name).write_bytes(content)
    save_file({"weight": torch.ones(2)}, str(tmp_path / "b.safetensors"))
    torch.save({"weight": torch.ones(2)}, tmp_path / "b.pt2")
    (tmp_path / "c.pt").write_bytes(pickle.dumps("c"))
    for name in ("a.safetensors", "a.pt2", "b.safetensors", "b.pt2", "c.pt", "none.onnx", "."):
        with pytest.raises(CheckpointError, match=r"not an? |no such file"):
            open_model(tmp_path / name, trust_code=True)
    if formats.check_installed("onnx"):
        with pytest.raises(CheckpointError, match="not a readable model"):
            open_model(tmp_path / "a.onnx")


@kinds
def test_a_device_that_cannot_be_used_is_not_the_files_fault(
    kind: Kind, tmp_path: Path, network: Network, about: ModelDescription
) -> None:
    with pytest.raises(UsageError, match="mps: only cpu and cuda are supported"):
        open_model(written(tmp_path, kind, network, about), "mps", trust_code=True)


def test_an_architecture_that_is_not_here_is_named(tmp_path: Path, network: Network, about: ModelDescription) -> None:
    path = tmp_path / "model.safetensors"
    state = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    elsewhere = about.model_copy(update={"model": {"name": "somebodys"}})
    save_file(state, str(path), metadata={KEY: elsewhere.text()})
    with pytest.raises(CheckpointError, match="architecture is not installed here"):
        open_model(path)
    later = about.model_copy(update={"model": {**about.model, "later": 1}})
    save_file(state, str(path), metadata={KEY: later.text()})
    with pytest.raises(CheckpointError, match=r"model\.safetensors: its architecture has another version here"):
        open_model(path)
    save_file(state, str(path), metadata={KEY: about.model_copy(update={"format": 99}).text()})
    with pytest.raises(CheckpointError, match="this version cannot read"):
        open_model(path)


class Trap:
    """Creates the file ``sprung`` when it is unpickled."""

    def __init__(self, sprung: Path) -> None:
        self.sprung = sprung

    def __reduce__(self) -> Any:
        return Path.touch, (self.sprung,)


@pytest.mark.parametrize("record", ["data/weights/weight_0", "data/constants/opaque_obj_0", "data/aotinductor/m/m.so"])
def test_an_archive_with_records_that_are_not_ours_is_never_loaded(
    record: str, tmp_path: Path, network: Network, about: ModelDescription
) -> None:
    """The archive is written again, record by record, with a record that torch.export.load would unpickle or run."""
    from torch.export.pt2_archive._package import PT2ArchiveReader

    path, sprung = written(tmp_path, "torch-export", network, about), tmp_path / "sprung"
    with PT2ArchiveReader(str(path)) as archive:
        records = {name: archive.read_bytes(name) for name in archive.get_file_names() if not name.startswith(".data/")}
    records[record] = pickle.dumps(Trap(sprung))
    config = f"{record.rpartition('/')[0]}/model_{record.split('/')[1]}_config.json"
    if config in records:
        values = json.loads(records[config])
        entry = next(iter(values["config"].values()))
        entry.update(use_pickle=True, path_name=record.rpartition("/")[2])
        records[config] = json.dumps(values).encode()
    writer = torch._C.PyTorchFileWriter(str(tmp_path / "trap.pt2"))
    for name, content in records.items():
        if name != "byteorder":
            writer.write_record(name, content, len(content))
    writer.write_end_of_file()
    with pytest.raises(CheckpointError, match="not loaded"):
        open_model(tmp_path / "trap.pt2", trust_code=True)
    assert not sprung.exists()


def test_a_copy_of_the_file_is_enough(tmp_path: Path, network: Network, about: ModelDescription) -> None:
    path = written(tmp_path, "torch-export", network, about)
    moved = tmp_path / "elsewhere" / "renamed.pt2"
    moved.parent.mkdir()
    shutil.move(path, moved)
    assert open_model(moved, trust_code=True).about == about


def test_no_memory_is_taken_for_a_model_that_the_file_does_not_hold(
    tmp_path: Path, about: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = about.model_copy(update={"model": {"name": "mlp", "width": 60_000, "head": "hidden"}})
    path = tmp_path / "wide.safetensors"
    save_file({"backbone.weight": torch.zeros(1)}, path, {KEY: wide.model_dump_json()})
    devices: list[torch.device] = []
    fill = torch.nn.init.kaiming_uniform_
    monkeypatch.setattr(
        torch.nn.init,
        "kaiming_uniform_",
        lambda tensor, *a, **k: (devices.append(tensor.device), fill(tensor, *a, **k))[1],
    )
    with pytest.raises(CheckpointError, match="lacks"):
        open_model(path)
    assert {device.type for device in devices} == {"meta"}


def test_a_cluster_that_nobody_is_in_has_no_model() -> None:
    check_cluster(2, [0, 2, 3, 3], "it")
    with pytest.raises(UsageError, match=r"--cluster 1: it has clusters 0, 2, 3$"):
        check_cluster(1, [0, 2, 3, 3], "it")
    with pytest.raises(UsageError, match=r"--cluster -1: it has clusters 0 to 1$"):
        check_cluster(-1, [0, 1, -1], "it")


def test_an_oracles_model_was_made_of_the_targets_images() -> None:
    def domains(name: str, **fields: str) -> str:
        about = {"methods": {"m": {"components": [{"kind": "central", "name": name, **fields}]}}}
        run = {"source": None, "about": about, "domains": ["a", "b"], "unit": SimpleNamespace(method="m")}
        return labelled_domains(cast(OpenedRun, SimpleNamespace(config=SimpleNamespace(target="b"), **run)))

    assert domains("pooled", on="target") == "b"
    assert domains("pooled") == domains("a_plugin_that_is_gone") == "a"
