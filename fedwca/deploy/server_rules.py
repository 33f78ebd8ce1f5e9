"""Rules of a federation: how many clients take part, and how their uploads are treated."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, PositiveInt, ValidationInfo, field_validator, model_validator

from fedwca.deploy.defences import Robust
from fedwca.federated.participation import count_sampled
from fedwca.user_values import UserValues


class Rules(UserValues):
    """How a federation treats its clients; no rule changes the method."""

    clients: PositiveInt
    """K, the most clients that take part; one that joins late takes a free number."""
    least: PositiveInt = 2
    """Fewest uploads that a round needs; with fewer it is repeated. Default 1 in a federation of one client."""
    participation: float = Field(1.0, gt=0, le=1)
    """Share of the clients asked in each round after the first."""
    alone: Literal["refuse", "warn"] = "refuse"
    """What happens to a mean of a single client, which would give that client's model to others."""
    norm_bound: float | None = Field(None, gt=1)
    """Updates longer than this many times the round's median are refused; None: no bound."""
    robust: Robust = "mean"
    """Cluster means: plain, median per coordinate, or mean per coordinate without a quarter on each side."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in_least(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("clients") == 1:
            return {"least": 1, **values}
        return values

    @field_validator("least")
    @classmethod
    def _can_be_reached(cls, least: int, info: ValidationInfo) -> int:
        clients = info.data.get("clients")
        if clients is not None and least > clients:
            raise ValueError(f"is more than the {clients} clients that there are")
        return least

    @field_validator("participation")
    @classmethod
    def _is_enough(cls, participation: float, info: ValidationInfo) -> float:
        if "clients" not in info.data or "least" not in info.data:
            return participation
        clients, least = info.data["clients"], info.data["least"]
        sampled = count_sampled(clients, participation)
        if sampled < least:
            raise ValueError(
                f"asks {sampled} of {clients} clients in a round, and by rule least={least} it needs {least}"
            )
        return participation
