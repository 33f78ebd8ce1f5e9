"""The engine that a configuration names."""

from __future__ import annotations

import pytest

from fedwca.data.partition import ClientImages
from fedwca.engine.loop import Loop
from fedwca.experiments.config import RunConfig
from fedwca.experiments.setup import ENGINES, choose_engine
from fedwca.network import Network


@pytest.mark.parametrize("name", ["auto", "loop"])
def test_the_engine_is_chosen_by_name(network: Network, images: list[ClientImages], name: str) -> None:
    engine = choose_engine(RunConfig(engine=name, device="cpu", workers=1, batch_norm="local"), network, images)
    assert isinstance(engine, Loop)
    assert (engine.workers, engine.statistics, engine.bank.shape[0]) == (1, "local", len(images))


def test_every_name_but_auto_is_an_engine() -> None:
    allowed = RunConfig.model_json_schema()["properties"]["engine"]["enum"]
    assert {*ENGINES, "auto"} == set(allowed)


def test_every_engine_is_built_from_the_table(
    network: Network, images: list[ClientImages], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other(Loop):
        """Another one."""

    monkeypatch.setitem(ENGINES, "loop", Other)
    assert isinstance(choose_engine(RunConfig(engine="loop", device="cpu"), network, images), Other)
