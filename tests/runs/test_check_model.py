"""A user's backbone that does not keep to its interface is refused before anything is trained."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedwca.core.architecture import Architecture
from fedwca.core.network import Backbone, Drop
from fedwca.deploy.make_deployment import DeployRequest, make_deployment
from fedwca.errors import FedwcaError, UsageError
from fedwca.models.lenet import LeNet
from fedwca.runs.check_model import check_model
from fedwca.runs.run_request import RunRequest
from tests.cli.conftest import call


class NormAndActivation(nn.BatchNorm1d):
    """A BatchNorm with a forward of its own."""

    def forward(self, x: Tensor) -> Tensor:
        """The normalized input, without what is below 0."""
        return torch.relu(super().forward(x))


class Still(nn.BatchNorm1d):
    """A BatchNorm that stays in evaluation mode."""

    def train(self, mode: bool = True) -> Still:
        """Set evaluation mode, whatever is asked for."""
        return super().train(False)


INNER: dict[str, nn.Module] = {
    "dropout": nn.Dropout(0.5),
    "no momentum": nn.BatchNorm1d(3, momentum=None),
    "no weights": nn.BatchNorm1d(3, affine=False),
    "no statistics": nn.BatchNorm1d(3, track_running_stats=False),
    "instances": nn.InstanceNorm2d(3, track_running_stats=True),
    "constant": nn.Linear(3, 3).requires_grad_(False),
    "own forward": NormAndActivation(3),
    "still": Still(3),
    "batch norm": nn.BatchNorm1d(3),
}


class Own(Backbone):
    """A backbone that gives the mean of each channel, or has one fault."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self.wrong, self.out_features = wrong, 7 if wrong == "width" else 3
        self.inner = INNER.get(wrong, nn.Identity())

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """Features ``[N, 3]``."""
        if self.wrong == "error":
            raise ValueError("boom")
        features = self.inner(x).mean((2, 3)) if self.wrong == "instances" else self.inner(x.mean((2, 3)))
        if self.wrong == "axes":
            return x
        return features.double() if self.wrong == "double" else features / (0 if self.wrong == "infinite" else 1)


class Stacked(Own):
    """A backbone that is batched by hand, and may have that wrong."""

    drops = (Drop(0.2, (3,)),)

    def __init__(self, wrong: str) -> None:
        super().__init__(wrong)
        self.scale = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """Scaled features ``[N, 3]``."""
        features = self.scale * x.mean((2, 3))
        return features * masks[0] if masks else features

    def forward_stacked(self, parameters: Mapping[str, Tensor], x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """The same ``[G, N, 3]``, or for all with the first backbone's scale or mask, without masks, or near it."""
        scale = parameters["scale"][:1] if self.wrong == "first" else parameters["scale"]
        features = scale[:, None] * x.mean((3, 4)) * (1.005 if self.wrong == "near" else 1)
        if masks and self.wrong != "no masks":
            features = features * (masks[0][:1] if self.wrong == "first mask" else masks[0])
        return features[0] if self.wrong == "flat" else features


class Mine(Architecture):
    """An architecture with that backbone."""

    name = "mine"
    wrong: str = ""
    stacked: bool = False

    def backbone(self) -> Backbone:
        """A backbone, or something else."""
        if self.wrong == "module":
            other: Any = nn.Linear(3, 3)
            return other  # type: ignore[no-any-return]
        backbone = Stacked(self.wrong) if self.stacked else Own(self.wrong)
        if self.wrong == "unsized":
            del backbone.out_features
        return backbone


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("width", "gives torch.float32 of shape (2, 3) for two images; right is torch.float32 of shape (2, 7)"),
        ("axes", "gives torch.float32 of shape (2, 3, 32, 32) for two images"),
        ("double", "gives torch.float64 of shape (2, 3) for two images"),
        ("infinite", "gives values that are not finite for two images"),
        ("dropout", "draws random numbers while it is trained, as nn.Dropout does"),
        *((name, "backbone.inner is BatchNorm1d without momentum, weights or") for name in list(INNER)[1:4]),
        (
            "own forward",
            "backbone.inner is NormAndActivation with a forward of its own, which the stacked engine would",
        ),
        ("still", "backbone.inner is Still that does not follow the model's train() and eval()"),
        ("instances", "backbone.inner is InstanceNorm2d with running statistics"),
        ("constant", "backbone.inner.weight has requires_grad=False, and clients would train it all the same"),
        ("error", "a pass over two images of 32×32 pixels raises ValueError: boom"),
    ],
)
def test_a_wrong_backbone_is_refused(wrong: str, said: str) -> None:
    with pytest.raises(FedwcaError) as error:
        check_model(Mine(wrong=wrong).build(4), "mine")
    assert str(error.value).startswith("model 'mine': ")
    assert said in str(error.value)


def test_a_frozen_backbone_may_have_constant_parts() -> None:
    class Frozen(Mine):
        def backbone(self) -> Backbone:
            """A backbone that is not trained."""
            backbone = super().backbone()
            backbone.frozen = True
            return backbone

    check_model(Frozen(wrong="constant").build(4), "mine")


@pytest.mark.parametrize(("wrong", "given"), [("module", "a Linear"), ("unsized", "a Own")])
def test_what_is_no_backbone_is_refused(wrong: str, given: str) -> None:
    with pytest.raises(
        UsageError, match=f"model 'mine': backbone gave {given}; right is a Backbone that sets out_feat"
    ):
        Mine(wrong=wrong).build(4)


@pytest.mark.parametrize(
    ("wrong", "given"),
    [
        ("first", "other features than its forward in eval mode"),
        ("near", "other features than its forward in eval mode"),
        ("no masks", "other features than its forward in training mode"),
        ("first mask", "other features than its forward in training mode"),
        ("flat", r"torch.float32 of shape \(2, 3\)"),
    ],
)
def test_a_backbone_that_is_batched_by_hand_gives_the_same(wrong: str, given: str) -> None:
    with pytest.raises(FedwcaError, match=f"model 'mine': forward_stacked of its backbone gives {given}"):
        check_model(Mine(wrong=wrong, stacked=True).build(4), "mine")


def test_forward_stacked_beside_batch_norm_is_refused() -> None:
    network = Mine(wrong="batch norm", stacked=True).build(4)
    with pytest.raises(
        FedwcaError, match=r"backbone\.inner is BatchNorm1d, whose running statistics forward_stacked is"
    ):
        check_model(network, "mine")


def test_a_right_model_is_left_as_it_was() -> None:
    for network in (Mine().build(4), Mine(wrong="batch norm").build(4), Mine(stacked=True).build(4), LeNet().build(4)):
        initial_state = {name: value.clone() for name, value in network.state_dict().items()}
        check_model(network, "x")
        assert network.training
        assert all(torch.equal(value, initial_state[name]) for name, value in network.state_dict().items())


def test_a_wrong_backbone_is_named_before_memory_is_estimated(
    shades: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LeNet, "backbone", lambda self: Own("width"))
    said = "model 'lenet': its backbone gives torch.float32 of shape (2, 3) for two images"
    refused = call(
        "bench", "--data", str(shades), "--model", "lenet", "--device", "cpu", "--out", str(tmp_path / "run")
    )
    assert (refused.code, said in refused.err) == (1, True)
    run = RunRequest({"data": shades, "model": "lenet", "device": "cpu"})
    with pytest.raises(FedwcaError, match=re.escape(said)):
        make_deployment(DeployRequest(tmp_path / "deployment", run, clients=4, insecure=True))
