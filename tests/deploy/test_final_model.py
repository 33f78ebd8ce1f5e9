"""The model that a deployed client ends with is one that commands take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fedwca.deploy.in_process import run_in_process
from fedwca.deploy.state_files import FINAL, read_final, save_final
from fedwca.export.load_model import open_model

from ..cli.conftest import call
from .conftest import Federation


def test_it_predicts_and_is_exported(federation: Callable[..., Federation], tmp_path: Path) -> None:
    built = federation(names=("ape", "bee", "cat"))
    session, clients = built.session(), built.clients()
    run_in_process(session, clients, 2)
    save_final(clients[1], tmp_path / "1")
    file = tmp_path / "1" / FINAL
    card = (tmp_path / "1" / f"{FINAL}.md").read_text()
    assert "`model.safetensors`: Weights for the architecture of fedwca" in card
    assert "Not measured: the holder has no labels." in card
    assert "| Model of | client 1 |" in card
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
    found = call("predict", str(file), str(tmp_path / "x.png"))
    assert found.code == 0, found.err
    assert found.out.splitlines()[1].split(",")[1] in ("ape", "bee", "cat")
    found = call("export", str(file), "--out", str(tmp_path / "y.safetensors"))
    assert found.code == 0, found.err
    assert "Not measured" in (tmp_path / "y.safetensors.md").read_text()
    assert open_model(tmp_path / "y.safetensors").about == opened.about
    found = call("export", str(file), "--client", "0", "--out", str(tmp_path / "z.safetensors"))
    assert found.code == 2
    assert "one model already" in found.err


def test_without_names_classes_are_numbers(federation: Callable[..., Federation], tmp_path: Path) -> None:
    built = federation()
    session, clients = built.session(), built.clients()
    run_in_process(session, clients, 1)
    save_final(clients[0], tmp_path)
    assert open_model(tmp_path / FINAL).about.classes == ("0", "1", "2")
