"""Copies on the Hugging Face hub: rewritten as domains, whatever their columns are called."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedwca.core.remote_files import HubCopy
from fedwca.data import read_domains
from fedwca.download.fetch_hub_copy import fetch_hub_copy, list_hub_files
from fedwca.errors import DataError, FedwcaError

from .conftest import LocalServer, break_off

REVISION = "0123456789abcdef0123456789abcdef01234567"
CLASSES = ["cat", "dog"]


def encoded(value: int, size: int = 8, suffix: str = "PNG") -> dict[str, Any]:
    file = io.BytesIO()
    Image.fromarray(np.full((size, size, 3), value, np.uint8)).save(file, suffix)
    return {"bytes": file.getvalue(), "path": None}


def parquet(rows: list[dict[str, Any]], **features: Any) -> bytes:
    """A file as the library `datasets` writes it: a table whose metadata describe the columns."""
    described = {"label": {"names": CLASSES, "_type": "ClassLabel"}, "image": {"_type": "Image"}, **features}
    table = pa.Table.from_pylist(rows)
    metadata = {b"huggingface": json.dumps({"info": {"features": described}}).encode()}
    file = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), file)
    return file.getvalue()


@pytest.fixture
def hub(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> LocalServer:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", server.address)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return server


def serve(hub: LocalServer, files: dict[str, bytes]) -> None:
    siblings = [
        {
            "rfilename": name,
            "size": len(content),
            "blobId": "0" * 40,
            "lfs": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130},
        }
        for name, content in files.items()
    ]
    info = {"id": "some/set", "sha": REVISION, "siblings": siblings, "tags": [], "downloads": 0, "likes": 0}
    hub.add(f"/api/datasets/some/set/revision/{REVISION}", json.dumps(info).encode(), etag=None)
    for name, content in files.items():
        hub.add(f"/datasets/some/set/resolve/{REVISION}/{name}", content)


def copy(**fields: Any) -> HubCopy:
    return HubCopy("some/set", REVISION, **fields)


def quiet(name: str, done: int, total: int | None) -> None:
    pass


def test_a_copy_becomes_folders_of_images(hub: LocalServer, tmp_path: Path) -> None:
    rows = [
        {"image": encoded(10 * n, suffix="JPEG" if n else "PNG"), "label": n % 2, "domain": domain, "extra": n}
        for n, domain in enumerate(["Art", "Real World"] * 3)
    ]
    serve(hub, {"data/train-0.parquet": parquet(rows[:4]), "data/train-1.parquet": parquet(rows[4:]), "README.md": b""})
    hub.files[f"/datasets/some/set/resolve/{REVISION}/data/train-0.parquet"].misbehave.append(break_off(100))
    assert fetch_hub_copy(copy(domain="domain"), tmp_path, quiet) == {"art": 3, "real_world": 3}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["art", "real_world"]
    assert (tmp_path / "art/cat/000000.png").read_bytes() == rows[0]["image"]["bytes"]
    assert (tmp_path / "real_world/dog/000000.jpg").is_file()
    dataset = read_domains(tmp_path, size=8)
    assert dataset.classes == ("cat", "dog")
    # As if killed between two domains: the domain that is there stays as it is, the other one is fetched.
    (tmp_path / "art" / "mine.txt").touch()
    shutil.rmtree(tmp_path / "real_world")
    fetch_hub_copy(copy(domain="domain"), tmp_path, quiet)
    assert (tmp_path / "art" / "mine.txt").is_file()
    assert (tmp_path / "real_world/dog/000000.jpg").is_file()
    assert dataset.domain("art").class_counts(2) == [3, 0]


def test_a_column_of_domains_may_be_numbers(hub: LocalServer, tmp_path: Path) -> None:
    rows = [{"image": encoded(n), "label": 0, "style": n} for n in (0, 1)]
    serve(hub, {"a.parquet": parquet(rows, style={"names": ["ink", "oil"], "_type": "ClassLabel"})})
    found = fetch_hub_copy(copy(domain="style", domain_names={"oil": "paint"}), tmp_path, quiet)
    assert found == {"ink": 1, "paint": 1}


def test_archives_keep_parts_and_units(hub: LocalServer, tmp_path: Path) -> None:
    rows = [{"image": encoded(n), "label": n % 2, "writer": f"w{n // 2}"} for n in range(6)]
    serve(hub, {"data/train-0.parquet": parquet(rows[:4]), "data/test-0.parquet": parquet(rows[4:])})
    counts = fetch_hub_copy(copy(only_domain="letters", saved_as="archive", unit="writer"), tmp_path, quiet)
    assert counts == {"letters": 6}
    with np.load(tmp_path / "letters.npz") as archive:
        order = archive["images"][:, 0, 0, 0].argsort()
        assert archive["labels"][order].tolist() == [0, 1, 0, 1, 0, 1]
        assert archive["part"][order].tolist() == [0, 0, 0, 0, 1, 1]
        assert archive["units"][order].tolist() == [0, 0, 1, 1, 2, 2]
        assert archive["classes"].tolist() == CLASSES


@pytest.mark.parametrize(
    ("row", "fields", "sentence"),
    [
        ({"image": encoded(1)}, {"only_domain": "x"}, "no column label"),
        ({"image": encoded(1), "label": 2}, {"only_domain": "x"}, "holds 2; 0 to 1 is right"),
        ({"image": encoded(1), "label": None}, {"only_domain": "x"}, "holds None; 0 to 1 is right"),
        ({"image": "path.png", "label": 1}, {"only_domain": "x"}, "holds no encoded images"),
        ({"image": encoded(1), "label": 1, "d": "../x"}, {"domain": "d"}, "'../x' for a class or domain"),
        (
            {"image": {"bytes": b"abc", "path": None}, "label": 1},
            {"only_domain": "x", "saved_as": "archive"},
            "does not decode",
        ),
    ],
)
def test_rows_that_are_not_as_described(
    hub: LocalServer, tmp_path: Path, row: dict[str, Any], fields: dict[str, Any], sentence: str
) -> None:
    serve(hub, {"a.parquet": parquet([row])})
    with pytest.raises(DataError, match=sentence):
        fetch_hub_copy(copy(**fields), tmp_path, quiet)
    assert [path.name for path in tmp_path.iterdir()] == [".hub"], "the fetched file is kept, nothing else"


@pytest.mark.parametrize("names", [["a/b", "dog"], ["", "dog"], [".", "dog"], ["..", "dog"], ["a\\b", "dog"], None])
def test_names_of_classes_are_names_of_folders(hub: LocalServer, tmp_path: Path, names: list[str] | None) -> None:
    rows = [{"image": encoded(1), "label": 0}]
    serve(hub, {"a.parquet": parquet(rows, label={"names": names, "_type": "ClassLabel"})})
    with pytest.raises(DataError, match=r"no name of a folder|declares no names"):
        fetch_hub_copy(copy(only_domain="x"), tmp_path, quiet)


def test_images_of_different_shapes_are_refused_in_an_archive(hub: LocalServer, tmp_path: Path) -> None:
    rows = [{"image": encoded(1, size), "label": 0} for size in (8, 9)]
    serve(hub, {"a.parquet": parquet(rows)})
    with pytest.raises(DataError, match="images of x have 2 shapes, an archive takes one"):
        fetch_hub_copy(copy(only_domain="x", saved_as="archive"), tmp_path, quiet)


def test_a_damaged_file(hub: LocalServer, tmp_path: Path) -> None:
    serve(hub, {"a.parquet": b"no parquet"})
    with pytest.raises(DataError, match=r"a\.parquet cannot be read as parquet"):
        fetch_hub_copy(copy(only_domain="x"), tmp_path, quiet)


def test_no_such_copy(hub: LocalServer, tmp_path: Path) -> None:
    with pytest.raises(FedwcaError, match="hub does not show some/set at 0123"):
        list_hub_files(copy(only_domain="x"))
    serve(hub, {"README.md": b""})
    with pytest.raises(DataError, match="holds no parquet file"):
        list_hub_files(copy(only_domain="x"))
