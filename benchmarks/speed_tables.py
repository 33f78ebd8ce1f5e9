"""The tables of docs/internals/performance.md and engines.md, from what peers/run.py and others wrote."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from readings import environments, name_machine, noted

from fedwca.results.phase_seconds import PHASES
from fedwca.results.tables import Table

RESULTS = Path(__file__).resolve().parent / "results"
NAMES = {
    "plain": "plain loop",
    "fedwca": "fedwca",
    "flower": "Flower simulation",
    "pfl": "pfl-research",
    "pfllib": "PFLlib",
}
OURS = "fedwca"
DISTURBED = 1.3
"""Ratio to the fewest CPU seconds of a round above which rounds count as disturbed by other work."""
FEW = 4
"""With fewer rounds than this a single disturbed one changes the median."""


def read(name: str) -> dict[str, Any]:
    """A result file."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return result


def made(result: dict[str, Any]) -> str:
    """The hardware and the torch version that a result was made with."""
    environment = result["environment"]
    return f"{name_machine(environment)}, torch {environment['versions']['torch']}"


def loads(cases: list[dict[str, Any]]) -> str:
    """The range of load averages."""
    values = [case["load_average"] for case in cases]
    return f"{min(values)} to {max(values)}" if min(values) < max(values) else f"{values[0]}"


def disturbed(rounds: list[dict[str, float]]) -> bool:
    """Whether a peer's CPU seconds exceed `DISTURBED` times the fewest of its rounds, which all do the same work.

    The median is compared; with fewer than `FEW` rounds, the maximum.
    """
    cpu = [record["cpu"] for record in rounds]
    return (max(cpu) if len(cpu) < FEW else statistics.median(cpu)) > DISTURBED * min(cpu)


def peers() -> str:
    """One row per peer: median seconds of a round, their range, and ours over theirs, marked "lost" above 1."""
    if not (RESULTS / "peers.json").exists():
        return "Not measured at full size yet."
    result = read("peers")
    medians = {
        peer: {clock: statistics.median(record[clock] for record in rounds) for clock in ("cpu", "wall")}
        for peer, rounds in result["rounds"].items()
    }
    columns = ("peer", "CPU seconds a round", "least to most", "wall", "fedwca CPU over its", "fedwca wall over its")
    lines = []
    for peer, rounds in result["rounds"].items():
        cpu, ratios = [record["cpu"] for record in rounds], []
        for clock in ("cpu", "wall"):
            ratio = medians[OURS][clock] / medians[peer][clock]
            ratios.append("" if peer == OURS else f"**lost** {ratio:.2f}" if ratio > 1 else f"{ratio:.2f}")
        if disturbed(rounds):
            ratios = ["–", "–"]
        name, peer_medians = "; ".join([NAMES[peer], *result["peers"][peer]]), medians[peer]
        spread = f"{min(cpu):.1f} to {max(cpu):.1f}"
        lines.append([name, f"{peer_medians['cpu']:.1f}", spread, f"{peer_medians['wall']:.1f}", *ratios])
    sizes, all_rounds = result["sizes"], [record for rounds in result["rounds"].values() for record in rounds]
    notes = [
        f"{sizes['clients']} clients of {sizes['images']} images, {sizes['epochs']} epoch, {sizes['workers']} workers "
        f"(the plain loop and PFLlib: one process); medians of {len(all_rounds) // len(result['rounds'])} rounds",
        f"each, runs of each peer in turn: {result['repeats']}. {made(result)}; load averages of",
        f"{loads(all_rounds)}. CPU seconds are over all processes of a peer.",
    ]
    if max(record["load_average"] for record in all_rounds) > 2 * result["environment"]["cores"]:
        notes.append("The cores had more to do than this, so wall times say little.")
    for peer, rounds in result["rounds"].items():
        if disturbed(rounds):
            notes.append(
                f"CPU seconds of {NAMES[peer]} differ too much between rounds to be its own: other work got in."
            )
    notes += [f"Left out: {reason}." for reason in result["absent"].values()]
    return noted(Table("", columns, lines), notes)


def cpu_targets(name: str = "cpu_targets") -> str:
    """One row per target, and one for the loop written by hand: the ratio, and what it was measured on."""
    result = read(name)
    columns = ("over the plain loop, but the last", "target", "measured", "met", "load average", "on")
    lines = []
    for name, entry in sorted(result["targets"].items(), key=lambda item: "FedWCA" in item[0]):
        cells = ["–", str(entry["ratio"]), ""]
        if "target" in entry:
            cells = [str(entry["target"]), str(entry["ratio"]), "yes" if entry["met"] else "no"]
        setting = f"{entry['environment']['cpu']}, {entry['clients']} clients, {len(entry['seconds'])} pairs"
        lines.append([name, *cells, str(entry["load_average"]), setting])
    peak = result["share of the peak"]
    notes = [
        f"Share of the peak: {peak['mflops_an_image']} million FLOPs an image and epoch, at {peak['gflops']} GFLOPS of "
        f"{peak['peak_gflops']}, which a product",
        f"of float32 matrices of 1024² reaches on one core in turns with it: {peak['share']} (median of turns; "
        f"{peak['environment']['cpu']}).",
    ]
    return noted(Table("", columns, lines), notes)


def gate() -> str:
    """One row per engine, half of the gate and loss of speed: how often it raised an alarm."""
    engines = json.loads((RESULTS.parent / "gate.json").read_text())["engines"]
    columns = ("engine", "timed", "what", "alarms", "ratio, median", "least to most", "turns", "load average")
    lines = [
        [
            kind,
            half,
            name,
            f"{case['alarms']} of {case['runs']}",
            f"{case['ratios'][1]:.2f}",
            f"{case['ratios'][0]:.2f} to {case['ratios'][2]:.2f}",
            f"{case['turns'][0]} to {case['turns'][2]}",
            f"{case['load_average'][0]} to {case['load_average'][1]}",
        ]
        for kind, part in engines.items()
        for half in part
        if half.startswith("beside")
        for name, case in part[half].items()
    ]
    usual_ratios = ", ".join(f"{part['ratio']:.3f} ({kind})" for kind, part in engines.items())
    seconds = engines["loop"]["beside the hand-written loop"]["as it is"]["cpu_seconds_a_run"]
    environment = engines["loop"]["environment"]
    notes = [
        f"Usual ratios: {usual_ratios}; limits are a tenth above. A run of the loop takes {seconds} CPU seconds.",
        f"{environment['cores']} cores of {environment['cpu']}, torch {environment['versions']['torch']}.",
    ]
    return noted(Table("", columns, lines, heads=3), notes)


def many_clients() -> str:
    """One row per size of a federation: the cost of a round in which equally many clients take part."""
    result = read("many_clients")
    columns = ("clients", "of them in a round", "CPU seconds a round", "wall", "training", "evaluation")
    lines = []
    for case in result["cases"]:
        seconds = case["seconds"]
        cells = [case["clients"], case["present"], case["cpu_seconds_a_round"], case["wall_seconds_a_round"]]
        cells += [seconds["round"], seconds["evaluate"], case["bank_mb"], case["peak_mb"]]
        lines.append([str(cell) for cell in cells])
    setting = result["setting"]
    notes = [
        f"FedAvg, LeNet with a bottleneck of {setting['model']['lenet']['bottleneck']}, {setting['images']} images a "
        "client before the split, one worker; medians of",
        "later rounds, checkpoints included; training and evaluation in seconds by the clock; the peak is of the whole",
        "process.",
        f"{made(result)}, under load (load averages of {loads(result['cases'])}): CPU seconds say",
        "more than wall time.",
    ]
    return noted(Table("", (*columns, "bank MB", "peak MB"), lines, heads=0), notes)


def finch_scale() -> str:
    """One row per kind of signatures, for the number of clients of the target; earlier runs in a last column."""
    result = read("finch_scale")
    cases = [case for case in result["cases"] if case["clients"] == result["target"]["clients"]]
    keys = ("seconds", "cpu_seconds", "recall", "mb_peak", "load_average")
    lines = []
    for case in cases:
        earlier = [f"{run['seconds']} ({run['load_average']})" for run in case.get("earlier", ())]
        lines.append([case["signatures"], *(str(case[key]) for key in keys), ", ".join(earlier)])
    heads = ("seconds", "CPU seconds", "recall", "peak MB", "load average", "earlier runs, seconds (load average)")
    sizes = f"{cases[0]['clients']:,} clients of {cases[0]['values']} values, {cases[0]['threads']} threads"
    machines = dict.fromkeys(made({"environment": machine}) for machine in environments(result, cases))
    return noted(Table("", ("signatures", *heads), lines), [f"{sizes}. {'; '.join(machines)}."])


def kernels() -> str:
    """One row per model and precision: CPU seconds of a step with eager kernels, and each candidate's over these."""
    result = read("kernels")
    names = list(result["cases"][0]["candidates"])
    head = " | ".join(f"{name}, over eager | apart" for name in names[1:])
    lines = [
        f"| model | clients × images | precision | eager, s | apart | {head} | compiling, s | taken |",
        "|---|---|---|--:|--:|" + "--:|" * (2 * len(names) - 1) + "---|",
    ]
    for case in result["cases"]:
        candidates = case["candidates"]
        cells = [case["model"], f"{case['clients']} × {case['batch']}", case["precision"]]
        cells += [f"{candidates['eager']['seconds']:.3f}", f"{candidates['eager']['apart']:.0e}"]
        for name in names[1:]:
            candidate = candidates[name]
            failed = "error" in candidate
            cells += (
                [candidate["error"], ""]
                if failed
                else [f"{candidate['seconds'] / candidates['eager']['seconds']:.2f}", f"{candidate['apart']:.0e}"]
            )
        cells.append(
            f"{candidates['compile'].get('first_seconds', float('nan')):.0f}" if "compile" in candidates else ""
        )
        cells.append(case["best"])
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "*apart*: distance of a gradient from that in float64, by its norm. Compiling by the clock, with a first step.",
        f"{made(result)}, load averages of {loads(result['cases'])}.",
    ]
    return "\n".join(lines)


def mixed() -> str:
    """One row per round: shares of mixed images and of places for them, and rows with all places over counted ones."""
    result = read("mixed")
    columns = ("mixed, share of a step's images", "places", "rows of a step with a place for all, over counted")
    shares = ("mixed", "places", "all_places_over_counted")
    lines = [[str(entry["round"]), *(f"{entry[share]:.2f}" for share in shares)] for entry in result["rounds"]]
    notes = [
        "16 clients, source mnist, seed 0 (`python benchmarks/mixed.py DATA`); in round 0 one model gives both labels.",
        f"{made(result)}.",
    ]
    return noted(Table("", ("round", *columns), lines, heads=0), notes)


def by_hand() -> str:
    """One row per number of clients: CPU seconds of each way, and the first over the last, plain vmap."""
    result = read("by_hand")
    ways = list(result["cases"][0]["seconds"])
    lines = [
        f"| clients × images | {' | '.join(f'{way}, CPU s' for way in ways)} | first over last, median | quarters |",
        f"|---|{'--:|' * (len(ways) + 1)}---|",
    ]
    for case in result["cases"]:
        low, high = case["first_over_last"]["quarters"]
        seconds = " | ".join(f"{case['seconds'][way]:.3f}" for way in ways)
        ratio = f"{case['first_over_last']['median']:.2f} | {low:.2f} to {high:.2f}"
        lines.append(f"| {case['clients']} × {case['batch']} | {seconds} | {ratio} |")
    return "\n".join([*lines, "", f"{made(result)}; {result['cases'][0]['steps']} rounds, each way in turn."])


def small_maps() -> str:
    """One row per image size, precision and kind of work: milliseconds of both ways, and their ratio."""
    result = read("small_maps")
    ways = list(result["cases"][0]["milliseconds"])
    lines = [
        [
            f"{case['side']}",
            case["precision"],
            case["work"],
            *(f"{case['milliseconds'][way]:.2f}" for way in ways),
            "{:.2f}".format(case["ratio"]["median"]),
            "{:.2f} to {:.2f}".format(*case["ratio"]["quarters"]),
        ]
        for case in result["cases"]
    ]
    heads = ("pixels", "precision", "work", *(f"{way}, CPU ms" for way in ways), "ratio, median", "quarters")
    note = f"CPU milliseconds of an image of the backbone, {result['batch']} at once, one thread. {made(result)}."
    return noted(Table("", heads, lines, heads=3), [note])


def profile_round() -> str:
    """One row per method, one column per phase: seconds of one round with all images, and their share of the round."""
    if not (RESULTS / "profile_round.json").exists():
        return "Not measured yet: `python benchmarks/profile_round.py`."
    result = read("profile_round")
    phases = [phase for phase in PHASES if all(phase in seconds for seconds in result["seconds"].values())]
    rows = [
        [
            label,
            f"{seconds['round']:.1f}",
            *(f"{seconds[phase]:.1f} ({100 * seconds[phase] / seconds['round']:.0f} %)" for phase in phases),
        ]
        for label, seconds in result["seconds"].items()
    ]
    config, training = result["config"], result["config"]["training"]
    notes = [
        f"Seconds of round {result['round'] + 1}, preset paper, source {config['source']}, {result['clients']} clients",
        f"with all their images, {training['epochs']} epochs, one worker; {made(result)}.",
    ]
    return noted(Table("", ("method", "round", *phases), rows), notes)
