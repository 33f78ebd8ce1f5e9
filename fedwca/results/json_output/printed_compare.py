"""Output of ``fedwca compare``."""

from __future__ import annotations

from typing import Literal

from fedwca.results.json_output.printed_values import MoreNumbers, Percent, PrintedValues, SpreadMean, TrialMean


class PrintedDifference(PrintedValues):
    """Difference to the reference method, paired by run, in percentage points."""

    mean: float
    """Mean of the paired differences."""
    std: float | None
    """Standard deviation of the paired differences (ddof 1). Null for a single pair."""
    n: int
    """Number of pairs."""
    low: float | None
    """Lower bound of the 95 % confidence interval (Student's t). Null for a single pair."""
    high: float | None
    """Upper bound of the 95 % confidence interval (Student's t). Null for a single pair."""
    p: float | None
    """Two-sided p-value of the Wilcoxon signed-rank test. Null if there are too few pairs."""


class ComparisonRow(MoreNumbers[SpreadMean]):
    """Results of a method for one source or target domain, or for all of them together."""

    method: str
    """Name of the method."""
    label: str
    """Name of the method in tables. It also says how many runs diverged."""
    source: str
    """The source domain, target domain or partition; see ``named`` of the comparison. For all of them together, a
    phrase that says so."""
    mean: Percent
    """Mean accuracy over runs, in percent. Null if nothing could be measured."""
    std: float | None
    """Standard deviation of the accuracy over runs (ddof 1), in percentage points. Null for a single run."""
    n: int
    """Number of runs behind the means. Runs that diverged do not count."""
    diverged: int = 0
    """Number of runs that diverged."""
    domains: dict[str, Percent] = {}
    """Mean accuracy over the clients of each domain, in percent; empty in rows of all source domains together."""
    domain_stds: dict[str, float | None] = {}
    """Standard deviations of these means over runs (ddof 1), in percentage points."""
    difference: PrintedDifference | None
    """Difference to the reference. Null for the reference itself, or if there is none to compare with."""


class SourceTrialMean(TrialMean):
    """Accuracy of a method in one run of a comparison."""

    source: str
    """The source domain, target domain or partition; see ``named`` of the comparison."""


class PrintedComparison(PrintedValues):
    """Output of ``fedwca compare --format json``."""

    dataset: str
    """Name of the data set."""
    named: Literal["source", "target", "partition"] = "source"
    """What the field ``source`` of rows and runs contains: a source domain, a target domain or a partition."""
    reference: str | None
    """Name of the method that the others are compared with. Null if there is none."""
    rows: list[ComparisonRow]
    """Results of each method for each source or target domain, and for all of them together if there are several."""
    runs: dict[str, list[SourceTrialMean]]
    """Accuracy of each run, by name of the method."""
