"""docs/models.md: its commands that export and use a model, and its example, in one folder with one small run.

The page's runs of other backbones are independent of these; `test_commands.py` runs them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from fedwca.cli import run
from fedwca.datasets.digits_mini import draw_domain
from fedwca.export.write_model import check_installed

from ..conftest import MINI
from .pages import commands, files

SIZE = "--samples 40 --rounds 2 --epochs 1 --device cpu"
SMALLER = [*SIZE.split(), "--model", MINI, "--set", "source_training.epochs=1", "--baseline", "fedavg"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the images that the page refers to."""
    import numpy as np

    folder = tmp_path_factory.mktemp("models")
    (folder / "photos").mkdir()
    images = draw_domain("photo", 2).images
    for index, pixels in enumerate(images):
        Image.fromarray(pixels).save(folder / "photos" / f"{index}.png")
    Image.fromarray(images[0]).convert("L").resize((90, 60)).save(folder / "scan.png")
    np.savez(folder / "more.npz", images=images)
    return folder


def test_the_page_runs_from_top_to_bottom(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    page = [words for page, words in commands() if page.stem == "models"]
    lines = [words for words in page if words[0] != "list" and "--model" not in words]
    assert {words[0] for words in lines} == {"bench", "export", "predict", "join"}
    for words in lines:
        if any(word.endswith(".onnx") for word in words) and not check_installed("onnx"):
            continue
        assert run([*words, *(SMALLER if words[0] == "bench" else [])]) == 0, (words, capsys.readouterr().err)
    header, *rows = (folder / "labels.csv").read_text().splitlines()
    assert header == "file,label,probability,error"
    assert len(rows) == 20
    assert (folder / "models" / "client0.safetensors.md").exists()
    assert (folder / "joined" / "adapted" / "predictions.csv").exists()
    (example,) = [block for block in files("models", ".py") if block.title == "join_late.py"]
    capsys.readouterr()
    exec(compile(example.text, str(example), "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out
