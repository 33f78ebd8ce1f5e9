"""What components the published methods are composed of."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedwca.config.baselines import baseline, baseline_folder, baseline_names
from fedwca.config.describe_method import component_values
from fedwca.config.presets import read_preset
from fedwca.config.resolve_config import resolve_plan
from fedwca.federated.method import Method

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"
TABLE_5 = ["table5_none", "table5_pp", "table5_pp_fp", "table5_pp_fp_tm", "table5_pp_fp_tm_mu"]


def methods(*names: str, preset: str = "default", **layer: Any) -> dict[str, Method]:
    """Baselines by name, composed as a run does it."""
    plan = resolve_plan({"baselines": list(names), "name": "own", **layer}, preset_name=preset)
    return {method.name: method for method, _ in plan.methods}


@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize("dataset", ["digits-mini", "digit-five", "pacs", "office-home"])
def test_table_5_switches_one_part_on_at_a_time(preset: str, dataset: str) -> None:
    by_name = methods(*TABLE_5, "fedwca", preset=preset, dataset=dataset)
    labelers = {name: by_name[name].pseudo_labeler for name in TABLE_5}
    assert [by_name[name].label for name in TABLE_5] == ["none", "PP", "PP+FP", "PP+FP+TM", "PP+FP+TM+MU"]
    assert [labeler.name for labeler in labelers.values()] == ["argmax", "prototype", "prototype", *["two_model"] * 2]
    assert [labeler.renew for labeler in labelers.values()] == ["epoch", "epoch", "round", "round", "round"]
    assert labelers["table5_none"].model_dump() == {
        "renew": "epoch",
        "model": "start",
        "confidence": 0,
        "share": 0,
    }
    four, five = (labelers[name].model_dump() for name in TABLE_5[3:])
    assert (four.pop("mixup"), five.pop("mixup")) == (False, True)
    assert four == five
    other_parts = [
        [part for part in component_values(by_name[name]) if part["kind"] != "pseudo_labeler"] for name in TABLE_5
    ]
    assert other_parts == [other_parts[0]] * 5
    assert component_values(by_name[TABLE_5[-1]]) == component_values(by_name["fedwca"])


def describe_part(specification: str) -> str:
    """A component's name and fields, each as code that a narrow table cell need not break."""
    name, _, fields = specification.partition(":")
    return f"`{name}`" + (f" ({', '.join(f'`{field}`' for field in fields.split(','))})" if fields else "")


def methods_table(setting: str) -> str:
    """Every baseline of a setting and its composition, as the page shows it."""
    last = {"ffreeda": "Clusterer", "upfl": "Adaptation"}.get(setting, "Last phase")
    lines = [
        f"| Name | Label | {last} | Aggregator | Pseudo-labels | Objectives | Rounds | Published |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in baseline_names(setting):
        settings = tomllib.loads((baseline_folder() / setting / f"{name}.toml").read_text())
        first = settings.get("clusterer") or settings.get("adaptation")
        parts = [
            [first] if first else settings.get("finish", ()),
            [settings["aggregator"]],
            [settings["pseudo_labeler"]],
            settings["objectives"],
        ]
        cells = [", ".join(map(describe_part, part)) for part in parts]
        rounds = str(settings.get("rounds", ""))
        row = [f"`{name.replace('_', '-')}`", settings["label"], *cells, rounds, settings["paper"]]
        lines.append(f"| {' | '.join(row)} |".replace("|  |", "| |"))
    return "\n".join(lines)


def values_table() -> str:
    """What preset paper gives by data set and source."""
    header = ("Data set", "Source", "Rounds", "Learning rate", "λ", "μ", "T_a", "T_b", "LADD's first round")
    lines = [f"| {' | '.join(header)} |", "|---|---|--:|--:|--:|--:|--:|--:|--:|"]
    for dataset, source in (
        ("digit-five", None),
        ("digit-five", "synth"),
        ("pacs", None),
        ("office-home", None),
        ("office-home", "clipart"),
    ):
        names = ["fedwca", "ladd", "revised_fedwca", "fedwca_l", "one_equal_a"]
        plan = resolve_plan(
            {"dataset": dataset, "source": source, "baselines": names, "name": "own"}, preset_name="paper"
        )
        by_name = {method.name: method for method, _ in plan.methods}
        weights = {name: by_name[name].aggregator.model_dump() for name in names}
        ta, tb = weights["fedwca"]["ta"], weights["fedwca"]["tb"]
        assert {weights[name].get("ta", ta) for name in names} == {ta}
        assert {weights[name].get("tb", tb) for name in names} == {tb}
        objective, labeler = by_name["fedwca"].objectives[0].model_dump(), by_name["fedwca"].pseudo_labeler.model_dump()
        numbers = [plan.config.rounds, plan.config.training.lr, objective["lam"], labeler["mu"], ta, tb]
        row = [dataset, source or "others", *(f"{n:g}" for n in (*numbers, weights["ladd"]["start"]))]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


@pytest.mark.parametrize("block", ["methods", "methods-sfda", "methods-upfl", "values"])
def test_the_page_shows_what_is_composed(block: str) -> None:
    expected = values_table() if block == "values" else methods_table(block.partition("-")[2] or "ffreeda")
    shown = PAGE.read_text().split(f"<!-- begin {block} -->\n")[1].split(f"\n<!-- end {block} -->")[0]
    assert shown == expected, f"docs/methods.md, block {block}, should be:\n{expected}"


@pytest.mark.parametrize("name", baseline_names())
def test_what_a_baseline_reads_is_given(name: str) -> None:
    method = methods(name)[name]
    read = {*method.pseudo_labeler.models, *(m for o in method.objectives for m in (*o.anchors, *o.teachers))}
    assert read <= set(method.aggregator.references)


def test_ladd_fedpcl_and_fedscal_are_what_their_papers_say() -> None:
    by_name = methods("ladd", "ladd_plus", "fedpcl_pl", "fedscal", preset="paper", dataset="digit-five")
    ladd, plus = by_name["ladd"], by_name["ladd_plus"]
    assert ladd.clusterer is not None
    assert (ladd.clusterer.name, ladd.aggregator.name, ladd.aggregator.weighting) == ("ladd", "ladd", "samples")
    labeler = ladd.pseudo_labeler.model_dump()
    assert (labeler["model"], labeler["confidence"], labeler["share"]) == ("teacher", 0.9, 0.66)
    assert (ladd.aggregator.model_dump()["start"], plus.aggregator.model_dump()["start"]) == (50, 0)
    assert [objective.name for objective in plus.objectives] == ["shot", "self_training"]
    assert plus.objectives[0].model_dump()["lam"] == 0.1
    assert plus.objectives[1].model_dump()["lam"] == 0
    assert by_name["fedpcl_pl"].objectives[0].model_dump() == {"tau": 70, "base_tau": 0.07}
    assert not by_name["fedpcl_pl"].aggregator.sends_models
    shot, alignment = (objective.model_dump() for objective in by_name["fedscal"].objectives)
    assert shot["lam"] == 0.5
    assert (alignment["client"], alignment["server"], alignment["threshold"]) == (3, 0.3, 0.8)


def test_a_baselines_rounds_are_a_limit() -> None:
    def rounds(count: int) -> dict[str, int]:
        plan = resolve_plan({"baselines": ["fedpcl_pl", "source_only", "fedavg"], "name": "own", "rounds": count})
        return {method.name: rounds for method, rounds in plan.methods}

    assert rounds(100) == {"fedpcl_pl": 20, "source_only": 0, "fedavg": 100, "own": 100}
    assert rounds(3) == {"fedpcl_pl": 3, "source_only": 0, "fedavg": 3, "own": 3}


def test_what_is_done_to_a_baseline_or_a_preset_stays_there() -> None:
    """Their files are read once; each caller has values of its own."""
    expected = baseline("fedtab").model_copy(deep=True)
    baseline("fedtab").components.clear()
    baseline_names().clear()
    assert baseline("fedtab") == expected
    assert expected.components
    text, tables = read_preset("paper")
    for table in read_preset("paper")[1].values():
        table.clear()
    assert read_preset("paper") == (text, tables)
    assert all(tables.values())
