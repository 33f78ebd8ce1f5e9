"""Of an error inside a plugin, the component, file and line are found; of one inside fedwca, none are."""

from __future__ import annotations

from fedwca.cli.failed_part import find_failed_part
from fedwca.clusterers.single import Single
from fedwca.core.messages import Signatures


class Broken(Single):
    """A clusterer that fails when it is called."""

    name = "broken"

    def __call__(self, signatures: Signatures) -> object:  # type: ignore[override]
        """Raise a KeyError."""
        return {}["boom"]


class Derived(Single):
    """A clusterer that fails in what it inherits: without signatures there is no number of clients."""

    name = "derived"


def caught(part: Single) -> Exception:
    try:
        part(None)  # type: ignore[arg-type]
    except Exception as error:
        return error
    raise AssertionError("it did not fail")


def test_a_plugin_is_named() -> None:
    part = find_failed_part(caught(Broken()))
    assert part is not None
    assert part.startswith("clusterer 'broken' (test_failed_part.py:")


def test_a_plugin_is_named_where_an_inherited_method_fails() -> None:
    part = find_failed_part(caught(Derived()))
    assert part is not None
    assert part.startswith("clusterer 'derived' (single.py:")


def test_a_component_of_fedwca_is_not_named() -> None:
    assert find_failed_part(caught(Single())) is None
