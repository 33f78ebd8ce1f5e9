"""Runs a function of one client for many clients: by vmap, or client by client if vmap cannot run it.

Arguments and results are trees: a tensor, a tuple of trees, or a mapping from names to trees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor

from fedwca.errors import FedwcaError, first_line
from fedwca.warn_caller import warn_caller

Tree = Any
"""A tensor, a tuple of trees, or a mapping from names to trees."""


@dataclass(frozen=True, eq=False)
class UnequalTensors:
    """Tensors of G clients of different shapes, in the place of one tensor ``[G, …]``."""

    each: tuple[Tensor, ...]

    def __len__(self) -> int:
        return len(self.each)

    def __getitem__(self, clients: int | slice) -> Tensor | UnequalTensors:
        """One client's tensor, or those of some clients, stacked if they have one shape."""
        return self.each[clients] if isinstance(clients, int) else stack_tensors(self.each[clients])

    def unbind(self) -> tuple[Tensor, ...]:
        """Each client's tensor."""
        return self.each


def vmap_or_loop(
    description: str,
    function: Callable[..., Tree],
    *trees: Tree,
    chunk: int | None = None,
    check: Callable[[Tree], object] = lambda result: None,
) -> Tree:
    """Apply ``function`` to each client's part of the arguments and stack the results.

    Args:
        description: of the function, for the warning.
        function: takes and returns trees.
        trees: the arguments; in each tensor the G clients are the first axis ``[G, …]``.
        chunk: number of clients at a time, to save memory; None: all.
        check: raises an error for a result that is invalid; called for those of all clients, or for each client's.

    Returns:
        The results of ``function``, each tensor ``[G, …]``.

    Warns:
        UserWarning: the function needs values that only exist client by client (a data-dependent shape, ``.item()``).
    """
    try:
        map_tree(_check_stacked, trees)
        result = torch.func.vmap(function, chunk_size=chunk)(*trees)
    except torch.OutOfMemoryError:
        raise  # a RuntimeError too, but one that says nothing about the function
    except (RuntimeError, ValueError) as error:
        # If the function itself is at fault, it raises the error again for the first client.
        results = [
            function(*(map_tree(lambda values, i=client: values[i], tree) for tree in trees))  # type: ignore[misc]
            for client in range(tree_width(trees))
        ]
        for client_result in results:
            check(client_result)
        reason = shorten(first_line(error), 160, placeholder=" …")
        warn_caller(f"{description} cannot be run for all clients at once, so it runs one by one: {reason}")
        return stack_trees(results)
    check(result)
    return result


def _check_stacked(leaf: object) -> None:
    if isinstance(leaf, UnequalTensors):
        raise ValueError(f"it reads values of shapes {name_two({tuple(x.shape) for x in leaf.each})}")


def name_two(shapes: set[tuple[int, ...]]) -> str:
    """The first two of at least two shapes, for messages.

    >>> name_two({(5, 2), (3, 2), (4, 2)})
    '(3, 2) and (4, 2)'
    """
    return " and ".join(map(str, sorted(shapes)[:2]))


def map_tree(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """Apply ``function`` to every leaf; whatever is neither a mapping nor a tuple is a leaf."""
    if isinstance(tree, Mapping):
        return {name: map_tree(function, value) for name, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map_tree(function, value) for value in tree)
    return function(tree)


def tree_width(tree: Tree) -> int:
    """G, the number of clients in the first tensor of a tree; 0 if there is none."""
    if isinstance(tree, Tensor | UnequalTensors):
        return len(tree)
    values = tree.values() if isinstance(tree, Mapping) else tree
    return next((width for value in values if (width := tree_width(value))), 0)


def _names_in_all(trees: Sequence[Mapping[str, Tree]]) -> list[str]:
    """The names that trees have; raises a FedwcaError if not all have the same."""
    names = trees[0].keys()
    if others := {name for tree in trees for name in tree.keys() ^ names}:
        raise FedwcaError(f"{min(others)!r} is there for some clients alone; right are the same names for all clients")
    return list(names)


def stack_trees(trees: Sequence[Tree]) -> Tree:
    """Stack trees of one client each into one tree."""
    first = trees[0]
    if isinstance(first, Tensor):
        return stack_tensors(trees)
    if isinstance(first, Mapping):
        return {name: stack_trees([tree[name] for tree in trees]) for name in _names_in_all(trees)}
    return tuple(stack_trees([tree[i] for tree in trees]) for i in range(len(first)))


def stack_tensors(tensors: Sequence[Tensor]) -> Tensor | UnequalTensors:
    """Tensors of G clients as one ``[G, …]`` if they have one shape.

    >>> stack_tensors([torch.ones(2), torch.ones(2)]).shape, len(stack_tensors([torch.ones(2), torch.ones(1)]))
    (torch.Size([2, 2]), 2)
    """
    if all(tensor.shape == tensors[0].shape for tensor in tensors):
        return torch.stack(list(tensors))
    return UnequalTensors(tuple(tensors))


def join_unpadded(trees: Sequence[Tree]) -> Tree:
    """Join trees of tensors ``[g, …]`` of several groups to one of ``[G, …]``, or `UnequalTensors` where shapes differ.

    >>> len(join_unpadded([{"x": torch.ones(1, 2)}, {"x": torch.ones(1, 1)}])["x"])
    2
    """
    first = trees[0]
    if isinstance(first, Mapping):
        return {name: join_unpadded([tree[name] for tree in trees]) for name in _names_in_all(trees)}
    if all(isinstance(tree, Tensor) and tree.shape[1:] == first.shape[1:] for tree in trees):
        return first if len(trees) == 1 else torch.cat(list(trees))
    return stack_tensors([value for tree in trees for value in tree.unbind()])


def join_trees(trees: Sequence[Tree]) -> Tree:
    """Join trees of tensors ``[g, …]`` of several groups to one of ``[G, …]``; shorter tensors are padded with zeros.

    >>> join_trees([{"x": torch.ones(1, 2)}, {"x": torch.ones(1, 1)}])["x"].tolist()
    [[1.0, 1.0], [1.0, 0.0]]
    """
    first = trees[0]
    if isinstance(first, Mapping):
        return {name: join_trees([tree[name] for tree in trees]) for name in _names_in_all(trees)}
    if first.ndim < 2 or all(tree.shape[1] == first.shape[1] for tree in trees):
        return torch.cat(list(trees))
    joined = first.new_zeros(sum(map(len, trees)), max(tree.shape[1] for tree in trees), *first.shape[2:])
    start = 0
    for tree in trees:
        joined[start : start + len(tree), : tree.shape[1]] = tree
        start += len(tree)
    return joined
