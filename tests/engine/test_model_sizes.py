"""Models of several sizes in one bank: a small one, padded, trains as it does alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fedwca.adaptations.learned import Learned
from fedwca.aggregators.local import Local
from fedwca.core.architecture import Architecture
from fedwca.core.network import Network
from fedwca.core.training_settings import Training
from fedwca.data.federation import ClientImages
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.randomness import Keys
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine
from fedwca.errors import InvalidConfig, UsageError
from fedwca.federated.extra_networks import grow_network
from fedwca.federated.method import Method
from fedwca.federated.model_sizes import draw_sizes, pad_row, untrained_rows
from fedwca.federated.round import init_server, run_round
from fedwca.functional import pad_to_shape
from fedwca.models import models
from fedwca.models.convnet import ConvNet
from fedwca.models.mlp import Mlp
from fedwca.objectives.adapted import AdaptedCrossEntropy
from fedwca.pseudo_labelers.argmax import Argmax

ENGINES = {"loop": SequentialEngine, "stacked": StackedEngine}
engines = pytest.mark.parametrize("name", ENGINES)
SIZES = (2, 3, 5)
MODELS: dict[str, Architecture] = {
    "mlp": Mlp(side=8, sizes=SIZES),
    "convnet": ConvNet(side=8, sizes=SIZES, bottleneck=6, channels=1),
    "batch_norm": Mlp(side=8, sizes=SIZES, head="bottleneck", bottleneck=6),
    "wn": Mlp(side=8, sizes=SIZES, classifier="wn"),
}
ADAPTATION = Learned(lr=0.3, rate=0.02, layers=2, sizes=(3, 4, 6))
TRAINING = Training(epochs=2, lr=0.05, batch_size=4, momentum=0.9, weight_decay=0.01, clip=10)
PLACES = torch.tensor([0, 1, 2, 0])
IMAGES = (7, 9, 6, 8)


def clients() -> list[ClientImages]:
    client_images = []
    for k, n in enumerate(IMAGES):
        draws = torch.Generator().manual_seed(k)
        images = torch.randint(0, 256, (n, 3, 8, 8), dtype=torch.uint8, generator=draws)
        client_images.append(ClientImages(images, images[:3], labels=torch.arange(n) % 3))
    return client_images


def grown(model: Architecture, place: int = 2, seed: int = 4) -> Network:
    network = model.build(3, seed=seed, trains_classifier=True).double()
    return grow_network(network, [ADAPTATION], seed, place=place, sizes=len(SIZES))


def play(name: str, network: Network, rows: Tensor, rounds: int = 1) -> tuple[Tensor, Layout]:
    engine: Any = ENGINES[name](network, clients())
    composed = Method("own", "Own", Local(), Argmax(), (AdaptedCrossEntropy(mu=0.1),), adaptation=ADAPTATION)
    server = init_server(engine, own=rows)
    for number in range(rounds):
        arguments = (number, server, composed, engine, TRAINING, Keys(1), torch.zeros(len(IMAGES)).long())
        server, _ = run_round(*arguments)
    return server.rows, engine.layout


@engines
@pytest.mark.parametrize("model", MODELS)
def test_a_padded_network_is_the_small_one_for_ever(name: str, model: str) -> None:
    wide = grown(MODELS[model])
    rows = untrained_rows(MODELS[model], [ADAPTATION], wide, 4)
    trained, layout = play(name, wide, rows[PLACES])
    for place in range(len(SIZES)):
        small = grown(MODELS[model].size_variants[place], place)
        small_layout = Layout.of(small)
        alone, _ = play(name, small, _cut(rows[place], small_layout, layout)[None].expand(len(IMAGES), -1))
        for client in (place == PLACES).nonzero()[:, 0].tolist():
            padding = pad_row(torch.ones(small_layout.width), small_layout, layout) == 0
            assert bool((trained[client][padding] == 0).all())
            assert torch.allclose(_cut(trained[client], small_layout, layout), alone[client], rtol=0, atol=1e-12)
    assert not torch.equal(trained, rows[PLACES])


def _cut(row: Tensor, small: Layout, wide: Layout) -> Tensor:
    """A row of the wide layout cut to the leading corner of every layer that the small layout has."""
    slots = {slot.name: slot for slot in (*wide.parameters, *wide.statistics)}
    parts = []
    for slot in (*small.parameters, *small.statistics):
        corner = tuple(slice(0, size) for size in slot.shape)
        parts.append(slots[slot.name].of(row)[corner].reshape(-1))
    return torch.cat(parts)


@pytest.mark.parametrize("model", ["mlp", "convnet"])
def test_engines_agree(model: str) -> None:
    wide = grown(MODELS[model])
    rows = untrained_rows(MODELS[model], [ADAPTATION], wide, 4)[PLACES]
    loop_rows, stacked_rows = (play(name, grown(MODELS[model]), rows)[0] for name in ENGINES)
    assert torch.allclose(loop_rows, stacked_rows, rtol=0, atol=1e-9)


def test_models_begin_as_those_of_their_size_alone() -> None:
    model = MODELS["mlp"]
    wide = grown(model)
    layout, rows = Layout.of(wide), untrained_rows(model, [ADAPTATION], wide, 4)
    assert rows.shape == (3, layout.width)
    for place, variant in enumerate(model.size_variants):
        assert variant.model_dump()["width"] == SIZES[place]
        slot = next(slot for slot in layout.parameters if slot.name == "backbone.layers.0.weight")
        assert int((slot.of(rows[place]) != 0).any(1).sum()) == SIZES[place]
        assert torch.equal(slot.of(rows[place]), pad_to_shape(slot.of(rows[place])[: SIZES[place]], slot.shape))
    single = Mlp(side=8, width=5)
    assert torch.equal(untrained_rows(single, [], wide, 4)[0], layout.read(wide))
    assert single.size_variants == (single,)
    assert "sizes" not in single.identity()
    assert model.identity()["sizes"] == [2, 3, 5]


def test_sizes_are_drawn_alike_and_known_again() -> None:
    drawn = draw_sizes(Keys(0), range(3000), 3)
    assert [abs(int((drawn == size).sum()) - 1000) < 100 for size in range(3)] == [True] * 3
    assert torch.equal(drawn[2000:], draw_sizes(Keys(0), range(2000, 3000), 3))
    assert not torch.equal(drawn, draw_sizes(Keys(1), range(3000), 3))
    assert draw_sizes(Keys(0), range(5), 1).tolist() == [0] * 5


def test_words_say_sizes() -> None:
    assert models.build("convnet:sizes=16+32+64").size_variants[1].model_dump()["width"] == 32
    assert models.build({"name": "mlp", "sizes": [8, 16]}).model_dump(mode="json")["sizes"] == [8, 16]
    for word, sentence in {
        "mlp:sizes=16+8": "widths in rising order are right",
        "mlp:sizes=16+x": "valid integer",
        "mlp:sizes=16+32,width=8": "leave one out",
        "mlp:sizes=0+8": "greater than or equal to 1",
    }.items():
        with pytest.raises(InvalidConfig, match=sentence):
            models.build(word)
    with pytest.raises(UsageError, match="has networks of 3 sizes, and the models are of 2"):
        ADAPTATION.at_size(0, 2)
