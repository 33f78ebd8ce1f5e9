"""Modules that have moved, by their old names."""

import importlib
from pathlib import Path

import pytest

from fedwca._deprecated import MEMBERS, MODULES
from fedwca.core.architecture import Architecture
from fedwca.core.backbone import Backbone
from fedwca.core.interfaces import Aggregator, Objective
from fedwca.datasets import DatasetSource
from fedwca.errors import UsageError
from fedwca.loggers import Logger


@pytest.mark.parametrize("old", MODULES)
def test_a_module_that_moved_forwards_and_says_where_it_is_now(old: str) -> None:
    new, renamed = MODULES[old]
    module, target = importlib.import_module(old), importlib.import_module(new)
    public = {name: name for name in vars(target) if name[0] != "_" and name not in renamed.values()}
    for name, now in {**public, **renamed}.items():
        new_module, _, now = now.rpartition(".")
        with pytest.warns(FutureWarning, match=f"{old} is now {new_module or new}; the old name goes in fedwca"):
            attribute = getattr(module, name)
        assert attribute is getattr(importlib.import_module(new_module) if new_module else target, now)


@pytest.mark.parametrize(
    "code",
    [
        "import fedwca; fedwca.find",
        "from fedwca import find",
        "from fedwca.functional import strong",
        "from fedwca.core.network import Architecture",
    ],
)
def test_the_warning_points_to_the_line_with_the_old_name(code: str) -> None:
    with pytest.warns(FutureWarning, match="the old name goes in fedwca") as caught:
        exec(compile(code, "user.py", "exec"))
    assert {Path(warning.filename).name for warning in caught} == {"user.py"}


@pytest.mark.parametrize(
    ("module", "name", "new"),
    [
        ("fedwca.federated.round", "OpenRound", "fedwca.federated.open_round.OpenRound"),
        ("fedwca.federated.round", "sample_clients", "fedwca.federated.participation.sample_clients"),
        ("fedwca.federated.source_model", "TrainedSource", "fedwca.federated.source_model.StartModel"),
    ],
)
def test_names_that_warnings_of_0_1_0_gave_as_new_still_work(module: str, name: str, new: str) -> None:
    with pytest.warns(FutureWarning, match=f"{module}.{name} is now {new}; the old name goes in fedwca"):
        attribute = getattr(importlib.import_module(module), name)
    new_module, _, new_name = new.rpartition(".")
    assert attribute is getattr(importlib.import_module(new_module), new_name)


def test_what_never_was_is_not_there() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"fedwca\.kind'"):
        importlib.import_module("fedwca.kind")
    module = importlib.import_module("fedwca.kinds")
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        module.Nothing  # noqa: B018


BASES: tuple[type, ...] = (Aggregator, Objective, DatasetSource, Architecture, Backbone, Logger)


@pytest.mark.parametrize("base", BASES)
def test_a_component_that_uses_an_old_name_is_told_the_new_one(base: type) -> None:
    for old, new in MEMBERS[base.__name__].items():
        assert hasattr(base, new) or new in base.__annotations__, new
        assert not hasattr(base, old), old
        for value in (False, lambda self: None):
            with pytest.raises(UsageError, match=rf"Mine\.{old} has been called {new} since fedwca 0\.2"):
                type(base)("Mine", (base,), {old: value, "__module__": __name__})


def test_a_field_may_have_an_old_name() -> None:
    class Mine(Objective):
        declares: float = 0.5

    assert {base.__name__ for base in BASES} == MEMBERS.keys()
    assert Mine.model_fields["declares"].default == 0.5
