"""The tables of docs/internals/performance.md and engines.md, from what peers/run.py and others wrote."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from readings import name_machine, noted

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
"""CPU seconds of a round over the fewest, above which it was disturbed."""
FEW = 4
"""Rounds of which a disturbed one shows in the median; of more the median passes over it."""


def read(name: str) -> dict[str, Any]:
    """A result file."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def made(result: dict[str, Any]) -> str:
    """On what and of what a result was made."""
    environment = result["environment"]
    return f"{name_machine(environment)}, torch {environment['versions']['torch']}"


def loads(cases: list[dict[str, Any]]) -> str:
    """Load averages from the least to the most."""
    seen = [case["load_average"] for case in cases]
    return f"{min(seen)} to {max(seen)}" if min(seen) < max(seen) else f"{seen[0]}"


def disturbed(rounds: list[dict[str, float]]) -> bool:
    """Whether what stands for a peer's rounds, all of the same work, is too far from the least disturbed of them."""
    cpu = [each["cpu"] for each in rounds]
    return (max(cpu) if len(cpu) < FEW else statistics.median(cpu)) > DISTURBED * min(cpu)


def peers() -> str:
    """A row a peer: median seconds of a round, their range, and ours over theirs; what is lost is marked."""
    if not (RESULTS / "peers.json").exists():
        return "Not measured at full size yet."
    result = read("peers")
    median = {
        peer: {clock: statistics.median(r[clock] for r in rounds) for clock in ("cpu", "wall")}
        for peer, rounds in result["rounds"].items()
    }
    columns = ("peer", "CPU seconds a round", "least to most", "wall", "fedwca CPU over its", "fedwca wall over its")
    lines = []
    for peer, rounds in result["rounds"].items():
        cpu, ratios = [r["cpu"] for r in rounds], []
        for clock in ("cpu", "wall"):
            ratio = median[OURS][clock] / median[peer][clock]
            ratios.append("" if peer == OURS else f"**lost** {ratio:.2f}" if ratio > 1 else f"{ratio:.2f}")
        if disturbed(rounds):
            ratios = ["–", "–"]
        name, own = "; ".join([NAMES[peer], *result["peers"][peer]]), median[peer]
        spread = f"{min(cpu):.1f} to {max(cpu):.1f}"
        lines.append([name, f"{own['cpu']:.1f}", spread, f"{own['wall']:.1f}", *ratios])
    sizes, every = result["sizes"], [r for rounds in result["rounds"].values() for r in rounds]
    notes = [
        f"{sizes['clients']} clients of {sizes['images']} images, {sizes['epochs']} epoch, {sizes['workers']} workers "
        f"(the plain loop and PFLlib: one process); medians of {len(every) // len(result['rounds'])} rounds",
        f"each, runs of each peer in turn: {result['repeats']}. {made(result)}; load averages of",
        f"{loads(every)}. CPU seconds are over all processes of a peer.",
    ]
    if max(each["load_average"] for each in every) > 2 * result["environment"]["cores"]:
        notes.append("The cores had more to do than this, so wall times say little.")
    for peer, rounds in result["rounds"].items():
        if disturbed(rounds):
            notes.append(
                f"CPU seconds of {NAMES[peer]} differ too much between rounds to be its own: other work got in."
            )
    notes += [f"Left out: {why}." for why in result["absent"].values()]
    return noted(Table("", columns, lines), notes)


def cpu_targets(name: str = "cpu_targets") -> str:
    """A row a target, and one for the loop written by hand: the ratio, and on what it was measured."""
    result = read(name)
    columns = ("over the plain loop, but the last", "target", "measured", "met", "load average", "on")
    lines = []
    for name, own in sorted(result["targets"].items(), key=lambda entry: "FedWCA" in entry[0]):
        met = ["–", str(own["ratio"]), ""]
        if "target" in own:
            met = [str(own["target"]), str(own["ratio"]), "yes" if own["met"] else "no"]
        pairs = f"{own['environment']['cpu']}, {own['clients']} clients, {len(own['seconds'])} pairs"
        lines.append([name, *met, str(own["load_average"]), pairs])
    peak = result["share of the peak"]
    notes = [
        f"Share of the peak: {peak['mflops_an_image']} million FLOPs an image and epoch, at {peak['gflops']} GFLOPS of "
        f"{peak['peak_gflops']}, which a product",
        f"of float32 matrices of 1024² reaches on one core in turns with it: {peak['share']} (median of turns; "
        f"{peak['environment']['cpu']}).",
    ]
    return noted(Table("", columns, lines), notes)


def gate() -> str:
    """A row an engine and a loss: how often the gate alarmed."""
    found = json.loads((RESULTS.parent / "gate.json").read_text())["engines"]
    columns = ("engine", "what is measured", "alarms", "ratio, median", "least to most", "turns", "load average")
    lines = [
        [
            kind,
            name,
            f"{case['alarms']} of {case['runs']}" + (f", {case['undecided']} open" if case.get("undecided") else ""),
            f"{case['ratios'][1]:.2f}",
            f"{case['ratios'][0]:.2f} to {case['ratios'][2]:.2f}",
            f"{case['turns'][0]} to {case['turns'][2]}",
            f"{case['load_average'][0]} to {case['load_average'][1]}",
        ]
        for kind, own in found.items()
        for name, case in own.items()
        if isinstance(case, dict) and "alarms" in case
    ]
    usual = ", ".join(f"{own['ratio']:.3f} ({kind})" for kind, own in found.items())
    seconds = found["loop"]["as it is"]["cpu_seconds_a_run"]
    environment = found["loop"]["environment"]
    notes = [
        f"Usual ratios: {usual}; limits are a tenth above. A run of the loop takes {seconds} CPU seconds.",
        f"{environment['cores']} cores of {environment['cpu']}, torch {environment['versions']['torch']}.",
    ]
    if any(isinstance(case, dict) and case.get("undecided") for own in found.values() for case in own.values()):
        notes.append("Open: stopped after 13 turns, most of them over the limit, before a side led by ten.")
    return noted(Table("", columns, lines, heads=2), notes)


def many_clients() -> str:
    """A row a federation: what a round of the same few clients costs."""
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
    """A row a kind of signatures, of as many clients as the target is for; earlier runs beside the last."""
    result = read("finch_scale")
    cases = [case for case in result["cases"] if case["clients"] == result["target"]["clients"]]
    clocks = ("seconds", "cpu_seconds", "recall", "mb_peak", "load_average")
    lines = []
    for case in cases:
        earlier = [f"{old['seconds']} ({old['load_average']})" for old in case.get("earlier", ())]
        lines.append([case["signatures"], *(str(case[name]) for name in clocks), ", ".join(earlier)])
    heads = ("seconds", "CPU seconds", "recall", "peak MB", "load average", "earlier runs, seconds (load average)")
    sizes = f"{cases[0]['clients']:,} clients of {cases[0]['values']} values, {cases[0]['threads']} threads"
    return noted(Table("", ("signatures", *heads), lines), [f"{sizes}. {made(result)}."])


def kernels() -> str:
    """A row a model and precision: CPU seconds of a step by candidate, over eager's."""
    result = read("kernels")
    names = list(result["cases"][0]["candidates"])
    head = " | ".join(f"{name}, over eager | apart" for name in names[1:])
    lines = [
        f"| model | clients × images | precision | eager, s | apart | {head} | compiling, s | taken |",
        "|---|---|---|--:|--:|" + "--:|" * (2 * len(names) - 1) + "---|",
    ]
    for case in result["cases"]:
        found = case["candidates"]
        cells = [case["model"], f"{case['clients']} × {case['batch']}", case["precision"]]
        cells += [f"{found['eager']['seconds']:.3f}", f"{found['eager']['apart']:.0e}"]
        for name in names[1:]:
            own = found[name]
            failed = "error" in own
            cells += (
                [own["error"], ""]
                if failed
                else [f"{own['seconds'] / found['eager']['seconds']:.2f}", f"{own['apart']:.0e}"]
            )
        cells.append(f"{found['compile'].get('first_seconds', float('nan')):.0f}" if "compile" in found else "")
        cells.append(case["best"])
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "*apart*: distance of a gradient from that in float64, by its norm. Compiling by the clock, with a first step.",
        f"{made(result)}, load averages of {loads(result['cases'])}.",
    ]
    return "\n".join(lines)


def mixed() -> str:
    """A row a round: images that are mixed, places there are for them, and what all places would cost."""
    result = read("mixed")
    columns = ("mixed, share of a step's images", "places", "rows of a step with a place for all, over counted")
    shares = ("mixed", "places", "all_places_over_counted")
    lines = [[str(own["round"]), *(f"{own[share]:.2f}" for share in shares)] for own in result["rounds"]]
    notes = [
        "16 clients, source mnist, seed 0 (`python benchmarks/mixed.py`); in round 0 one model gives both labels.",
        f"{made(result)}.",
    ]
    return noted(Table("", ("round", *columns), lines, heads=0), notes)


def by_hand() -> str:
    """A row a number of clients: CPU seconds of each way, and the first over vmap."""
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
    """A row a size of images, precision and kind of work: milliseconds of both ways, and their ratio."""
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
    told = f"CPU milliseconds of an image of the backbone, {result['batch']} at once, one thread. {made(result)}."
    return noted(Table("", heads, lines, heads=3), [told])


def profile_round() -> str:
    """A row a method, a column a phase: seconds of one round with all images, and their share of the round."""
    if not (RESULTS / "profile_round.json").exists():
        return "Not measured yet: `python benchmarks/profile_round.py`."
    result = read("profile_round")
    rows = [
        [
            label,
            f"{seconds['round']:.1f}",
            *(f"{seconds[p]:.1f} ({100 * seconds[p] / seconds['round']:.0f} %)" for p in PHASES),
        ]
        for label, seconds in result["seconds"].items()
    ]
    config, training = result["config"], result["config"]["training"]
    notes = [
        f"Seconds of round {result['round'] + 1}, preset paper, source {config['source']}, {result['clients']} clients",
        f"with all their images, {training['epochs']} epochs, one worker; {made(result)}.",
    ]
    return noted(Table("", ("method", "round", *PHASES), rows), notes)
