"""Models as one tensor of trained values, and its views by name, so that a gradient is found in one piece."""

from __future__ import annotations

from torch import Tensor

from fedwca.engine.parameter_layout import Layout


def split_leaves(
    layout: Layout, rows: Tensor, trained: slice | None = None
) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
    """Of models ``[g, P]``: trained values as one leaf; parameters ``[g, …]`` and BatchNorm statistics by name.

    Args:
        layout: of a row.
        rows: the models.
        trained: positions of the values that are trained; None: all parameters.
    """
    trained, slots = trained or layout.positions("all"), layout.parameters
    leaf = rows[:, trained].detach().requires_grad_()
    # Split, not sliced: its gradient is put together once instead of added up from one whole row a tensor.
    inside = [trained.start <= slot.start < trained.stop for slot in slots]
    sizes = [slot.stop - slot.start for slot, own in zip(slots, inside, strict=True) if own]
    pieces = iter(leaf.split(sizes, 1))
    parts = [next(pieces) if own else rows[:, slot.start : slot.stop] for slot, own in zip(slots, inside, strict=True)]
    named = {slot.name: part.unflatten(1, slot.shape) for slot, part in zip(slots, parts, strict=True)}
    return leaf, named, {slot.name: slot.of(rows) for slot in layout.statistics}
