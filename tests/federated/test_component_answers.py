"""A component whose answer is invalid is named in the error, with what would be valid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedwca.aggregators.fedavg import FedAvg
from fedwca.aggregators.fedper import FedPer
from fedwca.aggregators.ifca import IFCA
from fedwca.aggregators.scaffold import Scaffold
from fedwca.aggregators.wca import WCA
from fedwca.clusterers.kmeans import KMeans
from fedwca.clusterers.single import Single
from fedwca.core.grouping import GroupingInput, OneGroup, check_notes
from fedwca.core.interfaces import Aggregator, Objective
from fedwca.core.messages import Batch, Blend, Bounded, Offer, Predictions, State, Targets, View
from fedwca.engine.check_targets import check_targets
from fedwca.engine.randomness import Keys
from fedwca.errors import Diverged, FedwcaError, UsageError
from fedwca.federated.aggregator_weights import deliver_mixtures, newcomer_mixtures
from fedwca.federated.assign_clusters import compare_clients
from fedwca.federated.mean_answers import mean_answer_problem
from fedwca.federated.method import Method
from fedwca.federated.round import init_server, run_round
from fedwca.federated.server import spread_trained_mean
from fedwca.objectives.control import Control
from fedwca.objectives.cross_entropy import CrossEntropy
from fedwca.pseudo_labelers.argmax import Argmax
from fedwca.pseudo_labelers.trusted import Trusted
from tests.engine.test_adaptation import clients, network
from tests.federated.test_server_rules import ENGINES, SIZES, TRAINING, engines, make, method, play

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


@pytest.mark.parametrize("part", ["infinite", "no number"])
def test_weights_that_are_not_finite_are_left_to_the_model_that_diverged_unless_nobody_checks_it(part: str) -> None:
    with pytest.raises(Diverged, match="aggregator 'changed': gather gave weights that are not finite"):
        play(make("loop"), method(Changed(at="gather", part=part)))
    server, _ = play(make("loop"), method(Changed()))
    with pytest.raises(FedwcaError, match="aggregator 'changed': deliver gave weights that are not finite"):
        deliver_mixtures(Changed(at="deliver", part=part), server.state, 1, 4)
    with pytest.raises(FedwcaError, match="aggregator 'changed': deliver_new gave weights that are not finite"):
        newcomer_mixtures(Changed(at="deliver_new", part=part), 2, torch.zeros(3))


@engines
def test_a_model_diverged_by_a_components_own_values(name: str) -> None:
    engine, mine = make(name), method(Changed(), Undefined())
    with pytest.raises(Diverged) as error:
        play(engine, mine)
    assert str(error.value) == (
        "client 0's model has values that are not finite; the loss of 'cross_entropy', 'undefined' is nan on the "
        "model that it started from, whose outputs are finite"
    )
    with pytest.raises(Diverged, match="not finite; aggregator 'changed': blend gave it weights that are not finite"):
        play(make(name), method(Changed(at="start", part="no number")))


@engines
def test_statistics_that_stay_with_a_client_do_not_hide_a_components_own_values(name: str) -> None:
    """After a step to no number, a second one spoils the client's own BatchNorm statistics, too."""
    engine = ENGINES[name](network(None), clients(SIZES), batch_norm="local")
    with pytest.raises(Diverged, match="the loss of 'cross_entropy', 'undefined' is nan on the model that it started"):
        play(engine, method(FedAvg(), Undefined()))


@engines
def test_a_loss_that_cannot_be_looked_at_again_hides_nothing(name: str) -> None:
    class Trained(Undefined):
        """Raises where nothing is trained."""

        name = "trained"

        def __call__(self, batch: Batch) -> Tensor:
            """Nothing without a gradient."""
            assert torch.is_grad_enabled()
            return super().__call__(batch)

    with pytest.raises(Diverged, match="client 0's model has values that are not finite; a lower --lr may help"):
        play(make(name), method(FedAvg(), Trained()))


@engines
def test_a_model_diverged_by_the_learning_rate(name: str) -> None:
    with pytest.raises(Diverged, match="client 0's model has values that are not finite; a lower --lr may help"):
        play(make(name), method(FedAvg()), training=TRAINING.model_copy(update={"lr": 1e300}))


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


class Undefined(Objective):
    """No number, whatever the model says."""

    name = "undefined"

    def __call__(self, batch: Batch) -> Tensor:
        """The root of a negative number."""
        return batch.logits.square().mean().neg().sub(1).sqrt()


class Unsummed(Objective):
    """A loss for each image."""

    name = "unsummed"

    def __call__(self, batch: Batch) -> Tensor:
        """Not averaged."""
        return torch.nn.functional.cross_entropy(batch.logits, batch.labels, reduction="none")


@engines
def test_a_loss_for_each_image_is_refused(name: str) -> None:
    """Without the check the stacked engine would sum them, so a step would be larger by a factor of the batch size."""
    with pytest.raises(
        FedwcaError, match=r"objective 'unsummed' gave torch.float64 of shape \(8,\); right is one numb"
    ):
        play(make(name), Method("own", "Own", FedAvg(), Argmax(), (Unsummed(),)))


class PenaltyAlone(Objective):
    """0, as a number of Python or as a tensor of one entry."""

    name = "penalty_alone"
    entries: int = 0

    def __call__(self, batch: Batch) -> Tensor:
        """Nothing."""
        return torch.zeros(1) if self.entries else 0.0  # type: ignore[return-value]


@engines
@pytest.mark.parametrize("entries", [0, 1])
def test_one_number_is_a_loss_in_any_form(name: str, entries: int) -> None:
    alone, _ = play(make(name), method(FedAvg()), 1)
    beside, _ = play(make(name), method(FedAvg(), PenaltyAlone(entries=entries)), 1)
    assert torch.equal(alone.rows, beside.rows)


class Columns(Argmax):
    """Labels in a column."""

    name = "columns"

    def __call__(self, predictions: Any, draws: Tensor) -> Targets:
        """On two axes."""
        start: Predictions = predictions["start"]
        return Targets.of_labels(start.logits.argmax(1)[:, None])


def test_invalid_targets_are_refused() -> None:
    right = Targets.of_labels(torch.tensor([1, 0, 2]))
    assert check_targets(right, 3, "mine") is right
    for invalid, sentence in [
        (right.labels, "gave torch.int64 of shape (3,); right are Targets"),
        (
            replace(right, labels=right.labels[:, None]),
            "labels torch.int64 of shape (3, 1); right are int64 of shape (3,)",
        ),
        (
            replace(right, labels=right.labels.float()),
            "labels torch.float32 of shape (3,); right are int64 of shape (3,)",
        ),
        (
            replace(right, weights=right.weights[:2]),
            "weights torch.float32 of shape (2,); right are numbers of shape (3,)",
        ),
        (replace(right, partner_weights=None), "partner_weights nothing; right are numbers of shape (3,)"),
        (replace(right, notes={"seen": [1]}), "notes gave 'seen' as a list; right is a mapping of names to tensors"),
    ]:
        with pytest.raises(FedwcaError, match=r"pseudo-labeler 'mine':? .*gave ") as error:
            check_targets(invalid, 3, "mine")  # type: ignore[arg-type]
        assert sentence in str(error.value)


@engines
def test_invalid_targets_are_refused_in_a_round(name: str) -> None:
    unlabeled = ENGINES[name](network(None), clients(SIZES, known=False))
    server, composed = init_server(unlabeled), replace(method(FedAvg()), pseudo_labeler=Columns())
    with pytest.raises(FedwcaError, match=r"pseudo-labeler 'columns' gave labels torch.int64 of shape \(\d+, 1\)"):
        run_round(0, server, composed, unlabeled, TRAINING, Keys(1), torch.zeros(4, dtype=torch.int64))


@pytest.mark.parametrize("answer", [torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.bool)])
def test_an_answer_about_the_mean_that_has_no_fractions_does_not_count(answer: Tensor) -> None:
    assert "right is torch.float32" in mean_answer_problem({"counts": answer}, {"counts": Bounded((2,), 9)})


def test_an_objective_on_public_images_is_of_their_class() -> None:
    class Elsewhere(CrossEntropy):
        """Says that it is minimised on public images."""

        name = "elsewhere"
        trained_on = "public"

    with pytest.raises(UsageError, match="objective 'elsewhere' says trained_on='public'; right is 'public' for a"):
        method(FedAvg(), Elsewhere())


class Listed(Single):
    """A list in place of a tensor."""

    name = "listed"

    def __call__(self, signatures: Any) -> Any:
        """One cluster."""
        return [0] * int(signatures.clients)


def test_a_clusterer_that_gives_a_list() -> None:
    with pytest.raises(FedwcaError, match="clusterer 'listed' gave a list; right would be 4 int64 labels"):
        play(make("loop"), replace(method(Aggregator()), clusterer=Listed()))


class InPlace(FedAvg):
    """Sets one thing that it is shown to 0."""

    name = "in_place"
    at: str = ""
    position: int = 0

    def _blank(self, answer: str, *shown: Any) -> None:
        if answer == self.at:
            value = shown[self.position]
            (value if isinstance(value, Tensor) else value["labels"]).zero_()

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """After a change in place."""
        self._blank("offer", state, rows)
        return super().offer(state, round, rows)

    def client_weights(self, sizes: Tensor) -> Tensor:
        """After a change in place."""
        self._blank("client_weights", sizes)
        return super().client_weights(sizes)

    def gather(self, state: State, labels: Tensor, sizes: Tensor, present: Tensor, rows: int) -> Tensor:
        """Before a change in place."""
        weights = super().gather(state, labels, sizes, present, rows)
        self._blank("gather", labels, sizes, present)
        return weights

    def server_step(self, rows: Tensor, mixed: Tensor, weights: Tensor, models: Tensor) -> Tensor:
        """After a change in place."""
        self._blank("server_step", rows, weights, models)
        return mixed.add_(0)

    def next_state(self, state: State, labels: Tensor, report: Mapping[str, Tensor], present: Tensor) -> State:
        """After a change in place."""
        self._blank("next_state", labels, present)
        return super().next_state(state, labels, report, present)

    def deliver(self, state: State, rows: int) -> Tensor:
        """After a change in place."""
        self._blank("deliver", state)
        return super().deliver(state, rows)


@engines
@pytest.mark.parametrize(
    ("at", "count"),
    [("offer", 2), ("gather", 3), ("client_weights", 1), ("server_step", 3), ("next_state", 2), ("deliver", 1)],
)
def test_an_aggregator_may_only_read_what_it_is_given(name: str, at: str, count: int) -> None:
    server, _ = play(make(name), method(InPlace()))
    for position in range(count):
        wrong = InPlace(at=at, position=position)
        with pytest.raises(FedwcaError, match=f"aggregator 'in_place': {at} changed what it was given in place"):
            deliver_mixtures(wrong, server.state, 1) if at == "deliver" else play(make(name), method(wrong))


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


class InPlaceLoss(Objective):
    """A loss, after a change in place of one field of the batch."""

    name = "in_place_loss"
    field: str = ""

    def __call__(self, batch: Batch) -> Tensor:
        """Cross-entropy."""
        with torch.no_grad():
            value = getattr(batch, self.field) if self.field else None
            if value is not None:
                (value if isinstance(value, Tensor) else value["source"]).mul_(0)
        return torch.nn.functional.cross_entropy(batch.logits, batch.labels)

    @property
    def teachers(self) -> tuple[str, ...]:  # type: ignore[override]
        """The source model."""
        return ("source",)


@engines
@pytest.mark.parametrize("field", ["weights", "labels", "logits", "target_logits", "reference_logits"])
def test_an_objective_may_only_read_the_batch(name: str, field: str) -> None:
    for right in (CrossEntropy(), InPlaceLoss()):
        play(make(name), Method("own", "Own", FedAvg(), Argmax(), (InPlaceLoss(), right)))
    with pytest.raises(FedwcaError, match="objective 'in_place_loss' changed what it was given in place; it may only"):
        play(make(name), Method("own", "Own", FedAvg(), Argmax(), (CrossEntropy(), InPlaceLoss(field=field))))


class InPlaceLabels(Argmax):
    """Labels, after a change in place of what it reads."""

    name = "in_place_labels"
    at: str = ""

    def __call__(self, predictions: Mapping[str, Predictions], draws: Tensor) -> Targets:
        """The predicted classes."""
        given = {"logits": predictions["start"].logits, "features": predictions["start"].features, "draws": draws}
        if self.at in given:
            given[self.at].mul_(2)
        return super().__call__(predictions, draws)

    @property
    def selects_clients(self) -> bool:  # type: ignore[override]
        """Where `trust` is what changes something."""
        return self.at == "trust"

    def trust(self, predictions: Predictions) -> Tensor:
        """All, after a change in place."""
        predictions.logits.mul_(2)
        return torch.ones(())


@engines
@pytest.mark.parametrize("at", ["logits", "features", "draws", "trust"])
def test_a_labeler_may_only_read_predictions(name: str, at: str) -> None:
    def label(labeler: Argmax) -> None:
        engine = ENGINES[name](network(None, whole=False), clients(SIZES, known=False))
        play(engine, Method("own", "Own", FedAvg(), labeler, (CrossEntropy(),)), 1)

    label(InPlaceLabels())
    with pytest.raises(FedwcaError, match=r"pseudo-labeler 'in_place_labels'.* changed what it was given in place"):
        label(InPlaceLabels(at=at))


class Observing(CrossEntropy):
    """Measures and collects a value under a name of its own, or the other objective's."""

    name = "observing"
    observed: str = "a"
    collected: str = "a"
    changes: str = ""

    def observe(self, predictions: Predictions) -> Mapping[str, Tensor]:
        """The mean logit."""
        if self.changes == "observe":
            predictions.logits.mul_(2)
        return {self.observed: predictions.logits.mean()}

    def collect(self, trained: Predictions, targets: Targets) -> Mapping[str, Tensor]:
        """The mean feature."""
        if self.changes == "collect":
            trained.features.mul_(2)
        return {self.collected: trained.features.mean()}

    def upload_bounds(self, classes: int, features: int) -> Mapping[str, Bounded]:
        """One number."""
        return {self.collected: Bounded((), 1e9)}


class Other(Observing):
    """Likewise."""

    name = "other_observing"
    observed: str = "b"
    collected: str = "b"


@engines
def test_two_objectives_do_not_read_each_others_values(name: str) -> None:
    play(make(name), Method("own", "Own", FedAvg(), Argmax(), (Observing(), Other())))
    wrong = {
        "'other_observing': observe gave 'a', as another objective does; give it another name": Other(observed="a"),
        "'other_observing': pool gave 'a', as another objective does": Other(collected="a"),
        "observe,? changed what it was given in place": Other(changes="observe"),
        "'other_observing': collect changed what it was given in place": Other(changes="collect"),
    }
    for sentence, objective in wrong.items():
        with pytest.raises(FedwcaError, match=sentence):
            play(make(name), Method("own", "Own", FedAvg(), Argmax(), (Observing(), objective)))


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


@pytest.mark.parametrize("groups", [None, torch.zeros(3).long(), torch.zeros(4), torch.zeros(4).long() - 1])
def test_groups_are_numbers_of_clients(groups: Any) -> None:
    class Given(OneGroup):
        """Groups as they are given."""

        def assign(self, given: GroupingInput) -> Tensor:
            """These."""
            answer: Tensor = groups
            return answer

    class Grouped(FedAvg):
        """An aggregator with that grouping."""

        name = "grouped"
        grouping = Given()

    class Dealing(IFCA):
        """Clients choose, and begin in those groups."""

        name = "dealing"

        def first_groups(self, clients: int, draws: Tensor) -> Tensor:
            """These."""
            answer: Tensor = groups
            return answer

    for aggregator, answer in ((Grouped(), "grouping"), (Dealing(), "first_groups")):
        with pytest.raises(FedwcaError, match=f"'{aggregator.name}': {answer} gave .*; right are the groups of 4 clie"):
            play(make("loop"), method(aggregator))


@engines
def test_a_loss_that_no_model_is_behind(name: str) -> None:
    alone = Method("own", "Own", FedAvg(), Argmax(), (PenaltyAlone(),))
    with pytest.raises(FedwcaError, match="objective 'penalty_alone': the loss does not depend on the model"):
        play(make(name), alone)


class Wrong(Argmax):
    """Targets with one value that cannot be."""

    name = "wrong"
    field: str = ""
    value: float = 0.0

    def __call__(self, predictions: Any, draws: Tensor) -> Targets:
        """The last one."""
        targets = super().__call__(predictions, draws)
        mix = targets.partner_weights + 0.5 if self.field == "partners" else targets.partner_weights
        changed = getattr(targets, self.field).clone() if self.field != "partner_weights" else mix.clone()
        changed[-1] = self.value
        return replace(targets, **{"partner_weights": mix, self.field: changed})

    @property
    def mixes(self) -> bool:
        """Where it says so."""
        return self.field == "partners"


@engines
@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("labels", 3, "labels that are no class; right are 0 to 2 (for 1 of "),
        ("labels", -1, "labels that are no class; right are 0 to 2 (for 1 of "),
        ("weights", -0.5, "weights that are not from 0 to 1 (for 1 of "),
        ("weights", 1.5, "weights that are not from 0 to 1"),
        ("partner_weights", 1.5, "partner_weights that are not from 0 to 1"),
        ("partner_weights", 0.5, "images to mix, and says by mixes = False that there are none"),
        ("partners", 50, "partners that the client has not; right are 0 to "),
    ],
)
def test_invalid_target_values_are_refused(name: str, field: str, value: float, said: str) -> None:
    unlabeled = ENGINES[name](network(None), clients(SIZES, known=False))
    server, composed = init_server(unlabeled), replace(method(FedAvg()), pseudo_labeler=Wrong(field=field, value=value))
    with pytest.raises(FedwcaError) as error:
        run_round(0, server, composed, unlabeled, TRAINING, Keys(1), torch.zeros(4, dtype=torch.int64))
    assert str(error.value).startswith(f"pseudo-labeler 'wrong' gave {said}")


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ({"ari": 1.0}, "notes 'ari', which is measured of every clustering; rename it"),
        ({"found": {1}}, "notes 'found' as a set; right are plain values, as JSON has"),
        (None, ": notes gave nothing; right is a mapping of names to values"),
    ],
)
def test_a_clusterers_notes(note: dict[str, Any], said: str) -> None:
    assert check_notes({"levels": [1]}, "mine") == {"levels": [1]}
    with pytest.raises(FedwcaError) as error:
        check_notes(note, "mine")
    assert str(error.value) == f"clusterer 'mine'{'' if said[0] == ':' else ' '}{said}"


@pytest.mark.parametrize(
    ("compared", "said"),
    [
        (torch.zeros(4, 2), r"gave torch.float32 of shape \(4, 2\) and the metric None; right are"),
        (
            (torch.zeros(3, 2), "cosine"),
            r"shape \(3, 2\) and the metric 'cosine'; right are floating-point vectors of 4",
        ),
        ((torch.zeros(4), "cosine"), r"shape \(4,\)"),
        ((torch.zeros(4, 2), "manhattan"), "the metric 'manhattan'; right are .*, and cosine or euclidean"),
    ],
)
def test_vectors_of_clients_are_one_for_each_and_a_metric(compared: Any, said: str) -> None:
    class Comparing(Single):
        """Compares clients by those vectors."""

        name = "comparing"

        def client_vectors(self, signatures: Any) -> Any:
            """These."""
            return compared

    with pytest.raises(FedwcaError, match=f"clusterer 'comparing': client_vectors .*{said}"):
        compare_clients(Comparing(), SimpleNamespace(clients=4))  # type: ignore[arg-type]
    compared = torch.arange(24.0).view(4, 2, 3), "cosine"
    assert compare_clients(Comparing(), SimpleNamespace(clients=4))[0].shape == (4, 6)  # type: ignore[arg-type]


class Careless(CrossEntropy):
    """Gives an invalid answer at one place."""

    name = "careless"
    at: str = ""

    def penalty(self, parameters: Tensor, anchors: Mapping[str, Tensor]) -> Tensor | None:
        """A number, one for each parameter, or nothing."""
        if self.at == "forgotten":
            return None
        return parameters if self.at == "penalty" else parameters.sum() * 0

    def observe(self, predictions: Predictions) -> Mapping[str, Tensor]:
        """Nothing, or a tensor without a name."""
        return predictions.logits if self.at == "observe" else {}  # type: ignore[return-value]

    def collect(self, predictions: Predictions, targets: Targets) -> Mapping[str, Tensor]:
        """A mean, or a float."""
        mean = predictions.logits.mean(0)
        return {"mean": 1.0 if self.at == "collect" else mean}  # type: ignore[dict-item]

    def upload_bounds(self, classes: int, features: int) -> Mapping[str, Bounded]:
        """Of the mean, or a shape alone."""
        return {"mean": (classes,)} if self.at == "bounds" else {"mean": Bounded((classes,), 1e9)}  # type: ignore[dict-item]

    def pool(self, collected: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What was collected, or a tensor of it."""
        return collected["mean"] if self.at == "pool" else collected  # type: ignore[return-value]


@engines
@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("penalty", r"penalty gave torch.float\d+ of shape \(\d+,\); right is one number"),
        ("forgotten", "penalty gave nothing; right is one number"),
        ("observe", "observe gave torch.float.* of shape .*; right is a mapping of names to tensors"),
        ("collect", "collect gave 'mean' as a float; right is a mapping of names to tensors"),
        ("bounds", "upload_bounds gave 'mean' as a tuple; right is a mapping of names to Bounded"),
        ("pool", "pool gave torch.float.* of shape .*; right is a mapping of names to tensors"),
    ],
)
def test_an_objectives_answer_is_named(name: str, at: str, said: str) -> None:
    with pytest.raises(FedwcaError, match=f"objective 'careless': {said}"):
        play(make(name), Method("own", "Own", FedAvg(), Argmax(), (Careless(at=at),)))


@engines
def test_a_careful_objective_is_taken(name: str) -> None:
    play(make(name), Method("own", "Own", FedAvg(), Argmax(), (Careless(),)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"aggregator": "wca"}, "method 'own': aggregator is a str; right is a component's instance"),
        ({"clusterer": "finch"}, "method 'own': clusterer is a str"),
        ({"aggregator": WCA}, "method 'own': aggregator is the class WCA; right is a component's instance"),
        ({"objectives": Unsummed()}, r"method 'own': objectives are no tuple of objectives, such as \(Shot\(\),\)"),
    ],
)
def test_a_method_is_made_of_components(change: dict[str, Any], said: str) -> None:
    composed = Method("own", "Own", FedAvg(), Argmax(), (Unsummed(),))
    with pytest.raises(UsageError, match=said):
        replace(composed, **change)


def test_an_aggregator_that_groups_by_a_clusterer_needs_one() -> None:
    with pytest.raises(UsageError, match="aggregator 'wca' groups by a clusterer; name one"):
        play(make("loop"), Method("own", "Own", WCA(), Argmax(), (CrossEntropy(),)))


class Narrow(Single):
    """Labels of the wrong type."""

    name = "narrow"

    def __call__(self, signatures: Any) -> Tensor:
        """One cluster."""
        return torch.zeros(signatures.clients, dtype=torch.int32)


def test_a_clusterer_that_gives_labels_of_another_type() -> None:
    with pytest.raises(
        FedwcaError, match=r"clusterer 'narrow' gave torch.int32 of shape \(4,\); right would be 4 int64"
    ):
        play(make("loop"), replace(method(Aggregator()), clusterer=Narrow()))
