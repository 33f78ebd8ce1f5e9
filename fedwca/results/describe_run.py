"""What titles, tables and notes say of a run, from values of its configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedwca.core.printable import printable


def count_of(number: int, what: str) -> str:
    """``1 round``, ``2 rounds``."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def special_domain(config: Mapping[str, Any]) -> str:
    """The one domain of a run that is unlike the others, and what it is; the partition, where domains do not differ.

    >>> special_domain({"source": "mnist"}), special_domain({"source": None, "target": "usps"})
    ('source mnist', 'target usps')
    >>> special_domain({"source": None, "partition": "shards"})
    'partition shards'
    """
    if config.get("target"):
        return f"target {config['target']}"
    return f"source {config['source']}" if config.get("source") else f"partition {config.get('partition', 'domains')}"


def first_model(config: Mapping[str, Any]) -> str:
    """What a run's clients begin with: a source model that was trained at the server, one of a checkpoint, or one that
    nobody has trained.

    >>> first_model({"source": "mnist"}), first_model({"source": None, "target": "usps"})
    ('source model', 'untrained model')
    >>> first_model({"target": "usps", "checkpoint": "model.safetensors"})
    'given model'
    """
    if config.get("source"):
        return "source model"
    return "given model" if config.get("checkpoint") else "untrained model"


def shown_round(chosen: bool, last: str = "last round") -> str:
    """Which round's accuracies tables show.

    Args:
        chosen: whether it is one that training clients were best in, see `fedwca.results.table_rows.shown_records`.
        last: how the last one is called.

    >>> shown_round(False), shown_round(True)
    ('after the last round', "in the round that was best on training clients' validation images")
    """
    return "in the round that was best on training clients' validation images" if chosen else f"after the {last}"


def describe_spread(sizes: Sequence[int]) -> str:
    """What the deviations of a table are over.

    Args:
        sizes: of each method, runs that are counted: fewer where some diverged.

    >>> describe_spread([1, 1]), describe_spread([3, 3])
    ('n = 1 run, so there is no spread', 'mean ± std (ddof 1) over n = 3 runs')
    >>> describe_spread([3, 1])
    'mean ± std (ddof 1) over n = 1 to 3 runs (a method that diverged has fewer)'
    """
    low, high = min(sizes), max(sizes)
    if high <= 1:
        return f"n = {count_of(high, 'run')}, so there is no spread"
    if low == high:
        return f"mean ± std (ddof 1) over n = {high} runs"
    return f"mean ± std (ddof 1) over n = {low} to {high} runs (a method that diverged has fewer)"


def run_title(dataset: str, config: Mapping[str, Any], domains: Sequence[str]) -> str:
    """What was run, in a line.

    Args:
        dataset: what it is called.
        config: of the run.
        domains: of each client that is no newcomer; none where the run was stopped before it could say them.

    >>> config = {"source": "mnist", "clients": 2, "rounds": 9, "seed": 0}
    >>> run_title("digits", config, ["usps", "usps", "svhn", "svhn"])
    'digits, source mnist, 2 clients per target domain, 9 rounds, seed 0'
    >>> run_title("digits", config, ["usps", "usps", "svhn"])
    'digits, source mnist, 3 clients, 9 rounds, seed 0'
    """
    special, clients = special_domain(config), config["clients"]
    named, each = not special.startswith("partition"), set(Counter(domains).values()) or {clients}
    who = count_of(len(domains) or clients, "client")
    if each == {clients} and (named or len(domains) > clients):
        who = f"{count_of(clients, 'client')} per {'target ' if config.get('source') else ''}domain"
    return f"{dataset}, {special}, {who}, {count_of(config['rounds'], 'round')}, seed {config['seed']}"


def data_name(dataset: str, data: str | Path | None) -> str:
    """What tables, titles and folders call the data: its name, or that of the folder of domains."""
    return printable((Path(data).name if dataset == "folder" and data else "") or dataset)


def trained_methods(methods: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Names of methods that train, in rounds or at one place, of what ``config.json`` says of methods."""
    central = {name for name, own in methods.items() if any(part["kind"] == "central" for part in own["components"])}
    return central | {name for name, own in methods.items() if own["rounds"]}
