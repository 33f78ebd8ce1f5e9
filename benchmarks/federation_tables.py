"""The tables and the plot of docs/internals/measured-federations.md, and one of docs/operate.md, from result files.

python benchmarks/federation_tables.py      draws the plot anew; tables.py writes the tables
"""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

from readings import environments, name_machines, on_machines

RESULTS = Path(__file__).resolve().parent / "results"
LABELS = {"fedavg": "FedAvg", "wca": "FedWCA", "revised_wca:u=2": "Revised FedWCA, u = 2"}


def read(name: str) -> dict[str, Any]:
    """A result file."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return result


def epsilon(noise: float, delta: float = 1e-5) -> float:
    """ε of one release with Gaussian noise, in units of the clip, when all images of a client are replaced.

    Source: Balle and Wang, ICML 2018, theorem 8; two values of norm at most the clip differ by at most twice the clip.

    >>> round(epsilon(1.0), 2), round(epsilon(2.0), 2)
    (10.0, 4.38)
    """

    def excess(bound: float) -> float:
        distance = 2 / noise
        tails = [math.erfc((bound / distance + sign * distance / 2) / math.sqrt(2)) / 2 for sign in (-1, 1)]
        # Both tails are tiny for a large bound; the second is left out if it underflows.
        return tails[0] - (math.exp(bound + math.log(tails[1])) if tails[1] > 0 else 0.0) - delta

    low, high = 0.0, 1.0
    while excess(high) > 0:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


def moment_noise() -> str:
    """Table of how well FINCH finds domains from noisy moments, by noise and clients per domain."""
    result = read("moment_noise")
    rows = result["rows"]
    counts = sorted({row["clients"] for row in rows})
    lines = [
        "| `--noise-moments` | ε | " + " | ".join(f"{count} clients a domain" for count in counts) + " |",
        "|--:|--:|" + "--:|" * len(counts),
    ]
    for noise in rows[0]["ari"]:
        cells = []
        for count in counts:
            scores = [row["ari"][noise] for row in rows if row["clients"] == count]
            cells.append(f"{statistics.fmean(scores):.2f} ({min(scores):.2f} to {max(scores):.2f})")
        noise_level = float(noise)
        epsilon_text = f"{float(f'{epsilon(noise_level):.2g}'):,.0f}" if noise_level else "∞"
        lines.append(f"| {noise_level:g} | {epsilon_text} | {' | '.join(cells)} |")
    norms = [norm for row in rows for norm in row["norms"]]
    return "\n".join(
        [
            *lines,
            "",
            "Adjusted Rand index of FINCH's clusters against the true domains, mean (least to most) over sources",
            f"{', '.join(dict.fromkeys(row['source'] for row in rows))}, of {result['draws']} draws each. "
            f"`--clip-moments {result['clip']:g}`;",
            f"norms are {min(norms):.0f} to {max(norms):.0f}. Digit-Five files, one source model each, at most "
            f"{result['images']} training images a client. ε at δ = 1e-5 for",
            f"replacing all images of a client. {on_machines([result['environment']])} "
            "`python benchmarks/moment_noise.py`.",
        ]
    )


def megabytes(sizes: list[int]) -> str:
    """Bytes by round as text in MB; one number if all are equal."""
    texts = [f"{size / 1e6:.2f}" if size > 1e5 else f"{size / 1e6:.3f}" for size in sizes]
    return texts[0] if len(set(texts)) == 1 else ", ".join(texts)


def wire() -> str:
    """Table of bytes predicted by the bench and measured, and of accuracy, by method and upload."""
    result = read("uploads")
    lines = [
        "| Method | uploads | down, by round | up, by round | up, all rounds | accuracy |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for line in result["lines"]:
        method, upload = LABELS[line["aggregator"]], line["what"]
        if upload == "full precision":
            predicted = result["predicted"][line["aggregator"]]
            cells = [megabytes(predicted[name]) for name in ("bytes_down", "bytes_up")]
            lines.append(f"| {method} | predicted by the bench | {cells[0]} | {cells[1]} | | |")
        total = sum(line["bytes_up"]) / 1e6
        lines.append(
            f"| {method} | {upload} | {megabytes(line['bytes_down'])} | {megabytes(line['bytes_up'])} | {total:.2f} "
            f"| {line['accuracy']:.1f} |"
        )
    settings, machines = result["settings"], name_machines(environments(result, result["lines"]))
    return "\n".join(
        [
            *lines,
            "",
            f"MB of one client's messages. digits-mini, {settings['clients']} clients with at most "
            f"{settings['samples']} images each before the split,",
            f"{settings['rounds']} rounds of {settings['training']['epochs']} epochs, one seed; the source model alone "
            f"has {result['source_only']:.1f} %. {machines}.",
            "`benchmarks/federation.py uploads`, numbers in `benchmarks/results/uploads.json`.",
        ]
    )


def signature() -> str:
    """Table of clusters if the first layers were uploaded in full, rounded or thinned."""
    result = read("uploads")
    lines = ["| first layers uploaded | clusters | adjusted Rand index |", "|---|---|--:|"]
    for name, clustering in result["clusterings"].items():
        lines.append(f"| {name} | {', '.join(map(str, clustering['sizes']))} | {clustering['ari']:.2f} |")
    note = "FINCH after round 0, sizes of clusters and index against the true domains; same setting as above."
    return "\n".join([*lines, "", note, on_machines([result["environment"]])])


def defences() -> str:
    """Table of the accuracy of seven clients by what the eighth does and by the defence."""
    result = read("federation")
    measured = {(line["what"], line["aggregator"]): line for line in result["lines"]}
    rows = {
        "nobody lies": "nobody lies",
        "no defence": "one of eight lies",
        "`norm_bound=3`": "one lies, norm bound 3",
        "`robust=median`": "one lies, median",
        "`robust=trimmed`": "one lies, trimmed mean",
    }
    medians = _spread(measured["nobody lies, median", "fedavg:weighting=uniform"])
    lines = ["| | FedAvg, uniform | FedWCA |", "|---|--:|--:|"]
    for label, case in rows.items():
        cells = [_spread(measured[case, aggregator]) for aggregator in ("fedavg:weighting=uniform", "wca")]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    lines.append(f"| nobody lies, `robust=median` | {medians} | – |")
    return "\n".join([*lines, "", on_machines(environments(result, result["lines"]))])


def _spread(line: dict[str, Any]) -> str:
    """Accuracy as mean ± standard deviation over seeds."""
    return f"{line['accuracy']:.1f}±{line['std']:.1f}"


def noise() -> str:
    """Table of ε and accuracy, by clipping and noise."""
    result = read("federation")
    plain = next(line for line in result["lines"] if (line["what"], line["aggregator"]) == ("full precision", "fedavg"))
    lines = [
        "| `--clip` | `--noise` | ε | accuracy |",
        "|--:|--:|--:|--:|",
        f"| none | 0 | ∞ | {_spread(plain)} |",
    ]
    for line in (line for line in result["lines"] if line["what"].startswith("clip")):
        clip, added = (part.split()[1] for part in line["what"].split(", "))
        value = float(f"{line['epsilon']:.2g}") if line["epsilon"] else math.inf
        text = "∞" if math.isinf(value) else f"{value:,.1f}" if value < 10 else f"{value:,.0f}"
        lines.append(f"| {clip} | {added if float(added) else 0} | {text} | {_spread(line)} |")
    return "\n".join([*lines, "", on_machines(environments(result, result["lines"]))])


def cost() -> str:
    """Table of the memory, time and bytes of a client's process, by model and message."""
    result = read("client_cost")
    lines = [
        "| Model | message | peak memory, MB | of it libraries | CPU seconds | down, MB | up, MB | kept on disk, MB |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    names = {"lenet": "LeNet, 32×32", "resnet18": "ResNet-18, 224×224"}
    for line in result["lines"]:
        message = "round 0" if not line["round"] else f"FedWCA, {line['models_sent']} models sent"
        lines.append(
            f"| {names[line['model']]} | {message} | {line['peak_mb']:,} | {line['libraries_mb']} "
            f"| {line['cpu_seconds']:.1f} | {line['bytes_down'] / 1e6:.1f} | {line['bytes_up'] / 1e6:.1f} "
            f"| {line['disk_mb']:.0f} |"
        )
    environment = result["environment"]
    return "\n".join(
        [
            *lines,
            "",
            f"{result['lines'][0]['images']} images, {result['epochs']} epoch of batches of 64, one thread of "
            f"{environment['cpu']} with other work beside it;",
            "`benchmarks/client_cost.py`, numbers in `benchmarks/results/client_cost.json`.",
        ]
    )


def messages() -> str:
    """Table of what a message costs a client: to start a program for it, and to answer it in a fork."""
    result = read("federation_messages")
    lines = [
        "| CPU seconds to start a program for a message | of a message in a fork | seconds of it | load |",
        "|--:|--:|--:|--:|",
    ]
    for line in result["lines"]:
        seconds = f"{min(line['seconds']):.1f} to {max(line['seconds']):.1f}"
        lines.append(
            f"| {line['start_cpu_seconds']:.1f} | {line['cpu_seconds']:.2f} | {seconds} | {line['load']:.0f} |"
        )
    environment = result["environment"]
    return "\n".join(
        [
            *lines,
            "",
            f"Messages after the first round; the SuperNode itself is not counted. {environment['cores']} cores of",
            f"{environment['cpu']}, a federation a line.",
            "`benchmarks/federation.py messages`, numbers in `benchmarks/results/federation_messages.json`.",
        ]
    )


def rounds() -> str:
    """Table of the time and memory of a deployment's rounds with almost no training."""
    result = read("federation_rounds")
    lines = [
        "| seconds a round, median (least to most) | CPU seconds of all programs | MB of a client |",
        "|--:|--:|--:|",
    ]
    for line in result["lines"]:
        seconds, memory = line["seconds"], line["client_megabytes"]
        spread = f"{statistics.median(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f})"
        lines.append(f"| {spread} | {line['cpu_seconds']:.1f} | {memory['least']} to {memory['most']} |")
    environment, clients = result["environment"], result["lines"][0]["clients"]
    return "\n".join(
        [
            *lines,
            "",
            f"A federation a line: FedWCA, LeNet, {clients} clients with 30 images, an epoch a round. All programs",
            f"are on the same {environment['cores']} cores of {environment['cpu']} and share the memory of libraries:",
            "each is counted its part.",
            "`benchmarks/federation.py rounds`, numbers in `benchmarks/results/federation_rounds.json`.",
        ]
    )


def draw(path: Path) -> None:
    """Plot MB sent to one client by round (left), and accuracy against MB that it uploads in all (right)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = read("uploads")["lines"]
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    sent_axes, accuracy_axes = figure.subplots(1, 2)
    for line in (line for line in lines if "precision" in line["what"]):
        style = "--" if line["what"].startswith("half") else "-"
        label = f"{LABELS[line['aggregator']]}, {line['what'][:4]}"
        sent_axes.plot([size / 1e6 for size in line["bytes_down"]], style, label=label)
    sent_axes.set(
        xlabel="round", ylabel="MB sent to a client", xticks=range(len(lines[0]["bytes_down"])), ylim=(0, None)
    )
    sent_axes.legend(fontsize=6)
    for aggregator, marker in (("fedavg", "o"), ("wca", "s")):
        measured = [line for line in lines if line["aggregator"] == aggregator]
        uploaded = [sum(line["bytes_up"]) / 1e6 for line in measured]
        accuracy_axes.plot(uploaded, [line["accuracy"] for line in measured], marker, label=LABELS[aggregator])
        for x, line in zip(uploaded, measured, strict=True):
            accuracy_axes.annotate(f" {line['what']}", (x, line["accuracy"]), fontsize=5, rotation=30)
    accuracy_axes.set(xlabel="MB that a client uploads in all rounds", ylabel="accuracy, %", xscale="log")
    accuracy_axes.margins(x=0.25, y=0.3)
    accuracy_axes.legend(fontsize=6)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    draw(RESULTS / "federation.png")
