"""What is not said of components that draw no number."""

from __future__ import annotations

import subprocess
import sys


def test_an_import_is_no_draw_of_a_component_and_takes_none_of_the_users_numbers() -> None:
    """rich, which scikit-learn imports, draws a number when it is first imported."""
    code = (
        "import random\nbefore = random.getstate()\nfrom fedwca.runs.watch_draws import watch_draws\n"
        "with watch_draws('it'):\n    import rich.style\nassert random.getstate() == before"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=120)
