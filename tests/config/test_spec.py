"""Methods that are given in one word, such as ``fedwca:ta=0.05/clusterer=finch``."""

from __future__ import annotations

import pytest

from fedwca.aggregators.fedavg import FedAvg
from fedwca.centrals.dan import Dan
from fedwca.centrals.pooled import Pooled
from fedwca.config.baselines import baseline_for, baseline_names
from fedwca.config.compose_methods import compose
from fedwca.config.describe_method import component_values
from fedwca.config.method_spec import parse_method
from fedwca.config.run_config import RunConfig
from fedwca.config.set_options import parse_set_options
from fedwca.errors import FedwcaError, InvalidConfig, UsageError
from fedwca.partitions.leave_one_out import LeaveOneOut


@pytest.mark.parametrize(
    "text",
    [
        "fedwca",
        "fedwca:ta=0.05,tb=1e-3",
        "fedwca/clusterer=finch:signature=2",
        "A-1=wca/objectives=shot+proximal:mu=0.1",
    ],
)
def test_a_word_reads_back(text: str) -> None:
    assert parse_method(text).text == text
    assert parse_method(parse_method(text).text) == parse_method(text)


def test_names_are_canonical_and_values_are_not_touched() -> None:
    spec = parse_method("My-Label=One-Hot:p=1e-3/Pseudo-Labeler=Two-Model:mu=1e-1")
    assert (spec.label, spec.head, spec.fields, spec.name) == ("My-Label", "one_hot", "p=1e-3", "my_label")
    assert spec.changes == {"pseudo_labeler": ("two_model:mu=1e-1",)}


@pytest.mark.parametrize("name", baseline_names())
def test_a_plain_name_is_the_baseline(name: str) -> None:
    (changed, _), (plain, _) = compose(RunConfig(baselines=(f"x={name}", name), composed=False))
    assert component_values(changed) == component_values(plain)
    assert (changed.name, changed.label.partition(",")[0], plain.name) == ("x", "x", name)


def test_changes_stand_in_for_the_heads_parts() -> None:
    changed = baseline_for(parse_method("fedavg/objective=proximal:mu=0.5+shot"))
    assert changed.objectives == ["proximal", "shot"]
    assert changed.components["objective"] == {"proximal": {"mu": "0.5"}}
    assert changed.label == "FedAvg (objectives=proximal:mu=0.5+shot)"
    assert baseline_for(parse_method("fedwca:ta=0.5")).components["aggregator"] == {"wca": {"ta": "0.5"}}
    # The baseline's file states u = 5; a component that replaces its part has its own default.
    assert baseline_for(parse_method("revised_fedwca")).components["aggregator"] == {"revised_wca": {"u": "5"}}
    assert "aggregator" not in baseline_for(parse_method("revised_fedwca/aggregator=revised_wca")).components


def test_a_central_method_stands_in_for_another() -> None:
    config = RunConfig(
        target="street", partition="leave_one_out", baselines=("DAN=dann/central=dan:lam=0.5", "pooled"), composed=False
    )
    (changed, rounds), (pooled, _) = compose(config)
    assert (changed.label, changed.central, rounds) == ("DAN", Dan(lam=0.5), 0)
    assert pooled.central == Pooled()
    with pytest.raises(
        UsageError, match=r"'scale=1' are fields of the central that another .*; write central=dan:scale"
    ):
        baseline_for(parse_method("dann:scale=1/central=dan"), LeaveOneOut)


def test_an_aggregator_alone_gets_the_default_parts() -> None:
    ((method, _),) = compose(RunConfig(baselines=("wca:ta=0.5",), composed=False))
    names = [part["name"] for part in component_values(method)]
    assert names == ["finch", "wca", "two_model", "shot"]


def test_a_run_without_a_composed_method_survives_json() -> None:
    config = RunConfig(baselines=("fedavg", "T=fedwca/clusterer=true"), composed=False)
    assert RunConfig.model_validate_json(config.model_dump_json()) == config
    assert [method.label for method, _ in compose(config)] == ["FedAvg", "T (ORACLE)"]
    with pytest.raises(UsageError, match="no method is left"):
        compose(RunConfig(baselines=(), composed=False))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("=fedavg", "needs a name"),
        ("fedwca/clusterer=", "part=component"),
        ("fedwca/colour=red", "no part 'colour'"),
        (
            "fedwca:ta=0.1/aggregator=wca",
            "'ta=0.1' are fields of the aggregator that another takes the place of; write ",
        ),
        ("fedwca:ta=-1", r"aggregator wca\.ta: Input should be greater than 0 \(given '-1'\)"),
        ("fedavg/clusterer=finch", "is not used"),
        ("fedavg/objective=shot+cross-entropy+Shot", "names 'shot' twice in its objectives"),
    ],
)
def test_mistakes_get_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises((FedwcaError, ValueError), match=sentence):
        compose(RunConfig(baselines=(text,), composed=False))


@pytest.mark.parametrize("text", ["fedavg.toml", "./mine.TOML", "baselines/sfda/dann.toml"])
def test_a_file_is_no_method(text: str) -> None:
    with pytest.raises(UsageError, match=r"needs a name, not a file; a file of settings goes to --config"):
        parse_method(text)
    assert parse_method("fedavg/aggregator=wca:file=a.toml").head == "fedavg"


def test_an_instance_is_no_method() -> None:
    with pytest.raises(UsageError, match=r"a method is a word, such as 'fedwca' or 'wca:ta=0\.05', not a FedAvg"):
        parse_method(FedAvg())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "names", "hint"),
    [
        ("mu", ["shot", "proximal"], "several are chosen; say objective.proximal.mu"),
        ("mu", ["proximal", "adapted"], "several are chosen; say objective.proximal.mu or objective.adapted.mu"),
        ("mux", ["shot", "proximal"], "there is no such field in shot or proximal"),
        ("mu", [], "it belongs to one by name; say objective.NAME.mu"),
    ],
)
def test_a_field_without_a_name_is_said_to_be_of_those_that_have_it(field: str, names: list[str], hint: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_set_options([(f"objective.{field}", "1")], {"objective": names})
    assert str(caught.value) == f"--set objective.{field}=1: {hint}"
