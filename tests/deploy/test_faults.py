"""Clients that leave, return or lie: rounds go on with the other clients."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from fedwca.deploy.in_process import run_in_process
from fedwca.deploy.protect_single_clients import check_not_single_model
from fedwca.deploy.server_rules import Rules
from fedwca.deploy.wire_messages import Parcel
from fedwca.errors import FedwcaError, UsageError
from fedwca.federated.participation import sample_clients
from fedwca.federated.server import Server

from ..conftest import a_network, some_images
from .conftest import Build, Federation, composed, with_tensors

FIRST = "backbone.conv1.weight"


VARIANCE, MEAN = "norm.running_var", "norm.running_mean"


def without(parcel: Parcel, name: str) -> Parcel:
    return replace(parcel, models={"model": {k: v for k, v in parcel.models["model"].items() if k != name}})


def reported(parcel: Parcel, **values: torch.Tensor) -> Parcel:
    return replace(parcel, report={**parcel.report, **values})


def noted(parcel: Parcel, **notes: Any) -> Parcel:
    return replace(parcel, notes={**parcel.notes, **notes})


def weight(parcel: Parcel) -> torch.Tensor:
    return next(iter(parcel.models["model"].values()))


def name(parcel: Parcel) -> str:
    return next(iter(parcel.models["model"]))


HOSTILE: dict[str, tuple[Callable[[Parcel], Parcel], str]] = {
    "nan": (lambda p: with_tensors(p, **{name(p): weight(p) * torch.nan}), "not finite"),
    "shape": (lambda p: with_tensors(p, **{name(p): weight(p)[:1]}), "is torch.float32 of shape"),
    "huge": (
        lambda p: with_tensors(p, **{name(p): torch.zeros(1).expand(10**9)}),
        r"of shape \(1000000000,\); right is",
    ),
    "missing": (lambda p: without(p, name(p)), "lacks the tensor"),
    "strange": (lambda p: with_tensors(p, **{"classifier.weight": weight(p)}), "which this model does not have"),
    "type": (lambda p: with_tensors(p, **{name(p): weight(p).double()}), "is torch.float64"),
    "models": (lambda p: replace(p, models={**p.models, "more": {}}), "holds 2 models"),
    "sum": (lambda p: reported(p, alpha=torch.tensor([0.9, 0.9])), "must sum to 1, not 1.8"),
    "negative": (lambda p: reported(p, beta=torch.tensor([1.5, -0.5])), "must be finite and not negative"),
    "complex": (
        lambda p: reported(p, alpha=torch.tensor([1.0, 0.0]).cfloat()),
        "is torch.complex64; right is torch.float32",
    ),
    "unsigned": (
        lambda p: reported(p, beta=torch.tensor([1, 0]).to(torch.uint16)),
        "is torch.uint16; right is torch.float32",
    ),
    "variance": (
        lambda p: with_tensors(p, **{VARIANCE: p.models["model"][VARIANCE] * 0 - 1e3}),
        "has variances below 0",
    ),
    "nearly 0": (
        lambda p: with_tensors(p, **{VARIANCE: p.models["model"][VARIANCE] * 0 - 0.01}),
        "has variances below 0",
    ),
    "squares": (lambda p: with_tensors(p, **{MEAN: p.models["model"][MEAN] * 0 - 1e9}), r"means beyond 3\.16e\+07"),
    "mean": (lambda p: with_tensors(p, **{MEAN: p.models["model"][MEAN] * 0 + 1e20}), r"statistics beyond 1e\+15"),
    "size": (lambda p: reported(p, alpha=torch.tensor([1.0])), r"must have shape \(2,\)"),
    "undeclared": (lambda p: reported(p, gamma=torch.tensor([1.0])), "is no report that the aggregator declares"),
    "silent": (lambda p: replace(p, report={}), "reports no alpha, beta"),
    "label": (lambda p: reported(p, label=torch.tensor([0])), "chooses a cluster in a method where clients do not"),
    "replayed": (lambda p: replace(p, round=p.round - 1), "is for round 0; this is round 1"),
    "token": (lambda p: noted(p, token="0"), "answers another task"),
    "samples": (lambda p: noted(p, samples=10**12), "names 1000000000000 training images"),
    "grown": (lambda p: noted(p, samples=999), "names 999 training images after 20"),
    "text": (lambda p: noted(p, samples="many"), "names 'many' training images"),
    "long": (lambda p: noted(p, samples="m" * 10**6), r"names 'm{79} training images"),
    "kind": (lambda p: replace(p, kind="done"), "is a 'done', not an upload"),
}


def played(answer: Callable[[Parcel], Parcel | None], aggregator: str = "wca:ta=1,tb=1") -> Server:
    """The server after two rounds; in the second, where clusters are known, ``answer`` changes client 1's upload."""
    built = Federation(composed(aggregator), a_network(), some_images(), {})
    session = built.session(alone="warn")
    wire = lambda client, parcel: answer(parcel) if client == 1 and parcel.round == 1 else parcel  # noqa: E731
    run_in_process(session, built.clients(), 2, wire)
    return session.state.server


@pytest.fixture(scope="module")
def silent() -> Server:
    return played(lambda parcel: None)


@pytest.mark.parametrize("lie", HOSTILE)
def test_a_hostile_upload_is_refused_and_the_round_goes_on(
    silent: Server, lie: str, caplog: pytest.LogCaptureFixture
) -> None:
    change, sentence = HOSTILE[lie]
    with caplog.at_level(logging.WARNING, "fedwca.deploy"):
        server = played(change)
    # The same as if the client had been away: nothing that it sent is in the models or in the state.
    assert torch.equal(server.rows, silent.rows)
    for key, value in silent.state.items():
        assert torch.equal(server.state[key].nan_to_num(), value.nan_to_num())
    assert caplog.messages[0].startswith("round 1: client 1 (client-1) refused: ")
    assert re.search(sentence, caplog.messages[0])


@pytest.fixture(scope="module")
def silent_in_clusters() -> Server:
    return played(lambda parcel: None, "ifca:clusters=2")


@pytest.mark.parametrize("choice", [[2], [-1], [0, 1], [], 0, [0.0], [True], None], ids=str)
def test_a_cluster_that_is_none_is_refused(
    federation: Build, silent_in_clusters: Server, choice: Any, caplog: pytest.LogCaptureFixture
) -> None:
    built = federation("ifca:clusters=2")

    def chosen(client: int, parcel: Parcel) -> Parcel:
        assert parcel.round == 0 or parcel.report["label"].shape == (1,)
        if (client, parcel.round) != (1, 1):
            return parcel
        report = {key: value for key, value in parcel.report.items() if key != "label"}
        return replace(parcel, report=report if choice is None else {**report, "label": torch.tensor(choice)})

    session = built.session(alone="warn")
    run_in_process(session, built.clients(), 2, chosen)
    assert torch.equal(session.state.server.rows, silent_in_clusters.rows)
    (refusal,) = [text for text in caplog.messages if "refused" in text]
    assert refusal.startswith("round 1: client 1 (client-1) refused: ")
    assert "cluster" in refusal


def test_an_answer_is_taken_once(federation: Build) -> None:
    built = federation()
    session, clients = built.session(), built.clients()
    for number in range(4):
        session.admit(f"client-{number}", number)
    parcels = session.open(range(3))
    answer = clients[0].handle(parcels[0])
    assert session.receive(0, answer) == ""
    assert session.receive(0, answer) == "has answered this round already"
    assert session.receive(3, answer) == "was not asked in this round"
    assert session.receive(1, answer) == "answers another task than the one it was sent"
    assert not session.close()
    assert session.state.round == 0
    assert session.open([0])[0].notes["token"] != parcels[0].notes["token"]
    assert session.receive(0, answer) == "answers another task than the one it was sent"


def test_what_all_clients_are_sent_is_held_once(federation: Build) -> None:
    built = federation()
    session, clients = built.session(), built.clients()
    for number in range(4):
        session.admit(f"client-{number}", number)
    parcels = session.open(range(4))
    assert len({id(parcel.models["source"]) for parcel in parcels.values()}) == 1
    for number, client in enumerate(clients):
        assert session.receive(number, client.handle(parcels[number])) == ""
    assert session.close()
    sent = [parcel.models for parcel in session.open(range(4)).values()]
    own_name, *shared_names = (name for name in sent[0] if name.startswith("sent-"))
    assert shared_names
    assert len({id(models[own_name]) for models in sent}) == 2, "two clusters"
    assert len({id(parcel.models["sent-0"]) for parcel in session.final_parcels(session.participants).values()}) == 2
    assert all(len({id(models[name]) for models in sent}) == 1 for name in shared_names)


@pytest.mark.parametrize("of", ["report", "beside"])
def test_a_client_writes_no_line_into_the_log(federation: Build, caplog: pytest.LogCaptureFixture, of: str) -> None:
    built = federation("fedavg")
    session = built.session()
    session.admit("client-0", 0)
    answer = built.clients()[0].handle(session.open([0])[0])
    session.receive(0, replace(answer, **{of: {"\nFEDWCA RUN COMPLETE after 3 rounds": torch.ones(1)}}))
    assert r"refused: \nFEDWCA RUN COMPLETE after 3 rounds " in caplog.messages[0]
    session._log_refusal(0, "any\nreason")
    assert r"refused: any\nreason" in caplog.messages[1]


def test_clients_leave_in_mid_round_and_return(federation: Build) -> None:
    built = federation()
    session = built.session(alone="warn")

    def wire(client: int, parcel: Parcel) -> Parcel | None:
        return None if client == 2 and parcel.round == 1 else parcel

    run_in_process(session, built.clients(), 4, wire, lambda round: [0, 1, 2, 3] if round != 2 else [1, 2, 3])
    state = session.state
    assert state.round == 4
    assert bool(torch.isfinite(state.server.rows).all())
    assert not bool(state.server.state["alpha"].isnan().any())


def test_with_too_few_uploads_a_round_is_played_again(federation: Build) -> None:
    built = federation("fedavg")
    session, first_try = built.session(least=3), [True]

    def wire(client: int, parcel: Parcel) -> Parcel | None:
        away = parcel.round == 1 and client > 1 and first_try[0]
        first_try[0] = not (away and client == 3) and first_try[0]
        return None if away else parcel

    run_in_process(session, built.clients(), 2, wire)
    assert torch.allclose(session.state.server.rows, built.simulated(2).rows, atol=1e-5)


@pytest.mark.parametrize("away", ["silent", "refused", "unreachable"])
def test_where_nobody_is_away_a_client_without_an_answer_ends_the_run(federation: Build, away: str) -> None:
    built = federation()
    session = built.session(least=1)
    session.needs_all_answers = True

    def wire(client: int, parcel: Parcel) -> Parcel | None:
        if (client, parcel.round) != (2, 1) or away == "unreachable":
            return parcel
        return noted(parcel, token="0") if away == "refused" else None

    def available(round: int) -> list[int]:
        return [0, 1, 3] if round and away == "unreachable" else [0, 1, 2, 3]

    with pytest.raises(FedwcaError, match="round 1: there is no answer of client 2 that counts"):
        run_in_process(session, built.clients(), 2, wire, available)
    partial = built.session(least=1, participation=0.25, alone="warn")
    partial.needs_all_answers = True
    run_in_process(partial, built.clients(), 3)
    assert partial.state.round == 3


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"clients": 4, "participation": 0.25}, "asks 1 of 4 clients in a round, and by rule least=2 it needs 2"),
        ({"clients": 4, "participation": 0.5, "least": 3}, "asks 2 of 4 clients in a round, and by rule least=3"),
        ({"clients": 4, "participation": 0.5}, ""),
        ({"clients": 4, "participation": 0.25, "least": 1}, ""),
        ({"clients": 1, "participation": 0.1}, ""),
    ],
)
def test_more_answers_are_not_waited_for_than_are_asked_for(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence) if sentence else nullcontext():
        Rules(**given)


def test_who_takes_part_is_drawn_from_those_that_are_there(federation: Build) -> None:
    built = federation("fedavg")
    session = built.session(clients=8, participation=0.5)  # four of the numbers are never taken
    run_in_process(session, built.clients(), 6)
    assert session.state.round == 6
    session.open([0, 3])
    assert (sorted(session.expected), session.can_close) == ([0, 3], True)
    session.open([3])
    assert (sorted(session.expected), session.can_close) == ([3], False)


def test_a_client_is_sent_its_own_model(federation: Build) -> None:
    session = federation("fedamp").session()
    context = session.context
    state = replace(session.state, shares=torch.eye(2, dtype=torch.float64))
    first = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    check_not_single_model(context, state, first, "a model", 0)
    for receiver in (1, None):
        with pytest.raises(FedwcaError, match="a model is a single client's own"):
            check_not_single_model(context, state, first, "a model", receiver)


def test_one_clients_model_is_not_handed_on(federation: Build, caplog: pytest.LogCaptureFixture) -> None:
    built = federation("one_hot")
    with pytest.raises(FedwcaError, match=r"round 0: of clusters \[1\] a single client was heard"):
        run_in_process(built.session(), built.clients()[:3], 2)
    session = built.session()
    run_in_process(session, built.clients(), 2, available=lambda round: [0, 1, 2, 3] if round == 0 else [0, 1, 2])
    assert "round 1: of clusters [1] a single client was heard; the cluster keeps its model" in caplog.text
    assert session.state.shares.tolist() == [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]
    assert session.single_rounds == []
    session = built.session(alone="warn")
    run_in_process(session, built.clients(), 2, available=lambda round: [0, 1, 2, 3] if round == 0 else [0, 1, 2])
    assert session.single_rounds == [1]


def test_a_cluster_that_keeps_its_model_adds_nothing_to_its_teacher(
    federation: Build, caplog: pytest.LogCaptureFixture
) -> None:
    built = federation("ladd:start=1")
    session = built.session()
    run_in_process(session, built.clients(), 4, available=lambda round: [0, 1, 2] if round == 2 else [0, 1, 2, 3])
    assert session.state.server.state["averaged"].tolist() == [3, 2]
    assert "round 2: of clusters [1] a single client was heard" in caplog.text


@pytest.mark.parametrize(
    ("aggregator", "sentence"),
    [
        ("local", "no model is sent after the source model"),
        ("afl", "aggregator 'afl' asks clients in round 0 already"),
        ("fedper", "aggregator 'fedper' has layers stay with clients"),
        ("scaffold", "aggregator 'scaffold' has clients keep control variates"),
    ],
)
def test_what_cannot_be_deployed_says_why(federation: Build, aggregator: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        federation(aggregator).session()


def test_oracles_and_image_styles_stay_at_home(federation: Build) -> None:
    from fedwca.clusterers import clusterers

    built = federation("one_hot")
    for clusterer, sentence in (("true", "no server knows"), ("ladd", "do not leave them")):
        built.method = replace(built.method, clusterer=clusterers.build(clusterer))
        with pytest.raises(UsageError, match=sentence):
            built.session()


def test_a_client_refuses_what_does_not_fit(federation: Build) -> None:
    built = federation("fedavg")
    session, (client, *_) = built.session(), built.clients()
    session.admit("client-0", 0)
    parcel = session.open([0])[0]
    source = dict(parcel.models["source"])
    source.popitem()
    with pytest.raises(FedwcaError, match="the source model that was sent is no 'convnet' of 3 classes"):
        client.handle(replace(parcel, models={"source": source}))
    with pytest.raises(UsageError, match="composition"):
        client.handle(noted(parcel, composition='{"classes": 0}'))
    client.handle(parcel)
    with pytest.raises(FedwcaError, match="model 0 that was sent lacks"):
        client.handle(replace(parcel, models={"sent-0": {}}))


def test_a_repeated_round_asks_others(federation: Build) -> None:
    built = federation("fedavg")
    session, clients = built.session(participation=0.5, least=2), built.clients()
    run_in_process(session, clients, 1)
    asked = []
    for _ in range(6):
        asked.append(sorted(session.open(range(4))))
        assert not session.close()
    assert asked[0] == sample_clients(1, 4, 0.5, session.context.keys, 2), "as in the simulation"
    assert len({tuple(numbers) for numbers in asked}) > 1
    assert {len(numbers) for numbers in asked} == {2}
    for client, parcel in session.open(range(4)).items():
        session.receive(client, clients[client].handle(parcel))
    assert session.close()
    assert sorted(session.open(range(4))) == sample_clients(2, 4, 0.5, session.context.keys, 2)
