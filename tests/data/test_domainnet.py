"""DomainNet on a small tree of the published layout."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedwca.config.run_config import RunConfig
from fedwca.data import DatasetWarning, FederatedDataset
from fedwca.datasets import datasets
from fedwca.errors import DataError, DatasetMissing, UsageError
from fedwca.runs import load_data
from fedwca.runs.load_data import check_images_fit

CLASSES = {"zebra": 344, "apple": 8, "t-shirt": 333}


def write_domainnet(root: Path, domains: tuple[str, ...] = ("clipart", "real"), train: int = 4, test: int = 2) -> Path:
    """Write ``train`` and ``test`` images of each class in DomainNet's layout; part, class and number set the grey."""
    for domain in domains:
        for part, count in (("train", train), ("test", test)):
            lines = []
            for index, (title, label) in enumerate(CLASSES.items()):
                (root / domain / title).mkdir(parents=True, exist_ok=True)
                for number in range(count):
                    name = f"{domain}/{title}/{domain}_{label:03}_{part}{number}.png"
                    grey = 100 * (part == "test") + 30 * index + number
                    Image.new("RGB", (12, 9), (grey,) * 3).save(root / name)
                    lines.append(f"{name} {label}")
            (root / f"{domain}_{part}.txt").write_text("\n".join(lines) + "\n")
    return root


def load(root: Path, **fields: int) -> FederatedDataset:
    with pytest.warns(DatasetWarning, match="domainnet is not the published data set"):
        return datasets.build({"name": "domainnet", "root": root, **fields}).load_published(8)


def test_the_catalogue_has_the_published_counts() -> None:
    cls = datasets.get("domainnet")
    assert sum(cls.image_counts.values()) == 586575
    assert len(cls.classes) == 345
    assert sum(train for train, _ in cls.parts.values()) == 409832


def test_lists_say_what_is_read_and_which_part_it_is(tmp_path: Path) -> None:
    root = write_domainnet(tmp_path / "DomainNet")
    Image.new("RGB", (9, 9)).save(root / "real" / "apple" / "not_listed.png")
    loaded = load(tmp_path)
    assert list(loaded.domains) == ["clipart", "real"]
    assert loaded.classes == ("apple", "t-shirt", "zebra")
    real = loaded.domains["real"]
    assert real.part is not None
    assert real.part.tolist() == [0] * 12 + [1] * 6
    assert real.labels.tolist() == [2] * 4 + [0] * 4 + [1] * 4 + [2] * 2 + [0] * 2 + [1] * 2
    assert real.images[:, 0, 0, 0].tolist() == [
        0,
        1,
        2,
        3,
        30,
        31,
        32,
        33,
        60,
        61,
        62,
        63,
        100,
        101,
        130,
        131,
        160,
        161,
    ]
    assert isinstance(real.images, np.memmap)
    assert load(root).digest() == loaded.digest()


def test_fewer_images_are_balanced_and_parts_keep_their_share(tmp_path: Path) -> None:
    root = write_domainnet(tmp_path, train=6, test=3)
    real = load(root, images=9).domains["real"]
    assert real.part is not None
    assert real.part.tolist() == [0] * 6 + [1] * 3
    assert np.bincount(real.labels[:6]).tolist() == [2, 2, 2]
    assert np.bincount(real.labels[6:]).tolist() == [1, 1, 1]
    assert load(root, images=9).digest() == load(root, images=9).digest()
    assert load(root, images=9, seed=1).digest() != load(root, images=9).digest()
    assert datasets.build({"name": "domainnet", "root": root, "images": 9}).count_images() == {"clipart": 9, "real": 9}


def test_what_is_not_there_is_said_with_the_layout(tmp_path: Path) -> None:
    root = write_domainnet(tmp_path / "domainnet")
    (root / "real_test.txt").unlink()
    with pytest.raises(
        DatasetMissing, match=r"there is no .*real_test\.txt(.|\n)*<domain>_\{train,test\}\.txt"
    ) as caught:
        datasets.build({"name": "domainnet", "root": tmp_path}).load()
    assert "https://ai.bu.edu/M3SDA/" in str(caught.value)


def test_lists_of_a_domain_whose_images_are_still_to_come(tmp_path: Path) -> None:
    root = write_domainnet(tmp_path / "domainnet", ("clipart", "real", "sketch"))
    shutil.rmtree(root / "sketch")
    with pytest.warns(DatasetWarning, match="has lists of sketch, but no folder sketch; the domain is left out"):
        assert list(load(tmp_path).domains) == ["clipart", "real"]
    shutil.rmtree(root / "real")
    missing = pytest.raises(DatasetMissing, match=r"there is no .*real, sketch")
    with pytest.warns(DatasetWarning, match="has lists of"), missing:
        datasets.build({"name": "domainnet", "root": tmp_path}).load()


def test_the_first_domain_with_lists_is_the_default(tmp_path: Path) -> None:
    root = write_domainnet(tmp_path / "domainnet", ("real", "sketch"))
    (root / "clipart" / "apple").mkdir(parents=True)
    assert datasets.build({"name": "domainnet", "root": tmp_path}).find_default_domain() == "real"


def test_only_files_that_are_read_are_looked_for(tmp_path: Path) -> None:
    root = write_domainnet(tmp_path)
    for file in (root / "real").rglob("*_train?.png"):
        file.unlink()
    source = datasets.build({"name": "domainnet", "root": root, "images": 6})
    assert source.count_images() == {"clipart": 6, "real": 6}
    with pytest.raises(DataError, match=r"real_train\.txt names real/.*\.png, which is not in"):
        source.load()


def test_lists_that_do_not_fit(tmp_path: Path) -> None:
    root = write_domainnet(tmp_path)
    source = datasets.build({"name": "domainnet", "root": root})
    for line in ("real/apple/a.png", "clipart/apple/a.png 8", "real/../a.png 8", "real/a.png 8"):
        (root / "real_test.txt").write_text(f"{line}\n")
        with pytest.raises(DataError, match=r"real_test\.txt, line 1: must be 'real/<class>/<image> <label>'"):
            source.load()
    (root / "real_test.txt").write_text("\n\nbad\n")
    with pytest.raises(DataError, match=r"real_test\.txt, line 3: must be"):
        source.load()
    (root / "real_test.txt").write_text("real/apple/lost.png 8\n")
    with pytest.raises(DataError, match=r"real_test\.txt names real/apple/lost\.png, which is not in"):
        source.load()
    (root / "real" / "cow2").mkdir()
    Image.new("RGB", (9, 9)).save(root / "real" / "cow2" / "a.png")
    (root / "real_test.txt").write_text("real/cow2/a.png 8\n")
    with pytest.raises(DataError, match="domainnet has no class cow2"):
        source.load()


@pytest.mark.parametrize("again", ["train0", "test0"])
def test_an_image_is_listed_once(tmp_path: Path, again: str) -> None:
    root = write_domainnet(tmp_path)
    with (root / "real_test.txt").open("a") as file:
        file.write(f"real/apple/real_008_{again}.png 8\n")
    with pytest.raises(DataError, match=rf"real_test\.txt name real/apple/real_008_{again}\.png twice"):
        datasets.build({"name": "domainnet", "root": root}).load()


def test_what_does_not_fit_into_memory_is_known_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = datasets.get("domainnet").image_counts
    monkeypatch.setattr(load_data, "free_bytes", lambda _: 16 * 10**9)
    with pytest.raises(UsageError, match=r"586,575 images of domainnet at 256×256 pixels take 115\.3 GB") as caught:
        check_images_fit(RunConfig(dataset="domainnet"), counts, 256)
    assert "--set dataset.images=N" in str(caught.value)
    assert "--set model.side=112" in str(caught.value)
    check_images_fit(RunConfig(dataset="domainnet", samples=2500), counts, 256)
    check_images_fit(RunConfig(dataset="domainnet"), dict.fromkeys(counts, 10000), 256)
    # Six domains of 100,000 images are 600,000, and one of 586,575 has as many: where domains are dealt together, as
    # many clients train as come later, and all of them use 40,000.
    for each in (dict.fromkeys(counts, 100_000), {"one": 586_575}):
        pooled = RunConfig(dataset="domainnet", partition="shards", clients=200, samples=100)
        check_images_fit(pooled, each, 256)
        with pytest.raises(UsageError, match="88,000 images"):
            check_images_fit(pooled.model_copy(update={"samples": 220}), each, 256)
