"""Resolves a client's device in a child process, so that the process that only waits does not load torch."""

from __future__ import annotations

import subprocess
import sys

from fedwca.errors import FedwcaError, UsageError

LOOK = """\
import sys
from fedwca.errors import UsageError
from fedwca.runs.resources.choose_device import resolve_device
try:
    print(resolve_device(sys.argv[1]))
except UsageError as error:
    sys.exit(f"Error: {error}")
"""


def find_device(name: str) -> str:
    """Return the device to use; ``auto`` becomes a GPU if there is one.

    Args:
        name: the value of ``--device``.

    Raises:
        UsageError: the device does not exist, or the name is not one of a device.
        FedwcaError: the child process failed.
    """
    if name == "cpu":
        return name
    result = subprocess.run([sys.executable, "-c", LOOK, name], capture_output=True, text=True, check=False)
    last_line = result.stderr.strip().rpartition("\n")[2]
    if result.returncode == 0:
        return result.stdout.strip()
    if last_line.startswith("Error: "):
        raise UsageError(last_line.removeprefix("Error: "))
    raise FedwcaError(f"--device {name}: cannot be looked at ({last_line[-300:]})")
