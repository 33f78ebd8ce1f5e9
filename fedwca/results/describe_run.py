"""Descriptions of a run for titles, tables and notes, from its configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedwca.core.count_of import count_of
from fedwca.core.printable import printable
from fedwca.registry import canonical_name


def special_domain(config: Mapping[str, Any]) -> str:
    """The source or target domain of a run, with its kind in front; the partition if it has neither.

    >>> special_domain({"source": "mnist"}), special_domain({"source": None, "target": "usps"})
    ('source mnist', 'target usps')
    >>> special_domain({"source": None, "partition": "shards"})
    'partition shards'
    """
    if config.get("target"):
        return f"target {config['target']}"
    return f"source {config['source']}" if config.get("source") else f"partition {config.get('partition', 'domains')}"


def first_model(config: Mapping[str, Any]) -> str:
    """What a run's clients start from: a source model trained at the server, a checkpoint, or an untrained model.

    >>> first_model({"source": "mnist"}), first_model({"source": None, "target": "usps"})
    ('source model', 'untrained model')
    >>> first_model({"target": "usps", "checkpoint": "model.safetensors"})
    'given model'
    """
    if config.get("source"):
        return "source model"
    return "given model" if config.get("checkpoint") else "untrained model"


def describe_rounds(start: str, records: Iterable[Mapping[str, Any]]) -> str:
    """What an axis of rounds counts.

    Args:
        start: the model of round 0.
        records: those drawn; a last phase is counted as a round.

    >>> describe_rounds("source model", [{"round": 0}])
    'rounds done (0: the source model)'
    >>> describe_rounds("untrained model", [{"round": 3, "phase": "finish"}])
    'rounds done (0: the untrained model); a last phase counts as one more'
    """
    last_phase = "; a last phase counts as one more" if any("phase" in record for record in records) else ""
    return f"rounds done (0: the {start}){last_phase}"


def shown_round(chosen: bool, last: str = "last round") -> str:
    """A phrase for the round whose accuracies a table shows.

    Args:
        chosen: whether it is the best round of training clients, see `fedwca.results.shown_records.shown_records`.
        last: name of the last round.

    >>> shown_round(False), shown_round(True)
    ('after the last round', "in the round that was best on training clients' validation images")
    """
    return "in the round that was best on training clients' validation images" if chosen else f"after the {last}"


def describe_spread(sizes: Sequence[int]) -> str:
    """A phrase for what the standard deviations of a table are taken over.

    Args:
        sizes: number of counted runs of each method; lower where some diverged.

    >>> describe_spread([1, 1]), describe_spread([3, 3])
    ('n = 1 run, so there is no spread', 'mean ± std (ddof 1) over n = 3 runs')
    >>> describe_spread([3, 1])
    'mean ± std (ddof 1) over n = 1 to 3 runs (a method that diverged has fewer)'
    """
    low, high = min(sizes, default=0), max(sizes, default=0)  # a summary may have lost its methods
    if high <= 1:
        return f"n = {count_of(high, 'run')}, so there is no spread"
    if low == high:
        return f"mean ± std (ddof 1) over n = {high} runs"
    return f"mean ± std (ddof 1) over n = {low} to {high} runs (a method that diverged has fewer)"


def describe_deviation(mark: str, runs: int) -> str:
    """A phrase for what bands or whiskers of a picture show; `describe_single_run` where there is at most one run.

    >>> describe_deviation("band", 3), describe_deviation("band", 1)
    ('band: one standard deviation over 3 runs', 'one run, so no spread')
    """
    return f"{mark}: one standard deviation over {runs} runs" if runs > 1 else describe_single_run(runs)


def describe_single_run(measured: int) -> str:
    """A phrase for at most one run: there is no spread, or without test images, or if it diverged, nothing at all.

    >>> describe_single_run(1), describe_single_run(0)
    ('one run, so no spread', 'nothing is measured')
    """
    return "one run, so no spread" if measured else "nothing is measured"


def run_title(dataset: str, config: Mapping[str, Any], domains: Sequence[str], has_newcomers: bool = False) -> str:
    """The title of a run, in one line.

    Args:
        dataset: name of the data set.
        config: the run's configuration.
        domains: domain of each client that trains; empty if the run was stopped before they were recorded.
        has_newcomers: whether new clients, who are not counted here, come after the training.

    >>> config = {"source": "mnist", "clients": 2, "rounds": 9, "seed": 0}
    >>> run_title("digits", config, ["usps", "usps", "svhn", "svhn"])
    'digits, source mnist, 2 clients per target domain, 9 rounds, seed 0'
    >>> run_title("digits", config, ["usps", "usps", "svhn"])
    'digits, source mnist, 3 clients, 9 rounds, seed 0'
    >>> run_title("digits", {"partition": "shards", "clients": 3, "rounds": 9, "seed": 0}, ["a", "a", "a"], True)
    'digits, partition shards, 3 training clients, 9 rounds, seed 0'
    """
    special, clients = special_domain(config), config["clients"]
    has_special_domain = not special.startswith("partition")
    clients_per_domain = set(Counter(domains).values()) or {clients}
    clients_text = count_of(len(domains) or clients, "training client" if has_newcomers else "client")
    if clients_per_domain == {clients} and (has_special_domain or len(domains) > clients):
        clients_text = f"{count_of(clients, 'client')} per {'target ' if config.get('source') else ''}domain"
    return f"{dataset}, {special}, {clients_text}, {count_of(config['rounds'], 'round')}, seed {config['seed']}"


def data_name(config: Mapping[str, Any]) -> str:
    """The name of the data in tables, titles and folders: the data set, or the folder or repository it comes from.

    >>> data_name({"dataset": "digits_mini"}), data_name({"dataset": "folder", "data": "images/fruit"})
    ('digits_mini', 'fruit')
    >>> data_name({"dataset": "hub", "components": {"dataset": {"hub": {"repository": "OWNER/Fruit"}}}})
    'fruit'
    """
    dataset = str(config["dataset"])
    fields = config.get("components", {}).get("dataset", {}).get(dataset, {})
    place = {"folder": fields.get("dataset") or config.get("data"), "hub": fields.get("repository")}.get(dataset)
    name = canonical_name(printable(Path(place).name)).replace(" ", "_") if place else ""
    return name or printable(dataset)


def data_and_domain(config: Mapping[str, Any], name: str | None = None) -> str:
    """The data's name and the run's special domain, as titles have them; ``name``: that of the data set that was read.

    >>> data_and_domain({"dataset": "digits_mini", "source": "neon"})
    'digits_mini, source neon'
    """
    return f"{name or data_name(config)}, {special_domain(config)}"


def trained_methods(methods: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Names of the methods that train, in rounds or centrally; ``methods`` as in ``config.json``."""
    return {name for name, method in methods.items() if method["rounds"] or is_central(method)}


def is_central(method: Mapping[str, Any]) -> bool:
    """Whether a method, as in ``config.json``, is trained in one place."""
    return any(part["kind"] == "central" for part in method.get("components", ()))
