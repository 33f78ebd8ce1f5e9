"""Checks of uploads, by hand; the simulation and a deployment make the same checks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedwca.core.messages import Bounded, Simplex
from fedwca.errors import Diverged, FedwcaError
from fedwca.federated.upload_checks import ExpectedUpload, Upload, check_uploads, finite_models, upload_problem

EXPECTED = ExpectedUpload(
    {"share": Simplex(2), "alpha": Simplex()}, 3, 2, {"o.x": Bounded((2,), 1.0), "o.rows": Bounded((2, 2), 1.0)}
)
GOOD = Upload(
    report={"share": torch.tensor([0.5, 0.5]), "alpha": torch.tensor([0.5, 0.25, 0.25])},
    label=torch.tensor([1]),
    collected={"o.x": torch.tensor([0.6, 0.8]), "o.rows": torch.eye(2)},
)


def test_an_upload_in_order() -> None:
    assert upload_problem(GOOD, EXPECTED) == ""
    assert upload_problem(Upload(), ExpectedUpload()) == ""


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (replace(GOOD, report={"share": torch.tensor([0.5, 0.5])}), "reports no alpha, which the aggregator declares"),
        (
            replace(GOOD, report={**GOOD.report, "more": torch.ones(1)}),
            "more is no report that the aggregator declares",
        ),
        (replace(GOOD, label=None), "chooses a cluster in a method where clients do not, or does not where they do"),
        (replace(GOOD, label=torch.tensor([2])), "chooses no cluster from 0 to 1"),
        (replace(GOOD, label=torch.tensor(1)), "chooses no cluster from 0 to 1"),
        (replace(GOOD, collected={}), "uploads no o.rows, o.x"),
        (
            replace(GOOD, collected={**GOOD.collected, "o.x": torch.tensor([3.0, 4.0])}),
            "o.x has a vector of length 5; right is at most 1",
        ),
        (
            replace(GOOD, collected={**GOOD.collected, "o.rows": torch.tensor([[0.0, 0.0], [3.0, 4.0]])}),
            "o.rows has a vector of length 5; right is at most 1",
        ),
        (replace(GOOD, collected={**GOOD.collected, "o.y": torch.ones(1)}), "o.y is declared by no objective"),
        (replace(GOOD, collected={**GOOD.collected, "\nx": torch.ones(1)}), "\\nx is declared by no objective"),
        (replace(GOOD, report={**GOOD.report, "\nx": torch.ones(1)}), "\\nx is no report that the aggregator declares"),
    ],
    ids=[
        *(
            "lacks",
            "undeclared",
            "no choice",
            "choice",
            "shape of choice",
            "no extra",
            "long",
            "a long row",
            "undeclared extra",
        ),
        *("line in an extra", "line in a report"),
    ],
)
def test_what_is_refused(bad: Upload, sentence: str) -> None:
    assert upload_problem(bad, EXPECTED) == sentence
    with pytest.raises(FedwcaError, match="client 1's upload is refused: ") as caught:
        check_uploads(torch.ones(3, 2), {0: GOOD, 1: bad}, EXPECTED)
    assert str(caught.value).endswith(sentence)


def test_a_simulation_takes_undeclared_values_of_its_own_type() -> None:
    collected = {name: value.double() for name, value in GOOD.collected.items()}
    upload = replace(GOOD, collected={**collected, "o.y": torch.ones(7)})
    assert "is torch.float64" in upload_problem(upload, EXPECTED)
    assert upload_problem(upload, replace(EXPECTED, undeclared=True, dtype=torch.float64)) == ""


def test_models_that_are_not_finite_are_named_by_client() -> None:
    bank = torch.ones(3, 2)
    bank[2, 1] = torch.inf
    check_uploads(bank, {0: GOOD, 1: GOOD}, EXPECTED)
    with pytest.raises(Diverged, match="client 2's model has values that are not finite"):
        check_uploads(bank, {0: GOOD, 2: GOOD}, EXPECTED)
    many = torch.ones(40, 2)
    many[35] = torch.nan
    with pytest.raises(Diverged, match="client 35's model has values that are not finite"):
        check_uploads(many, dict.fromkeys(range(40), GOOD), EXPECTED)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("size", [1, 33])
def test_one_value_that_is_not_finite_is_found_at_any_place(dtype: torch.dtype, value: float, size: int) -> None:
    models = torch.arange(size).to(dtype).expand(size, -1).clone().fill_diagonal_(value)
    assert not finite_models(models).any()
    assert finite_models(torch.zeros(2, size, dtype=dtype).neg()).all()
