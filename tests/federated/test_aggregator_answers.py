"""An aggregator whose answer is invalid is named in the error, with what would be valid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from fedwca.aggregators.fedavg import FedAvg
from fedwca.aggregators.fedper import FedPer
from fedwca.aggregators.scaffold import Scaffold
from fedwca.aggregators.wca import WCA
from fedwca.clusterers.kmeans import KMeans
from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Blend, Offer, State, View
from fedwca.errors import FedwcaError, UsageError
from fedwca.federated.aggregator_weights import deliver_mixtures, newcomer_mixtures
from fedwca.federated.method import Method
from fedwca.federated.server import spread_trained_mean
from fedwca.objectives.control import Control
from fedwca.objectives.cross_entropy import CrossEntropy
from fedwca.pseudo_labelers.argmax import Argmax
from fedwca.pseudo_labelers.trusted import Trusted
from tests.federated.test_server_rules import SIZES, engines, make, method, play

Change = Callable[[Any], Any]


class Changed(FedAvg):
    """FedAvg with one answer changed: the one that ``at`` names, by the function of `CHANGES` that ``part`` names."""

    name = "changed"
    at: str = ""
    part: str = ""

    def _change(self, answer: str, value: Any) -> Any:
        return CHANGES[self.part](value) if self.at == answer else value

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """Both parts."""
        unchanged = super().offer(state, round, rows)
        parts = {part: self._change(part, getattr(unchanged, part)) for part in ("personal", "shared")}
        changed: Offer = self._change("offer", replace(unchanged, **parts))
        return changed

    def deliver(self, state: State, rows: int) -> Tensor:
        """Mixtures."""
        answer: Tensor = self._change("deliver", super().deliver(state, rows))
        return answer

    def deliver_new(self, rows: int, draws: Tensor) -> Tensor:
        """Mixtures."""
        answer: Tensor = self._change("deliver_new", super().deliver_new(rows, draws))
        return answer

    def gather(self, state: State, labels: Tensor, sizes: Tensor, present: Tensor, rows: int) -> Tensor:
        """Mixtures."""
        answer: Tensor = self._change("gather", super().gather(state, labels, sizes, present, rows))
        return answer

    def blend(self, round: int, view: View) -> Blend:
        """The start, and a reference."""
        unchanged = Blend(self._change("start", view.own), {"cluster": self._change("reference", view.own)})
        blend: Blend = self._change("blend", unchanged)
        return blend

    def next_state(self, *given: Any) -> State:
        """What is remembered."""
        state: State = self._change("next_state", super().next_state(*given))
        return state


CHANGES: dict[str, Change] = {
    "": lambda value: value,
    "twice": lambda value: 2 * value,
    "and twice": lambda value: torch.cat([value, 2 * value]),
    "shorter": lambda value: value[..., 1:],
    "flat": lambda value: value[0],
    "one client": lambda value: value[:1],
    "no row": lambda value: value[:0],
    "twice rows": lambda value: torch.ones(1, 2).double(),
    "nothing": lambda _: None,
    "whole": lambda value: value.long(),
    "number": lambda _: {"labels": 1},
    "forgetful": lambda state: {name: value for name, value in state.items() if name != "labels"},
    "unreported": lambda blend: replace(blend, report=None),
    "reported once": lambda blend: replace(blend, report={"loss": torch.zeros(9).double()}),
    "reported whole": lambda blend: replace(blend, report={"loss": torch.tensor(0.5).double()}),
    "labelled": lambda blend: replace(blend, labels=[0]),
    "float32": lambda value: value.float(),
    "noted": lambda blend: replace(blend, notes={"seen": 1.0}),
    "shares": lambda state: {**state, "labels": state["labels"].double()},
    "infinite": lambda value: value / 0,
    "no number": lambda value: value * torch.nan,
}


@engines
@pytest.mark.parametrize(
    ("at", "part", "said"),
    [
        ("personal", "twice", "offer's personal gave weights that sum to 2; each row must sum to 1"),
        (
            "personal",
            "flat",
            "gave torch.float64 of shape (1, 1); right are floating-point weights of shape (4, any, 1)",
        ),
        ("offer", "nothing", "offer gave nothing; right is an Offer"),
        ("personal", "one client", "right are floating-point weights of shape (4, any, 1)"),
        ("shared", "twice rows", "offer's shared gave torch.float64 of shape (1, 2); right are"),
        ("gather", "twice", "gather gave weights that sum to 2; each row must sum to 1"),
        ("gather", "and twice", "gather gave weights that sum to 2; each row must sum to 1"),
        ("gather", "shorter", "right are floating-point weights of shape (any, 5)"),
        ("gather", "no row", "gather gave 0 rows, too few for clusters 0 to 0; right is one for each, or an offer and"),
        ("gather", "whole", "gather gave torch.int64 of shape (1, 5); right are floating-point weights of shape"),
        ("start", "twice", "blend's start gave weights that sum to 2; each row must sum to 1"),
        ("start", "shorter", ", 0); right are floating-point weights of shape ("),
        ("reference", "twice", "blend's cluster gave weights that sum to 2"),
        ("blend", "nothing", "blend gave nothing; right is a Blend"),
        ("blend", "unreported", "blend's report gave nothing; right is a mapping of names to tensors"),
        ("blend", "noted", "blend's notes gave 'seen' as a float; right is a mapping of names to tensors"),
        ("blend", "reported once", "blend's report loss is torch.float64 of shape (9,); right is an entry for each of"),
        ("blend", "reported whole", "blend's report loss is torch.float64 of shape (); right is an entry for each of"),
        ("blend", "labelled", "blend's labels gave 'of clusters' as a list; right is a mapping of names to tensors"),
        ("next_state", "nothing", "next_state gave nothing; right is a mapping of names to tensors"),
        ("next_state", "number", "next_state gave 'labels' as a int; right is a mapping of names to tensors"),
        (
            "next_state",
            "forgetful",
            "next_state gave a state without labels; right are labels, int64 [4], the cluster of each",
        ),
        (
            "next_state",
            "shares",
            "next_state gave a state with labels torch.float64 of shape (4,); right are labels, int64 [4]",
        ),
    ],
)
def test_an_aggregators_answer_is_no_mixture(name: str, at: str, part: str, said: str) -> None:
    with pytest.raises(FedwcaError) as error:
        play(make(name), method(Changed(at=at, part=part)))
    assert str(error.value).startswith("aggregator 'changed': ")
    assert said in str(error.value)


@cache
def unchanged(name: str) -> Tensor:
    """The rows that FedAvg ends with."""
    return play(make(name), method(Changed()))[0].rows


@engines
@pytest.mark.parametrize("at", ["personal", "shared", "gather", "start"])
def test_mixing_weights_may_be_float32(name: str, at: str) -> None:
    server, outcomes = play(make(name), method(Changed(at=at, part="float32")))
    torch.testing.assert_close(server.rows, unchanged(name))
    assert {outcome.weights.dtype for outcome in outcomes} == {torch.float64}


def test_a_server_step_gives_rows() -> None:
    class Flat(FedAvg):
        """One row for all."""

        name = "flat"

        def server_step(self, rows: Tensor, mixed: Tensor, weights: Tensor, models: Tensor) -> Tensor:
            """Without a place for rows."""
            return mixed[0]

    with pytest.raises(FedwcaError, match=r"aggregator 'flat': server_step gave torch.float64 of shape"):
        play(make("loop"), method(Flat()))


@pytest.mark.parametrize(
    ("part", "said"), [("twice", "weights that sum to 2"), ("one client", "of shape (1, 1); right are floating-point")]
)
def test_clients_end_with_mixtures(part: str, said: str) -> None:
    server, _ = play(make("loop"), method(Changed()))
    assert deliver_mixtures(Changed(), server.state, 1, 4).tolist() == 4 * [[1.0]]
    with pytest.raises(FedwcaError) as error:
        deliver_mixtures(Changed(at="deliver", part=part), server.state, 1, 4)
    assert said in str(error.value)


@pytest.mark.parametrize(("part", "said"), [("twice", "weights that sum to 2"), ("shorter", "of shape (3, 2)")])
def test_newcomers_are_sent_mixtures(part: str, said: str) -> None:
    draws = torch.zeros(3)
    assert newcomer_mixtures(Changed(), 2, draws).tolist() == 3 * [[1.0, 0.0]]
    with pytest.raises(FedwcaError) as error:
        newcomer_mixtures(Changed(at="deliver_new", part=part), 2, draws)
    assert str(error.value).startswith("aggregator 'changed': deliver_new gave ")
    assert said in str(error.value)


def test_nothing_is_said_of_what_is_right() -> None:
    play(make("loop"), method(Changed()))


def test_rows_behind_the_first_need_not_be_models() -> None:
    class Doubled(Scaffold):
        """Scaffold with doubled control rows, and with a reference that is a difference of models."""

        def gather(self, *given: Any) -> Tensor:
            """Twice, behind the first row."""
            mixtures = super().gather(*given)
            return torch.cat([mixtures[:1], 2 * mixtures[1:]])

        def blend(self, round: int, view: View) -> Blend:
            """A reference that is a difference."""
            blend = super().blend(round, view)
            return replace(blend, references={**blend.references, "apart": view.model(0) - view.model(1)})

    play(make("loop"), method(Doubled(), Control()))


class Weighing(FedPer):
    """Weighs clients by what it is told, for each of them."""

    name = "weighing"
    weighed: Any = None

    def client_weights(self, sizes: Tensor) -> Tensor:
        """As told."""
        weights: Tensor = self.weighed
        return weights


@pytest.mark.parametrize(
    ("weighed", "given"),
    [
        (None, "nothing"),
        ([1.0, 1.0, 1.0, 1.0], "a list"),
        (torch.ones(3), r"torch.float32 of shape \(3,\)"),
        (torch.zeros(4), "weights from 0 to 0"),
        (torch.tensor([1.0, -0.5, 2.0, 1.0]), "weights from -0.5 to 2"),
        (torch.tensor([1.0, torch.inf, 2.0, 1.0]), "weights from 1 to inf"),
        (torch.tensor([1.0, torch.nan, 2.0, 1.0]), "weights from nan to nan"),
    ],
)
def test_an_aggregators_weights_of_clients(weighed: Any, given: str) -> None:
    aggregator, said = (
        Weighing(weighed=weighed),
        rf"'weighing': client_weights gave {given}; right is a tensor \[4\], fini",
    )
    labels, present = torch.zeros(4, dtype=torch.int64), torch.ones(4, dtype=torch.bool)
    trusting = replace(method(aggregator), pseudo_labeler=Trusted(untrained="mean"))
    trusted = torch.tensor([1.0, 1.0, 0.0, 0.0])
    for gather in (aggregator.gather, super(FedPer, aggregator).gather):
        with pytest.raises(FedwcaError, match=said):
            gather({}, labels, torch.tensor(SIZES), present, 1)
    with pytest.raises(FedwcaError, match=said):
        spread_trained_mean(trusting, torch.zeros(4, 3), torch.arange(4), torch.tensor(SIZES), present, trusted, 3)


def test_weights_of_clients_may_be_whole_numbers_some_of_them_0() -> None:
    labels, present = torch.zeros(4, dtype=torch.int64), torch.ones(4, dtype=torch.bool)
    weights = Weighing(weighed=torch.tensor([3, 1, 0, 0])).gather({}, labels, torch.tensor(SIZES), present, 1)
    assert weights[0].tolist() == [0, 0.75, 0.25, 0, 0]


def test_where_only_clients_without_weight_are_there_nothing_is_averaged() -> None:
    aggregator, models = Weighing(weighed=torch.tensor([0.0, 0.0, 1.0, 1.0])), torch.ones(4, 3)
    present, trusted = torch.tensor([True, True, False, False]), torch.tensor([1.0, 1.0, 0.0, 0.0])
    for gather in (aggregator.gather, super(FedPer, aggregator).gather):
        weights = gather({}, torch.zeros(4, dtype=torch.int64), torch.tensor(SIZES), present, 1)
        assert weights[0].tolist() == [1, 0, 0, 0, 0], "the previous row stays"
    trusting = replace(method(aggregator), pseudo_labeler=Trusted(untrained="mean"))
    everybody = torch.ones(4, dtype=torch.bool)
    spread_trained_mean(trusting, models, torch.arange(4), torch.tensor(SIZES), everybody, trusted, 3)
    assert torch.equal(models, torch.ones(4, 3)), "not a model of zeros"


class Dense(WCA):
    """Asks for densities, of the right mixtures or of others."""

    name = "dense"
    of_shared: bool = False

    def blend(self, round: int, view: View) -> Blend:
        """As WCA."""
        view.density(view.shared if self.of_shared else view.own)
        return super().blend(round, view)


class Lerping(WCA):
    """Changes what it is shown in place."""

    name = "lerping"

    def blend(self, round: int, view: View) -> Blend:
        """As WCA."""
        view.shared.mul_(0.5)
        return super().blend(round, view)


@engines
def test_a_blend_reads_what_it_is_shown(name: str) -> None:
    def own(aggregator: Aggregator) -> Method:
        return Method("own", "Own", aggregator, Argmax(), (CrossEntropy(),), clusterer=KMeans())

    play(make(name), own(Dense()))
    with pytest.raises(FedwcaError, match=r"view\.density takes a mixture for each client, such as view\.own of shape"):
        play(make(name), own(Dense(of_shared=True)))
    with pytest.raises(FedwcaError, match="aggregator 'lerping': blend changed what it was given in place"):
        play(make(name), own(Lerping()))


def test_a_state_that_was_made_in_inference_mode_is_read() -> None:
    class Inferring(FedAvg):
        """Computes its state where torch counts no changes."""

        name = "inferring"

        def next_state(self, state: State, labels: Tensor, report: Mapping[str, Tensor], present: Tensor) -> State:
            """A copy."""
            with torch.inference_mode():
                return {"labels": labels.clone()}

    server, _ = play(make("loop"), method(Inferring()))
    assert server.state["labels"].is_inference()


def test_a_state_before_round_0_is_tensors_by_name() -> None:
    class Stateless(FedAvg):
        """Forgets to return its state."""

        name = "stateless"

        def initial_state(self, clients: int) -> State:
            """Nothing."""
            nothing: Any = None
            return nothing  # type: ignore[no-any-return]

    with pytest.raises(FedwcaError, match="aggregator 'stateless': initial_state gave nothing; right is a mapping"):
        play(make("loop"), method(Stateless()))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"aggregator": "wca"}, "method 'own': aggregator is a str; right is a component's instance"),
        ({"clusterer": "finch"}, "method 'own': clusterer is a str"),
        ({"aggregator": WCA}, "method 'own': aggregator is the class WCA; right is a component's instance"),
        ({"objectives": CrossEntropy()}, r"method 'own': objectives are no tuple of objectives, such as \(Shot\(\),\)"),
    ],
)
def test_a_method_is_made_of_components(change: dict[str, Any], said: str) -> None:
    composed = Method("own", "Own", FedAvg(), Argmax(), (CrossEntropy(),))
    with pytest.raises(UsageError, match=said):
        replace(composed, **change)


def test_an_aggregator_that_groups_by_a_clusterer_needs_one() -> None:
    with pytest.raises(UsageError, match="aggregator 'wca' groups by a clusterer; name one"):
        play(make("loop"), Method("own", "Own", WCA(), Argmax(), (CrossEntropy(),)))
