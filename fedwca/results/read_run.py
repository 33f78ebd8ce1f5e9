"""A run on disk: read whatever version wrote it, its rounds when they are asked for."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from fedwca.core.plain_values import digest_plain_values, to_plain
from fedwca.errors import FedwcaError
from fedwca.results import lock
from fedwca.results.describe_run import count_of, data_name, first_model, run_title
from fedwca.results.diverged_runs import Divergence, counted_rounds, ended_rounds, find_divergences
from fedwca.results.read_run_files import read_configuration, read_environment, read_notes, read_records, read_summary
from fedwca.results.table_rows import Record, Row, summarise, table_rows
from fedwca.results.trial_key import TrialKey


@dataclass(frozen=True)
class Run:
    """What a run left behind, finished or not; files besides ``config.json`` are read when they are asked for.

    Each of them raises a `FedwcaError` that names the file, and the line, where it is damaged.
    """

    path: Path
    """The run folder."""
    about: Mapping[str, Any]
    """What ``config.json`` holds."""

    @property
    def name(self) -> str:
        """Of the folder."""
        return self.path.resolve().name

    @property
    def config(self) -> Mapping[str, Any]:
        """The resolved configuration."""
        return self.about["config"]  # type: ignore[no-any-return]

    @property
    def first_model(self) -> str:
        """What its clients begin with, in words."""
        return first_model(self.config)

    @property
    def methods(self) -> Mapping[str, Mapping[str, Any]]:
        """By name: label, rounds, components; the composed method is last."""
        return self.about["methods"]  # type: ignore[no-any-return]

    @property
    def origins(self) -> Mapping[str, str]:
        """Dotted keys of the configuration, with where each value that was set came from."""
        return self.about.get("origins", {})  # type: ignore[no-any-return]

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """What ``summary.json`` holds; empty where there is none yet."""
        return read_summary(self.path)

    @cached_property
    def environment(self) -> Mapping[str, Any]:
        """What ``environment.json`` holds; empty where there is none."""
        return read_environment(self.path)

    @cached_property
    def notes(self) -> Mapping[str, Any]:
        """The user's ``note`` and ``tags``; empty ones where there are none."""
        return read_notes(self.path)

    @cached_property
    def lines(self) -> Sequence[Record]:
        """Lines of ``rounds.jsonl``; none where the file is not kept."""
        return read_records(self.path)

    @cached_property
    def records(self) -> Sequence[Record]:
        """Those of rounds that came to their end."""
        return ended_rounds(self.lines)

    @cached_property
    def diverged(self) -> Mapping[str, Mapping[TrialKey, Divergence]]:
        """Runs (source model, trial) that diverged, by method."""
        return find_divergences(self.lines)

    @property
    def timing(self) -> Mapping[str, Any]:
        """Seconds of the whole run and of each method."""
        return self.summary.get("timing", {})  # type: ignore[no-any-return]

    @property
    def complete(self) -> bool:
        """Whether it ran to its end."""
        return self.summary.get("complete") is True

    @property
    def state(self) -> Literal["done", "stopped", "running"]:
        """Whether it ran to its end, a process is at work on it, or neither; a summary that is damaged says nothing."""
        if lock.is_locked(self.path):
            return "running"
        try:
            return "done" if self.complete else "stopped"
        except FedwcaError:
            return "stopped"

    @property
    def time(self) -> datetime:
        """When it began."""
        if written := self.environment.get("time"):
            return datetime.fromisoformat(written).astimezone()
        return datetime.fromtimestamp((self.path / "config.json").stat().st_mtime).astimezone()

    @property
    def title(self) -> str:
        """What was run, in a line."""
        c = self.config
        trained = len(self.domains) - self.about.get("newcomers", 0)
        return run_title(data_name(c["dataset"], c.get("data")), c, self.domains[:trained])

    @cached_property
    def domains(self) -> Sequence[str]:
        """True domain of each client, K names; made up where the run was killed before it could say them."""
        if self.about.get("domains"):
            return tuple(self.about["domains"])
        # An older run: clients come domain after domain, equally many of each.
        each = int(self.config["clients"])
        if entries := self.summary.get("methods"):
            return tuple(name for name in next(iter(entries.values()))["domains"] for _ in range(each))
        clients = max((len(record["accuracy"]) for record in self.lines), default=0)
        return tuple(f"target {client // each + 1}" for client in range(clients))

    @property
    def classes(self) -> tuple[str, ...]:
        """Their names; none of a run of an earlier release."""
        return tuple(self.about.get("classes", ()))

    @property
    def own(self) -> str:
        """Name of the composed method."""
        return list(self.methods)[-1]

    @property
    def accuracy(self) -> float | None:
        """Percent, of the composed method; None before it has any."""
        # What a process that was killed left in summary.json may be behind its records.
        entries = self.summary.get("methods", {}) if self.complete else self.results
        return entries.get(self.own, {}).get("mean")

    @cached_property
    def results(self) -> Mapping[str, Mapping[str, Any]]:
        """Results of each method that left some, as ``methods`` in ``summary.json``; a label says what is missing.

        They are made anew from the records, unless the run is complete and its records are not all there.
        """
        if not self.lines or (self.complete and not self.whole):
            entries = self.summary.get("methods", {})
        else:
            entries = to_plain(summarise(self.table))
        if self.complete:
            return entries  # type: ignore[no-any-return]
        return {name: {**entry, "label": f"{entry['label']}{self._behind(name)}"} for name, entry in entries.items()}

    @property
    def labels(self) -> dict[str, str]:
        """Display label of each method that left something, in the order of the table."""
        return {name: str(entry["label"]) for name, entry in self.results.items()}

    @cached_property
    def runs(self) -> list[TrialKey]:
        """Every (source model, trial) that left a record."""
        return sorted({TrialKey.of(record) for record in self.records})

    @property
    def count(self) -> int:
        """Source models × trials: how often each method is run."""
        return int(self.config["source_models"]) * int(self.config["trials"])

    def rounds(self, method: str, trial: TrialKey | None = None) -> list[Record]:
        """A method's records in order, the source model's (round -1) first; of one trial, or of all."""
        return [r for r in self.records if r["method"] == method and trial in (None, TrialKey.of(r))]

    def counted_rounds(self, method: str) -> list[Record]:
        """A method's records in order, of the runs that means are of; see `counted_rounds`."""
        return counted_rounds([record for record in self.lines if record["method"] == method])

    def done(self, method: str) -> list[int]:
        """Rounds that are on record, a number for each run of a method that was begun; one that diverged needs no more
        than it has.
        """
        last = dict.fromkeys(self.diverged.get(method, ()), self.methods[method]["rounds"])
        for record in self.rounds(method):
            trial = TrialKey.of(record)
            last[trial] = max(last.get(trial, 0), record["round"] + 1)
        return list(last.values())

    def seconds(self, method: str) -> float | None:
        """By the clock, a run of a method, rounds and evaluation: the mean over those begun, or None if unknown."""
        total = self.timing.get("methods", {}).get(method)
        return None if total is None else float(total) / (len(self.done(method)) or self.count)

    @property
    def whole(self) -> bool:
        """Whether the last round of every method and run is on record, or that in which it diverged."""
        return all(self.done(name) == [about["rounds"]] * self.count for name, about in self.methods.items())

    @cached_property
    def table(self) -> list[Row]:
        """A row per method, from the last round of each run that is on record; see `whole`."""
        labels = {name: str(about["label"]) for name, about in self.methods.items()}
        return table_rows(self.lines, labels, self.domains)

    def _behind(self, method: str) -> str:
        """What a method's results lack, for its label; nothing where all its rounds are done."""
        done, rounds = self.done(method), self.methods[method]["rounds"]
        if not done or done == [rounds] * self.count:
            return ""
        rounds_done = " to ".join(map(str, sorted({min(done), max(done)})))
        parts = [f"{rounds_done} of {count_of(rounds, 'round')}"] if min(done) < rounds else []
        parts += [f"{len(done)} of {count_of(self.count, 'run')}"] if len(done) < self.count else []
        return f" ({', '.join(parts)})"


def began_with(run: Run) -> dict[str, str]:
    """What is known of a run besides its settings, in words: tags, note, command and commit; only what there is."""
    notes, around = run.notes, run.environment
    found = {
        "Tags": ", ".join(notes["tags"]),
        "Note": notes["note"],
        "Command": around.get("command"),
        "Commit": around.get("commit"),
    }
    return {what: said for what, said in found.items() if said}


def read_run(run: Path) -> Run:
    """A run of any version up to this one.

    Raises:
        FedwcaError: its configuration is damaged, or of a later version.
    """
    return Run(run, read_configuration(run))


def read_if_run(run: Path) -> Run | None:
    """A run, or None where the folder holds none or its configuration or summary cannot be read."""
    try:
        if not (run / "config.json").is_file():
            return None
        found = read_run(run)
        found.complete  # noqa: B018  # reads the summary
        return found
    except FedwcaError:
        return None


def remove_run(run: Path) -> None:
    """Remove a run folder, and the link to it where ``run`` is one; no process can work on it meanwhile.

    ``config.json`` goes first, so that what an interruption leaves is no run.

    Raises:
        UsageError: a process is at work on it.
        FedwcaError: a file of it cannot be removed.
    """
    folder = run.resolve()
    held = lock.hold_lock(run)
    try:
        (folder / "config.json").unlink()
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != lock.NAME:
                entry.unlink()
        # Network file systems keep a file that is open under another name, so the lock's file goes when it is closed.
        held.release()
        shutil.rmtree(folder)
        if run.is_symlink():
            run.unlink()
    except OSError as error:
        raise FedwcaError(f"{run}: cannot be removed ({error.strerror or error})") from None
    finally:
        held.release()


def run_identity(about: Mapping[str, Any]) -> str:
    """Hash of what decides a run's numbers: its configuration less what changes none, and every method's components.

    Checkpoints carry it, so a folder says itself what its hash leaves out; the older ones left out ``workers`` alone.
    """
    left_out = about.get("identity_without", ("workers",))
    config = {key: value for key, value in about["config"].items() if key not in left_out}
    return digest_plain_values(to_plain({"config": config, "methods": about["methods"]}))
