"""The same work on this library and on peers, in turn: CPU seconds and wall time, wins and losses alike.

    python benchmarks/peers/run.py plain fedwca flower pfl --workers 2

Each peer with a requirements file gets a venv of its own, made once; torch comes from the environment that runs this.
A peer that is not there is left out, with a sentence.
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
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS = ("plain", "fedwca", "flower", "pfl", "pfllib")
OURS = "fedwca"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
}


class Absent(Exception):
    """A peer cannot run on this machine; the message says why."""


def interpreter(peer: str, folder: Path) -> Path:
    """The Python that runs a peer: this one, or that of its venv.

    The venv is created if it is missing or was made for other requirements or from another environment than this one.

    Raises:
        Absent: the peer cannot be installed, or its sources are missing.
    """
    requirements = HERE / f"{peer}.txt"
    if peer == "pfllib" and not (Path(os.environ.get("PFLLIB", "")) / "system" / "flcore").is_dir():
        raise Absent("PFLlib is on no package index; let the variable PFLLIB name a checkout of it")
    if not requirements.exists():
        return Path(sys.executable)
    venv_folder = folder / peer
    python, installed = venv_folder / "bin" / "python", venv_folder / "ready"
    own_packages = sysconfig.get_paths()["purelib"]
    made_from = [requirements.read_text(), sys.executable, own_packages, f"torch {version('torch')}"]
    wanted = "\n".join(made_from) + "\n"
    if not installed.exists() or installed.read_text() != wanted:
        venv.create(venv_folder, with_pip=True, clear=True)
        # Searched after the venv's own packages: a peer's pins win, and torch is not installed a second time.
        site = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        (Path(site) / "shared.pth").write_text(own_packages + "\n")
        install = [python, "-m", "pip", "install", "--quiet", "-r", str(requirements)]
        if subprocess.run(install, check=False).returncode:
            raise Absent(f"{requirements.name} cannot be installed")
        installed.write_text(wanted)
    return python


def about(peer: str, python: Path) -> list[str]:
    """Versions that a peer's environment pins, its torch, and the commit of its checkout if it is run from one."""
    requirements = HERE / f"{peer}.txt"
    pins = requirements.read_text().split() if requirements.exists() else []
    ask = [python, "-c", "from importlib.metadata import version; print(version('torch'))"]
    pins.append(f"torch {subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()}")
    if peer == "pfllib":
        command = ["git", "-C", os.environ["PFLLIB"], "rev-parse", "--short=12", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        pins.append(f"PFLlib at commit {commit or 'unknown'}")
    return pins


def once(peer: str, python: Path, sizes: Sequence[str]) -> list[dict[str, float]]:
    """Seconds of each round of one run of a peer.

    Raises:
        SystemExit: the run gave no times.
    """
    path = os.pathsep.join(map(str, (HERE, HERE.parent, HERE.parents[1])))
    environment = {**os.environ, **QUIET, "FEDWCA_PEER": uuid.uuid4().hex, "PYTHONPATH": path}
    completed = subprocess.run(
        [str(python), str(HERE / f"peer_{peer}.py"), *sizes],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in completed.stdout.splitlines() if line.startswith("PEER ")]
    if not lines:
        raise SystemExit(f"{peer} gave no times:\n{completed.stdout[-500:]}\n{completed.stderr[-2000:]}")
    return list(json.loads(lines[-1].removeprefix("PEER ")))


def table(measured: dict[str, list[dict[str, float]]]) -> str:
    """A row per peer: medians over rounds, their ratios to the first peer's, and fedwca's seconds over the peer's.

    A ratio above 1 in the last two columns is marked as lost.
    """
    medians = {
        peer: {clock: statistics.median(timing[clock] for timing in rounds) for clock in ("cpu", "wall")}
        for peer, rounds in measured.items()
    }
    first = next(iter(medians))
    lines = [f"{'peer':<10}{'CPU s':>9}{'wall s':>9}{f'CPU/{first}':>14}{f'wall/{first}':>14}{'rounds':>8}"]
    lines[0] += f"{f'{OURS} CPU':>15}{f'{OURS} wall':>15}" if OURS in medians else ""
    for peer, seconds in medians.items():
        line = f"{peer:<10}{seconds['cpu']:>9.2f}{seconds['wall']:>9.2f}"
        line += f"{seconds['cpu'] / medians[first]['cpu']:>14.2f}{seconds['wall'] / medians[first]['wall']:>14.2f}"
        line += f"{len(measured[peer]):>8}"
        if OURS in medians:
            ratios = (medians[OURS][clock] / seconds[clock] for clock in ("cpu", "wall"))
            line += "".join(f"{('lost ' if ratio > 1 else '') + format(ratio, '.2f'):>15}" for ratio in ratios)
        lines.append(line)
    return "\n".join(lines)


def write(
    options: argparse.Namespace,
    measured: dict[str, Any],
    absent: dict[str, str],
    peers: Mapping[str, list[str]],
    repeats: int,
) -> None:
    """Write the results so far; called after each repeat, because a run takes long."""
    sys.path.append(str(HERE.parent))
    from provenance import provenance

    result = {
        "what": "seconds of FedAvg rounds on the same work, all processes of a peer; its first round is left out",
        "sizes": {name: getattr(options, name) for name in ("clients", "images", "epochs", "rounds", "workers")},
        "repeats": repeats,
        "rounds": measured,
        "absent": absent,
        "peers": peers,
        "environment": provenance(options.device),
    }
    options.out.write_text(json.dumps(result, indent=2) + "\n")


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
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.peers) - set(PEERS)):
        parser.error(f"no peer {', '.join(unknown)}; there are {', '.join(PEERS)}")
    sizes = [f"--{k}={getattr(options, k)}" for k in ("clients", "images", "epochs", "rounds", "workers", "device")]
    python_paths = {peer: Path(path) for peer, path in options.python}
    pythons, absent = {}, {}
    for peer in options.peers:
        try:
            pythons[peer] = python_paths.get(peer) or interpreter(peer, options.venvs)
        except Absent as reason:
            absent[peer] = str(reason)
            print(f"{peer} is left out: {reason}", flush=True)
    measured: dict[str, list[dict[str, Any]]] = {peer: [] for peer in pythons}
    peers = {peer: about(peer, python) for peer, python in pythons.items()} if options.out else {}
    for repeat in range(options.repeats):
        for peer in pythons if repeat % 2 == 0 else reversed(pythons):
            load = round(os.getloadavg()[0], 1)
            measured[peer] += [{**seconds, "load_average": load} for seconds in once(peer, pythons[peer], sizes)]
            print(f"{peer}: {measured[peer][-1]}", flush=True)
        if options.out:
            write(options, measured, absent, peers, repeat + 1)
    print(f"{' '.join(sizes)}; load average {os.getloadavg()[0]:.1f}")
    print(table(measured))
    return measured


if __name__ == "__main__":
    main()
