"""Why a client failed is in its own log; the server is told no name of a file."""

from __future__ import annotations

import pytest

from fedwca.deploy.flower.tell_failure import OWN_LOG, tell_failure
from fedwca.errors import CheckpointError, DataError, FedwcaError, UsageError

IMPORTED = "aggregator 'mine' from plugin could not be loaded: cannot import name 'x' from 'y' "


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (FedwcaError("this client's model has values that are not finite"), None),
        (UsageError("--clip does not cover aggregator 'wca'; leave it out"), None),
        (UsageError(f"{IMPORTED}(/home/alice/plugin/y.py)"), OWN_LOG),
        (UsageError(rf"{IMPORTED}(C:\Users\alice\y.py)"), OWN_LOG),
        (FedwcaError("~/weights.safetensors: cannot be read"), OWN_LOG),
        (CheckpointError("kept: is damaged"), OWN_LOG),
        (FedwcaError("patients.npz is in use"), OWN_LOG),
        (DataError("scan 7 is damaged"), f"its images cannot be used; {OWN_LOG}"),
        (OSError(28, "No space left on device", "/home/alice"), f"No space left on device; {OWN_LOG}"),
        (OSError("/home/alice"), f"OSError; {OWN_LOG}"),
    ],
    ids=[
        "training",
        "options",
        "import",
        "import on Windows",
        "home",
        "state",
        "data",
        "images",
        "system",
        "no number",
    ],
)
def test_the_server_is_told_no_name_of_a_file(
    caplog: pytest.LogCaptureFixture, error: Exception, told: str | None
) -> None:
    assert tell_failure(error, {"data": "patients.npz", "state": "kept"}) == (told or str(error))
    assert ((isinstance(error, OSError) and error.strerror) or str(error)) in caplog.text


def test_a_full_disk_is_told_in_a_line_and_a_fault_of_the_program_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    full, fault = OSError(28, "No space left on device", "kept/client.safetensors"), KeyError("state")
    for error in (full, fault):
        tell_failure(error, {})
    first, second = caplog.records
    assert first.getMessage() == "this client does not take part: kept/client.safetensors: No space left on device"
    assert (first.exc_info, second.exc_info is not None) == (None, True)
