"""Comparison of methods over several sources or targets: means, paired differences, and both as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from fedwca.data.dataset import canonical_domain
from fedwca.describe_problems import describe_unknown
from fedwca.errors import UsageError
from fedwca.registry import canonical_name
from fedwca.results.describe_run import first_model, shown_round
from fedwca.results.diverged_runs import NOTE, Divergence, mark_divergence
from fedwca.results.method_names import find_spelling
from fedwca.results.results_table import ON_REQUEST, check_columns
from fedwca.results.statistics import FEWEST, Difference, Sample, paired_difference, sample_of
from fedwca.results.table_rows import Row
from fedwca.results.tables import MISSING, Cell, Table, difference_cell, sample_cell

T = TypeVar("T")
SourceTrial = tuple[str, int, int]
"""(source domain or target, source model, trial)."""


@dataclass(frozen=True)
class Comparison:
    """Trial means of methods on one data set: mean accuracy over clients in the shown round, in percent."""

    dataset: str
    labels: Mapping[str, str]
    """Label of each method, in the order of the table."""
    sources: tuple[str, ...]
    """Source domains, or what else ``named`` says."""
    runs: Mapping[str, Mapping[SourceTrial, float]]
    """Trial means of each method."""
    reference: str | None = None
    """Method that the others are compared with."""
    named: str = "source"
    """What ``sources`` holds: source or target, the one domain of a run that differs from the others, or partition."""
    chosen: bool = False
    """Whether the shown rounds are those that were best for training clients, instead of the last ones."""
    diverged: Mapping[str, Mapping[SourceTrial, Divergence]] = field(default_factory=dict)
    """Diverged runs of each method; they are not in `runs`."""
    numbers: Mapping[str, Mapping[str, Mapping[SourceTrial, float]]] = field(default_factory=dict)
    """Further numbers of each method's runs, by the names of `fedwca.results.table_rows.count_numbers`."""
    domains: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]] = field(default_factory=dict)
    """Mean accuracies over the clients of each domain, one per run: by method, by source or target, and by domain."""
    trained: frozenset[str] = frozenset()
    """Names of the methods that train."""
    first: str = ""
    """The model that clients start from, see `first_model`; empty: the one that follows from ``named``."""

    @staticmethod
    def of(
        dataset: str, tables: Mapping[str, Sequence[Row]], reference: str | None, named: str = "source"
    ) -> Comparison:
        """A comparison from one table per source or target."""
        labels = {row.name: row.label for table in tables.values() for row in table}
        runs: dict[str, dict[SourceTrial, float]] = {name: {} for name in labels}
        diverged: dict[str, dict[SourceTrial, Divergence]] = {name: {} for name in labels}
        numbers: dict[str, dict[str, dict[SourceTrial, float]]] = {name: {} for name in labels}
        by_domain: dict[str, dict[str, Mapping[str, Sequence[float]]]] = {name: {} for name in labels}
        for source, table in tables.items():
            for row in table:
                by_domain[row.name][source] = row.domains
                runs[row.name] |= {(source, *trial): value for trial, value in row.runs.items()}
                diverged[row.name] |= {(source, *trial): divergence for trial, divergence in row.diverged.items()}
                for name, values in row.numbers.items():
                    numbers[row.name].setdefault(name, {}).update({(source, *trial): v for trial, v in values.items()})
        chosen = any(row.shown for table in tables.values() for row in table)
        present_reference = reference if reference in labels else None
        return Comparison(
            *(dataset, labels, tuple(tables), runs, present_reference, named, chosen, diverged, numbers, by_domain)
        )

    def part(self, method: str, source: str | None = None) -> dict[SourceTrial, float]:
        """A method's trial means for one source; None: for all sources together.

        Raises:
            UsageError: no method or source has this name, however it is spelled; likewise below.
        """
        return _of_source(self.runs[self._method(method)], self._source(source))

    def diverged_part(self, method: str, source: str | None = None) -> list[Divergence]:
        """A method's diverged runs for one source; None: for all sources together."""
        return list(_of_source(self.diverged.get(self._method(method), {}), self._source(source)).values())

    def mark(self, method: str, source: str | None = None) -> str:
        """Suffix of a method's label: how many of these runs diverged; empty if none did."""
        divergences = self.diverged_part(method, source)
        return mark_divergence(divergences, len(divergences) + len(self.part(method, source)))

    def sample(self, method: str, source: str | None = None) -> Sample:
        """Mean, standard deviation (ddof 1) and n of `part`; over all sources this is a paper's "Avg." row."""
        return sample_of(list(self.part(method, source).values()))

    def number(self, method: str, name: str, source: str | None = None) -> Sample | None:
        """As `sample`, for one of the method's ``numbers``; None if no run has it.

        Raises:
            UsageError: there is no such number.
        """
        if (number := canonical_name(name)) not in ON_REQUEST:
            raise UsageError(describe_unknown("number", name, ON_REQUEST))
        values = _of_source(self.numbers.get(self._method(method), {}).get(number, {}), self._source(source))
        return sample_of(list(values.values())) if values else None

    def domain(self, method: str, name: str, source: str) -> Sample:
        """As `sample`, for the clients of one domain in the runs of one source; n is 0 where the method has none.

        Raises:
            UsageError: no client is of such a domain.
        """
        by_name = {canonical_domain(known): known for known in self.domain_names(source)}
        if (domain := by_name.get(canonical_domain(name))) is None:
            raise UsageError(describe_unknown("domain", name, list(by_name.values())))
        return sample_of(self.domains.get(self._method(method), {}).get(self._source(source) or "", {}).get(domain, ()))

    def domain_names(self, source: str) -> list[str]:
        """Domains of clients in the runs of one source, as far as they are known."""
        by_method = [self.domains.get(method, {}).get(self._source(source) or "", {}) for method in self.labels]
        return list(dict.fromkeys(name for domains in by_method for name in domains))

    def difference(self, method: str, source: str | None = None) -> Difference | None:
        """Paired difference to the reference; None for the reference itself, without a reference or without pairs."""
        if self.reference is None or self._method(method) == self.reference:
            return None
        return paired_difference(self.part(method, source), self.part(self.reference, source))

    def _method(self, name: str) -> str:
        if (found := find_spelling(self.labels, name)) is None:
            raise UsageError(describe_unknown("method", name, self.labels))
        return found

    def _source(self, name: str | None) -> str | None:
        if name is None:
            return None
        spelled = (source for source in self.sources if canonical_domain(source) == canonical_domain(name))
        if (found := next(spelled, None)) is None:
            raise UsageError(describe_unknown(self.named, name, self.sources))
        return found

    def flat(self) -> list[dict[str, Any]]:
        """One entry per method and source, and one per method for all sources together if there are several."""
        parts = [*self.sources, *([None] if len(self.sources) > 1 else [])]
        return [
            {
                "method": method,
                "label": label + self.mark(method, source),
                "source": source or f"all runs of all {self.named}s",
                **asdict(self.sample(method, source)),
                "diverged": len(self.diverged_part(method, source)),
                **{name: self._plain_number(method, name, source) for name in ON_REQUEST},
                "domains": {name: sample.mean for name, sample in self._by_domain(method, source).items()},
                "domain_stds": {name: sample.std for name, sample in self._by_domain(method, source).items()},
                "difference": asdict(difference) if (difference := self.difference(method, source)) else None,
            }
            for method, label in self.labels.items()
            for source in parts
        ]

    def __str__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()

    def table(self, requested: Sequence[str] = ()) -> Table:
        """A row per method: its accuracy, and its difference to the reference.

        Of several sources there is a column for each, and one for all runs together; of one source there is a column
        for each domain of clients, and the mean over all clients.

        Args:
            requested: names of further columns in `ON_REQUEST`, each over all runs together.

        Raises:
            UsageError: there is no such column.
        """
        extra_columns = check_columns(requested, tuple(ON_REQUEST))
        several, kind = len(self.sources) > 1, self.named
        start_model = self.first or first_model({kind: self.sources[0]})
        reference = self.labels[self.reference] if self.reference else None
        domains = [] if several else self.domain_names(self.sources[0])
        domains = domains if len(domains) > 1 else []
        columns = ["method", *([*self.sources, "Avg."] if several else [*domains, "mean"])]
        columns += [ON_REQUEST[name] for name in extra_columns]
        columns += [f"to {reference} [95 % CI]", "Wilcoxon p"] if reference else []
        rows = []
        for method, label in self.labels.items():
            cells = [sample_cell(self.domain(method, domain, self.sources[0])) for domain in domains]
            cells += [sample_cell(self.sample(method, source)) for source in self.sources]
            cells += [sample_cell(self.sample(method))] if several else []
            numbers = [self.number(method, name) for name in extra_columns]
            cells += [Cell("") if number is None else sample_cell(number) for number in numbers]
            if reference:
                difference = self.difference(method)
                cells += [difference_cell(difference), _p(difference)]
            rows.append([label + self.mark(method), *cells])
        counts = {self.sample(method, source).n for method in self.labels for source in self.sources}
        runs_per_source = " to ".join(map(str, sorted({min(counts), max(counts)})))
        grouping = f"by {kind}" if several else f"{kind} {self.sources[0]}"
        title = f"{self.dataset}: accuracy in percent {shown_round(self.chosen)}, {grouping}"
        notes = [f"Mean ± std (ddof 1) over n = {runs_per_source} runs ({start_model}s × trials) of a {kind}."]
        if max(counts) < 2:
            spread = f"no {kind} has a spread" if several else "there is no spread"
            notes = [f"One run of each, so {spread}." if max(counts) else "No run gave a result."]
        if several:
            total = max(self.sample(method).n for method in self.labels)
            notes.append(
                f"Avg.: mean ± std over all {total} runs of all {kind}s, so its spread is also that between {kind}s."
            )
        if reference:
            notes.append(
                f"Differences are paired by {kind}, {start_model} and trial; Student's t interval; "
                f"Wilcoxon signed-rank from {FEWEST} pairs on."
            )
        notes += [NOTE] if any(self.diverged.values()) else []
        return Table(title, tuple(columns), rows, notes)

    def _by_domain(self, method: str, source: str | None) -> dict[str, Sample]:
        """A sample for each domain; none for all sources together."""
        return {} if source is None else {name: self.domain(method, name, source) for name in self.domain_names(source)}

    def _plain_number(self, method: str, name: str, source: str | None) -> dict[str, float | None] | None:
        sample = self.number(method, name, source)
        return None if sample is None else {"mean": sample.mean, "std": sample.std}

    def plain(self) -> dict[str, Any]:
        """Everything as JSON values; accuracies in percent, differences in points."""
        runs = {
            method: [{"source": s, "source_model": m, "trial": t, "mean": v} for (s, m, t), v in trials.items()]
            for method, trials in self.runs.items()
        }
        return {
            "dataset": self.dataset,
            "named": self.named,
            "reference": self.reference,
            "rows": self.flat(),
            "runs": runs,
        }


def _of_source(values: Mapping[SourceTrial, T], source: str | None) -> dict[SourceTrial, T]:
    return {run: value for run, value in values.items() if source in (None, run[0])}


def _p(difference: Difference | None) -> Cell:
    if difference is None:
        return Cell("")
    return Cell(MISSING if difference.p is None else f"{difference.p:.3g}", difference.p)
