"""What the published methods are made of."""

from __future__ import annotations

from typing import Any

import pytest

from fedwca.experiments.compose import described
from fedwca.experiments.request import plan
from fedwca.round import Method

TABLE_5 = ["table5_none", "table5_pp", "table5_pp_fp", "table5_pp_fp_tm", "table5_pp_fp_tm_mu"]


def methods(*names: str, preset: str = "default", **layer: Any) -> dict[str, Method]:
    """Baselines by name, composed as a run does it."""
    made = plan({"baselines": list(names), "name": "own", **layer}, preset_name=preset)
    return {method.name: method for method, _ in made.methods}


@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize("dataset", ["digits-mini", "digit-five", "pacs", "office-home"])
def test_table_5_switches_one_part_on_at_a_time(preset: str, dataset: str) -> None:
    found = methods(*TABLE_5, "fedwca", preset=preset, dataset=dataset)
    labelers = {name: found[name].pseudo_labeler for name in TABLE_5}
    assert [found[name].label for name in TABLE_5] == ["none", "PP", "PP+FP", "PP+FP+TM", "PP+FP+TM+MU"]
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
    without = [[part for part in described(found[name]) if part["kind"] != "pseudo_labeler"] for name in TABLE_5]
    assert without == [without[0]] * 5
    assert described(found[TABLE_5[-1]]) == described(found["fedwca"])
