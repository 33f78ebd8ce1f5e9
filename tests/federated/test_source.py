"""The source model: trained once and cached by all that determines it, or read from a file."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedwca.core.architecture import Architecture
from fedwca.core.model_description import KEY, ModelDescription
from fedwca.core.network import Network
from fedwca.core.tensor_files import write_tensors
from fedwca.core.training_settings import SourceTraining
from fedwca.data import Domain
from fedwca.engine.dropout import dropout_masks
from fedwca.engine.randomness import fold_key, permutation
from fedwca.errors import CheckpointError, DataError, Diverged
from fedwca.federated import source_model as source_models
from fedwca.federated.source_model import StartModel, load_source, pretrain, source_digest, split_source
from fedwca.models.lenet import LeNet
from fedwca.models.resnet18 import ResNet18

CLASSES = ("dark", "bright")
MODEL = LeNet(bottleneck=8)
TRAINING = SourceTraining(epochs=2, lr=0.01, batch_size=16)


def domain(images: int = 40, groups: int | None = None, seed: int = 0, side: int = 32) -> Domain:
    random = np.random.default_rng(seed)
    labels = np.arange(images, dtype=np.int64) % 2
    pixels = random.integers(0, 100, (images, side, side, 3), dtype=np.uint8)
    pixels[labels == 1] += 120
    return Domain("toy", pixels, labels, None if groups is None else np.arange(images, dtype=np.int64) // groups)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDWCA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "sources"


def same(first: StartModel, second: StartModel) -> bool:
    states = first.network.state_dict(), second.network.state_dict()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_source_model_is_trained_once(cache: Path) -> None:
    epochs: list[int] = []

    def progress(epoch: int, of: int, accuracy: float) -> None:
        assert of == 2
        assert 0 <= accuracy <= 100
        epochs.append(epoch)

    first = pretrain(domain(), CLASSES, MODEL, TRAINING, 0, progress=progress)
    assert epochs == [0, 1, 2]
    second = pretrain(domain(), CLASSES, MODEL, TRAINING, 0, progress=progress)
    assert epochs == [0, 1, 2]
    assert same(first, second)
    assert (first.accuracy, first.digest) == (second.accuracy, second.digest)
    assert [file.name for file in cache.iterdir()] == [f"toy-lenet-{first.digest}.safetensors"]
    assert not second.network.training


def zeroed(content: bytes) -> bytes:
    """The content with its last quarter, which holds weights, zeroed, as by a failing disk."""
    return content[: -len(content) // 4] + bytes(len(content) // 4)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (zeroed, "damaged, its content does not fit its checksum; the source model is trained again"),
        (lambda content: content[:-100], r"not a readable checkpoint \(.*\); the source model is trained again"),
        (lambda content: b"", r"not a readable checkpoint \(.*\); the source model is trained again"),
    ],
    ids=["zeroed", "cut", "empty"],
)
def test_a_damaged_file_of_the_cache_is_made_again(
    cache: Path, damage: Callable[[bytes], bytes], sentence: str
) -> None:
    first = pretrain(domain(), CLASSES, MODEL, TRAINING, 0)
    path = next(cache.iterdir())
    intact = path.read_bytes()
    path.write_bytes(damage(intact))
    with pytest.warns(UserWarning, match=sentence) as warned:
        again = pretrain(domain(), CLASSES, MODEL, TRAINING, 0)
    assert len(warned) == 1
    assert same(first, again)
    assert (first.accuracy, first.digest) == (again.accuracy, again.digest)
    assert path.read_bytes() == intact


def test_a_file_of_the_cache_without_a_checksum_is_read(cache: Path) -> None:
    first = pretrain(domain(), CLASSES, MODEL, TRAINING, 0)
    path = next(cache.iterdir())
    save_file(load_file(path), path)
    assert same(first, pretrain(domain(), CLASSES, MODEL, TRAINING, 0))
    assert load_file(path).keys() == {*first.network.state_dict(), "accuracy"}


def test_of_two_processes_that_train_one_model_the_first_is_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit, others = source_models._fit, pretrain(domain(), CLASSES, MODEL, TRAINING, 1)
    own = pretrain(domain(), CLASSES, MODEL, TRAINING, 0)
    path = cache / f"toy-lenet-{own.digest}.safetensors"
    path.unlink()

    def fit_beside_another(*arguments: Any) -> Any:
        trained = fit(*arguments)
        (cache / f"toy-lenet-{others.digest}.safetensors").replace(path)
        content.append(path.read_bytes())
        return trained

    content: list[bytes] = []
    monkeypatch.setattr(source_models, "_fit", fit_beside_another)
    kept = pretrain(domain(), CLASSES, MODEL, TRAINING, 0)
    assert same(kept, others)
    assert not same(kept, own)
    assert (kept.accuracy, kept.digest) == (others.accuracy, own.digest)
    assert not kept.network.training
    assert [path.read_bytes()] == content


CUDA = (pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CUDA)])
@pytest.mark.parametrize("model", [MODEL, ResNet18(side=32, weights="none", bottleneck=8)])
def test_the_same_seed_gives_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: Architecture, device: str
) -> None:
    images = domain(side=model.stored_side)
    first = pretrain(images, CLASSES, model, TRAINING, 3, device)
    monkeypatch.setenv("FEDWCA_CACHE", str(tmp_path / "another"))
    torch.manual_seed(77)  # the global generator decides nothing
    assert same(first, pretrain(images, CLASSES, model, TRAINING, 3, device))
    assert not same(first, pretrain(images, CLASSES, model, TRAINING, 4, device))


@pytest.mark.parametrize(("batch_size", "steps"), [(30, 2), (36, 2), (40, 1), (200, 1)])
def test_of_equal_accuracies_the_last_counts_and_less_than_half_a_batch_is_left_out(
    batch_size: int, steps: int
) -> None:
    """54 images are trained on: 30 and 24, 36 and half of it, all at once, or 40, and 14 are left out.

    At this rate no accuracy changes.
    """
    training = SourceTraining(epochs=3, lr=1e-12, batch_size=batch_size)
    network = pretrain(domain(60), CLASSES, MODEL, training, 0).network
    assert int(network.norm.num_batches_tracked) == 3 * steps


def test_one_thread_trains() -> None:
    threads: list[int] = []
    torch.set_num_threads(2)
    try:
        pretrain(domain(), CLASSES, MODEL, TRAINING, 0, progress=lambda *_: threads.append(torch.get_num_threads()))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert threads == [1, 1, 1], "so that sums have one order"


def test_mirrored_images_are_those_of_their_copy() -> None:
    plain = domain(groups=2)
    flipped = Domain("toy", plain.images[:, :, ::-1], plain.labels[::-1], np.arange(20).repeat(2)[::-1])
    copied = Domain("toy", plain.images[:, :, ::-1].copy(), plain.labels[::-1].copy(), flipped.groups)
    first = pretrain(flipped, CLASSES, MODEL, TRAINING, 0)
    assert same(first, pretrain(copied, CLASSES, MODEL, TRAINING, 0))
    assert first.digest == source_digest(copied, CLASSES, MODEL, TRAINING, 0, "cpu")
    assert np.shares_memory(Domain("toy", plain.images[::2], plain.labels[::2]).images, plain.images)  # as of a file


def test_pretraining_is_better_than_chance() -> None:
    assert pretrain(domain(80), CLASSES, MODEL, SourceTraining(epochs=4, lr=0.02, batch_size=8), 0).accuracy > 80


def test_the_key_knows_all_that_matters() -> None:
    moved = domain()
    moved.images[0, 0, 0, 0] ^= 1
    base = (domain(), CLASSES, MODEL, TRAINING, 0, "cpu")
    changes: list[tuple[int, Any]] = [
        (0, moved),
        (0, Domain("toy", domain().images, 1 - domain().labels)),
        (0, domain(groups=2)),
        (1, ("bright", "dark")),
        (2, LeNet(bottleneck=9)),
        (2, LeNet(bottleneck=8, classifier="wn")),
        *((3, TRAINING.model_copy(update={field: value})) for field, value in OTHER.items()),
        (4, 1),
        (5, "cuda"),
    ]
    keys = [source_digest(*base)]
    for position, value in changes:
        keys.append(source_digest(*base[:position], value, *base[position + 1 :]))
    assert len(set(keys)) == len(keys)
    assert set(OTHER) == set(SourceTraining.model_fields)
    assert source_digest(Domain("another name", domain().images, domain().labels), *base[1:]) == keys[0]


OTHER = {
    "epochs": 3,
    "lr": 0.02,
    "batch_size": 8,
    "momentum": 0.8,
    "weight_decay": 0.0,
    "smoothing": 0.1,
    "held_out": 0.2,
}


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.99])
@pytest.mark.parametrize("groups", [None, 4])
def test_a_base_is_on_one_side_of_the_split(share: float, groups: int | None) -> None:
    data = domain(40, groups)
    train, held = split_source(data, share, 5)
    assert sorted([*train.tolist(), *held.tolist()]) == list(range(40))
    assert len(train) > 0
    assert len(held) > 0
    if data.groups is not None:
        assert not set(data.groups[train.numpy()]) & set(data.groups[held.numpy()])
    assert split_source(data, share, 5)[1].tolist() == held.tolist()
    assert share in (0.01, 0.99) or split_source(data, share, 6)[1].tolist() != held.tolist()


def test_too_little_to_train_on() -> None:
    with pytest.raises(DataError, match="toy: 3 images are too few"):
        pretrain(domain(3), CLASSES, MODEL, TRAINING, 0)
    with pytest.raises(DataError, match="variants of one"):
        pretrain(domain(8, groups=8), CLASSES, MODEL, TRAINING, 0)
    four = replace(domain(4), groups=np.array([0, 0, 0, 1]))
    left = [len(split_source(four, 0.2, seed)[0]) for seed in range(8)]
    with pytest.raises(DataError, match=r"of 4 images 3 are held out, .* so one is left to train on; need 2"):
        pretrain(four, CLASSES, MODEL, TRAINING, left.index(1))


def test_no_epochs_is_the_initial_network() -> None:
    source = pretrain(domain(), CLASSES, MODEL, SourceTraining(epochs=0), 0)
    assert 0 <= source.accuracy <= 100


def test_training_that_blows_up(cache: Path) -> None:
    threads = torch.get_num_threads()
    with pytest.raises(Diverged, match="source training gave values that are not finite"):
        pretrain(domain(), CLASSES, MODEL, SourceTraining(epochs=3, lr=1e30, batch_size=8), 0)
    assert not cache.exists()
    assert torch.get_num_threads() == threads


# Checkpoints of one's own


def state() -> dict[str, torch.Tensor]:
    return MODEL.build(2, seed=9).state_dict()


def write(path: Path, tensors: Any) -> Path:
    if path.suffix == ".safetensors":
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, str(path))
    else:
        torch.save(tensors, path)
    return path


WRAPPINGS: dict[str, Callable[[dict[str, torch.Tensor]], Any]] = {
    "own.safetensors": lambda state: state,
    "own.pt": lambda state: state,
    "wrapped.pt": lambda state: {"state_dict": state},
    "parallel.pt": lambda state: {f"module.{name}": tensor for name, tensor in state.items()},
    "double.pt": lambda state: {name: tensor.double() for name, tensor in state.items()},
    "uncounted.safetensors": lambda state: {n: t for n, t in state.items() if not n.endswith("num_batches_tracked")},
}


@pytest.mark.parametrize("name", WRAPPINGS)
def test_a_checkpoint_is_read(tmp_path: Path, name: str) -> None:
    source = load_source(write(tmp_path / name, WRAPPINGS[name](state())), CLASSES, MODEL)
    loaded = source.network.state_dict()
    assert all(torch.equal(loaded[key], tensor) for key, tensor in state().items())
    assert source.accuracy != source.accuracy
    assert not source.network.training
    assert len(source.digest) == 16


def test_a_cached_source_model_is_a_checkpoint(cache: Path) -> None:
    trained = pretrain(domain(), CLASSES, MODEL, TRAINING, 0)
    again = load_source(next(cache.iterdir()), CLASSES, MODEL)
    assert same(trained, again)
    assert again.accuracy == trained.accuracy


class Trap:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path("trapped").write_text, ("x",))


def truncated(path: Path, tensors: Any) -> Path:
    write(path, tensors)
    path.write_bytes(path.read_bytes()[:1000])
    return path


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        (lambda folder: folder / "nowhere.safetensors", "no such file; --checkpoint takes"),
        (lambda folder: folder / "nowhere.pt", "no such file; --checkpoint takes"),
        (lambda folder: folder, "not a readable checkpoint"),
        (lambda folder: truncated(folder / "cut.safetensors", state()), "not a readable checkpoint"),
        (lambda folder: truncated(folder / "cut.pt", state()), "failed finding central directory)"),
        (lambda folder: write(folder / "list.pt", [1, 2]), "checkpoint (it holds a list, not tensors by name)"),
        (lambda folder: truncated(folder / "model.pt2", state()), "model.pt2: holds a program; --checkpoint takes"),
        (lambda folder: write(folder / "trap.pt", {"x": Trap()}), "holds pickled objects beside tensors"),
        (
            lambda folder: write(folder / "few.pt", {k: v for k, v in state().items() if k != "norm.running_var"}),
            "lacks 'norm.running_var' (1 tensor missing)",
        ),
        (
            lambda folder: write(folder / "more.pt", {**state(), "optimiser": torch.zeros(3)}),
            "has 'optimiser' (1 tensor) that this model has no place for",
        ),
        (
            lambda folder: write(folder / "other.pt", {**state(), "bottleneck.weight": torch.zeros(8, 3)}),
            "bottleneck.weight has shape (8, 3); this model needs (8, 1250)",
        ),
        (
            lambda folder: write(folder / "names.pt", {f"net.{name}": tensor for name, tensor in state().items()}),
            "; the file has 'net.",
        ),
        (lambda folder: write(folder / "numbers.pt", {**state(), "norm.weight": 3.0}), "lacks 'norm.weight'"),
        (
            lambda folder: write(folder / "nan.pt", {**state(), "norm.weight": torch.full((8,), torch.nan)}),
            "norm.weight has values that are not finite",
        ),
        (
            lambda folder: write(folder / "classes.safetensors", LeNet(bottleneck=8).build(7).state_dict()),
            "classifier.weight has shape (7, 8); this model needs (2, 8)",
        ),
    ],
    ids=[
        "missing",
        "missing pt",
        "folder",
        "cut",
        "cut pt",
        "list",
        "program",
        "code",
        "tensor",
        "more tensors",
        "shape",
        "names",
        "number",
        "nan",
        "classes",
    ],
)
def test_a_checkpoint_that_does_not_fit(
    tmp_path: Path, file: Callable[[Path], Path], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = file(tmp_path)
    with pytest.raises(CheckpointError) as caught:
        load_source(path, CLASSES, MODEL)
    assert sentence in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not Path("trapped").exists()


@pytest.mark.parametrize(
    ("classes", "model", "sentence"),
    [
        (CLASSES[::-1], MODEL, f"its class 0 is {CLASSES[1]!r}, and that of the data {CLASSES[0]!r}"),
        (CLASSES, LeNet(bottleneck=8, dropout=0.1), None),
        (CLASSES, None, "is a model 'other', and the run's is 'lenet'"),
    ],
    ids=["classes", "fields", "architecture"],
)
def test_an_exported_model_says_what_it_is(
    tmp_path: Path, classes: tuple[str, ...], model: LeNet | None, sentence: str | None
) -> None:
    values = {"name": "other"} if model is None else model.shareable_values()
    texts = ("fedwca", "method", "label", "holder", "dataset", "source", "config_hash", "weights_hash")
    description = ModelDescription(classes=classes, side=32, model=values, rounds=1, **dict.fromkeys(texts, "x"))
    path = tmp_path / "exported.safetensors"
    write_tensors(path, state(), {KEY: description.text()})
    if sentence is None:
        assert load_source(path, CLASSES, MODEL).digest
        return
    with pytest.raises(CheckpointError) as caught:
        load_source(path, CLASSES, MODEL)
    assert sentence in str(caught.value)


def test_initial_weights_do_not_depend_on_threads() -> None:
    def weights(seed: int) -> Tensor:
        return torch.cat([p.detach().flatten() for p in LeNet(bottleneck=16).build(3, seed=seed).parameters()])

    alone = [weights(seed) for seed in range(3)]
    for _ in range(5):
        with ThreadPoolExecutor(3) as pool:
            together = list(pool.map(weights, range(3)))
        assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_a_disk_that_fills_up_costs_no_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*arguments: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setenv("FEDWCA_CACHE", str(tmp_path))
    monkeypatch.setattr("fedwca.core.tensor_files.save_file", full)
    with pytest.warns(UserWarning, match=r"could not be kept in .* \(.*No space left on device"):
        source = pretrain(domain(), ("0", "1"), LeNet(bottleneck=8), SourceTraining(epochs=1), seed=0)
    assert 0 <= source.accuracy <= 100
    assert not (tmp_path / "sources").exists()


def test_a_cache_that_cannot_be_written_costs_no_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sources").write_text("a file in the way")
    monkeypatch.setenv("FEDWCA_CACHE", str(tmp_path))
    with pytest.warns(UserWarning, match="could not be kept"):
        source = pretrain(domain(), ("0", "1"), LeNet(bottleneck=8), SourceTraining(epochs=1), seed=0)
    assert 0 <= source.accuracy <= 100


def test_the_best_epoch_on_held_out_images_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    accuracies, evaluated = iter([0.0, 1.0, 10.0, 90.0, 50.0]), []

    def accuracy(network: Network, images: Tensor, labels: Tensor, positions: Tensor) -> Tensor:
        evaluated.append(positions)
        return torch.tensor(next(accuracies))

    monkeypatch.setattr(source_models, "_accuracy", accuracy)
    one_epoch = pretrain(domain(), CLASSES, MODEL, TRAINING.model_copy(update={"epochs": 1}), 0)
    trained = pretrain(domain(), CLASSES, MODEL, TRAINING, 0)
    assert trained.accuracy == 90
    assert same(trained, one_epoch)
    _, held = split_source(domain(), TRAINING.held_out, 0)
    assert [positions.tolist() for positions in evaluated] == [held.tolist()] * 5


def test_epochs_are_torchs_sgd_with_smoothed_labels() -> None:
    training = SourceTraining(epochs=2, lr=0.05, batch_size=64, momentum=0.5, weight_decay=0.1, smoothing=0.3)
    data = domain()
    network = MODEL.build(2, seed=fold_key([0, "weights"]) >> 1)
    images = torch.from_numpy(data.images).permute(0, 3, 1, 2)
    train, _ = split_source(data, training.held_out, 0)
    expected = copy.deepcopy(network).train()
    optimiser = torch.optim.SGD(expected.parameters(), 0.05, momentum=0.5, weight_decay=0.1)
    for epoch in range(2):
        order = train[permutation(fold_key([0, "source order", epoch]), len(train))]
        drop = dropout_masks(expected.drops, fold_key([0, "source dropout"]), epoch, torch.arange(len(order)), 64)
        logits = expected(expected.prepare(images[order]), drop)[0]
        optimiser.zero_grad()
        torch.nn.CrossEntropyLoss(label_smoothing=0.3)(logits, torch.from_numpy(data.labels)[order]).backward()
        optimiser.step()
    with pytest.MonkeyPatch.context() as patch:
        accuracies = iter([torch.tensor(0.0), torch.tensor(0.0), torch.tensor(1.0)])
        patch.setattr(source_models, "_accuracy", lambda *_: next(accuracies))
        trained = pretrain(data, CLASSES, MODEL, training, 0)
    for (name, reference), trained_parameter in zip(
        expected.named_parameters(), trained.network.parameters(), strict=True
    ):
        torch.testing.assert_close(trained_parameter, reference, rtol=1e-4, atol=1e-6, msg=name)
