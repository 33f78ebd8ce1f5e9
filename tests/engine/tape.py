"""What stands in for CUDA graphs where there is no CUDA: calls kept in order, and made again on the same tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def tensors(tree: object) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


class Tape(TorchDispatchMode):
    """Keeps every call that reaches the dispatcher, with the tensors it read and wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self._before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._made: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [*zip(func._schema.arguments, args, strict=False)]
        given += [(own, kwargs[own.name]) for own in func._schema.arguments if own.name in kwargs]
        for argument, value in given:
            if argument.alias_info is not None and argument.alias_info.is_write:
                for written in tensors(value):
                    place = written.untyped_storage()
                    if place.data_ptr() not in self._made:
                        self._before.setdefault(place.data_ptr(), (place, place.clone()))
        found = func(*args, **kwargs)
        known = {x.untyped_storage().data_ptr() for x in tensors((args, kwargs))}
        self._made |= {x.untyped_storage().data_ptr() for x in tensors(found)} - known
        self.calls.append((func, args, kwargs, found))
        return found

    def rewind(self) -> None:
        """Undo what was written to tensors that were there before: recording does nothing."""
        for place, before in self._before.values():
            place.copy_(before)

    @torch.no_grad()
    def play(self) -> None:
        """The same calls again; what they make goes where it went before."""
        for func, args, kwargs, found in self.calls:
            again = func(*args, **kwargs)
            for old, new in zip(tensors(found), tensors(again), strict=True):
                if old.untyped_storage().data_ptr() != new.untyped_storage().data_ptr():
                    assert old.shape == new.shape, f"{func} makes a shape of values and cannot be recorded"
                    old.copy_(new)


class Tapes:
    """Stands in for `fedwca.engine.stacked.tuning.graphs.CudaGraphs`; counts what it recorded and played."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.recorded = self.played = self.watching = 0
        self.refused = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        self.watching += 1
        yield

    def __call__(self, work: Callable[[], object]) -> Callable[[], None]:
        tape = Tape()
        with tape:
            work()
        tape.rewind()
        self.recorded += 1

        def play() -> None:
            self.played += 1
            tape.play()

        return play
