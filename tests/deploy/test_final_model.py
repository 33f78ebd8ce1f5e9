"""The model that a deployed client ends with: other commands accept it, and its card says whose it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fedwca.core.tensor_files import open_tensors
from fedwca.deploy.composition import Composition
from fedwca.deploy.describe_deployed import describe_deployed
from fedwca.deploy.in_process import run_in_process
from fedwca.deploy.state_files import FINAL, read_final, save_final
from fedwca.export.load_model import open_model
from fedwca.models.resnet18 import ResNet18
from fedwca.registry import Registry

from ..cli.conftest import call
from .conftest import TRAINING, Federation


def test_a_final_model_predicts_and_is_exported(federation: Callable[..., Federation], tmp_path: Path) -> None:
    built = federation(names=("ape", "bee", "cat"))
    session, clients = built.session(), built.clients()
    run_in_process(session, clients, 2)
    save_final(clients[1], tmp_path / "1")
    file = tmp_path / "1" / FINAL
    card = (tmp_path / "1" / f"{FINAL}.md").read_text()
    assert "`model.safetensors`: Weights for the architecture of fedwca" in card
    assert "Not measured: the holder has no labels, or no images for a test." in card
    assert "| Model of | client 1 |" in card
    assert "| Made from | labelled images of a deployment's server |" in card
    opened = open_model(file)
    assert opened.about.classes == ("ape", "bee", "cat")
    assert opened.about.holder == "client 1"
    assert opened.about.rounds == 2
    assert opened.about.accuracy is None
    network = clients[1].engine.network
    clients[1].engine.layout.write(network, read_final(tmp_path / "1", clients[1].engine.layout))
    images = built.images[1].test
    torch.testing.assert_close(opened.logits(images), network(network.prepare(images))[0])

    Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / "x.png")
    run = call("predict", str(file), str(tmp_path / "x.png"))
    assert run.code == 0, run.err
    assert run.out.splitlines()[1].split(",")[1] in ("ape", "bee", "cat")
    run = call("export", str(file), "--out", str(tmp_path / "y.safetensors"))
    assert run.code == 0, run.err
    assert "Not measured" in (tmp_path / "y.safetensors.md").read_text()
    assert open_model(tmp_path / "y.safetensors").about == opened.about
    run = call("export", str(file), "--client", "0", "--out", str(tmp_path / "z.safetensors"))
    assert run.code == 2
    assert "one model already" in run.err


def test_weights_with_two_names_are_the_final_ones_under_both(
    federation: Callable[..., Federation], tmp_path: Path
) -> None:
    built = federation("fedavg")
    session, clients = built.session(), built.clients()
    run_in_process(session, clients, 1)
    clients[0].engine.network.backbone.again = clients[0].engine.network.backbone.conv1
    save_final(clients[0], tmp_path)
    tensors = open_tensors(tmp_path / FINAL).tensors()
    final = tensors["backbone.conv1.weight"]
    assert torch.equal(tensors["backbone.again.weight"], final)
    assert not torch.equal(final, clients[0].engine.network.get_parameter("backbone.conv1.weight")), "it was trained"


def test_the_card_names_the_method_not_its_aggregator(federation: Callable[..., Federation], tmp_path: Path) -> None:
    built = federation("fedavg")
    session, clients = built.session(), built.clients()
    run_in_process(session, clients, 1)
    save_final(clients[0], tmp_path)
    about = open_model(tmp_path / FINAL).about
    assert (about.method, about.label) == ("toy", "Toy")


def test_the_card_counts_rounds_of_the_federation(federation: Callable[..., Federation], tmp_path: Path) -> None:
    built = federation("fedavg")
    session, clients = built.session(), built.clients()
    run_in_process(session, clients, 3, available=lambda round: range(3) if round else range(4))
    for number in (1, 3):  # the last one took part in the first round only
        save_final(clients[number], tmp_path / str(number))
        assert open_model(tmp_path / str(number) / FINAL).about.rounds == 3


def test_a_file_of_weights_is_named_without_its_folder(federation: Callable[..., Federation]) -> None:
    model = ResNet18(weights="/home/me/secret/w.pth")  # type: ignore[arg-type]
    composition = Composition.of(federation().method, model, 3, training=TRAINING)
    assert composition.model["weights"] == "w.pth"
    assert Composition.read(composition.model_dump_json()).architecture() == ResNet18(weights="w.pth")  # type: ignore[arg-type]
    assert describe_deployed(composition, {}, "client 0", 1).model["weights"] == "w.pth"
    earlier = composition.model_copy(update={"model": Registry.dump(model)})
    assert composition.plays_as(earlier)


def test_without_names_classes_are_numbers(federation: Callable[..., Federation], tmp_path: Path) -> None:
    built = federation()
    session, clients = built.session(), built.clients()
    run_in_process(session, clients, 1)
    save_final(clients[0], tmp_path)
    assert open_model(tmp_path / FINAL).about.classes == ("0", "1", "2")
