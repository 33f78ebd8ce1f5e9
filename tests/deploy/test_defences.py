"""Norm bounds, robust means, and the client's own clipping and noise."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fedwca.deploy.client import Client
from fedwca.deploy.defences import measure_statistics_shift, norm_outliers, robust_mean
from fedwca.deploy.in_process import run_in_process
from fedwca.deploy.privacy import Privacy
from fedwca.deploy.session import Session
from fedwca.deploy.wire_messages import Parcel
from fedwca.engine.parameter_layout import Layout, Slot
from fedwca.errors import FedwcaError

from .conftest import Federation


def test_robust_means_by_hand() -> None:
    rows = torch.tensor([[1.0, 8.0], [2.0, 7.0], [4.0, -500.0], [1000.0, 9.0]])
    assert robust_mean(rows, "median").tolist() == [3.0, 7.5]
    assert robust_mean(rows, "trimmed").tolist() == [3.0, 7.5]
    assert robust_mean(rows[:3], "median").tolist() == [2.0, 7.0]
    assert robust_mean(rows[:3], "trimmed").tolist() == [2.0, 7.0], "of three, one on each side"
    assert robust_mean(rows[:2], "trimmed").tolist() == [1.5, 7.5]


def flipped(session: Session, client: int) -> Callable[[int, Parcel], Parcel]:
    """A wire that multiplies one client's update by -10 and leaves its BatchNorm statistics alone."""

    def wire(number: int, parcel: Parcel) -> Parcel:
        if number != client:
            return parcel
        start = session.expected[client].starts[0]
        slots = {slot.name: slot.of(start) for slot in session.layout.parameters}
        model = {k: slots[k] - 10 * (t - slots[k]) if k in slots else t for k, t in parcel.models["model"].items()}
        return replace(parcel, models={"model": model})

    return wire


def test_a_norm_bound_refuses_what_moved_too_far(
    federation: Callable[..., Federation], caplog: pytest.LogCaptureFixture
) -> None:
    built = federation("fedavg")
    guarded, silent = built.session(norm_bound=3.0), built.session()
    run_in_process(guarded, built.clients(), 2, flipped(guarded, 1))
    run_in_process(silent, built.clients(), 2, lambda client, parcel: None if client == 1 else parcel)
    assert torch.equal(guarded.state.server.rows, silent.state.server.rows)
    assert "client 1 (client-1) refused: its update is" in caplog.messages[0]


def test_a_norm_bound_keeps_no_late_client_out(
    federation: Callable[..., Federation], caplog: pytest.LogCaptureFixture
) -> None:
    """It begins from the source model, so that its first update is longer than those of the others."""
    built = federation("one_hot")
    session = built.session(norm_bound=3.0, alone="warn")
    lengthened = flipped(session, 3)

    def wire(client: int, parcel: Parcel) -> Parcel:
        return lengthened(client, parcel) if client == 3 and parcel.round == 2 else parcel

    run_in_process(session, built.clients(), 4, wire, lambda round: [0, 1, 2] if round < 2 else [0, 1, 2, 3])
    assert session.state.samples[3]
    assert "refused" not in caplog.text


def test_weights_that_no_training_makes_are_refused_without_a_rule(
    federation: Callable[..., Federation], caplog: pytest.LogCaptureFixture
) -> None:
    built = federation("fedavg")
    open_to_all, silent = built.session(), built.session()

    def wire(client: int, parcel: Parcel) -> Parcel:
        model, name = parcel.models["model"], "backbone.conv1.weight"
        return replace(parcel, models={"model": {**model, name: model[name] * 1e30}}) if client == 1 else parcel

    run_in_process(open_to_all, built.clients(), 2, wire)
    run_in_process(silent, built.clients(), 2, lambda client, parcel: None if client == 1 else parcel)
    assert torch.equal(open_to_all.state.server.rows, silent.state.server.rows)
    assert "times as long as those it was sent" in caplog.messages[0]


def test_reports_that_sum_to_nearly_1_end_no_federation(federation: Callable[..., Federation]) -> None:
    built = federation("revised_wca:u=2,ta=1,tb=1")

    def wire(client: int, parcel: Parcel) -> Parcel:
        if client != 0 or not parcel.report:
            return parcel
        weights = {name: torch.zeros_like(value) for name, value in parcel.report.items()}
        for value in weights.values():
            value[-1] = 1.000095  # within the bound; a product of two is not
        return replace(parcel, report=weights)

    session = built.session()
    run_in_process(session, built.clients(), 4, wire)
    assert session.state.round == 4


def test_a_federation_of_one_client_is_trained(federation: Callable[..., Federation]) -> None:
    built = federation("fedavg")
    built.images = built.images[:1]
    session = built.session(clients=1)
    run_in_process(session, built.clients(), 2)
    assert session.state.round == 2
    assert not torch.equal(session.state.server.rows[0], session.state.server.source)


def test_a_round_that_norm_bound_cannot_compare_says_so(
    federation: Callable[..., Federation], caplog: pytest.LogCaptureFixture
) -> None:
    built = federation("fedavg")
    run_in_process(built.session(norm_bound=3.0), built.clients(), 1, lambda k, parcel: parcel if k < 2 else None)
    assert (
        "round 0: rule norm_bound takes 3 trained models and there are 2, so no update is held to it" in caplog.messages
    )


def test_a_norm_bound_is_of_statistics_too(
    federation: Callable[..., Federation], caplog: pytest.LogCaptureFixture
) -> None:
    built = federation("fedavg")
    guarded, silent = built.session(norm_bound=3.0), built.session()
    variances = [slot.name for slot in guarded.layout.statistics if slot.name.endswith("running_var")]

    def wire(client: int, parcel: Parcel) -> Parcel:
        wide = {name: parcel.models["model"][name] + 1e14 for name in variances}
        return replace(parcel, models={"model": {**parcel.models["model"], **wide}}) if client == 1 else parcel

    run_in_process(guarded, built.clients(), 2, wire)
    run_in_process(silent, built.clients(), 2, lambda client, parcel: None if client == 1 else parcel)
    assert torch.equal(guarded.state.server.rows, silent.state.server.rows)
    assert "client 1 (client-1) refused: its BatchNorm statistics moved" in caplog.messages[0]


def test_how_far_statistics_moved_by_hand() -> None:
    weights = [Slot("weight", (2,), 0)]
    statistics = [Slot("norm.running_mean", (2,), 2), Slot("norm.running_var", (2,), 4)]
    sent = torch.tensor([5.0, 5.0, 0.0, 0.0, 4.0, 4.0])
    moved = torch.tensor([9.0, 9.0, 4.0, 0.0, 4.0, 4.0])  # one mean by two deviations: sqrt(4 / 4)
    assert measure_statistics_shift(moved, sent, Layout(tuple(weights), tuple(statistics))) == pytest.approx(
        1, abs=1e-5
    )
    assert measure_statistics_shift(moved[:2], sent[:2], Layout(tuple(weights), ())) == 0
    assert norm_outliers({0: 0.1, 1: 0.1, 2: 2.9, 3: 6.0}, 3.0, least=1.0) == {3: 2.0}


@pytest.mark.parametrize(
    ("moves", "refused"),
    [([0, 0, 1], {}), ([0, 0, 0], {}), ([0, 0, 1, 2, 30], {4: 5.0}), ([1, 90], {}), ([0, 0, 1, 1e-6], {})],
    ids=["one moved", "none moved", "one moved too far", "too few", "a liar among two that moved"],
)
def test_the_norm_bound_is_by_the_models_that_moved(moves: list[float], refused: dict[int, float]) -> None:
    assert norm_outliers(dict(enumerate(moves)), 3.0) == refused


def test_a_median_is_hardly_moved(federation: Callable[..., Federation]) -> None:
    built = federation("fedavg:weighting=uniform")
    honest = built.simulated(1).rows[0]
    distances = {}
    for robust in ("mean", "median"):
        session = built.session(robust=robust)
        run_in_process(session, built.clients(), 1, flipped(session, 1))
        distances[robust] = float((session.state.server.rows[0] - honest)[: session.layout.trained].norm())
    assert distances["median"] < 0.3 * distances["mean"]


def test_clipping_and_noise() -> None:
    update = torch.full((400,), 2.0)
    assert float(Privacy(1.0)(update).norm()) == pytest.approx(1.0)
    assert torch.equal(Privacy(1e3)(update), update)
    with pytest.raises(FedwcaError, match="not finite cannot be clipped"):
        Privacy(1.0)(torch.tensor([float("nan"), 100.0]))
    noisy = Privacy(1.0, 0.5)(update)
    assert 0.4 < float((noisy - Privacy(1.0)(update)).std()) < 0.6
    assert not torch.equal(noisy, Privacy(1.0, 0.5)(update))
    many = Privacy(1.0)(torch.full((20_000_000,), 1.0)).double()  # in float32 their squares add up to too little
    assert float(many.norm()) == pytest.approx(1.0, rel=1e-5)


def test_all_noise_is_of_secret_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    random_bytes, zeros = os.urandom(8 * 400), torch.zeros(20, 20)
    counts: list[int] = []

    def draw(count: int) -> bytes:
        counts.append(count)
        return random_bytes

    # A seed would not be secret enough: torch's generator keeps 32 bits of it, few enough to try them all.
    monkeypatch.setattr(secrets, "token_bytes", draw)
    noise = Privacy(2.0, 0.5)(zeros)
    assert counts == [len(random_bytes)]
    assert torch.equal(noise, Privacy(2.0, 0.5)(zeros))
    changed = random_bytes[:-4] + bytes(255 - byte for byte in random_bytes[-4:])
    monkeypatch.setattr(secrets, "token_bytes", lambda count: changed)
    assert torch.nonzero((noise != Privacy(2.0, 0.5)(zeros)).flatten()).tolist() == [[399]]


@pytest.mark.parametrize("byte", [b"\0", b"\xff"])
def test_noise_is_always_finite(monkeypatch: pytest.MonkeyPatch, byte: bytes) -> None:
    monkeypatch.setattr(secrets, "token_bytes", lambda count: byte * count)
    assert 8 < float(Privacy(1.0, 1.0)(torch.zeros(1)).abs()) < 9


def test_noise_is_normal() -> None:
    noise = Privacy(1.0, 1.0)(torch.zeros(100_000)).double()
    assert abs(float(noise.mean())) < 0.02
    for deviations, share in ((1, 0.683), (2, 0.954)):
        assert float((noise.abs() < deviations).double().mean()) == pytest.approx(share, abs=0.01)


def test_noise_leaves_a_usable_model(federation: Callable[..., Federation]) -> None:
    built = federation("fedavg")
    session = built.session()
    clients = [Client(client.images, privacy=Privacy(1.0, 1.0)) for client in built.clients()]
    run_in_process(session, clients, 2)
    layout, rows = session.layout, session.state.server.rows
    assert bool(rows.isfinite().all())
    for slot in layout.statistics:
        if slot.name.endswith("running_var"):
            assert bool((slot.of(rows) >= 0).all())
