"""Modules that have moved, by their old names."""

import importlib

import pytest

from fedwca._deprecated import MODULES


@pytest.mark.parametrize("old", MODULES)
def test_a_module_that_moved_forwards_and_says_where_it_is_now(old: str) -> None:
    new, renamed = MODULES[old]
    module, target = importlib.import_module(old), importlib.import_module(new)
    public = {name: name for name in vars(target) if name[0] != "_" and name not in renamed.values()}
    for name, now in {**public, **renamed}.items():
        home, _, now = now.rpartition(".")
        with pytest.warns(FutureWarning, match=f"{old} is now {home or new}; the old name goes in fedwca"):
            found = getattr(module, name)
        assert found is getattr(importlib.import_module(home) if home else target, now)


def test_what_never_was_is_not_there() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"fedwca\.kind'"):
        importlib.import_module("fedwca.kind")
    module = importlib.import_module("fedwca.kinds")
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        module.Nothing  # noqa: B018
