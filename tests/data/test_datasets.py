from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedwca.data import DatasetWarning
from fedwca.datasets import DatasetSource, datasets, find_dataset
from fedwca.errors import DataError, DatasetMissing, UnknownComponent, UsageError

from .examples import PACS, write_images, write_npz


@pytest.mark.parametrize("name", datasets.names())
def test_every_data_set_is_described(name: str) -> None:
    cls = datasets.get(name)
    assert issubclass(cls, DatasetSource)
    assert cls.layout
    assert cls.__doc__
    if name not in ("folder", "hub"):  # these two read images of the user
        assert cls.licence
        assert cls.source_url.startswith("https://")
        assert cls.citation
        assert set(cls.image_counts) == set(cls.domains)
        assert len(set(cls.classes)) == len(cls.classes)


def test_the_catalogue_counts_what_is_published() -> None:
    assert sum(datasets.get("pacs").image_counts.values()) == 9991
    assert sum(datasets.get("office_home").image_counts.values()) == 15588
    assert len(datasets.get("office_home").classes) == 65
    assert datasets.get("office_home").classes == tuple(sorted(datasets.get("office_home").classes))


@pytest.mark.parametrize("name", ["digit_five", "pacs", "office_home", "domainnet"])
def test_missing_files_say_where_what_and_how(name: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetMissing) as caught:
        datasets.build({"name": name, "root": tmp_path}).load()
    for part in (str(tmp_path), f"<root>/{name}/", "https://", "FEDWCA_DATA"):
        assert part in str(caught.value)


def test_a_path_is_no_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is named by a word, such as 'digits-mini', not by .*; root takes a folder"):
        find_dataset(tmp_path)  # type: ignore[arg-type]


def test_the_default_root_is_the_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDWCA_DATA", str(tmp_path))
    assert datasets.build("pacs").root_folder == tmp_path


def test_a_folder_of_images_is_found_in_the_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_images(tmp_path / "photos", PACS)
    monkeypatch.setenv("FEDWCA_DATA", str(tmp_path))
    assert find_dataset("photos").load(8).digest() == find_dataset("photos", tmp_path).load(8).digest()
    with pytest.raises(UnknownComponent, match="no dataset 'paintings'"):
        find_dataset("paintings")


def test_a_subset_warns_and_loads(tmp_path: Path) -> None:
    write_images(tmp_path / "PACS", PACS)
    with pytest.warns(DatasetWarning, match="photo has 7 of 1670 images"):
        loaded = datasets.build({"name": "pacs", "root": tmp_path}).load(8)
    assert loaded.name == "pacs"
    assert list(loaded.domains) == ["art_painting", "cartoon", "photo", "sketch"]
    with pytest.warns(DatasetWarning):
        directly = datasets.build({"name": "pacs", "root": tmp_path / "PACS"}).load(8)
    assert directly.digest() == loaded.digest()


def test_a_subset_of_classes_warns_and_an_unknown_class_does_not_pass(tmp_path: Path) -> None:
    write_images(tmp_path / "one" / "pacs", {name: {"dog": 1, "horse": 1} for name in PACS})
    with pytest.warns(DatasetWarning, match="2 of 7 classes"):
        datasets.build({"name": "pacs", "root": tmp_path / "one"}).load(8)
    write_images(tmp_path / "two" / "pacs", {name: {"dog": 1, "cow": 1} for name in PACS})
    with pytest.raises(DataError, match="pacs has no class cow; its classes are dog, elephant"):
        datasets.build({"name": "pacs", "root": tmp_path / "two"}).load(8)


def test_domains_of_a_published_set_may_lack_classes(tmp_path: Path) -> None:
    counts = {**PACS, "cartoon": {"dog": 2, "person": 1}}
    write_images(tmp_path / "pacs", counts)
    with pytest.warns(DatasetWarning, match="cartoon has no elephant, giraffe, guitar and 2 more"):
        loaded = datasets.build({"name": "pacs", "root": tmp_path}).load(8)
    assert loaded.classes == datasets.get("pacs").classes
    assert loaded.domains["cartoon"].class_counts(7) == [2, 0, 0, 0, 0, 0, 1]


def test_pictures_of_published_sets_are_stretched_as_shot_does(tmp_path: Path) -> None:
    write_images(tmp_path / "pacs", PACS)
    wide = np.zeros((4, 12, 3), np.uint8)
    wide[:, 4:8] = 200
    Image.fromarray(wide).save(tmp_path / "pacs" / "photo" / "dog" / "0.png")
    with pytest.warns(DatasetWarning):
        stretched = datasets.build({"name": "pacs", "root": tmp_path}).load(4)
    assert stretched.domains["photo"].images[0].min() < 200
    assert datasets.build({"name": "folder", "root": tmp_path / "pacs"}).load(4).domains["photo"].images[0].min() == 200


def test_a_lost_domain_is_named(tmp_path: Path) -> None:
    write_images(tmp_path / "pacs", {name: PACS[name] for name in ("art_painting", "photo", "sketch")})
    with pytest.warns(DatasetWarning, match="no cartoon"):
        loaded = datasets.build({"name": "pacs", "root": tmp_path}).load(8)
    assert list(loaded.domains) == ["art_painting", "photo", "sketch"]


def test_a_single_domain_is_no_data_set(tmp_path: Path) -> None:
    write_images(tmp_path / "pacs", {"photo": PACS["photo"]})
    with pytest.raises(DatasetMissing, match="no domain art_painting, cartoon, sketch in"):
        datasets.build({"name": "pacs", "root": tmp_path}).load(8)


@pytest.mark.parametrize("name", ["domainnet", "mnist", "femnist"])
def test_a_folder_of_ones_own_with_the_name_of_a_data_set(tmp_path: Path, name: str) -> None:
    write_npz(tmp_path / name / "a.npz")
    write_npz(tmp_path / name / "b.npz")
    folder = re.escape(str(tmp_path / name))
    with pytest.raises(DatasetMissing, match=rf"If {folder} is .* your own \(a, b\), name it with --data {folder}\."):
        datasets.build({"name": name, "root": tmp_path}).load(8)
    assert list(datasets.build({"name": "folder", "root": tmp_path / name}).load(8).domains) == ["a", "b"]


def test_the_whole_data_set_does_not_warn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path / "pacs", PACS)
    monkeypatch.setattr(datasets.get("pacs"), "image_counts", dict.fromkeys(PACS, 7))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        datasets.build({"name": "pacs", "root": tmp_path}).load(8)


def test_own_data_by_folder(tmp_path: Path) -> None:
    write_npz(tmp_path / "mine" / "a.npz")
    write_npz(tmp_path / "mine" / "b.npz")
    by_name = datasets.build({"name": "folder", "root": tmp_path, "dataset": "Mine"}).load(8)
    alone = datasets.build({"name": "folder", "root": tmp_path / "mine"}).load(8)
    assert list(by_name.domains) == ["a", "b"]
    assert by_name.digest() == alone.digest()


def test_a_plugin_that_names_no_classes_takes_those_of_the_folder(tmp_path: Path) -> None:
    class Mine(DatasetSource):
        name = "mine"
        domains = ("one", "two")

    write_images(tmp_path / "mine", {name: {"cat": 1, "dog": 1} for name in ("one", "two")})
    assert Mine(root=tmp_path).load(8).classes == ("cat", "dog")
