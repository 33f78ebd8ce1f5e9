"""Data sets of the Hugging Face hub, read from folders in its layouts, and the errors where something is missing."""

from __future__ import annotations

import gc
import html
import json
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedwca.data import FederatedDataset, decode_folders, open_hub_tables, read_hub_dataset
from fedwca.datasets import find_dataset
from fedwca.errors import DataError, FedwcaError, InvalidConfig, UsageError
from tests.cli.conftest import SMALL, call

datasets: Any = pytest.importorskip("datasets")

# The library leaves tables of folders open until they are collected, at whatever test that happens.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module", autouse=True)
def _collected() -> Iterator[None]:
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def picture(value: int, side: int = 12) -> Image.Image:
    return Image.new("RGB", (side, side), (value,) * 3)


def columns(count: int, first: int = 0) -> dict[str, list[Any]]:
    """Columns of ``count`` rows: image i has the grey ``first + i``, labels alternate, each half is a domain."""
    return {
        "image": [picture(first + i) for i in range(count)],
        "label": [i % 2 for i in range(count)],
        "domain": ["Art Painting" if i < count // 2 else "photo" for i in range(count)],
        "writer": [i % 3 for i in range(count)],
    }


def write_parquet(path: Path, content: dict[str, list[Any]]) -> None:
    kinds = {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["dog", "cat"]),
        "domain": datasets.Value("string"),
        "writer": datasets.Value("int64"),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    features = datasets.Features({name: kinds.get(name, kinds["domain"]) for name in content})
    datasets.Dataset.from_dict(content, features=features).to_parquet(path)


def write_configurations(root: Path, *names: str) -> Path:
    for name in names:
        write_parquet(root / name / "train.parquet", {k: v for k, v in columns(6).items() if k != "domain"})
    lines = "".join(f"- config_name: {name}\n  data_files: {name}/*.parquet\n" for name in names)
    (root / "README.md").write_text(f"---\nconfigs:\n{lines}---\n")
    return root


@pytest.fixture(autouse=True)
def quiet() -> None:
    datasets.disable_progress_bars()


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    write_parquet(tmp_path / "animals" / "train.parquet", columns(20))
    write_parquet(tmp_path / "animals" / "test.parquet", columns(10, 100))
    return tmp_path / "animals"


def load(root: Path, fields: str = "", size: int = 8) -> FederatedDataset:
    return find_dataset(f"hub:{root}{fields}").load(size)


def greys(dataset: FederatedDataset, name: str) -> list[int]:
    return dataset.domains[name].images[:, 0, 0, 0].tolist()


def test_columns_are_found(animals: Path) -> None:
    dataset = load(animals)
    assert dataset.name == "animals"
    assert dataset.classes == ("cat", "dog")
    assert list(dataset.domains) == ["art_painting", "photo"]
    photo = dataset.domains["photo"]
    assert greys(dataset, "photo") == [*range(10, 20), *range(105, 110)]
    assert photo.labels.tolist() == [1, 0] * 5 + [0, 1, 0, 1, 0]
    assert photo.part is not None
    assert photo.part.tolist() == [0] * 10 + [1] * 5
    assert photo.units is None


def test_two_domains_that_would_have_one_name_are_not_merged(tmp_path: Path) -> None:
    names = ["day/dry", "day_dry"]
    write_parquet(tmp_path / "roads" / "train.parquet", columns(8) | {"domain": names[:1] * 8})
    write_parquet(tmp_path / "roads" / "test.parquet", columns(8) | {"domain": names[1:] * 8})
    with pytest.raises(DataError, match="domains 'day/dry' and 'day_dry' would both be called 'day_dry'; rename one"):
        load(tmp_path / "roads")


def test_columns_and_splits_are_given(animals: Path) -> None:
    dataset = load(animals, ",splits=train,unit=writer,domain=writer,labels=domain")
    assert dataset.classes == ("Art Painting", "photo")
    assert list(dataset.domains) == ["0", "1", "2"]
    assert greys(dataset, "1") == [1, 4, 7, 10, 13, 16, 19]
    assert dataset.domains["1"].labels.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert dataset.domains["1"].part is None
    assert dataset.domains["2"].units is not None
    assert set(dataset.domains["2"].units.tolist()) == {2}


@pytest.mark.parametrize(
    ("names", "domains"),
    [
        (("device_a", "device_b"), {"device_a", "device_b"}),
        (("alley", "valley"), {"alley", "valley"}),
        (("train_2017", "test[0]"), None),
        (("train", "validation"), None),
    ],
)
def test_which_splits_are_parts(names: tuple[str, ...], domains: set[str] | None) -> None:
    assert all(bool(read_hub_dataset.PARTS.match(name)) is (domains is None) for name in names)


def test_splits_and_configurations_are_domains(tmp_path: Path) -> None:
    root = write_configurations(tmp_path / "two", "day", "night")
    assert list(load(root, ",domain=configuration").domains) == ["day", "night"]
    assert list(load(root, ",configuration=night").domains) == ["two"]
    with pytest.raises(UsageError, match="has the configurations day, night: say configuration=day, or domain=conf"):
        load(root)
    with pytest.raises(UsageError, match="has no configuration 'dusk'; it has day, night"):
        load(root, ",configuration=dusk")
    splits = tmp_path / "splits"
    for name in ("sketch", "photo"):
        write_parquet(splits / f"{name}.parquet", {k: v for k, v in columns(4).items() if k != "domain"})
    (splits / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n"
        + "".join(f"  - split: {name}\n    path: {name}.parquet\n" for name in ("sketch", "photo"))
        + "---\n"
    )
    dataset = load(splits)  # names of splits that are not names of parts
    assert list(dataset.domains) == ["photo", "sketch"]
    assert dataset.domains["photo"].part is None
    assert list(load(animals_like(tmp_path), ",domain=split").domains) == ["test", "train"]


def test_a_folder_with_configurations_is_read_anew_when_a_file_changes(tmp_path: Path) -> None:
    root = write_configurations(tmp_path / "a" / "set", "day", "night")
    first = load(root, ",domain=configuration")
    write_parquet(root / "night" / "train.parquet", {"image": columns(6, 50)["image"], "label": [1] * 6})
    second = load(root, ",domain=configuration")
    assert greys(second, "day") == greys(first, "day") == [*range(6)]
    assert greys(second, "night") == [*range(50, 56)]
    assert second.domains["night"].labels.tolist() == [0] * 6
    assert greys(first, "night") == [*range(6)]


def test_folders_of_one_name_with_configurations_are_two_data_sets(tmp_path: Path) -> None:
    roots = [write_configurations(tmp_path / name / "set", "day", "night") for name in "ab"]
    write_parquet(roots[1] / "day" / "train.parquet", {"image": columns(6, 50)["image"], "label": [0, 1] * 3})
    first, second = (load(root, ",domain=configuration") for root in roots)
    assert greys(first, "day") == [*range(6)]
    assert greys(second, "day") == [*range(50, 56)]
    assert first.digest() != second.digest()


def animals_like(folder: Path) -> Path:
    for name in ("train", "test"):
        write_parquet(folder / "like" / f"{name}.parquet", columns(4))
    return folder / "like"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # datasets leaves the table open
def test_a_folder_of_images_with_a_table_of_domains(tmp_path: Path) -> None:
    root = tmp_path / "shots" / "train"
    rows = ["file_name,label,domain"]
    for index, (kind, light) in enumerate([("cat", "day"), ("dog", "day"), ("cat", "night"), ("dog", "night")]):
        root.mkdir(parents=True, exist_ok=True)
        picture(index * 20).save(root / f"{index}.png")
        rows.append(f"{index}.png,{kind},{light}")
    (root / "metadata.csv").write_text("\n".join(rows) + "\n")
    dataset = load(tmp_path / "shots")
    assert dataset.classes == ("cat", "dog")
    assert {name: greys(dataset, name) for name in dataset.domains} == {"day": [0, 20], "night": [40, 60]}
    classes = tmp_path / "classes"
    for split in ("train", "test"):
        for kind in ("cat", "dog"):
            (classes / split / kind).mkdir(parents=True)
            picture(30).save(classes / split / kind / "a.png")
    (alone,) = load(classes).domains.values()
    assert alone.part is not None
    assert sorted(alone.part.tolist()) == [0, 0, 1, 1]


def test_images_are_decoded_once_and_a_few_at_a_time(animals: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(animals)
    assert isinstance(first.domains["photo"].images, np.memmap)
    with monkeypatch.context() as patch:
        patch.setattr(decode_folders, "_write_decoded", lambda *_: pytest.fail("decoded again"))
        again = load(animals)
    assert again.digest() == first.digest()
    write_parquet(animals / "train.parquet", columns(20, 50))
    assert load(animals).digest() != first.digest()
    batch_sizes: list[int] = []
    original = open_hub_tables.HubTable.images

    def watched(self: Any, column: str, numbers: Any) -> Any:
        batch_sizes.append(len(numbers))
        return original(self, column, numbers)

    monkeypatch.setattr(open_hub_tables.HubTable, "images", watched)
    monkeypatch.setattr(read_hub_dataset, "ROWS", 4)
    load(animals, size=6)
    assert max(batch_sizes) <= 4
    assert sum(batch_sizes) == 30


@pytest.mark.parametrize(
    ("fields", "error", "sentence"),
    [
        (",image=pixels", DataError, "has no column 'pixels' (image=pixels); it has image, label, domain, writer"),
        (",image=writer", DataError, "row 0, column 'writer' holds no encoded image"),
        (",labels=image", DataError, "row 0: column 'image' holds"),
        (",splits=train+dev", UsageError, "has no split 'dev'; it has train, test"),
        ("/nowhere", UsageError, "there is no such folder"),
        (",label=label", InvalidConfig, "label: there is no such field; did you mean 'labels'?"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    animals: Path, fields: str, error: type[FedwcaError], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(error) as caught:
        load(animals, fields)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rows_without_a_label_and_columns_that_nothing_tells(tmp_path: Path) -> None:
    rows = {"scan": [picture(1)] * 2, "shot": [picture(2)] * 2, "kind": ["a", "b"], "text": ["c", "d"]}
    kinds = {"scan": datasets.Image(), "shot": datasets.Image()}
    features = datasets.Features({name: kinds.get(name, datasets.Value("string")) for name in rows})
    (tmp_path / "x").mkdir()
    datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "x" / "train.parquet")
    with pytest.raises(DataError, match="is its image: say image=COLUMN; it has scan, shot, kind, text"):
        load(tmp_path / "x")
    with pytest.raises(DataError, match="is its labels: say labels=COLUMN; it has scan, shot, kind, text"):
        load(tmp_path / "x", ",image=scan")
    assert load(tmp_path / "x", ",image=shot,labels=kind").classes == ("a", "b")
    write_parquet(tmp_path / "y" / "train.parquet", columns(4))
    write_parquet(tmp_path / "y" / "test.parquet", {**columns(4), "label": [-1] * 4})
    with pytest.raises(DataError, match=r"split test, row 0: column 'label' holds -1.*splits=… reads some"):
        load(tmp_path / "y")
    assert len(load(tmp_path / "y", ",splits=train").domains["photo"]) == 2


def test_numbers_of_classes_and_names_of_units(tmp_path: Path) -> None:
    kinds = {"image": datasets.Image(), "writer": datasets.ClassLabel(names=["x", "y", "z"])}
    rows = {**columns(6), "label": [3, 4, 3, 4, 3, 4]}
    for name, labels in (("x", rows["label"]), ("y", [3, 4, 3, 4, 3, -1])):
        (tmp_path / name).mkdir()
        features = datasets.Features(
            {column: kinds.get(column, datasets.Value("int64" if column == "label" else "string")) for column in rows}
        )
        datasets.Dataset.from_dict({**rows, "label": labels}, features=features).to_parquet(
            tmp_path / name / "train.parquet"
        )
    assert load(tmp_path / "x", ",unit=writer").classes == ("3", "4")
    with pytest.raises(DataError, match="row 5: column 'label' holds -1"):
        load(tmp_path / "y", ",unit=writer")


def test_errors_without_a_network_or_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidConfig, match=r"is OWNER/NAME of the Hugging Face hub, or a folder such as \./images"):
        find_dataset("hub:mnist")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with pytest.raises(FedwcaError, match=r"^nobody/nothing cannot be read .*hub:\./FOLDER reads a copy") as caught:
        find_dataset("hub:nobody/nothing,revision=abc").load()
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="says itself where it is; leave --data out"):
        find_dataset("hub:nobody/nothing", tmp_path).load()
    monkeypatch.chdir(tmp_path)
    Path("nobody/nothing").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"the latter is hub:\./nobody/nothing"):
        find_dataset("hub:nobody/nothing").load()
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"pip install 'fedwca\[hub\]'"):
        find_dataset("hub:nobody/nothing").load()


def test_a_bench_and_its_configuration_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path / "Wild Animals" / "train.parquet", columns(80))
    monkeypatch.chdir(tmp_path)
    words = ["--dataset", "hub:./Wild Animals,unit=writer", "--source", "Art Painting", "--partition", "unit-domains"]
    small = [*SMALL, "--rounds", "1", "--aggregator", "fedavg", "--baseline", "none", "--quiet"]
    result = call("bench", *words, *small, "--out", "run", folder=tmp_path / "run")
    assert result.code == 0, result.err
    assert result.summary["methods"]["fedavg"]["n"] == 1
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = call("bench", "--config", "../run/config.json", "--dry-run")
    assert again.code == 0, again.err
    assert "wild_animals: source art_painting; targets photo; 2 clients each, a unit of the data each" in again.out
    assert json.loads(call("runs", "--root", "..", "--json").out)[0]["data"] == "wild_animals, source art_painting"
    small = [*SMALL, "--rounds", "1", "--quiet", "--out", "all"]
    compared = call("compare", "fedavg", "--dataset", "hub:../Wild Animals,unit=writer", *words[2:], *small)
    assert compared.code == 0, compared.err
    assert "wild_animals: accuracy in percent after the last round" in " ".join(compared.out.split())
    checked = call("data", "check", "hub:../Wild Animals")
    assert checked.code == 0, checked.err
    assert "digest of wild_animals" in checked.out


def test_reports_and_exports_download_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path / "animals" / "train.parquet", columns(80))
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as stored:  # the repository is a folder while the run is made
        opened = open_hub_tables.open_hub_tables
        stored.setattr(read_hub_dataset, "open_hub_tables", lambda place, *rest: opened(Path("animals"), *rest))
        small = [*SMALL, "--rounds", "1", "--clients", "2", "--baseline", "none", "--quiet"]
        words = ["--dataset", "hub:nobody/animals", "--source", "photo", "--keep", "last", "--out", "run"]
        assert call("bench", *words, *small).code == 0
    picture(3).save("p.png")
    contacts: list[str] = []

    def contact() -> None:
        contacts.append("once")
        raise FedwcaError("the hub was contacted")

    monkeypatch.setattr(open_hub_tables, "_library", contact)
    sentence, holder = "data set 'hub' is not read: it may have to be", ["run", "--client", "0"]
    assert call("report", "run", "--out", "r.html").code == 0
    assert sentence in html.unescape(Path("r.html").read_text())
    records = Path("run/rounds.jsonl")
    records.write_text(re.sub(r'"test_images": \[[\d, ]*\]', '"other": 0', records.read_text()))
    exported = call("export", *holder, "--out", "m.safetensors")
    assert (exported.code, "accuracy not measured" in exported.out) == (0, True), exported.err
    assert sentence in exported.err
    assert call("predict", *holder, "p.png").code == 0
    config = json.loads(Path("run/config.json").read_text())
    del config["classes"]  # as in runs of earlier releases
    Path("run/config.json").write_text(json.dumps(config))
    for words in (["export", *holder, "--out", "m.safetensors"], ["predict", *holder, "p.png"]):
        assert sentence in call(*words).err
    assert contacts == []
    assert "the hub was contacted" in call("plot", "run", "confusion").err


def test_another_column_of_domains_gives_other_images_of_the_same_name(tmp_path: Path) -> None:
    both = {"first": ["x"] * 4 + ["y"] * 4, "second": ["x", "y"] * 4}
    write_parquet(tmp_path / "roads" / "train.parquet", columns(8) | both)
    assert greys(load(tmp_path / "roads", ",domain=first"), "x") == [0, 1, 2, 3]
    assert greys(load(tmp_path / "roads", ",domain=second"), "x") == [0, 2, 4, 6]
