"""How a federation treats its clients."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from fedwca.deploy.defences import Robust


class Rules(BaseModel):
    """How a federation treats its clients; none of it changes the method."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    clients: PositiveInt
    """K, places; a client that joins late takes a free one."""
    least: PositiveInt = 2
    """Fewest uploads that make a round; with less it is played again."""
    participation: float = Field(1.0, gt=0, le=1)
    """Share of the clients asked in each round after the first."""
    alone: Literal["refuse", "warn"] = "refuse"
    """What happens to a mean of fewer than two clients, which hands one client's model on."""
    norm_bound: float | None = Field(None, gt=1)
    """Updates longer than so many times the round's median are refused; None: no bound."""
    robust: Robust = "mean"
    """Cluster means: plain, by coordinate the median, or trimmed by a quarter on each side."""
