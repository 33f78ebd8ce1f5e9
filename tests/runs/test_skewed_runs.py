"""Runs whose clients have skewed classes: what they record, resuming, what a page shows, what presets set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedwca.config.resolve_config import resolve_plan
from fedwca.results.read_run import read_run
from fedwca.results.report.page_data import page_data
from fedwca.runs.python_api import bench, resume
from tests.cli.conftest import call
from tests.read_rounds import read_rounds
from tests.runs.stopping import check_same_bits, stop

SMALL: dict[str, Any] = {
    "clients": 2,
    "rounds": 2,
    "epochs": 1,
    "lr": 0.01,
    "batch_size": 16,
    "device": "cpu",
    "aggregator": "fedavg",
}
OVERRIDES = {"source_training.epochs": 1, "model.bottleneck": 8}
SKEWED = "skewed-domains:alpha=0.5,least=4,source_ratio=2,target_ratio=2"


def play(shades: Path, out: Path) -> Path:
    return bench(**SMALL, data=shades, partition=SKEWED, baselines=[], overrides=OVERRIDES, out=out, keep="all").path


@pytest.fixture(scope="module")
def run(shades: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(shades, tmp_path_factory.mktemp("skewed") / "run")


def test_the_first_record_counts_classes_and_a_page_shows_them(run: Path) -> None:
    first, *later_records = read_rounds(run)
    counts = first["class_counts"]
    assert first["round"] == -1
    assert len(counts) == len(first["accuracy"])
    assert all(sum(client_counts) > 0 for client_counts in counts)
    assert not any("class_counts" in record for record in later_records)
    contents = read_run(run)
    (data,) = page_data([contents], ["run"])
    assert data["units"][0]["class_counts"] == counts
    assert len(data["classes"]) == len(counts[0])


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(run: Path, tmp_path: Path, shades: Path) -> None:
    stop(lambda: play(shades, tmp_path / "run"), call=2)
    check_same_bits(resume(tmp_path / "run").path, run)


def test_a_dry_run_says_the_deal_and_a_configuration_gives_it_back(run: Path, shades: Path) -> None:
    dry_run = call("bench", "--config", str(run / "config.json"), "--dry-run")
    assert dry_run.code == 0, dry_run.err
    assert "2 clients each; classes over clients by Dirichlet(0.5); long-tailed source, 2 to 1" in dry_run.out
    refused = call("bench", "--data", str(shades), "--partition", "unit-domains", "--dry-run")
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert "does not say units" in refused.err


def test_the_preset_skews_source_targets_and_clients() -> None:
    with_source = resolve_plan({"dataset": "digit_five", "source": "synth"}, preset_name="skewed")
    without_source = resolve_plan({"dataset": "digit_five"}, preset_name="skewed")
    paper = resolve_plan({"dataset": "digit_five", "source": "synth"}, preset_name="paper")
    options = {"alpha": 0.3, "source_ratio": 10.0, "target_ratio": 10.0}
    for plan in (with_source, without_source):
        assert plan.config.partition == "skewed_domains"
        assert plan.config.components["partition"] == {"skewed_domains": options}
    assert with_source.origins["partition"] == "preset skewed"
    assert paper.config.partition == "domains"
    other_components = {k: v for k, v in with_source.config.components.items() if k != "partition"}
    assert other_components == paper.config.components
    even = resolve_plan({"dataset": "digit_five", "partition": "domains"}, preset_name="skewed")
    assert even.config.partition == "domains"
    assert even.config.components.get("partition", {}).get("skewed_domains", {}) == {}
    target = resolve_plan({"dataset": "digit_five", "target": "synth"}, preset_name="sfda")
    assert target.config.partition == "leave_one_out"
