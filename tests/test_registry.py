"""Names without imports, and specs of every form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fedwca.aggregators import aggregators
from fedwca.aggregators.wca import WCA
from fedwca.clusterers import clusterers
from fedwca.component import Component
from fedwca.config.baselines import baseline_names
from fedwca.config.component_registries import PLURALS, registry_of
from fedwca.config.presets import preset_names
from fedwca.errors import InvalidConfig, UnknownComponent, UsageError
from fedwca.objectives import objectives
from fedwca.pseudo_labelers import pseudo_labelers
from fedwca.registry import Registry

EVERY = [(kind, name) for kind in PLURALS for name in registry_of(kind).names()]


def test_names_come_from_files() -> None:
    assert {"fedavg", "local", "one_hot", "wca"} <= set(aggregators.names())
    assert {"each", "finch", "single", "true"} <= set(clusterers.names())
    assert {"prototype", "two_model"} <= set(pseudo_labelers.names())
    assert {"shot"} <= set(objectives.names())
    assert {"fedavg", "local", "source_only"} <= set(baseline_names())
    assert {"default", "paper"} <= set(preset_names())
    assert not any(name.startswith("_") for kind in PLURALS for name in registry_of(kind).names())


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_every_name_is_a_component_with_its_papers(kind: str, name: str) -> None:
    cls = registry_of(kind).get(name)
    assert cls.name == name
    assert cls.__doc__
    assert cls.__module__.endswith(f".{name}")
    undescribed = [field for field, info in cls.model_fields.items() if not info.description]
    assert not undescribed


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_dump_and_build_are_inverse(kind: str, name: str) -> None:
    registry = registry_of(kind)
    values = {"timm": "timm:resnet18", "hub": "hub:owner/name,revision=main"}
    if name == "timm":
        pytest.importorskip(name)
    component = registry.build(values[name] if registry.get(name).positional_field else name)
    dumped = registry.dump(component)
    assert registry.build(json.loads(json.dumps(dumped))) == component
    name_and_fields = registry.parse(component)
    assert registry.build({"name": name_and_fields[0], **name_and_fields[1]}) == component
    assert dumped["name"] == name


def test_one_component_in_every_form() -> None:
    expected = WCA(ta=0.05, direction="row")
    forms: list[Any] = [
        "wca:ta=0.05,direction=row",
        " WCA: ta = 0.05 , direction = row",
        {"name": "wca", "ta": 0.05, "direction": "row"},
        {"name": "wca", "ta": "0.05", "direction": "row"},
        expected,
    ]
    assert [aggregators.build(form) for form in forms] == [expected] * len(forms)
    assert aggregators.parse(expected) == ("wca", {"ta": 0.05, "direction": "row"})


@pytest.mark.parametrize("name", ["one_hot", "one-hot", "One-Hot", " ONE_HOT "])
def test_dash_and_underscore_are_alike(name: str) -> None:
    assert aggregators.build(name).name == "one_hot"


@pytest.mark.parametrize(
    ("given", "near"), [("wac", "wca"), ("fed-avg", "fedavg"), ("onehot", "one_hot"), ("lokal", "local")]
)
def test_a_wrong_name_suggests_the_near_one(given: str, near: str) -> None:
    with pytest.raises(UnknownComponent, match=f"no aggregator .*; did you mean '{near}'") as caught:
        aggregators.build(given)
    assert "Known: " in str(caught.value)


def test_several_names_in_one_are_told_apart() -> None:
    with pytest.raises(UnknownComponent, match=r"no clusterer 'finch\+true': give each by itself, finch and true"):
        clusterers.build("finch+true")


def test_a_name_near_to_nothing_lists_what_there_is() -> None:
    with pytest.raises(UnknownComponent, match=r"no clusterer 'zzz'\. Known: ada_bn, .*; if a plugin has it, install"):
        clusterers.build("zzz")


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("wca:tc=1", "aggregator wca.tc: there is no such field"),
        ("wca:ta=0", "aggregator wca.ta: Input should be greater than 0 (given '0')"),
        ("wca:ta=hot", "aggregator wca.ta: Input should be a valid number"),
        ("wca:direction=up", "aggregator wca.direction: Input should be 'column' or 'row'"),
        ("wca:ta", "'ta' is not of the form field=value"),
        ({"ta": 1}, "a table needs a name"),
        ({"name": "wca", "ta": -1, "tb": -2}, "wca.ta: Input should be greater than 0 (given -1); aggregator wca.tb"),
        (3, "needs a name or a table, not 3"),
    ],
    ids=str,
)
def test_wrong_specs_name_the_field_and_the_bound(spec: Any, sentence: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        aggregators.build(spec)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_components_are_frozen() -> None:
    for name in ("ta", "rounds_seen"):
        with pytest.raises(
            UsageError, match=rf"WCA\.{name} cannot be set: components are frozen .* next_state returns"
        ):
            setattr(WCA(), name, 1)


def test_no_such_kind() -> None:
    with pytest.raises(UsageError, match=r"no kind 'agregator'; did you mean 'aggregator'\? Known: dataset, model"):
        registry_of("agregator")


def test_a_registered_name_is_found_however_it_is_written() -> None:
    registry: Registry[Component] = Registry("thing", "fedwca.loggers")

    @registry("My-Thing")
    class Thing(Component):
        """A thing."""

    for name in ("My-Thing", "my_thing", "my-thing"):
        assert registry.get(name) is Thing
    assert Thing.name == "my_thing"
