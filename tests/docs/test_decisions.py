"""Each alternative that docs/decisions.md names changes a method."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fedwca.config.baselines import baseline_names
from fedwca.config.config_layers import layer_from_words, merge
from fedwca.config.resolve_config import resolve_plan
from fedwca.errors import UsageError

TEXT = (Path(__file__).parents[2] / "docs" / "decisions.md").read_text()
ROWS: list[tuple[str, str]] = re.findall(r"^\| ([ASUTK]\d+) \|(.*)$", TEXT, re.M)
SET = [(row, *pair.split("=", 1)) for row, line in ROWS for pair in re.findall(r"--set (\S+=[^`\s]+)", line)]
"""Alternatives that set a value."""
WORDS = [(row, word) for row, line in ROWS for word in re.findall(r"`([a-z-]+/[a-z]+=[^`\s]+)`", line)]
"""Alternatives that name a baseline with another part."""
OPTIONS = [(row, words) for row, line in ROWS for words in re.findall(r"(?<!with )`(--(?!set )[a-z-]+ [^`]+)`", line)]
"""Alternatives that are options with their values."""
RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "A": ("ffreeda", "default", {"dataset": "digit_five", "source": "mnist", "clusterer": "finch"}),
    "S": ("sfda", "sfda", {"dataset": "digit_five", "target": "mnist", "training": {"epochs": 1}}),
    "U": ("upfl", "upfl", {"dataset": "mnist", "partition": "shards:public=0.1"}),
    "T": ("ffreeda", "default", {"dataset": "digit_five", "source": "mnist"}),
    "K": ("ffreeda", "skewed", {"dataset": "digit_five", "source": "mnist"}),
}
"""Baselines, preset and settings for each letter of rows."""


@cache
def resolve(
    rows: str, method: str, pairs: tuple[tuple[str, str], ...] = (), words: tuple[tuple[str, Any], ...] = ()
) -> dict[str, Any] | None:
    """What decides the numbers of a baseline, or of the composed method for "none"; None if the plan is refused.

    Args:
        rows: letter of rows.
        method: name of the baseline.
        pairs: of ``--set``.
        words: other options' fields with their values.
    """
    _, preset, layer = RUNS[rows]
    try:
        layer = merge({**layer, "baselines": [method]}, layer_from_words(dict(words)))
        plan = resolve_plan(layer, pairs, preset).described()
    except UsageError:
        return None
    parts = plan["config"].pop("components")
    return {
        **plan["config"],
        **plan["methods"],
        **{f"{kind}'s fields": parts.get(kind) for kind in ("model", "dataset", "partition")},
    }


@pytest.mark.parametrize(("row", "key", "value"), SET)
def test_an_alternative_arrives_at_a_method(row: str, key: str, value: str) -> None:
    rows = row[0]
    for name in ["none", *baseline_names(RUNS[rows][0])]:
        plan = resolve(rows, name, ((key, value),))
        if plan is not None and plan != resolve(rows, name):
            return
    pytest.fail("no method differs")


@pytest.mark.parametrize(("row", "text"), OPTIONS)
def test_an_option_arrives_at_a_method(row: str, text: str) -> None:
    words: dict[str, Any] = {name.replace("-", "_"): value for name, value in re.findall(r"--(\S+) (\S+)", text)}
    baseline = words.pop("baseline", None)
    if "sizes=" in text:
        words["composed"] = False  # FedAvg, the composed method, averages models of one size alone
    # Fields alone differ; but five is the default of the revised method's blocks, which is an alternative as a whole.
    plain = {name: value.split(":")[0] for name, value in words.items() if ":" in str(value) and row != "A25"}
    names = ["none", *baseline_names(RUNS[row[0]][0])] if baseline is None else [baseline]
    for name in names:
        plan = resolve(row[0], name, words=tuple(words.items()))
        if plan is not None and plan != resolve(row[0], re.split("[/:]", name)[0], words=tuple(plain.items())):
            return
    pytest.fail("no method differs")


@pytest.mark.parametrize(("row", "word"), WORDS)
@pytest.mark.parametrize("dataset", ["mnist", "digits_plain"])
def test_a_baseline_with_another_part_differs_in_what_is_named_alone(row: str, word: str, dataset: str) -> None:
    _, preset, layer = RUNS[row[0]]
    layer = {**layer, "dataset": dataset, "composed": False}
    fields = []
    for method in (word.split("/")[0], word):
        (plan,) = resolve_plan({**layer, "baselines": [method]}, (), preset).described()["methods"].values()
        fields.append(flatten({**plan, "label": ""}))
    assert fields[0].keys() == fields[1].keys()
    differing = {key[-1] for key, value in fields[1].items() if value != fields[0][key]}
    assert differing
    assert differing <= set(re.findall(r"(\w+)=", word))


def flatten(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Values of nested dicts and lists by their path."""
    items = dict(enumerate(value)) if isinstance(value, list) else value
    if not isinstance(items, dict):
        return {path: value}
    return {key: leaf for name, part in items.items() for key, leaf in flatten(part, (*path, str(name))).items()}
