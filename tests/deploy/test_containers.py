"""Dockerfile and compose file pass CI's linters, and name files and options that exist. No container is run here."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
LINTERS = {
    "hadolint": ["hadolint", "Dockerfile"],
    "yamllint": ["yamllint", "--strict", "-d", "{extends: relaxed, rules: {line-length: {max: 120}}}", "compose.yaml"],
    "check-jsonschema": ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml"],
}


@pytest.mark.parametrize("name", LINTERS)
def test_a_linter_has_nothing_to_say(name: str) -> None:
    in_environment = Path(sys.executable).parent / name
    program = str(in_environment) if in_environment.exists() else shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed; CI has it in the environment with Flower")
    completed = subprocess.run([program, *LINTERS[name][1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr


def test_what_the_image_copies_is_there_and_sent_to_the_builder() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]]
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {"pyproject.toml", "fedwca", "baselines"} <= set(copied) == sent
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.parametrize("service", ["server", "client"])
def test_a_service_calls_a_command_that_there_is(service: str) -> None:
    command = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"][service]["command"]
    help_command = [sys.executable, "-m", "fedwca", command[0], "--help"]
    completed = subprocess.run(help_command, capture_output=True, text=True, check=True)
    help_text = re.sub(r"\x1b\[[0-9;]*m", "", completed.stdout)
    assert all(option in help_text for option in command if option.startswith("--"))
