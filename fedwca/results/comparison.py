"""Several methods over several sources, or targets: samples, paired differences, and their plain form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fedwca.results.describe_run import first_model, shown_round
from fedwca.results.diverged_runs import NOTE, Divergence, mark_divergence
from fedwca.results.results_table import ON_REQUEST, check_columns
from fedwca.results.statistics import FEWEST, Difference, Sample, paired_difference, sample_of
from fedwca.results.table_rows import NUMBERS, Row
from fedwca.results.tables import MISSING, Cell, Table, difference_cell, sample_cell

SourceTrial = tuple[str, int, int]
"""(source domain or target, source model, trial)."""


@dataclass(frozen=True)
class Comparison:
    """Trial means of methods on one data set: the mean over clients in the round that is shown, in percent."""

    dataset: str
    labels: Mapping[str, str]
    """Method to what tables call it, in the order of the table."""
    sources: tuple[str, ...]
    """Source domains; targets where ``named`` says so."""
    runs: Mapping[str, Mapping[SourceTrial, float]]
    """Method to its trial means."""
    reference: str | None = None
    """Method that differences are taken to."""
    named: str = "source"
    """What the one domain of a run is that is unlike the others: source or target; partition, where there is none."""
    chosen: bool = False
    """Whether accuracies are of rounds that training clients were best in, and not of the last ones."""
    diverged: Mapping[str, Mapping[SourceTrial, Divergence]] = field(default_factory=dict)
    """Method to its runs that diverged, which are not in `runs`."""
    numbers: Mapping[str, Mapping[str, Mapping[SourceTrial, float]]] = field(default_factory=dict)
    """Method to what else is known of its runs, by the names of `fedwca.results.table_rows.count_numbers`."""
    trained: frozenset[str] = frozenset()
    """Methods that train."""
    first: str = ""
    """What clients began with, see `first_model`; empty: as ``named`` says."""

    @staticmethod
    def of(dataset: str, tables: Mapping[str, list[Row]], reference: str | None, named: str = "source") -> Comparison:
        """From one table for each source, or target."""
        labels = {row.name: row.label for table in tables.values() for row in table}
        runs: dict[str, dict[SourceTrial, float]] = {name: {} for name in labels}
        diverged: dict[str, dict[SourceTrial, Divergence]] = {name: {} for name in labels}
        numbers: dict[str, dict[str, dict[SourceTrial, float]]] = {name: {} for name in labels}
        for source, table in tables.items():
            for row in table:
                runs[row.name] |= {(source, *trial): value for trial, value in row.runs.items()}
                diverged[row.name] |= {(source, *trial): one for trial, one in row.diverged.items()}
                for name, values in row.numbers.items():
                    numbers[row.name].setdefault(name, {}).update({(source, *trial): v for trial, v in values.items()})
        chosen = any(row.shown for table in tables.values() for row in table)
        known = reference if reference in labels else None
        return Comparison(dataset, labels, tuple(tables), runs, known, named, chosen, diverged, numbers)

    def part(self, method: str, source: str | None = None) -> dict[SourceTrial, float]:
        """A method's trial means for one source; None: for all of them together."""
        return {run: value for run, value in self.runs[method].items() if source in (None, run[0])}

    def diverged_part(self, method: str, source: str | None = None) -> list[Divergence]:
        """A method's runs that diverged, for one source; None: for all of them together."""
        return [one for run, one in self.diverged.get(method, {}).items() if source in (None, run[0])]

    def mark(self, method: str, source: str | None = None) -> str:
        """What stands behind a method's name where some of these runs diverged: how many."""
        found = self.diverged_part(method, source)
        return mark_divergence(found, len(found) + len(self.part(method, source)))

    def sample(self, method: str, source: str | None = None) -> Sample:
        """Mean, standard deviation (ddof 1) and n of `part`; over all sources this is a paper's "Avg." row."""
        return sample_of(list(self.part(method, source).values()))

    def number(self, method: str, name: str, source: str | None = None) -> Sample | None:
        """As `sample`, of one of the method's ``numbers``; None where no run has it."""
        found = [v for run, v in self.numbers.get(method, {}).get(name, {}).items() if source in (None, run[0])]
        return sample_of(found) if found else None

    def difference(self, method: str, source: str | None = None) -> Difference | None:
        """Paired difference to the reference; None for the reference itself or where there is none."""
        if self.reference is None or method == self.reference:
            return None
        return paired_difference(self.part(method, source), self.part(self.reference, source))

    def flat(self) -> list[dict[str, Any]]:
        """One entry for each method and source, and for all sources together where there are several."""
        parts = [*self.sources, *([None] if len(self.sources) > 1 else [])]
        return [
            {
                "method": method,
                "label": label + self.mark(method, source),
                "source": source or f"all runs of all {self.named}s",
                **asdict(self.sample(method, source)),
                "diverged": len(self.diverged_part(method, source)),
                **{name: self._plain_number(method, name, source) for name in NUMBERS},
                "difference": asdict(found) if (found := self.difference(method, source)) else None,
            }
            for method, label in self.labels.items()
            for source in parts
        ]

    def __str__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()

    def table(self, requested: Sequence[str] = ()) -> Table:
        """A row per method: a column per source, or target, all runs together where they are several, the difference.

        Args:
            requested: columns of `ON_REQUEST`, each over all runs together.

        Raises:
            UsageError: there is no such column.
        """
        more = check_columns(requested, tuple(ON_REQUEST))
        several, named = len(self.sources) > 1, self.named
        first = self.first or first_model({named: self.sources[0]})
        reference = self.labels[self.reference] if self.reference else None
        columns = ["method", *self.sources, *(["Avg."] if several else [])]
        columns += [ON_REQUEST[name] for name in more]
        columns += [f"to {reference} [95 % CI]", "Wilcoxon p"] if reference else []
        lines = []
        for method, label in self.labels.items():
            cells = [sample_cell(self.sample(method, source)) for source in self.sources]
            cells += [sample_cell(self.sample(method))] if several else []
            numbers = [self.number(method, name) for name in more]
            cells += [Cell("") if number is None else sample_cell(number) for number in numbers]
            if reference:
                difference = self.difference(method)
                cells += [difference_cell(difference), _p(difference)]
            lines.append([label + self.mark(method), *cells])
        counts = {self.sample(method, source).n for method in self.labels for source in self.sources}
        each = " to ".join(map(str, sorted({min(counts), max(counts)})))
        what = named if several else f"{named} {self.sources[0]}"
        title = f"{self.dataset}: accuracy in percent {shown_round(self.chosen)}, by {what}"
        notes = [f"Mean ± std (ddof 1) over n = {each} runs ({first}s × trials) of a {named}."]
        if several:
            total = max(self.sample(method).n for method in self.labels)
            notes.append(
                f"Avg.: mean ± std over all {total} runs of all {named}s, so its spread is also that between {named}s."
            )
        if reference:
            notes.append(
                f"Differences are paired by {named}, {first} and trial; Student's t interval; "
                f"Wilcoxon signed-rank from {FEWEST} pairs on."
            )
        notes += [NOTE] if any(self.diverged.values()) else []
        return Table(title, tuple(columns), lines, notes)

    def _plain_number(self, method: str, name: str, source: str | None) -> dict[str, float | None] | None:
        found = self.number(method, name, source)
        return None if found is None else {"mean": found.mean, "std": found.std}

    def plain(self) -> dict[str, Any]:
        """Everything as JSON values; accuracies in percent, differences in points."""
        runs = {
            method: [{"source": s, "source_model": m, "trial": t, "mean": v} for (s, m, t), v in found.items()]
            for method, found in self.runs.items()
        }
        return {
            "dataset": self.dataset,
            "named": self.named,
            "reference": self.reference,
            "rows": self.flat(),
            "runs": runs,
        }


def _p(difference: Difference | None) -> Cell:
    if difference is None:
        return Cell("")
    return Cell(MISSING if difference.p is None else f"{difference.p:.3g}", difference.p)
