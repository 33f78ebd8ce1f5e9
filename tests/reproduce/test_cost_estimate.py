"""The estimated cost of a run, against the images that its clients are then given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedwca.config.resolve_config import RunPlan, resolve_plan
from fedwca.datasets import datasets
from fedwca.reproduce.cost_estimate import describe_cost, estimate_plan
from fedwca.runs.load_data import load
from fedwca.runs.split_trials import split_trial

SMALL = {"dataset": "digits_mini", "composed": False, "rounds": 4}


def plan_of(**settings: Any) -> RunPlan:
    return resolve_plan({**SMALL, "baselines": ["fedavg"], **settings})


def count_training(plan: RunPlan) -> int:
    """Training images of all clients with labels; of all clients, if none has labels."""
    dataset, domain = load(plan.config)
    clients = split_trial(plan.config, dataset, domain, 0, 0).clients
    labelled = [client for client in clients if client.labels is not None]
    return sum(len(client.train) for client in labelled or clients)


@pytest.mark.parametrize(
    "settings",
    [
        {"source": "neon"},
        {"source": "neon", "samples": 40, "clients": 2},
        {"partition": "shards", "clients": 10, "baselines": ["fedavg"]},
        {"partition": "shards", "clients": 10, "samples": 50, "new_clients": 5, "baselines": ["fedavg"]},
        {"partition": "all_labelled", "baselines": ["fedavg_labelled"]},
    ],
)
def test_images_of_epochs_are_those_of_the_split(settings: dict[str, Any]) -> None:
    plan = plan_of(**settings, training={"epochs": 3})
    estimate = estimate_plan(plan, settings.get("source", ""))
    assert estimate.images == pytest.approx(4 * 3 * count_training(plan), rel=0.03)
    assert (estimate.runs, estimate.rounds) == (1, 4)


def test_images_of_steps_by_hand() -> None:
    plan = plan_of(source="neon", training={"steps": 20, "batch_size": 32}, clients=2)
    assert estimate_plan(plan, "neon").images == 4 * (4 * 2) * 20 * 32


def test_a_step_has_no_more_images_than_a_client() -> None:
    small = plan_of(partition="shards", clients=10, samples=20, training={"steps": 20, "batch_size": 64})
    assert estimate_plan(small, "").images == pytest.approx(4 * 10 * 20 * 0.85 * 20)
    short = plan_of(partition="shards", clients=10, samples=40, training={"steps": 20, "batch_size": 32})
    assert estimate_plan(short, "").images == pytest.approx(4 * 10 * 20 * 0.85 * 40 / 2), "batches of 32 and 2 images"


def test_public_images_are_learned_by_all_clients_and_new_ones_but_in_the_first_round() -> None:
    settings = {"partition": "shards:public=0.1", "clients": 10, "samples": 50}
    own, both = (estimate_plan(plan_of(**settings, baselines=[name]), "") for name in ("fedtta", "hetero_fedtta"))
    total = sum(datasets.get("digits_mini").image_counts.values())
    assert both.images - own.images == pytest.approx(3 * (10 * 1 + 2) * 0.1 * total)


def test_who_does_not_take_part_trains_nothing() -> None:
    full, partial = (estimate_plan(plan_of(source="neon", participation=p), "neon").images for p in (1.0, 0.25))
    assert partial / full == pytest.approx((1 + 3 * 0.25) / 4)


def test_a_start_of_its_own_and_a_last_phase_are_counted() -> None:
    sizes = {"target": "neon", "partition": "leave_one_out", "training": {"epochs": 2}}
    dann_images = estimate_plan(plan_of(**sizes, baselines=["dann"]), "neon").images
    per_domain = 0.64 * 1500  # by the preset; so many of each of the four source domains and of the target
    assert dann_images == pytest.approx(5 * per_domain * 4 * 2)
    for name, domains in (("pooled", 4), ("oracle", 1)):
        images = estimate_plan(plan_of(**sizes, baselines=[name]), "neon").images
        assert images == pytest.approx(domains * per_domain * 4 * 2), name
    plan = plan_of(**sizes, baselines=["sfda"], finish_training={"epochs": 7})
    rounds = plan.methods[0][1]
    assert rounds == 5, "the last phase comes behind the rounds"
    assert estimate_plan(plan, "neon").images == pytest.approx(4 * 4 * per_domain * 2 + 7 * per_domain)


def test_source_models_are_named_only_where_they_are_trained(tmp_path: Path) -> None:
    trained = estimate_plan(plan_of(source="neon"), "neon")
    given = estimate_plan(plan_of(source="neon", checkpoint=tmp_path / "model.pt"), "neon")
    none = estimate_plan(plan_of(target="neon", partition="leave_one_out", baselines=["dann"]), "neon")
    assert describe_cost(trained).endswith("on 2 CPU cores without source models")
    assert describe_cost(given).endswith("on 2 CPU cores")
    assert describe_cost(none).endswith("on 2 CPU cores")
    assert describe_cost(none + trained).endswith("without source models")
