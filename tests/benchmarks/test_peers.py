"""The comparison with peers, for those that need nothing installed."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

from .scripts import script

run = script("peers/run")


@pytest.mark.slow
def test_plain_and_fedwca_on_a_tiny_federation_without_a_peer_that_is_not_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PFLLIB", str(tmp_path))
    sizes = ["--clients", "2", "--images", "8", "--rounds", "1", "--repeats", "1", "--out", str(tmp_path / "out.json")]
    measured = run.main(["plain", "pfllib", "fedwca", *sizes])
    assert {peer: len(rounds) for peer, rounds in measured.items()} == {"plain": 1, "fedwca": 1}
    assert all(seconds["wall"] > 0 for rounds in measured.values() for seconds in rounds)
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["rounds"] == measured
    assert "PFLLIB" in written["absent"]["pfllib"]
    assert written["peers"] == {peer: [f"torch {version('torch')}"] for peer in ("plain", "fedwca")}
    out = capsys.readouterr().out
    assert "--clients=2" in out
    assert "pfllib is left out: PFLlib is on no package index; let the variable PFLLIB" in out


def test_a_venv_is_made_again_for_another_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its torch is that of the environment that made it."""
    made: list[Path] = []

    def make(folder: Path, **_: object) -> None:
        made.append(folder)
        folder.mkdir(exist_ok=True)

    answer = SimpleNamespace(stdout=str(tmp_path), returncode=0)
    monkeypatch.setattr(run, "venv", SimpleNamespace(create=make))
    monkeypatch.setattr(run, "subprocess", SimpleNamespace(run=lambda *_, **__: answer))
    for _ in range(2):
        assert run.interpreter("flower", tmp_path) == tmp_path / "flower" / "bin" / "python"
    assert len(made) == 1
    monkeypatch.setattr(run, "sysconfig", SimpleNamespace(get_paths=lambda: {"purelib": "/another"}))
    run.interpreter("flower", tmp_path)
    monkeypatch.setattr(run, "version", lambda _: "0")
    run.interpreter("flower", tmp_path)
    assert len(made) == 3


def test_losses_are_printed_as_well_as_wins() -> None:
    text = run.table({"plain": [{"cpu": 2.0, "wall": 2.0}], "slow": [{"cpu": 3.0, "wall": 5.0}]})
    assert "1.50" in text
    assert "2.50" in text


def test_what_is_lost_to_a_peer_is_marked() -> None:
    slow, quick, ours = ([{"cpu": x, "wall": x}] for x in (4.0, 1.0, 2.0))
    lines = run.table({"plain": slow, "fedwca": ours, "flower": quick}).splitlines()
    assert lines[1].split()[-2:] == ["0.50", "0.50"]
    assert lines[3].split()[-4:] == ["lost", "2.00", "lost", "2.00"]


def test_an_unknown_peer_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["plain", "nobody"])
    assert "no peer nobody" in capsys.readouterr().err


@pytest.mark.parametrize("peer", run.PEERS)
def test_every_peer_has_a_script(peer: str) -> None:
    assert (run.HERE / f"peer_{peer}.py").exists()
