"""Clients that say once whether their labels are trusted, and upload moments to be clustered by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedwca.clusterers.ada_bn import AdaBN
from fedwca.core.interfaces import Clusterer
from fedwca.core.messages import Signatures
from fedwca.core.network import Network
from fedwca.data.federation import ClientImages
from fedwca.deploy import server_round
from fedwca.deploy.client import Client
from fedwca.deploy.deployable_checks import check_noise_coverage
from fedwca.deploy.in_process import run_in_process
from fedwca.deploy.privacy import Privacy
from fedwca.deploy.state_files import resume_session, save_session
from fedwca.deploy.wire_messages import MOMENTS, Parcel
from fedwca.engine.parameter_layout import Layout
from fedwca.errors import UsageError
from fedwca.functional import mutual_information
from fedwca.objectives.strong_views import StrongViews
from fedwca.pseudo_labelers.trusted import Trusted

from .conftest import Federation, composed


def trust(network: Network, images: list[ClientImages]) -> Tensor:
    """The mutual information of the source model's outputs on each client, by which it is trusted ``[K]``."""
    network.eval()
    with torch.no_grad():
        return torch.stack(
            [mutual_information(network(network.prepare(client_images.train))[0].double()) for client_images in images]
        )


@pytest.fixture
def gated(network: Network, images: list[ClientImages]) -> Federation:
    """A federation of four clients, two of them trusted; clusters are by moments."""
    least = float(trust(network, images).sort().values[1:3].mean())
    method = replace(
        composed("one_hot"), pseudo_labeler=Trusted(least=least), objectives=(StrongViews(),), clusterer=AdaBN()
    )
    return Federation(method, network, images, {})


@pytest.mark.parametrize("robust", ["mean", "median"])
def test_who_does_not_train_takes_what_others_trained(gated: Federation, robust: str) -> None:
    trust_values = trust(gated.network, gated.images)
    least_trusted = int(trust_values.argmin())

    class LeastTrustedAlone(Clusterer):
        def __call__(self, signatures: Signatures) -> Tensor:
            return one_hot(torch.tensor(least_trusted), 4)

    def play(untrained: str) -> Tensor:
        labeler = Trusted(least=float(trust_values.sort().values[:2].mean()), untrained=untrained)  # type: ignore[arg-type]
        federation = replace(gated, method=replace(gated.method, pseudo_labeler=labeler, clusterer=LeastTrustedAlone()))
        session = federation.session(alone="warn", robust=robust)
        run_in_process(session, federation.clients(), 3)
        if robust == "mean":
            assert torch.allclose(session.state.server.rows, federation.simulated(3).rows, atol=1e-5)
        return session.state.server.rows

    trained = Layout.of(gated.network).trained
    source, mean = play("source"), play("mean")
    assert torch.equal(source[0], mean[0])
    assert not torch.allclose(source[1, :trained], mean[1, :trained], atol=1e-4)
    assert torch.allclose(mean[1, :trained], mean[0, :trained], atol=1e-6)
    assert not torch.allclose(mean[1, trained:], mean[0, trained:], atol=1e-4)


def test_same_models_as_the_engine(gated: Federation) -> None:
    session, clients = gated.session(), gated.clients()
    uploads: list[Parcel] = []
    run_in_process(session, clients, 3, lambda client, parcel: uploads.append(parcel) or parcel)  # type: ignore[func-returns-value]
    expected = gated.simulated(3)
    assert int(expected.state["trusted"].sum()) == 2
    assert torch.equal(session.state.server.state["trusted"], expected.state["trusted"])
    assert torch.equal(session.state.server.state["labels"], expected.state["labels"])
    assert torch.allclose(session.state.server.rows, expected.rows, atol=1e-5)
    # Moments of 16 features and a bit, once.
    assert [parcel.beside[MOMENTS].shape for parcel in uploads[:4]] == [(32,)] * 4
    assert not any(parcel.beside for parcel in uploads[4:])
    assert [parcel.notes["trusted"] for parcel in uploads[:4]] == expected.state["trusted"].int().tolist()
    assert not any("trusted" in parcel.notes for parcel in uploads[4:])


@pytest.mark.parametrize(
    ("forge", "sentence"),
    [
        (lambda p: replace(p, beside={}), "uploads no clusterer.moments"),
        (lambda p: replace(p, beside={MOMENTS: 1e3 + p.beside[MOMENTS]}), "right is at most 566"),
        (lambda p: replace(p, beside={MOMENTS: p.beside[MOMENTS][:-1]}), "right is torch.float32 of (32,)"),
        (lambda p: replace(p, notes={**p.notes, "trusted": 7}), "says 7 of how far its labels are trusted; right is"),
    ],
)
def test_a_forged_answer_is_refused(gated: Federation, forge, sentence: str) -> None:  # type: ignore[no-untyped-def]
    session, (client, *_) = gated.session(), gated.clients()
    session.admit("client-0", 0)
    assert sentence in session.receive(0, forge(client.handle(session.open([0])[0])))


def test_who_comes_late_says_it_then_and_is_placed_by_moments(gated: Federation, tmp_path) -> None:  # type: ignore[no-untyped-def]
    session, clients = gated.session(), gated.clients()
    run_in_process(session, clients[:3], 1, available=lambda round: range(3))
    save_session(session, tmp_path / "state.safetensors")
    session = gated.session()
    resume_session(session, tmp_path / "state.safetensors")
    run_in_process(session, clients, 3, available=lambda round: range(4))
    server = session.state.server
    assert server.state["trusted"].tolist() == gated.simulated(1).state["trusted"].tolist()
    assert bool(torch.isfinite(server.rows).all())
    assert all(client.final is not None for client in clients)


@pytest.mark.parametrize("untrusted", ["stop", "plain"])
def test_places_that_nobody_takes_are_not_trusted(gated: Federation, untrusted: str) -> None:
    rows = []
    for places in (4, 6):
        labeler = Trusted(least=2.0, untrusted=untrusted)  # type: ignore[arg-type]
        federation = replace(gated, method=replace(gated.method, pseudo_labeler=labeler))
        session = federation.session(clients=places)
        run_in_process(session, federation.clients(), 2)
        assert not torch.equal(session.state.server.rows[0], session.state.server.source)
        rows.append(session.state.server.rows)
    assert torch.equal(*rows)


@pytest.mark.parametrize("said", [1e9, float("nan"), "x", None])
def test_who_comes_late_to_one_mean_is_asked_too(gated: Federation, said: object) -> None:
    """Where no clusterer is needed, a late client starts from the mean; it must still say how far it is trusted."""
    built = replace(gated, method=replace(composed("fedavg"), pseudo_labeler=gated.method.pseudo_labeler))
    session, clients = built.session(), built.clients()
    run_in_process(session, clients[:3], 1, available=lambda round: range(3))

    def forge(client: int, parcel: Parcel) -> Parcel:
        return replace(parcel, notes={**parcel.notes, "trusted": said})

    last = built.session()
    last.resume(session.state)
    run_in_process(session, clients, 2, available=lambda round: range(4))
    assert session.state.server.state["trusted"].tolist() == built.simulated(1).state["trusted"].tolist()
    run_in_process(last, built.clients(), 2, lambda client, p: forge(client, p) if client == 3 else p)
    assert last.state.samples[3] == 0


def test_nobody_says_unasked_how_far_it_is_trusted(gated: Federation) -> None:
    built = replace(gated, method=composed("fedavg"))
    silent, loud = built.session(), built.session()
    run_in_process(silent, built.clients(), 2)
    run_in_process(loud, built.clients(), 2, lambda client, p: replace(p, notes={**p.notes, "trusted": "x"}))
    assert torch.equal(loud.state.server.rows, silent.state.server.rows)


def test_a_client_does_not_change_what_it_said(gated: Federation) -> None:
    session = gated.session()

    def wire(client: int, parcel: Parcel) -> Parcel:
        return replace(parcel, notes={**parcel.notes, "trusted": 1}) if parcel.round else parcel

    run_in_process(session, gated.clients(), 2, wire)
    assert int(session.state.server.state["trusted"].sum()) == 2


def test_noise_on_the_model_does_not_cover_moments(gated: Federation) -> None:
    built = replace(gated, method=replace(gated.method, pseudo_labeler=composed("one_hot").pseudo_labeler))
    session = built.session()
    session.admit("client-0", 0)
    images, parcel = gated.clients()[0].images, session.open([0])[0]
    for options in ({}, {"moment_privacy": Privacy(1.0)}):
        with pytest.raises(
            UsageError, match=r"moments to be grouped by.*; give --clip-moments and --noise-moments too"
        ):
            Client(images, privacy=Privacy(1.0, 0.5), **options).handle(parcel)
    answer = Client(images, privacy=Privacy(1.0, 0.5), moment_privacy=Privacy(1.0, 0.5)).handle(parcel)
    assert session.receive(0, answer) == ""
    clipped = Client(images, privacy=Privacy(1.0), moment_privacy=Privacy(1.0)).handle(parcel)
    assert float(clipped.beside[MOMENTS].norm()) == pytest.approx(1.0)


def test_moments_get_noise_alone(gated: Federation) -> None:
    session = gated.session()
    clients = [Client(client.images, moment_privacy=Privacy(2.0, 0.01)) for client in gated.clients()]
    uploads: list[Parcel] = []
    run_in_process(session, clients, 2, lambda client, parcel: uploads.append(parcel) or parcel)  # type: ignore[func-returns-value]
    sent = torch.stack([parcel.beside[MOMENTS] for parcel in uploads[:4]])
    plain = torch.stack([client.handle(first_parcel).beside[MOMENTS] for client, first_parcel in opened_by(gated)])
    shrunk = plain * (2.0 / plain.norm(dim=1, keepdim=True)).clamp_max(1)
    assert 0.01 < float((sent - shrunk).std()) < 0.03
    assert int(session.state.server.state["trusted"].sum()) == 2


def opened_by(gated: Federation) -> Iterator[tuple[Client, Parcel]]:
    """Clients without noise, each with its parcel of round 0."""
    session = gated.session()
    for number in range(4):
        session.admit(f"client-{number}", number)
    yield from zip(gated.clients(), session.open(range(4)).values(), strict=True)


def test_noise_does_not_cover_who_is_trusted(gated: Federation) -> None:
    method = replace(composed("fedavg"), pseudo_labeler=Trusted())
    federation = Federation(method, gated.network, gated.images, {})
    with pytest.raises(UsageError, match="with pseudo-labeler 'trusted' a client also uploads whether"):
        check_noise_coverage(federation.session().composition)


def test_a_clusterer_of_moments_must_name_its_layers(gated: Federation) -> None:
    class Silent(AdaBN):
        @property
        def norm_layers(self) -> None:
            return None

    built = replace(gated, method=replace(gated.method, clusterer=Silent()))
    with pytest.raises(UsageError, match="that it does not name in norm_layers"):
        built.session()


@pytest.mark.parametrize(
    ("heard", "groups", "kept"),
    [(4, [[0, 1, 2, 3]], "[0]"), (4, [[1, 3], [0, 2]], "[1]"), (3, [[0, 2], [1]], "[0, 1]")],
)
def test_a_cluster_with_a_single_trusted_client_keeps_its_parameters(
    gated: Federation,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    heard: int,
    groups: list[list[int]],
    kept: str,
) -> None:
    """The mean of the trusted clients would be that client's own model; statistics are those of all that were heard."""
    real = server_round.update_trusted

    def trust_client_0(*arguments: Any) -> torch.Tensor | None:
        trusted = real(*arguments)
        return None if trusted is None else torch.arange(len(trusted)) == 0

    monkeypatch.setattr(server_round, "update_trusted", trust_client_0)

    class Parted(Clusterer):
        def __call__(self, signatures: Signatures) -> Tensor:
            return torch.tensor([next(c for c, group in enumerate(groups) if k in group) for k in range(heard)])

    gated = replace(gated, method=replace(gated.method, clusterer=Parted()))
    session, layout = gated.session(), Layout.of(gated.network)
    trained, uploaded = layout.trained, {}

    def wire(client: int, parcel: Parcel) -> Parcel:
        uploaded[client] = torch.cat([parcel.models["model"][slot.name].flatten() for slot in layout.statistics])
        return parcel

    run_in_process(session, gated.clients(), 1, wire, available=lambda round: range(heard))
    server = session.state.server
    for row, group in zip(server.rows, groups, strict=True):
        mean = torch.stack([uploaded[client] for client in group]).mean(0)
        assert not torch.allclose(mean, server.source[trained:], atol=1e-3)
        # A single client's statistics are its own, as its model is.
        assert torch.allclose(row[trained:], mean if len(group) > 1 else server.source[trained:], atol=1e-6)
    row = server.rows[next(c for c, group in enumerate(groups) if 0 in group)]
    assert torch.equal(row[:trained], server.source[:trained])
    assert f"of clusters {kept} a single client's model counts; the cluster keeps its model" in caplog.text
