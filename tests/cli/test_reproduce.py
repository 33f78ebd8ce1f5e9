"""`fedwca reproduce`: the plan, our numbers beside the published ones, clusters by layer, figures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.read_rounds import read_rounds

from .conftest import Run, call

SMALL = "--quick --clients 2 --rounds 2 --epochs 1 --device cpu --set source_training.epochs=1 --set model.bottleneck=8"


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise under the names of Digit-Five: published numbers can be looked up, our own mean nothing."""
    folder = tmp_path_factory.mktemp("data") / "digit_five"
    folder.mkdir()
    random = np.random.default_rng(0)
    for name in ("mnist", "mnistm", "svhn"):
        labels = np.arange(60, dtype=np.int64) % 10
        np.savez(folder / f"{name}.npz", images=random.integers(0, 255, (60, 32, 32, 3), dtype=np.uint8), labels=labels)
    return folder.parent


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduce")


def reproduce(digits: Path, out: Path, *arguments: str) -> Run:
    options = ["--data", str(digits), "--dataset", "digit-five", "--out", str(out)]
    # With a target no source model is trained, and none of these rows trains a model at one place.
    small = re.sub(r"--set source_training\S+", "", SMALL) if "--target" in arguments else SMALL
    return call("reproduce", *arguments, *options, *small.split())


def test_the_plan_needs_no_data_and_runs_nothing(tmp_path: Path) -> None:
    options = ["--dataset", "digit-five", "--row", "fedavg", "--dry-run", "--quiet", "--out", str(tmp_path)]
    run = call("reproduce", "table2", *options)
    assert run.code == 0, run.err
    # 15 runs for each of 5 sources, 100 rounds each.
    assert "In all 75 runs (methods × source models × trials), 7500 rounds" in run.err
    assert not run.out
    assert list(tmp_path.iterdir()) == []


def test_the_plan_needs_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        pytest.fail("weights were asked for")

    monkeypatch.setattr("fedwca.models._resnet.ResNet.load_pretrained", never)
    run = call("reproduce", "table3", "--dataset", "pacs", "--dry-run", "--out", str(tmp_path))
    assert run.code == 0, run.err


def test_values_are_said_to_come_from_where_they_do(digits: Path, tmp_path: Path) -> None:
    run = reproduce(digits, tmp_path, "table2", "--row", "Source Only", "--source", "mnist")
    origins = {line.partition(": ")[0]: line for line in run.out.splitlines() if line.startswith("From ")}
    assert list(origins) == ["From CLI", "From --quick", "From reproduce table2", "From preset paper"]
    assert "clients = 2; rounds = 2" in origins["From CLI"]
    assert "source = mnist" in origins["From CLI"]
    assert "samples = " in origins["From --quick"]
    assert "rounds" not in origins["From --quick"]
    assert "composed = False" in origins["From reproduce table2"]


def test_ours_stands_beside_the_published_numbers(digits: Path, out: Path) -> None:
    rows = ["--row", "Source Only", "--row", "FedAvg"]
    sources = ["--source", "mnist", "--source", "svhn"]
    run = reproduce(digits, out, "table2", *rows, *sources, "--format", "json")
    assert run.code == 0, run.err
    table = json.loads(run.out)
    assert "--quick" in table["title"]
    assert "not comparable" in table["title"]
    values = {(entry["row"], entry["source"]): entry for entry in table["values"]}
    assert values["FedAvg", "svhn"]["published"] == 83.76
    # The published average over these two sources; the one that the paper prints is over all sources.
    average = values["FedAvg", "all runs of all sources"]
    assert (average["published"], average["published_std"]) == (pytest.approx((55.88 + 83.76) / 2), None)
    assert values["Source Only", "mnist"]["n"] == 2
    markdown = reproduce(digits, out, "table2", *rows, *sources, "--format", "markdown")
    ours = values["FedAvg", "mnist"]["mean"]
    assert "not run again" in markdown.err
    assert f"{ours - 55.88:+.2f}" in markdown.out
    assert "69.82" in markdown.out
    assert "FedWCA, Table 2" in markdown.out


def test_clusters_by_layer_come_from_one_run(digits: Path, out: Path) -> None:
    run = reproduce(digits, out, "table11", "--source", "mnist")
    assert run.code == 0, run.err
    (folder,) = [path for path in out.glob("digit_five-mnist*") if "probes" in (path / "rounds.jsonl").read_text()]
    first, *_ = read_rounds(folder, number=0)
    # LeNet has three layers of its own; deeper ones are left out.
    assert list(first["probes"]) == [f"finch:signature={layer}" for layer in (1, 2, 3, "all")]
    assert first["probes"]["finch:signature=1"]["labels"] == first["labels"]
    assert first["probes"]["finch:signature=1"]["ari"] == first["clustering"]["ari"]
    assert "│ All" in run.out


def test_clusters_by_source(digits: Path, out: Path) -> None:
    run = reproduce(digits, out, "table12", "--source", "svhn", "--format", "markdown")
    assert run.code == 0, run.err
    (line,) = [line for line in run.out.splitlines() if line.startswith("| svhn")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[4:7] == ["A" * 8 + "B" * 8 + "C" * 8 + "D" * 8, "4", "1.00"]
    assert cells[7] == ""  # the paper has another number of clients: their clusters cannot be compared


@pytest.mark.parametrize("figure", ["figure4", "figure5", "figure6"])
def test_figures_are_drawn(digits: Path, out: Path, figure: str) -> None:
    rows = [] if figure != "figure4" else ["--row", "FedAvg", "--row", "FedWCA"]
    run = reproduce(digits, out, figure, "--source", "mnist", *rows)
    assert run.code == 0, run.err
    picture = out / f"{figure}-digit_five-mnist-quick.png"
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("figure", "why"),
    [
        ("figure6", "the first run diverged in round 0, so there are no clusters to show"),
        ("figure5", "the first run of every row diverged, so there are no weights to show"),
    ],
)
def test_a_figure_of_runs_that_diverged_leaves_the_table(digits: Path, tmp_path: Path, figure: str, why: str) -> None:
    run = reproduce(
        digits, tmp_path, figure, "--source", "mnist", "--lr", "1e30", "--batch-size", "4", "--format", "json"
    )
    assert run.code == 1, run.err  # nothing else was run
    assert f"{figure}-digit_five-mnist-quick.png is not drawn: {why}" in " ".join(run.err.split())
    assert "values" in json.loads(run.out)
    assert not list(tmp_path.glob("*.png"))


def test_tables_over_targets(digits: Path, tmp_path: Path) -> None:
    rows = ["--row", "FedAvg", "--row", "MDMGB"]
    size = ["--set", "finish_training.epochs=1", "--source-models", "2", "--samples", "60"]
    run = reproduce(digits, tmp_path, "sfda-parts", *rows, "--target", "svhn", *size, "--format", "json")
    assert run.code == 0, run.err
    values = {entry["row"]: entry for entry in json.loads(run.out)["values"]}
    assert values["MDMGB"]["after"]["n"] == values["MDMGB"]["gain"]["n"] == 2
    assert values["MDMGB"]["ahead_before"] is not None
    assert (tmp_path / "digit_five-svhn").is_dir()
    table = reproduce(digits, tmp_path, "sfda-table1", "--row", "SFDA", "--target", "svhn", *size, "--format", "json")
    assert table.code == 0, table.err
    assert "not run again" in table.err
    (entry,) = json.loads(table.out)["values"]
    assert entry["published"] == 86.02
    assert entry["mean"] == values["MDMGB"]["after"]["mean"]


def test_messages_need_no_run(tmp_path: Path) -> None:
    run = call("reproduce", "sfda-table4", "--out", str(tmp_path), "--format", "markdown")
    assert run.code == 0, run.err
    assert "| FADA | 15660 | 31320 | 46980 | 62640 |" in run.out
    assert "| SFDA, published | 18 | 36 | 54 | 72 |" in run.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["sfda-parts", "--source", "mnist"], "the domains of this table are targets; take --target"),
        (["table1"], "no table or figure to run 'table1'"),
        (["table2", "--row", "FedAvgg"], "did you mean 'FedAvg'"),
        (["table3", "--source", "mnis", "--dry-run"], "did you mean 'mnist'"),
        (["table3", "--source", "all", "--source", "mnist", "--dry-run"], "--source all: "),
        (["sfda-table4"], "sfda-table4: nothing is run for this table, so --dataset has no effect; leave it out"),
        (["table3", "--dry-run", "--keep", "some"], "--keep some: takes last"),
        (["table3", "--dry-run", "--logger", "tensorbord"], "did you mean 'tensorboard'"),
        (["table3", "--dry-run", "--json", "--format", "latex"], "--json and --format latex: leave out one of both"),
    ],
)
def test_mistakes_get_a_sentence(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    run = call("reproduce", *arguments, "--dataset", "digit-five", "--out", str(tmp_path))
    assert (run.code, run.out) == (2, "")
    assert sentence in run.err


def test_tables_of_new_clients(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 255, (200, 28, 28), dtype=np.uint8), np.arange(200, dtype=np.int64) % 10
    np.savez(tmp_path / "mnist.npz", images=images, labels=labels)
    words = "--quick --clients 3 --samples 12 --rounds 2 --device cpu --set training.steps=1 --set model.width=8"
    options = ["--dataset", "mnist", "--data", str(tmp_path), "--out", str(tmp_path / "out"), *words.split()]
    rows = ["--row", "FedAvg", "--row", "FedTTA++"]
    run = call("reproduce", "upfl-table1", *options, *rows, "--format", "json")
    assert run.code == 0, run.err
    values = {(entry["row"], entry["group"]): entry for entry in json.loads(run.out)["values"]}
    assert list(values) == [
        (row, group) for group in ("training clients", "new clients") for row in ("FedAvg", "FedTTA++")
    ]
    assert values["FedAvg", "new clients"]["published"] == 94.69
    assert values["FedTTA++", "training clients"]["published_std"] == 0.11
    assert values["FedTTA++", "new clients"]["n"] == 2
    again = call("reproduce", "upfl-table1", *options, *rows, "--format", "markdown")
    assert "not run again" in again.err
    rotated = call("reproduce", "upfl-figure4", *options, "--row", "TENT", "--format", "markdown")
    assert rotated.code == 0, rotated.err
    heads = [line.split("|")[1].strip() for line in rotated.out.splitlines() if line.startswith("|")][2:]
    assert heads == [f"{group}: TENT" for group in ("training clients", "15 degrees", "45 degrees", "new clients")]


def test_a_table_keeps_its_partition_under_another_preset(tmp_path: Path) -> None:
    options = ["--preset", "default", "--row", "FedAvg", "--dataset", "digits-mini", "--clients", "10", "--dry-run"]
    run = call("reproduce", "upfl-table1", *options, "--out", str(tmp_path))
    assert run.code == 0, run.err
    assert "partition shards: 1 run" in run.err
    options[options.index("digits-mini")] = "femnist"
    run = call("reproduce", "upfl-table1", *options, "--out", str(tmp_path))
    assert run.code == 0, run.err
    assert "partition writers: 1 run" in run.err


def test_tables_of_new_clients_have_no_source(tmp_path: Path) -> None:
    run = call("reproduce", "upfl-table1", "--source", "mnist", "--dry-run", "--out", str(tmp_path))
    assert run.code == 2
    assert "--source mnist: this table pools the images of all domains" in run.err


@pytest.mark.parametrize("option", [["--logger", "csv"], ["--keep", "some"], ["--quiet"]])
def test_a_table_that_runs_nothing_takes_no_options_of_runs(option: list[str]) -> None:
    run = call("reproduce", "sfda-table4", *option)
    assert run.code == 2
    assert f"nothing is run for this table, so {option[0]} has no effect" in run.err
