"""Old name of `fedwca.core.tensor_files`."""

from __future__ import annotations

from fedwca._deprecated import forward_module

RENAMED = {"fill": "fill_module"}

__getattr__ = forward_module(__name__, "fedwca.core.tensor_files", RENAMED)
