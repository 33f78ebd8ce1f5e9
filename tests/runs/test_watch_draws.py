"""What is not said of components that draw no number."""

from __future__ import annotations

import subprocess
import sys


def test_an_import_in_a_component_is_no_draw() -> None:
    """rich, which scikit-learn imports, draws a number when it is first imported."""
    code = "from fedwca.runs.watch_draws import watch_draws\nwith watch_draws('it'):\n    import rich.style"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=120)
