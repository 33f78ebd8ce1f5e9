"""Comparing two checkouts by their benchmarks, with fake checkouts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .scripts import script

compare, compared = script("compare"), script("compared")


@pytest.fixture
def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark script that prints the seconds which the imported checkout states."""
    file = tmp_path / "pretended.py"
    file.write_text("import fedwca\nprint(fedwca.SECONDS)")
    monkeypatch.setattr(compare, "SCRIPT", file)


def pretend(folder: Path, seconds: float) -> Path:
    """Write a checkout whose package states how many seconds its benchmark took."""
    (folder / "fedwca").mkdir(parents=True)
    (folder / "fedwca" / "__init__.py").write_text(f"SECONDS = {seconds}\n")
    return folder


@pytest.mark.usefixtures("pretended")
@pytest.mark.parametrize(("seconds", "code", "said"), [(1.0, 0, "same"), (1.2, 0, "slower"), (1.3, 1, "TOO SLOW")])
def test_a_slow_checkout_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seconds: float, code: int, said: str
) -> None:
    base, head = pretend(tmp_path / "base", 1.0), pretend(tmp_path / "head", seconds)
    assert compare.main([str(base), str(head), "--pairs", "2", "--only", "import"]) == code
    out = capsys.readouterr().out
    assert said in out
    assert f"{seconds:.3f}" in out


@pytest.mark.usefixtures("pretended")
def test_the_limit_is_an_option(tmp_path: Path) -> None:
    base, head = pretend(tmp_path / "base", 1.0), pretend(tmp_path / "head", 1.3)
    assert compare.main([str(base), str(head), "--pairs", "1", "--only", "import", "--limit", "1.5"]) == 0


def test_the_median_of_pairs_decides() -> None:
    text, good = compare.table({"one outlier": [(1.0, 1.0), (1.0, 9.0), (1.0, 1.1)]}, 1.25)
    assert good
    assert "1.00-9.00" in text


def test_a_benchmark_that_fails_and_a_commit_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="failed"):
        compare.seconds(tmp_path, "no such benchmark")
    if subprocess.run(["git", "rev-parse"], cwd=compare.ROOT, capture_output=True, check=False).returncode == 0:
        with pytest.raises(SystemExit, match="no commit"):
            compare.main(["no-such-commit", "HEAD", "--pairs", "1", "--only", "import"])


def test_a_benchmark_prints_seconds() -> None:
    assert tuple(compared.BENCHMARKS) == compare.BENCHMARKS
    assert compare.seconds(compare.ROOT, "import") > 0
    assert compared.mixing(values=100) > 0
