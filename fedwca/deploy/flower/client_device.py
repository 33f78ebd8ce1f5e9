"""Where a client computes, found out before it is started; the process that waits beside it need not hold torch."""

from __future__ import annotations

import subprocess
import sys

from fedwca.errors import FedwcaError, UsageError

LOOK = """\
import sys
from fedwca.errors import UsageError
from fedwca.runs.choose_device import resolve_device
try:
    print(resolve_device(sys.argv[1]))
except UsageError as error:
    sys.exit(f"Error: {error}")
"""


def find_device(name: str) -> str:
    """A device that is there; ``auto`` as a GPU where there is one.

    Args:
        name: as of ``--device``.

    Raises:
        UsageError: it is not there, or none.
        FedwcaError: nobody can say.
    """
    if name == "cpu":
        return name
    done = subprocess.run([sys.executable, "-c", LOOK, name], capture_output=True, text=True, check=False)
    said = done.stderr.strip().rpartition("\n")[2]
    if done.returncode == 0:
        return done.stdout.strip()
    if said.startswith("Error: "):
        raise UsageError(said.removeprefix("Error: "))
    raise FedwcaError(f"--device {name}: cannot be looked at ({said[-300:]})")
