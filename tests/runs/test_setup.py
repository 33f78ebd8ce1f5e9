"""Which engine a configuration selects, and how many trials it runs together."""

from __future__ import annotations

import pytest
import torch

from fedwca.config.run_config import RunConfig
from fedwca.core.network import Network
from fedwca.data.federation import ClientImages
from fedwca.engine.interface import TrialsInTurn
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedTrials
from fedwca.errors import UsageError
from fedwca.models.resnet18 import ResNet18
from fedwca.runs.resources import clients_at_once as sizes
from fedwca.runs.resources.choose_device import resolve_device
from fedwca.runs.resources.clients_at_once import restore_trials_at_once, trials_at_once
from fedwca.runs.resources.select_engine import ENGINES, choose_engine, choose_engines
from fedwca.runs.run_folder_name import new_run_path
from tests.conftest import a_network


@pytest.mark.parametrize("name", ["auto", "loop"])
def test_the_engine_is_chosen_by_name(network: Network, images: list[ClientImages], name: str) -> None:
    engine = choose_engine(RunConfig(engine=name, device="cpu", workers=1, batch_norm="local"), network, images)
    assert isinstance(engine, SequentialEngine)
    assert (engine.workers, engine.batch_norm, engine.bank.shape[0]) == (1, "local", len(images))


def test_every_name_but_auto_is_an_engine() -> None:
    allowed = RunConfig.model_json_schema()["properties"]["engine"]["enum"]
    assert {*ENGINES, "auto"} == set(allowed)


def test_the_default_run_folder_has_a_name_that_windows_takes() -> None:
    assert not set(new_run_path('tuned: <a/b>\\"c"|d?*').name) & set('<>:"/\\|?*')


def test_one_device_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(UsageError, match=r"this machine has 1 CUDA device; take --device cpu"):
        resolve_device("cuda:1")


def test_every_engine_is_built_from_the_table(
    network: Network, images: list[ClientImages], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other(SequentialEngine):
        """Another engine under a known name."""

    monkeypatch.setitem(ENGINES, "loop", Other)
    assert isinstance(choose_engine(RunConfig(engine="loop", device="cpu"), network, images), Other)


@pytest.mark.parametrize(
    ("options", "number"),
    [
        ({"engine": "loop"}, 1),
        ({"engine": "stacked"}, 1),
        ({"engine": "stacked", "trials_at_once": 2}, 2),
        ({"engine": "stacked", "trials_at_once": 9}, 6),
        ({"engine": "stacked", "workers": 9}, 1),
    ],
    ids=str,
)
def test_how_many_trials_run_together(images: list[ClientImages], options: dict[str, object], number: int) -> None:
    config = RunConfig.model_validate({"device": "cpu", "source_models": 2, "trials": 3, **options})
    assert trials_at_once(config, images) == number


def test_workers_without_room_for_the_trials_that_are_asked_for(images: list[ClientImages]) -> None:
    config = RunConfig(engine="stacked", device="cpu", trials=3, trials_at_once=2, workers=7)
    with pytest.raises(UsageError, match="--trials-at-once 2 has 8 clients at work at a time, more than --workers 7"):
        trials_at_once(config, images)


def black_images(side: int) -> list[ClientImages]:
    """Four clients with four images of side×side pixels each."""
    return [ClientImages(torch.zeros(4, 3, side, side, dtype=torch.uint8), torch.zeros(0, 3, side, side))] * 4


def test_a_run_that_goes_on_takes_the_same_trials_together_if_it_can(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = black_images(8)
    stacked = RunConfig(engine="stacked", device="cpu", trials=4)
    assert restore_trials_at_once(stacked, network, images, 2).trials_at_once == 2
    # Begun on a GPU and resumed on a CPU, where auto is the loop.
    assert (
        restore_trials_at_once(RunConfig(engine="auto", device="cpu", trials=4), network, images, 3).trials_at_once == 1
    )
    monkeypatch.setattr(sizes, "free_bytes", lambda device: 10_000)
    assert restore_trials_at_once(stacked, network, images, 2).trials_at_once == 1
    explicit = stacked.model_copy(update={"trials_at_once": 2})
    assert restore_trials_at_once(explicit, network, images, 2).trials_at_once == 1
    monkeypatch.undo()
    assert restore_trials_at_once(explicit, network, images, 2).trials_at_once == 2
    one_client = explicit.model_copy(update={"workers": 1})
    assert restore_trials_at_once(one_client, network, images, 2).trials_at_once == 1


def test_the_loop_takes_trials_one_by_one(images: list[ClientImages]) -> None:
    with pytest.raises(UsageError, match="--trials-at-once 2 needs --engine stacked; the loop takes trials one by one"):
        trials_at_once(RunConfig(engine="loop", device="cpu", trials_at_once=2), images)


def test_engines_that_go_together_only_where_they_can(images: list[ClientImages]) -> None:
    config = RunConfig(engine="stacked", device="cpu")
    small = [a_network(seed) for seed in (1, 2)]
    frozen = [
        ResNet18.model_validate({"weights": "none", "side": 32, "frozen": True}).build(3, seed=seed) for seed in (1, 2)
    ]
    assert isinstance(choose_engines(config, [(network, images) for network in small]), StackedTrials)
    # Rows do not hold frozen backbones; if these differ, there is no single network to run all rows with.
    assert type(choose_engines(config, [(network, black_images(32)) for network in frozen])) is TrialsInTurn
    assert type(choose_engines(config, [(small[0], images)])) is TrialsInTurn
