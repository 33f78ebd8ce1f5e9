"""Of an error inside a plugin, the component, file and line are found; of one inside fedwca, none are."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from fedwca.clusterers.single import Single
from fedwca.core.messages import Predictions, Signatures, Targets
from fedwca.errors import FedwcaError, UsageError
from fedwca.pseudo_labelers.argmax import Argmax
from fedwca.runs.failed_part import find_failed_part, naming_failed_part


class Broken(Single):
    """A clusterer that fails when it is called."""

    name = "broken"

    def __call__(self, signatures: Signatures) -> object:  # type: ignore[override]
        """Raise a KeyError."""
        return {}["boom"]


class Misspelt(Single):
    """A clusterer that reads a field which it has not."""

    name = "misspelt"

    def __call__(self, signatures: Signatures) -> object:  # type: ignore[override]
        """Raise an AttributeError, inside pydantic."""
        return self.nosuch  # type: ignore[attr-defined]


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


def test_the_line_is_the_plugins_own_and_not_pydantics() -> None:
    part = find_failed_part(caught(Misspelt()))
    assert part is not None
    assert part.startswith("clusterer 'misspelt' (test_failed_part.py:")


def test_a_plugin_is_named_where_an_inherited_method_fails() -> None:
    part = find_failed_part(caught(Derived()))
    assert part is not None
    assert part.startswith("clusterer 'derived' (single.py:")


def test_a_component_of_fedwca_is_not_named() -> None:
    assert find_failed_part(caught(Single())) is None


class Unnamed(Argmax):
    """Reads a model that it does not name."""

    name = "unnamed"
    read: str = "cluster"

    def __call__(self, predictions: Mapping[str, Predictions], draws: Tensor) -> Targets:
        """Labels of the cluster's model."""
        return Targets.of_labels(predictions[self.read].logits.argmax(-1))


class Wordless(Argmax):
    """Raises an error without a word."""

    name = "wordless"

    def __call__(self, predictions: Mapping[str, Predictions], draws: Tensor) -> Targets:
        """Raise a KeyError."""
        raise KeyError


def test_an_exception_of_a_plugin_becomes_one_sentence_with_its_cause() -> None:
    with (
        pytest.raises(
            FedwcaError, match=r"clusterer 'broken' \(test_failed_part.py:\d+\) raised KeyError: 'boom'$"
        ) as caught,
        naming_failed_part(),
    ):
        Broken()(None)  # type: ignore[arg-type]
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(KeyError), naming_failed_part():
        raise KeyError("fedwca's own")
    with pytest.raises(UsageError, match="as it is"), naming_failed_part():
        raise UsageError("as it is")


class Unmade(Argmax):
    """Does not make its fields."""

    name = "unmade"
    share: float = 0.5

    def __init__(self) -> None:
        """Leave out the base class's."""


def test_fields_that_a_parts_own_init_did_not_make_are_explained() -> None:
    with (
        pytest.raises(FedwcaError, match=r"has no attribute 'renew' \(its __init__ must call super\(\)\."),
        naming_failed_part(),
    ):
        _ = Unmade().renew


def test_a_model_that_was_not_declared_is_explained() -> None:
    with (
        pytest.raises(
            FedwcaError, match=r"KeyError: 'cluster' \(a model or view that it reads must be named in models\)"
        ),
        naming_failed_part(),
    ):
        Unnamed()({}, torch.zeros(0))
    with pytest.raises(FedwcaError, match=r"raised KeyError: 'its own'$"), naming_failed_part():
        Unnamed(read="its own")({}, torch.zeros(0))
    with pytest.raises(FedwcaError, match=r"raised KeyError$"), naming_failed_part():
        Wordless()({}, torch.zeros(0))
