"""Image files of any kind become pixels, or an error of one sentence."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedwca.core.model_description import ModelDescription
from fedwca.core.network import Network
from fedwca.data import DatasetWarning
from fedwca.data.dataset import Images, resize_images
from fedwca.datasets import find_dataset, stretches_images
from fedwca.deploy.client_images import read_images
from fedwca.errors import UsageError
from fedwca.export.load_model import LoadedModel, serve_model
from fedwca.export.predict import predict
from fedwca.export.read_images import find_images, load_pictures, stack_images


@pytest.fixture
def album(tmp_path: Path) -> Path:
    """A folder with images of many modes, some in a subfolder, and files that are no images or damaged."""
    (tmp_path / "inner").mkdir()
    grey = np.full((40, 40), 128, np.uint8)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    Image.fromarray(np.dstack([grey, grey, grey, np.zeros_like(grey)])).save(tmp_path / "glass.png")
    Image.fromarray(np.full((40, 40), 0x8080, np.uint16)).save(tmp_path / "inner" / "wide.png")
    turned = Image.fromarray(np.dstack([np.tile(np.uint8([[0], [255]]), (20, 40))] * 3))
    exif = Image.Exif()
    exif[0x0112] = 6
    turned.save(tmp_path / "inner" / "turned.tiff", exif=exif)
    Image.fromarray(grey).convert("P").save(tmp_path / "palette.gif")
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing more")
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / ".hidden.png").write_bytes(b"")
    (tmp_path / "readme.txt").write_text("no image")
    return tmp_path


def test_folders_are_searched_to_the_bottom(album: Path) -> None:
    names = [file.relative_to(album).as_posix() for file in find_images([album])]
    expected = [
        "broken.jpg",
        "empty.png",
        "glass.png",
        "grey.png",
        "palette.gif",
        "inner/turned.tiff",
        "inner/wide.png",
    ]
    assert names == expected
    assert find_images([album / "readme.txt"]) == [album / "readme.txt"]
    for path in (album / "nowhere", album / "void"):
        (album / "void").mkdir(exist_ok=True)
        with pytest.raises(UsageError, match=r"no such file|no images in this folder"):
            find_images([path])


def test_every_mode_becomes_rgb(album: Path) -> None:
    images = {Path(picture.name).name: picture for picture in load_pictures(find_images([album]), 32)}
    assert all(p.pixels is None or (p.pixels.shape, p.pixels.dtype) == ((32, 32, 3), np.uint8) for p in images.values())
    means = {name: picture.pixels.mean() for name, picture in images.items() if picture.pixels is not None}
    assert means["grey.png"] == 128
    assert means["glass.png"] == 255
    assert means["wide.png"] == pytest.approx(128, abs=1)
    turned = images["turned.tiff"].pixels
    assert turned is not None
    assert turned.std(0).max() < turned.std(1).min(), "rows became columns"
    assert "does not decode" in images["broken.jpg"].error
    assert "does not decode" in images["empty.png"].error


@pytest.mark.parametrize("name", ["pacs", "my_domains"])
def test_files_become_squares_as_in_training(name: str, tmp_path: Path) -> None:
    source = find_dataset(name, tmp_path) if name == "pacs" else None
    pixels = np.random.default_rng(0).integers(0, 256, (40, 90, 3), np.uint8)
    for domain in source.domains if source else ("day", "night"):
        for label in source.classes if source else ("ant", "bee"):
            folder = tmp_path / name / domain / label
            folder.mkdir(parents=True)
            for number in range(2):
                Image.fromarray(np.roll(pixels, number, 0)).save(folder / f"{number}.png")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DatasetWarning)
        trained = (source or find_dataset(name, tmp_path)).load(32)
    domain = next(iter(trained.domains))
    stretch = stretches_images(name)
    assert stretch == (name == "pacs")
    files = find_images([tmp_path / name / domain])
    predicted = np.stack([image.pixels for image in load_pictures(files, 32, stretch) if image.pixels is not None])
    assert np.array_equal(predicted, trained.domains[domain].images)
    deployed = read_images(tmp_path / name / domain, 32, stretch).permute(0, 2, 3, 1)
    assert np.array_equal(deployed.numpy(), trained.domains[domain].images)


def test_archives_have_many_images(tmp_path: Path) -> None:
    np.savez(tmp_path / "some.npz", images=np.zeros((3, 20, 20), np.uint8))
    np.savez(tmp_path / "floats.npz", images=np.zeros((3, 20, 20)))
    np.savez(tmp_path / "none.npz", labels=np.zeros(3))
    np.savez(tmp_path / "objects.npz", images=np.array([{}], object))
    np.savez(tmp_path / "empty.npz", images=np.zeros((0, 28, 28), np.uint8))
    np.savez(tmp_path / "flat.npz", images=np.zeros((3, 0, 28), np.uint8))
    pictures = list(load_pictures(find_images([tmp_path]), 32))
    assert [Path(p.name).name for p in pictures if p.pixels is not None] == [f"some.npz[{i}]" for i in range(3)]
    assert {Path(p.name).name for p in pictures if p.error} == {
        *("floats.npz", "none.npz", "objects.npz", "empty.npz", "flat.npz")
    }
    (error,) = (p.error for p in pictures if "flat" in p.name)
    assert error == f"{tmp_path / 'flat.npz'} holds no images; images is [3, 0, 28, 3]"


def test_a_large_archive_is_resized_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def resize(images: Images, side: int) -> Images:
        sizes.append(len(images))
        return resize_images(images, side)

    monkeypatch.setattr("fedwca.export.read_images.resize_images", resize)
    np.savez(tmp_path / "many.npz", images=np.arange(150, dtype=np.uint8)[:, None, None].repeat(8, 1).repeat(8, 2))
    pictures = load_pictures([tmp_path / "many.npz"], 4)
    assert Path(next(pictures).name).name == "many.npz[0]"
    assert sizes == [64]
    rest = list(pictures)
    assert sizes == [64, 64, 22]
    assert [int(p.pixels[0, 0, 0]) for p in rest if p.pixels is not None] == list(range(1, 150))
    assert Path(rest[-1].name).name == "many.npz[149]"


def test_answers_come_in_order_with_holes_where_nothing_was_read(
    album: Path, network: Network, about: ModelDescription
) -> None:
    model: LoadedModel = serve_model(network, about)
    pictures = list(load_pictures(find_images([album]), 32))
    answers = [answer for group in predict(model, pictures, batch=2, top=5) for answer in group]
    assert [answer.file for answer in answers] == [picture.name for picture in pictures]
    for answer, picture in zip(answers, pictures, strict=True):
        assert bool(answer.best) is (picture.pixels is not None) is not bool(answer.error)
        if picture.pixels is not None:
            probabilities = model.probabilities(stack_images([picture.pixels]))[0]
            assert [value for _, value in answer.best] == pytest.approx(sorted(probabilities.tolist(), reverse=True))
            assert answer.best[0][0] == about.classes[int(probabilities.argmax())]
            assert len(answer.best) == 3


def test_a_name_that_is_not_utf_8_is_shown_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"fa\xe7ade.png")
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(file)
    (picture,) = load_pictures([file], 8)
    assert picture.name.endswith(r"fa\udce7ade.png")
    assert picture.pixels is not None
