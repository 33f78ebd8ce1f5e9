"""A stand-in for CUDA graphs on the CPU: calls are recorded in order and made again on the same tensors."""

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
    """Records every call that reaches the dispatcher, with its arguments and result."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self._before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._made: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        arguments = [*zip(func._schema.arguments, args, strict=False)]
        arguments += [
            (argument, kwargs[argument.name]) for argument in func._schema.arguments if argument.name in kwargs
        ]
        for argument, value in arguments:
            if argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in tensors(value):
                    storage = tensor.untyped_storage()
                    if storage.data_ptr() not in self._made:
                        self._before.setdefault(storage.data_ptr(), (storage, storage.clone()))
        result = func(*args, **kwargs)
        input_pointers = {x.untyped_storage().data_ptr() for x in tensors((args, kwargs))}
        self._made |= {x.untyped_storage().data_ptr() for x in tensors(result)} - input_pointers
        self.calls.append((func, args, kwargs, result))
        return result

    def rewind(self) -> None:
        """Restore the tensors that existed before the recording, so that recording changes no values."""
        for storage, values in self._before.values():
            storage.copy_(values)

    @torch.no_grad()
    def play(self) -> None:
        """Make the recorded calls again, and copy each result into the tensors of the first one."""
        for func, args, kwargs, result in self.calls:
            new_result = func(*args, **kwargs)
            for old, new in zip(tensors(result), tensors(new_result), strict=True):
                if old.untyped_storage().data_ptr() != new.untyped_storage().data_ptr():
                    assert old.shape == new.shape, f"{func} makes a shape of values and cannot be recorded"
                    old.copy_(new)


class Tapes:
    """Stands in for `fedwca.engine.stacked.tuning.graphs.CudaGraphs`; counts recordings and replays."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.recorded = self.played = self.watching = 0
        self.refused = self.freed = False

    def free(self) -> None:
        self.freed = True

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
