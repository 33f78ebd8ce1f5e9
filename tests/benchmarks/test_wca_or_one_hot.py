"""The study of WCA and One-hot: clusters are wrong as stated, and tables and picture follow the results."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from .scripts import script

pieces = script("wca_or_one_hot_pieces")
tables = script("wca_or_one_hot_tables")
picture = script("wca_or_one_hot_picture")
TRUE = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]


def test_damaged_clusters_are_wrong_as_stated() -> None:
    assert pieces.damage_clusters(TRUE, "merged") == [0] * 8 + [1] * 4 + [2] * 4
    assert pieces.damage_clusters(TRUE, "split") == [0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7]
    for share, most in ((0.25, 4), (0.5, 8), (1.0, 16)):
        wrong = pieces.damage_clusters(TRUE, "shuffled", share)
        assert sorted(wrong) == TRUE, "sizes stay"
        assert 1 <= sum(a != b for a, b in zip(wrong, TRUE, strict=True)) <= most


def test_pieces_and_their_settings() -> None:
    names = [piece.name for piece in pieces.pieces()]
    assert len(set(names)) == len(names) == pieces.SEEDS * (2 * len(pieces.CASES) + 3 + 4)
    by_name = {piece.name: piece.settings() for piece in pieces.pieces()}
    assert by_name["digit_five-source_mnist-1"]["source"] == "mnist"
    assert by_name["digits_mini-64_images_a_client-0"]["samples"] == 64
    assert by_name["digit_five-FINCH-0"]["baselines"][1:] == [
        "source_ada_bn",
        "FedWCA=fedwca/clusterer=finch",
        "One-hot=one_hot/clusterer=finch",
    ]


def write(folder: Path) -> None:
    for piece in pieces.pieces():
        gain = piece.seed / 10 + (2.0 if piece.case == "domains split" else 0.0)
        method = {"accuracy": [50.0, 70.0, None], "right": [[30.0, 90.0, None], [40.0, 95.0, None]], "ari": 1.0}
        result = {"dataset": piece.dataset, "case": piece.case, "seed": piece.seed, "domains": ["x", "y", "y"]}
        result |= {"One-hot": method, "FedWCA": {**method, "accuracy": [50.0 + gain, 70.0 + gain, None]}}
        result |= {"Source + AdaBN": {"accuracy": [40.0, 60.0, None]}}
        result |= {
            "alpha_own": [0.5, 0.75],
            "beta_own": [0.5, 0.5],
            "density_lead": [0.0, 0.1],
            "settings": piece.settings(),
        }
        result |= {"environment": {"cores": 2, "cpu": "a processor"}}
        (folder / f"{piece.name}.json").write_text(json.dumps(result))


def test_tables_and_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert tables.cases("digit_five") == tables.labels() == tables.NOTHING
    write(tmp_path)
    page = tables.cases("digit_five")
    assert (
        "| domains split | 1.00 | 62.2 | 60.0 | 50.0 | **+2.20 (+2.00 to +2.40)**, n = 5 | 60.0 | 67.5 | 0.75 | 0.50 |"
        in page
    )
    assert "4 clients per target domain, at most 256 images each" in page
    page = tables.beside_first_layers()
    assert "| true clusters | " in page
    assert page.count("n = 5") == 8
    assert page.endswith("\nOn 2 cores of a processor.")
    page = tables.labels()
    assert "| 0 to 40 % | **+0.20 (" in page
    assert "| 40 to 60 % |" not in page, "nothing is in it"
    picture.draw(tables.finished(), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_piece_that_diverged_is_no_result() -> None:
    run: Any = SimpleNamespace(diverged={"FedWCA": {(0, 0): "why"}}, domains=[])
    with pytest.raises(SystemExit, match=r"FINCH-0: FedWCA diverged, and an earlier round is no result"):
        script("wca_or_one_hot").measure(
            run, next(piece for piece in pieces.pieces() if piece.name.endswith("FINCH-0"))
        )


@pytest.mark.slow
def test_a_piece_is_rehearsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private_cache: Path) -> None:
    study = script("wca_or_one_hot")
    name = "digits_mini-half_shuffled-0"
    arguments = ["wca_or_one_hot.py", name, "--small", "--out", str(tmp_path / "out"), "--runs", str(tmp_path / "runs")]
    monkeypatch.setattr("sys.argv", arguments)
    study.main()
    result = json.loads((tmp_path / "out" / f"{name}.json").read_text())
    assert result["FedWCA"]["ari"] < 1
    assert len(result["alpha_own"]) == len(result["density_lead"]) == 1
