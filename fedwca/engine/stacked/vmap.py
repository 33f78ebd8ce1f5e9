"""One client's function for many clients at once: under vmap, or client after client where it cannot be.

Arguments and results are trees: a tensor, a tuple of trees, or a mapping from names to trees.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedwca.errors import first_line

Tree = Any
"""A tensor, a tuple of trees, or a mapping from names to trees."""


def vmap_or_loop(what: str, function: Callable[..., Tree], *trees: Tree, chunk: int | None = None) -> Tree:
    """``function`` of each client's part of the arguments, results stacked.

    Args:
        what: names the function where it cannot be batched.
        function: takes and gives trees.
        trees: its arguments, each tensor with the G clients in front ``[G, …]``.
        chunk: clients at a time, where memory is short; all of them where None.

    Returns:
        What ``function`` gives, each tensor ``[G, …]``.

    Warns:
        UserWarning: the function needs values that only exist client by client (a data-dependent shape, ``.item()``).
    """
    try:
        return torch.func.vmap(function, chunk_size=chunk)(*trees)
    except torch.OutOfMemoryError:
        raise  # a RuntimeError too, but no word on the function
    except (RuntimeError, ValueError) as error:
        # An error of the function's own comes again from the first client.
        found = [
            function(*(map_tree(lambda values, own=client: values[own], tree) for tree in trees))  # type: ignore[misc]
            for client in range(tree_width(trees))
        ]
        why = first_line(error)[:160]
        warnings.warn(f"{what} cannot be run for all clients at once, so it runs one by one: {why}", stacklevel=2)
        return stack_trees(found)


def map_tree(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """``function`` of every leaf; whatever is neither mapping nor tuple is one."""
    if isinstance(tree, Mapping):
        return {name: map_tree(function, value) for name, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map_tree(function, value) for value in tree)
    return function(tree)


def tree_width(tree: Tree) -> int:
    """G, the clients in the first tensor of a tree; 0 where there is none."""
    if isinstance(tree, Tensor):
        return len(tree)
    values = tree.values() if isinstance(tree, Mapping) else tree
    return next((found for value in values if (found := tree_width(value))), 0)


def stack_trees(trees: Sequence[Tree]) -> Tree:
    """Trees of one client each as one tree."""
    first = trees[0]
    if isinstance(first, Tensor):
        return torch.stack(list(trees))
    if isinstance(first, Mapping):
        return {name: stack_trees([tree[name] for tree in trees]) for name in first}
    return tuple(stack_trees([tree[i] for tree in trees]) for i in range(len(first)))


def join_trees(trees: Sequence[Tree]) -> Tree:
    """Trees of tensors ``[g, …]`` of several groups as one of ``[G, …]``, shorter tensors filled up with zeros.

    >>> join_trees([{"x": torch.ones(1, 2)}, {"x": torch.ones(1, 1)}])["x"].tolist()
    [[1.0, 1.0], [1.0, 0.0]]
    """
    first = trees[0]
    if isinstance(first, Mapping):
        return {name: join_trees([tree[name] for tree in trees]) for name in first}
    if first.ndim < 2 or all(tree.shape[1] == first.shape[1] for tree in trees):
        return torch.cat(list(trees))
    whole = first.new_zeros(sum(map(len, trees)), max(tree.shape[1] for tree in trees), *first.shape[2:])
    at = 0
    for tree in trees:
        whole[at : at + len(tree), : tree.shape[1]] = tree
        at += len(tree)
    return whole
