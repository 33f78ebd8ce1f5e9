"""Models as one tensor of trained values and views of it by name, so that their gradient is one tensor."""

from __future__ import annotations

from torch import Tensor

from fedwca.engine.parameter_layout import Layout


def split_leaves(
    layout: Layout, rows: Tensor, trained: slice | None = None
) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
    """Split models ``[g, P]``: trained values as one leaf, parameters ``[g, …]`` and BatchNorm statistics by name.

    Args:
        layout: of a row.
        rows: the models.
        trained: positions of the trained values; None: all parameters.
    """
    trained, slots = trained or layout.positions("all"), layout.parameters
    leaf = rows[:, trained].detach().requires_grad_()
    # Split, not sliced: the gradient is then assembled once, instead of summed over one full row per tensor.
    is_trained = [trained.start <= slot.start < trained.stop for slot in slots]
    sizes = [slot.stop - slot.start for slot, included in zip(slots, is_trained, strict=True) if included]
    pieces = iter(leaf.split(sizes, 1))
    parts = [
        next(pieces) if included else rows[:, slot.start : slot.stop]
        for slot, included in zip(slots, is_trained, strict=True)
    ]
    parameters = {slot.name: part.unflatten(1, slot.shape) for slot, part in zip(slots, parts, strict=True)}
    return leaf, parameters, {slot.name: slot.of(rows) for slot in layout.statistics}
