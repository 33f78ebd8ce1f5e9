"""One client's function for many clients at once: under vmap, or client after client where it cannot be."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor


def vmap_or_loop(what: str, function: Callable[..., Any], *trees: Any, chunk: int | None = None) -> Any:
    """``function`` of each client's part of the arguments, results stacked.

    Args:
        what: names the function where it cannot be batched.
        function: takes and gives tensors, tuples of such, and mappings from names to such.
        trees: its arguments, each tensor with the G clients in front ``[G, …]``.
        chunk: clients at a time, where memory is short; all of them where None.

    Returns:
        What ``function`` gives, each tensor ``[G, …]``.

    Warns:
        UserWarning: the function needs values that only exist client by client (a data-dependent shape, ``.item()``).
    """
    try:
        return torch.func.vmap(function, chunk_size=chunk)(*trees)
    except (RuntimeError, ValueError) as error:
        # An error of the function's own comes again from the first client.
        found = [function(*(slice_tree(tree, client) for tree in trees)) for client in range(tree_width(trees))]
        why = str(error).partition("\n")[0][:160]
        warnings.warn(f"{what} cannot be run for all clients at once, so it runs one by one: {why}", stacklevel=2)
        return stack_trees(found)


def slice_tree(tree: Any, client: int) -> Any:
    """One client's part of a tree."""
    if isinstance(tree, Tensor):
        return tree[client]
    if isinstance(tree, Mapping):
        return {name: slice_tree(value, client) for name, value in tree.items()}
    return tuple(slice_tree(value, client) for value in tree)


def tree_width(tree: Any) -> int:
    """G, the clients in the first tensor of a tree; 0 where there is none."""
    if isinstance(tree, Tensor):
        return len(tree)
    values = tree.values() if isinstance(tree, Mapping) else tree
    return next((found for value in values if (found := tree_width(value))), 0)


def stack_trees(trees: list[Any]) -> Any:
    """Trees of one client each as one tree."""
    first = trees[0]
    if isinstance(first, Tensor):
        return torch.stack(trees)
    if isinstance(first, Mapping):
        return {name: stack_trees([tree[name] for tree in trees]) for name in first}
    return tuple(stack_trees([tree[i] for tree in trees]) for i in range(len(first)))
