"""`fedwca plot` and `fedwca report` on a real run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedwca.results.pictures.catalogue import PICTURES
from fedwca.results.read_run import read_run
from fedwca.runs.final_model_predictions import predict_for_pictures

from ..results.runs import write_run
from ..shades import write_shades
from .conftest import Run, call


@pytest.fixture(scope="module")
def drawn(plain: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    folder = tmp_path_factory.mktemp("pictures")
    return call("plot", str(plain.folder), "--to", str(folder), "--how", "pca"), folder


def test_all_pictures_are_drawn_or_refused_with_a_reason(drawn: tuple[Run, Path]) -> None:
    run, folder = drawn
    assert run.code == 0, run.err
    lines = run.out.splitlines()
    for name, picture in PICTURES.items():
        file = folder / f"{name}.{picture.suffix or 'png'}"
        refused = [line for line in lines if line.startswith(f"not drawn: {name}: ")]
        assert file.exists() != bool(refused)
        assert (str(file) in lines) == file.exists()
    assert (folder / "bars.png").exists()
    assert (folder / "confusion.png").exists()


def test_one_picture_in_another_format(plain: Run, tmp_path: Path) -> None:
    run = call("plot", str(plain.folder), "bars", "--format", "svg", "--to", str(tmp_path))
    assert [file.name for file in tmp_path.iterdir()] == ["bars.svg"]
    assert run.out.strip() == str(tmp_path / "bars.svg")


def test_pictures_are_listed() -> None:
    assert call("plot").code == 2
    run = call("plot", "--list")
    assert [line.split()[0] for line in run.out.splitlines()] == list(PICTURES)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["barz"], "did you mean 'bars'"),
        (["--method", "wcaa"], "wca"),
        (["--trial", "7"], "no model 0 with trial 7 in this run; it has 0/0"),
    ],
)
def test_a_wrong_name_is_refused(plain: Run, arguments: list[str], sentence: str) -> None:
    run = call("plot", str(plain.folder), *arguments)
    assert run.code == 2
    assert sentence in run.err


def test_a_method_is_named_with_dashes_and_capitals(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    for file in folder.iterdir():
        file.write_text(file.read_text().replace('"wca"', '"wca:ta=1e-3"'))
    for name in ("wca:ta=1e-3", "WCA:ta=1e_3"):
        run = call("plot", str(folder), "weights", "--method", name, "--to", str(tmp_path))
        assert run.code == 0, run.err
    run = call("plot", str(folder), "weights", "--method", "method-1")
    assert (run.code, run.err.startswith("Error: method 1 has no second round")) == (1, True)


def test_what_cannot_be_drawn_fails_where_it_was_asked_for(plain: Run, tmp_path: Path) -> None:
    for name in ("config.json", "summary.json", "environment.json"):
        shutil.copy(plain.folder / name, tmp_path)
    run = call("plot", str(tmp_path), "accuracy")
    assert (run.code, run.err.strip()) == (1, "Error: rounds.jsonl is not in the folder, or holds no whole line")
    run = call("plot", str(tmp_path))
    assert run.code == 0
    assert "not drawn: confusion" in run.out
    assert [file.name for file in (tmp_path / "pictures").iterdir()] == ["bars.png"]


def test_models_are_looked_at_as_they_were_measured(plain: Run) -> None:
    pictured = predict_for_pictures(plain.folder)
    run = read_run(plain.folder)
    last, first = run.rounds("wca")[-1], run.rounds("wca")[0]
    assert list(pictured.domains) == list(run.domains)
    assert pictured.labels == last["labels"]
    for client, truth in enumerate(pictured.truth):
        assert pictured.images[client].shape[3] == 3
        assert len(pictured.images[client]) == len(truth) == len(pictured.before[client]) == len(pictured.after[client])
        right = 100 * float((pictured.predicted[client] == truth).mean())
        assert right == pytest.approx(last["accuracy"][client])
    assert len(first["accuracy"]) == len(pictured.truth)


def test_features_are_drawn_where_some_clients_have_no_test_image(bench: Callable[..., Run], tmp_path: Path) -> None:
    folder = write_shades(tmp_path / "shades")
    brass = np.load(folder / "brass.npz")
    np.savez(folder / "brass.npz", **{key: brass[key][:2] for key in brass})
    run = bench("--data", str(folder), "--baseline", "none", "--clients", "1", "--rounds", "1")
    drawn = call("plot", str(run.folder), "embedding", "--how", "pca", "--to", str(tmp_path))
    assert (drawn.code, drawn.err) == (0, "")


def test_neighbours_and_divisors_are_recorded(bench: Callable[..., Run]) -> None:
    run = bench("--clusterer", "finch", "--baseline", "none")
    first, second = [record for record in run.rounds if record["method"] == "wca" and record["round"] in (0, 1)]
    nearest, margins = first["clustering"]["nearest"], first["clustering"]["margins"]
    assert len(nearest) == len(margins) == len(first["labels"])
    assert all(first["labels"][k] == first["labels"][neighbour] for k, neighbour in enumerate(nearest))
    assert all(margin is None or margin >= 1 for margin in margins)
    assert len(second["divisor"]) == len(first["labels"])


def test_a_page_is_written(plain: Run, tmp_path: Path) -> None:
    run = call("report", str(plain.folder), "--out", str(tmp_path / "page.html"))
    assert (run.code, run.out.strip()) == (0, str(tmp_path / "page.html"))
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    for label in ("Source Only", "Local", "FedAvg", "FedWCA", "macro F1", "calibration error"):
        assert label in text
    assert text.count('<img src="data:image/png;base64,') >= 1, "of clusters"
    assert "fedwca report draws it" not in text
    assert "Test images by class" in text


def test_two_runs_of_one_name_are_told_apart(plain: Run, tmp_path: Path) -> None:
    for place in ("a", "b"):
        shutil.copytree(plain.folder, tmp_path / place / "run", ignore=shutil.ignore_patterns("checkpoints"))
    run = call("report", str(tmp_path / "a/run"), str(tmp_path / "b/run"), "--format", "md")
    assert str(tmp_path / "a/run") in run.out
    assert run.out.count("| FedWCA, moments |") == 2


@pytest.mark.parametrize(("suffix", "start"), [("md", "| method |"), ("tex", r"\begin{table}")])
def test_the_format_follows_the_file(plain: Run, tmp_path: Path, suffix: str, start: str) -> None:
    call("report", str(plain.folder), "--out", str(tmp_path / f"table.{suffix}"))
    assert start in (tmp_path / f"table.{suffix}").read_text()


def test_a_table_goes_to_the_screen(plain: Run) -> None:
    run = call("report", str(plain.folder), "--format", "latex")
    mean = json.loads((plain.folder / "summary.json").read_text())["methods"]["wca"]["mean"]
    assert f"{mean:.1f}" in run.out
    assert run.code == 0
    two_columns = call("report", str(plain.folder), "--format", "md", "--column", "worst", "--column", "class-accuracy")
    assert "| worst client | class " in two_columns.out


def test_no_run_no_report(tmp_path: Path) -> None:
    run = call("report", str(tmp_path))
    assert run.code == 2
    assert "no config.json" in run.err


def test_only_a_page_is_opened_in_a_browser(plain: Run) -> None:
    done = call("report", str(plain.folder), "--format", "md", "--open")
    assert (done.code, "--open shows a page in a browser" in done.err) == (2, True)


def test_a_file_of_another_format_than_its_name_is_refused(plain: Run, tmp_path: Path) -> None:
    done = call("report", str(plain.folder), "--out", str(tmp_path / "page.md"), "--format", "html")
    assert (done.code, "page.md and the format html do not fit" in done.err) == (2, True)
    assert not list(tmp_path.iterdir())
