"""Old name of `fedwca.core.network`."""

from __future__ import annotations

from fedwca._deprecated import forward_module

__getattr__ = forward_module(__name__, "fedwca.core.network")
