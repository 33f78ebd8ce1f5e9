"""The same work on this library and on peers, in turn: CPU seconds and wall time, wins and losses alike.

    python benchmarks/peers/run.py plain fedwca flower --workers 2

Each peer with a requirements file gets a venv of its own, made once; torch comes from the environment that runs this.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import uuid
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS = ("plain", "fedwca", "flower")
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
}


def interpreter(peer: str, folder: Path) -> Path:
    """The Python that runs a peer: this one, or that of its venv, which is made where it is not there yet."""
    requirements = HERE / f"{peer}.txt"
    if not requirements.exists():
        return Path(sys.executable)
    home = folder / peer
    python, ready = home / "bin" / "python", home / "ready"
    if not ready.exists() or ready.read_text() != requirements.read_text():
        venv.create(home, with_pip=True, clear=True)
        # Seen after the venv's own packages: what a peer pins wins, torch is not installed a second time.
        site = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        (Path(site) / "shared.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", str(requirements)], check=True)
        ready.write_text(requirements.read_text())
    return python


def once(peer: str, python: Path, sizes: Sequence[str]) -> list[dict[str, float]]:
    """Rounds of one run of a peer.

    Raises:
        SystemExit: it failed.
    """
    path = os.pathsep.join(map(str, (HERE, HERE.parent, HERE.parents[1])))
    environment = {**os.environ, **QUIET, "FEDWCA_PEER": uuid.uuid4().hex, "PYTHONPATH": path}
    done = subprocess.run(
        [str(python), str(HERE / f"peer_{peer}.py"), *sizes],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("PEER ")]
    if not lines:
        raise SystemExit(f"{peer} gave no times:\n{done.stdout[-500:]}\n{done.stderr[-2000:]}")
    return list(json.loads(lines[-1].removeprefix("PEER ")))


def table(measured: dict[str, list[dict[str, float]]]) -> str:
    """A row per peer: medians over rounds, and how many times the first one's CPU and wall seconds that is."""
    base = {clock: statistics.median(r[clock] for r in next(iter(measured.values()))) for clock in ("cpu", "wall")}
    first = next(iter(measured))
    lines = [f"{'peer':<10}{'CPU s':>9}{'wall s':>9}{f'CPU/{first}':>14}{f'wall/{first}':>14}{'rounds':>8}"]
    for peer, rounds in measured.items():
        cpu, wall = (statistics.median(r[clock] for r in rounds) for clock in ("cpu", "wall"))
        lines.append(
            f"{peer:<10}{cpu:>9.2f}{wall:>9.2f}{cpu / base['cpu']:>14.2f}{wall / base['wall']:>14.2f}{len(rounds):>8}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", nargs="*", default=list(PEERS), help=f"of {', '.join(PEERS)}; the first is the base")
    parser.add_argument("--venvs", type=Path, default=Path.home() / ".cache" / "fedwca-peers")
    parser.add_argument("--python", nargs=2, action="append", default=[], metavar=("PEER", "PATH"))
    parser.add_argument("--repeats", type=int, default=2, help="runs of each peer, in turn")
    parser.add_argument("--out", type=Path, help="write the rounds here as JSON")
    for name, value in (("clients", 32), ("images", 640), ("epochs", 1), ("rounds", 2), ("workers", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args(arguments)
    if strange := sorted(set(given.peers) - set(PEERS)):
        parser.error(f"no peer {', '.join(strange)}; there are {', '.join(PEERS)}")
    sizes = [f"--{k}={getattr(given, k)}" for k in ("clients", "images", "epochs", "rounds", "workers", "device")]
    own = {peer: Path(path) for peer, path in given.python}
    pythons = {peer: own.get(peer) or interpreter(peer, given.venvs) for peer in given.peers}
    measured: dict[str, list[dict[str, Any]]] = {peer: [] for peer in given.peers}
    for repeat in range(given.repeats):
        for peer in given.peers if repeat % 2 == 0 else reversed(given.peers):
            measured[peer] += once(peer, pythons[peer], sizes)
    print(f"{' '.join(sizes)}; load average {os.getloadavg()[0]:.1f}")
    print(table(measured))
    if given.out:
        from fedwca.results.store import environment

        result = {
            "what": "seconds of FedAvg rounds on the same work, all processes of a peer; its first round is left out",
            "sizes": sizes,
            "load_average": round(os.getloadavg()[0], 1),
            "rounds": measured,
            "environment": environment(given.device),
        }
        given.out.write_text(json.dumps(result, indent=2) + "\n")
    return measured


if __name__ == "__main__":
    main()
