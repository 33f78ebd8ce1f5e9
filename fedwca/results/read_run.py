"""Read run folders, of this version and earlier ones; large files are read on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from fedwca.core.count_of import count_of
from fedwca.core.plain_values import to_plain
from fedwca.errors import FedwcaError
from fedwca.results import lock
from fedwca.results.describe_run import data_name, first_model, is_central, run_title
from fedwca.results.diverged_runs import Divergence, ended_rounds, find_divergences
from fedwca.results.read_run_files import read_configuration, read_environment, read_notes, read_records, read_summary
from fedwca.results.shown_records import Record
from fedwca.results.table_rows import Row, summarise, table_rows
from fedwca.results.trial_key import TrialKey


@dataclass(frozen=True)
class Run:
    """A run on disk, finished or not; files other than ``config.json`` are read on first access.

    Reading a damaged file raises a `FedwcaError` that names the file, and the line.
    """

    path: Path
    """The run folder."""
    about: Mapping[str, Any]
    """Content of ``config.json``."""

    @property
    def name(self) -> str:
        """Name of the run folder."""
        return self.path.resolve().name

    @property
    def config(self) -> Mapping[str, Any]:
        """The resolved configuration."""
        return self.about["config"]  # type: ignore[no-any-return]

    @property
    def first_model(self) -> str:
        """What its clients start from, in words."""
        return first_model(self.config)

    def first_model_of(self, method: str) -> str:
        """What a method's clients start from, in words: its own model where it trained one at one place."""
        return "centrally trained model" if is_central(self.methods[method]) else self.first_model

    @property
    def first_models(self) -> str:
        """What its methods' clients start from, in words, each once."""
        return " or ".join(dict.fromkeys(map(self.first_model_of, self.labels)))

    @property
    def methods(self) -> Mapping[str, Mapping[str, Any]]:
        """Label, rounds and components of each method, by name; the composed method is last."""
        return self.about["methods"]  # type: ignore[no-any-return]

    @property
    def origins(self) -> Mapping[str, str]:
        """Source of each value that was set, by its dotted key in the configuration."""
        return self.about.get("origins", {})  # type: ignore[no-any-return]

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """Content of ``summary.json``; empty if there is none yet."""
        return read_summary(self.path)

    @cached_property
    def environment(self) -> Mapping[str, Any]:
        """Content of ``environment.json``; empty if there is none."""
        return read_environment(self.path)

    @cached_property
    def notes(self) -> Mapping[str, Any]:
        """The user's ``note`` and ``tags``; both are empty if there are none."""
        return read_notes(self.path)

    @cached_property
    def lines(self) -> Sequence[Record]:
        """Records in ``rounds.jsonl``, including those in which a run diverged; empty if the file is missing."""
        return read_records(self.path)

    @cached_property
    def records(self) -> Sequence[Record]:
        """Records of completed rounds: `lines` without those in which a run diverged."""
        return ended_rounds(self.lines)

    @cached_property
    def diverged(self) -> Mapping[str, Mapping[TrialKey, Divergence]]:
        """Diverged runs, by method and (source model, trial)."""
        return find_divergences(self.lines)

    @property
    def timing(self) -> Mapping[str, Any]:
        """Seconds of the whole run and of each method; empty if unknown."""
        return self.summary.get("timing", {})  # type: ignore[no-any-return]

    @property
    def complete(self) -> bool:
        """Whether the run finished."""
        return self.summary.get("complete") is True

    @property
    def state(self) -> Literal["done", "stopped", "running"]:
        """``running`` while a process works on it, else ``done`` or ``stopped``, which a damaged summary gives too."""
        if lock.is_locked(self.path):
            return "running"
        return "done" if self.is_done() else "stopped"

    def is_done(self) -> bool:
        """Whether the run finished, as `complete`; False if the summary is damaged."""
        try:
            return self.complete
        except FedwcaError:
            return False

    @property
    def time(self) -> datetime:
        """When the run started."""
        if start_time := self.environment.get("time"):
            return datetime.fromisoformat(start_time).astimezone()
        return datetime.fromtimestamp((self.path / "config.json").stat().st_mtime).astimezone()

    @property
    def dataset_name(self) -> str:
        """Name of the data set."""
        return str(self.about.get("dataset_name") or data_name(self.config))

    @property
    def title(self) -> str:
        """The title of the run, in one line."""
        c = self.config
        newcomers = self.about.get("newcomers", 0)
        return run_title(self.dataset_name, c, self.domains[: len(self.domains) - newcomers], newcomers > 0)

    @property
    def domains(self) -> Sequence[str]:
        """True domain of each client, K names; empty if the run was killed before they were recorded."""
        return tuple(self.about.get("domains", ()))

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; empty for runs of earlier releases."""
        return tuple(self.about.get("classes", ()))

    @property
    def composed(self) -> str:
        """Name of the composed method."""
        return list(self.methods)[-1]

    @property
    def accuracy(self) -> float | None:
        """Mean accuracy of the composed method in percent; None if there is none yet."""
        # If the process was killed, summary.json may be older than the records.
        entries = self.summary.get("methods", {}) if self.complete else self.results
        return entries.get(self.composed, {}).get("mean")

    @cached_property
    def results(self) -> Mapping[str, Mapping[str, Any]]:
        """Results of each method that has any, as ``methods`` in ``summary.json``; a label says what is missing.

        They are computed from the records, unless there are none or the run is complete and some of them are missing.
        """
        if not self.lines or (self.complete and not self.has_all_rounds):
            entries = self.summary.get("methods", {})
        else:
            entries = to_plain(summarise(self.table))
        if self.complete:
            return entries  # type: ignore[no-any-return]
        return {name: {**entry, "label": f"{entry['label']}{self._behind(name)}"} for name, entry in entries.items()}

    @property
    def labels(self) -> dict[str, str]:
        """Display label of each method that has results, in the order of the table."""
        return {name: str(entry["label"]) for name, entry in self.results.items()}

    @cached_property
    def runs(self) -> list[TrialKey]:
        """Each (source model, trial) with a record, sorted."""
        return sorted({TrialKey.of(record) for record in self.records})

    @property
    def count(self) -> int:
        """Number of runs of each method: source models × trials."""
        return int(self.config["source_models"]) * int(self.config["trials"])

    def rounds(self, method: str, trial: TrialKey | None = None) -> list[Record]:
        """A method's records in order, the source model's (round -1) first; of one trial, or of all if it is None."""
        return [r for r in self.records if r["method"] == method and trial in (None, TrialKey.of(r))]

    def averages_everybody(self, method: str) -> bool:
        """Whether a method has one group of all clients in all of its records, and nothing made that group."""
        records = self.rounds(method)
        return bool(records) and not any("clustering" in r or len(set(r.get("labels", ()))) > 1 for r in records)

    def lines_of(self, method: str) -> list[Record]:
        """A method's records in order, including those in which a run diverged."""
        return [record for record in self.lines if record["method"] == method]

    def rounds_done(self, method: str) -> list[int]:
        """Number of rounds on record for each started run of a method; a diverged run counts as having all rounds."""
        rounds_done = dict.fromkeys(self.diverged.get(method, ()), self.methods[method]["rounds"])
        for record in self.rounds(method):
            trial = TrialKey.of(record)
            rounds_done[trial] = max(rounds_done.get(trial, 0), record["round"] + 1)
        return list(rounds_done.values())

    def seconds(self, method: str) -> float | None:
        """Mean wall-clock seconds of a started run of a method, for rounds and evaluation; None if unknown."""
        total = self.timing.get("methods", {}).get(method)
        return None if total is None else float(total) / (len(self.rounds_done(method)) or self.count)

    @property
    def has_all_rounds(self) -> bool:
        """Whether every run of every method has its last round on record, or diverged."""
        return all(self.rounds_done(name) == [method["rounds"]] * self.count for name, method in self.methods.items())

    @cached_property
    def table(self) -> list[Row]:
        """A row per method, from the last round on record of each run; see `has_all_rounds`."""
        labels = {name: str(method["label"]) for name, method in self.methods.items()}
        return table_rows(self.lines, labels, self.domains)

    def _behind(self, method: str) -> str:
        """Suffix of a method's label for missing rounds or runs; empty if all rounds are done."""
        rounds_done, rounds = self.rounds_done(method), self.methods[method]["rounds"]
        if not rounds_done or rounds_done == [rounds] * self.count:
            return ""
        rounds_text = " to ".join(map(str, sorted({min(rounds_done), max(rounds_done)})))
        parts = [f"{rounds_text} of {count_of(rounds, 'round')}"] if min(rounds_done) < rounds else []
        parts += [f"{len(rounds_done)} of {count_of(self.count, 'run')}"] if len(rounds_done) < self.count else []
        return f" ({', '.join(parts)})"


def run_notes(run: Run) -> dict[str, str]:
    """Tags, note, command and commit of a run as text, by their headings; empty ones are left out."""
    notes, environment = run.notes, run.environment
    values = {
        "Tags": ", ".join(notes["tags"]),
        "Note": notes["note"],
        "Command": environment.get("command"),
        "Commit": environment.get("commit"),
    }
    return {name: text for name, text in values.items() if text}


def read_run(run: Path) -> Run:
    """Read a run of this or an earlier release.

    Raises:
        FedwcaError: its configuration is damaged, or of a later version.
    """
    return Run(run, read_configuration(run))


def read_if_run(run: Path) -> Run | None:
    """The run in a folder; None if it holds none, or its configuration or summary cannot be read."""
    try:
        if not (run / "config.json").is_file():
            return None
        loaded = read_run(run)
        loaded.complete  # noqa: B018  # reads the summary
        return loaded
    except FedwcaError:
        return None
