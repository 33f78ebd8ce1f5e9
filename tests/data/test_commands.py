from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from fedwca.cli.data import app
from fedwca.data import DatasetWarning
from fedwca.datasets import datasets
from fedwca.errors import DataError, UnknownComponent

from .examples import PACS, write_images


def call(*arguments: str, columns: int = 200) -> str:
    result = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_list_shows_every_name() -> None:
    output = call("list")
    assert all(name in output for name in datasets.names())
    assert "15,588" in output


def test_list_breaks_no_address_on_a_narrow_terminal() -> None:
    assert datasets.get("digit_five").source_url in call("list", columns=60).split()


def test_check_counts_and_warns(tmp_path: Path) -> None:
    write_images(tmp_path / "pacs", PACS)
    with pytest.warns(DatasetWarning, match="^pacs is not the published data set"):
        output = call("check", "PACS", "--data", str(tmp_path))
    assert all(part in output for part in ("3,929", "giraffe", "digest of pacs: "))


def test_check_verifies_published_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path / "pacs", PACS)
    (tmp_path / "pacs" / "list.txt").write_bytes(b"")
    monkeypatch.setattr(datasets.get("pacs"), "checksums", {"list.txt": "d41d8cd98f00b204e9800998ecf8427e"})
    with pytest.warns(DatasetWarning):
        assert "MD5 as published: list.txt" in call("check", "pacs", "--data", str(tmp_path))
    (tmp_path / "pacs" / "list.txt").write_text("changed")
    with pytest.raises(DataError, match=r"list\.txt is damaged or another edition"):
        call("check", "pacs", "--data", str(tmp_path))


def test_show_draws_any_folder(tmp_path: Path) -> None:
    write_images(tmp_path / "mine", {"a": {"cat": 1, "dog": 3}, "b": {"cat": 2, "dog": 1}})
    call("show", "mine", "--data", str(tmp_path), "--out", str(tmp_path / "out" / "sheet.png"))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["sheet.png"]
    with Image.open(tmp_path / "out" / "sheet.png") as sheet:
        assert sheet.format == "PNG"
        assert min(sheet.size) > 200


def test_a_name_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(UnknownComponent, match="did you mean 'pacs'"):
        call("check", "pacz")
    with pytest.raises(UnknownComponent, match="neither a folder in"):
        call("check", "mine", "--data", str(tmp_path))
    domain = tmp_path / "photo.npz"
    domain.touch()
    for path in (tmp_path, domain):
        with pytest.raises(UnknownComponent, match=rf"take dataset folder with --data {tmp_path}$"):
            call("check", str(path))
