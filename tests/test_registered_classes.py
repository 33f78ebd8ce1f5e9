"""Classes of components that do not fit are refused when they are made or registered."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
import pytest
from pydantic import Field

from fedwca.aggregators import aggregators
from fedwca.aggregators.wca import WCA
from fedwca.component import Component, code_digest
from fedwca.core.interfaces import Aggregator, Objective, PseudoLabeler
from fedwca.datasets import DatasetSource
from fedwca.errors import InvalidConfig, UnknownComponent, UsageError
from fedwca.loggers import Logger
from fedwca.partitions import Partition
from fedwca.registry import Registry
from fedwca.runs.log_to import build_loggers


@pytest.mark.parametrize(
    ("base", "name", "value", "sentence"),
    [
        (Aggregator, "references", "everyone", r"'everyone'; right is tuple[str, ...], such as ('everyone',)"),
        (Aggregator, "reports", {"alpha": (1,)}, "{'alpha': (1,)}; right is Mapping[str, Simplex | Bounded]"),
        (Aggregator, "label", 3, "3; right is str"),
        (PseudoLabeler, "models", "start", "'start'; right is tuple[str, ...], such as ('start',)"),
        (Objective, "views", ("loud",), "('loud',); right is tuple[Literal['plain', 'weak', 'strong'], ...]"),
    ],
)
def test_class_variables_have_their_types(base: type[Component], name: str, value: Any, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        type("Odd", (base,), {"__module__": "a", name: value})
    assert str(caught.value) == f"Odd.{name} is {sentence}"


def test_class_variables_may_be_lists_and_properties() -> None:
    class Listed(PseudoLabeler):
        models = ["start", "cluster"]  # type: ignore[assignment]

    class Late(Objective):
        @property
        def adapts(self) -> bool:  # type: ignore[override]
            """Depends on a field."""
            return True

    class Counted(DatasetSource):
        image_counts = MappingProxyType({"photo": np.int64(3)})  # type: ignore[assignment]

    assert (Listed.models, isinstance(Late.adapts, property)) == (["start", "cluster"], True)
    assert Counted.image_counts == {"photo": 3}


def test_a_name_belongs_to_one_class() -> None:
    registry: Registry[Component] = Registry("thing", "fedwca.objectives")
    registry("thing")(type("One", (Component,), {"__module__": "a"}))
    with pytest.raises(UsageError, match=r"thing 'thing' is already a\.One"):
        registry("thing")(type("Two", (Component,), {"__module__": "b"}))


def test_what_a_component_is_called_is_not_its_subclass() -> None:
    registry: Registry[Component] = Registry("thing", "fedwca.loggers")

    @registry("parent")
    class Parent(Component):
        """A published thing."""

        label = "Parent"
        paper = "Someone 2020"

    class Nameless(Parent):
        """A thing of one's own, without a name."""

    with pytest.raises(InvalidConfig, match=r"thing .*Nameless has no name; put @register\(NAME\) above the class"):
        registry.parse(Nameless())
    own = registry("own")(type("Own", (Nameless,), {"__module__": "a"}))
    assert (own.name, own.label, own.paper) == ("own", "", "")
    assert registry("titled")(type("Titled", (Parent,), {"__module__": "a", "label": "Titled"})).label == "Titled"
    assert (Parent.name, Parent.label, Parent.paper) == ("parent", "Parent", "Someone 2020")


def test_code_that_is_written_after_the_class_was_made_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "rewritten.py"
    file.write_text("from fedwca.aggregators.wca import WCA\nclass Own(WCA):\n    pass\n")
    own = importlib.import_module("rewritten").Own
    before = code_digest(own)
    file.write_text(f"{file.read_text()}    # changed\n")
    assert code_digest(own) == before
    assert code_digest(type("Mine", (own,), {"__module__": "rewritten"})) != before


def test_no_two_classes_that_were_typed_in_share_code() -> None:
    """As in a notebook, where a cell is changed and run again under the same name."""
    cell = "from fedwca.aggregators.wca import WCA\nclass Own(WCA):\n    pass\n"
    cells: list[dict[str, Any]] = [{"__name__": "typed_in"}, {"__name__": "typed_in"}]
    for namespace in cells:
        exec(cell, namespace)
    first, second = (code_digest(namespace["Own"]) for namespace in cells)
    assert first != second
    assert code_digest(cells[0]["Own"]) == first


@pytest.mark.parametrize(
    ("base", "name", "close"),
    [
        (Aggregator, "gathr", "gather"),
        (Aggregator, "next_sate", "next_state"),
        (Objective, "colect", "collect"),
        (Objective, "upload_bound", "upload_bounds"),
        (WCA, "deliverd", "deliver"),
        (Aggregator, "gather_all", None),
        (Aggregator, "_gathr", None),
        (WCA, "offered", None),
        (DatasetSource, "read_published", None),
    ],
)
def test_a_method_with_nearly_the_name_of_one_that_keeps_its_default_is_warned_of(
    base: type, name: str, close: str | None
) -> None:
    def define() -> type:
        members = {name: lambda self: None, "__module__": __name__}
        return type(base)("Mine", (base,), members | ({"offer": base.offer} if name == "offered" else {}))  # type: ignore[attr-defined, no-any-return]

    if close is None:
        define()
        return
    with pytest.warns(UserWarning, match=rf"Mine\.{name} is nearly {close}, whose default runs; rename it"):
        mine = define()
    type(base)("Other", (mine,), {"__module__": __name__})  # is not told again of what it inherits


def test_a_method_that_a_mixin_overrides_keeps_no_default() -> None:
    class Mixin:
        gather = Aggregator.gather

    type(Aggregator)("Mine", (Mixin, Aggregator), {"gathers": lambda self: None, "__module__": __name__})


def test_an_instance_of_a_class_without_a_name_is_told_how_to_get_one() -> None:
    class Nameless(WCA):
        name = ""

    message = r"Nameless has no name; put @register\(NAME\) above the class, after `from fedwca.aggregators import reg"
    for take in (aggregators.parse, aggregators.build):
        with pytest.raises(InvalidConfig, match=message):
            take(Nameless())


def test_an_instance_of_a_class_whose_name_is_anothers_is_refused() -> None:
    class Renamed(WCA):
        name = "fedavg"

    class Unregistered(WCA):
        name = "unregistered"

    assert aggregators.build(wca := WCA(ta=0.5)) is wca
    message = r"aggregator 'fedavg' is fedwca\.aggregators\.fedavg\.FedAvg, not .*Renamed; put @register with another"
    with pytest.raises(InvalidConfig, match=message):
        aggregators.build(Renamed())
    with pytest.raises(UnknownComponent, match=r"no aggregator 'unregistered'"):
        aggregators.build(Unregistered())


def test_a_logger_without_a_name_is_refused_before_a_run() -> None:
    class Lines(Logger):
        """A logger that is not registered, so resuming would not find it."""

        def open(self, run: Path, config: Any) -> Any: ...

    with pytest.raises(InvalidConfig, match=r"logger .*Lines has no name; put @register\(NAME\) above the class"):
        build_loggers([Lines()])


@pytest.mark.filterwarnings("ignore:Field name .name. in .Mine. shadows an attribute in parent")
@pytest.mark.parametrize("field", ["kind", "name"])
def test_a_field_under_which_results_have_something_else_is_refused(field: str) -> None:
    with pytest.raises(UsageError, match=rf"Mine\.{field} is a field, and results name a part so; call it otherwise"):
        type(WCA)("Mine", (WCA,), {"__annotations__": {field: str}, field: "cosine", "__module__": __name__})


def test_a_partition_states_its_setting() -> None:
    partitions: Registry[Partition] = Registry("partition", "fedwca.loggers", states=("setting", "default_baseline"))

    class Whole(Partition):
        """Everything to everybody."""

        setting = "ffreeda"

    with pytest.raises(UsageError, match=r"partition 'whole' \(.*Whole\) lacks default_baseline"):
        partitions("whole")(Whole)


@pytest.mark.parametrize("name", ["my agg", "a:b", "a.b", ""])
def test_a_name_that_no_spec_could_give_is_refused(name: str) -> None:
    registry: Registry[Component] = Registry("thing", "fedwca.loggers")
    with pytest.raises(UsageError, match=rf"thing '{name}' \(Component\): a name is of letters a-z, digits, _ and -"):
        registry(name)(Component)


def test_a_default_that_its_own_field_refuses_is_refused() -> None:
    registry: Registry[Component] = Registry("thing", "fedwca.loggers")

    @registry("thing")
    class Thing(Component):
        """A thing."""

        share: Annotated[float, Field(le=1)] = 3

    with pytest.raises(InvalidConfig, match=r"thing thing\.share: Input should be less than or equal to 1 \(given 3\)"):
        registry.build("thing")


@pytest.mark.parametrize(
    ("method", "taken", "right"),
    [
        (lambda self, predictions: 0, "self, predictions", "self, predictions, draws"),
        (lambda predictions, draws: 0, "predictions, draws", "self, predictions, draws"),
        (lambda self, **given: 0, "self, **given", "self, predictions, draws"),
        (lambda self, a, b, *, c: 0, "self, a, b, *, c", "self, predictions, draws"),
        (staticmethod(lambda self, a, b: 0), "self, a, b", "predictions, draws"),
        (classmethod(lambda cls, a: 0), "cls, a", "cls, predictions, draws"),
    ],
)
def test_a_method_with_other_parameters_is_refused(method: Any, taken: str, right: str) -> None:
    with pytest.raises(UsageError) as caught:
        type("Mine", (PseudoLabeler,), {"__call__": method, "__module__": "mine"})
    assert str(caught.value) == f"Mine.__call__ takes ({taken}); right is ({right})"


def test_parameters_are_compared_in_mixins_and_with_defaults_of_what_is_overridden() -> None:
    class Sized:
        def load(self, size: int) -> None: ...

    for bases, methods, taken in [
        ((DatasetSource,), {"load": lambda self: 0}, "self"),
        ((Sized, DatasetSource), {}, "self, size"),
    ]:
        with pytest.raises(UsageError, match=rf"Mine\.load takes \({taken}\); right is \(self, size=32\)"):
            type("Mine", bases, {**methods, "__module__": "mine"})


def test_a_method_in_place_of_a_property_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Mine\.mixes is a method; right is a property, so write @property above it"):
        type("Mine", (PseudoLabeler,), {"mixes": lambda self: False, "__module__": "mine"})


def _gives_first(method: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator whose wrapper takes less than the function inside."""

    @functools.wraps(method)
    def wrapper(self: Any, predictions: Any, draws: Any) -> Any:
        return method(self, 0, predictions, draws)

    return wrapper


@pytest.mark.parametrize(
    "method",
    [
        lambda self, *given: 0,
        lambda self, a, b: 0,
        lambda self, a, b, c=1, *, d=2, **more: 0,
        staticmethod(lambda a, b: 0),
        classmethod(lambda cls, a, b: 0),
        functools.lru_cache(lambda self, a, b: 0),
        _gives_first(lambda self, first, a, b: first),
    ],
)
def test_parameters_may_have_other_names_and_more_may_have_defaults(method: Any) -> None:
    members = {"__call__": method, "mixes": functools.cached_property(lambda self: False), "__module__": "mine"}
    made = type("Mine", (PseudoLabeler,), members)()
    assert (made(1, 2), made.mixes) == (0, False)
