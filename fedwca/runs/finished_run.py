"""A run that has ended, as Python and notebooks see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedwca.config.run_config import RunConfig
from fedwca.errors import UsageError
from fedwca.results.change_notes import change_notes
from fedwca.results.describe_run import describe_spread, shown_round, special_domain
from fedwca.results.pictures.catalogue import PICTURES, PictureRequest, find_method, find_pictures
from fedwca.results.read_run import read_run
from fedwca.results.read_run_files import read_records
from fedwca.results.results_table import COLUMNS, narrow_columns, requested_columns, results_table
from fedwca.results.rounds_as_table import flatten_records
from fedwca.results.table_rows import Row
from fedwca.results.tables import Table, mean_cell
from fedwca.results.trial_key import TrialKey
from fedwca.runs.final_model_predictions import predictions_when_asked
from fedwca.runs.write_report import write_report


@dataclass(frozen=True, repr=False)
class FinishedRun:
    """A run that has ended; ``print`` shows its table, and so does a notebook."""

    config: RunConfig
    dataset: str
    """Name of the data set."""
    table: list[Row]
    """A row per method, the composed one last."""
    summary: dict[str, Any]
    """What ``summary.json`` holds."""
    path: Path
    """The run folder."""

    def records(self) -> list[dict[str, Any]]:
        """What was written down of each round: the lines of ``rounds.jsonl``."""
        return read_records(self.path)

    def results_table(self, narrow: bool = False, columns: Sequence[str] = ()) -> Table:
        """The table that ``fedwca bench`` prints: mean ± std over runs, by target domain, and to FedAvg.

        Args:
            narrow: without the columns that a terminal leaves out.
            columns: names of more, as of ``fedwca bench --column``.

        Raises:
            UsageError: there is no such column.
        """
        entries = [((entry["label"],), entry) for entry in self.summary["methods"].values()]
        spread = describe_spread([entry["n"] for _, entry in entries])
        where = f"{self.dataset}, {special_domain(self.config.model_dump())}"
        shown = shown_round(any("round" in entry for _, entry in entries))
        title = f"{where}: accuracy in percent {shown}, {spread}"
        shown_columns = [*(narrow_columns() if narrow else COLUMNS)]
        if columns:
            shown_columns += requested_columns(columns, read_run(self.path).classes, [entry for _, entry in entries])
        return results_table(title, entries, columns=shown_columns)

    def to_frame(self, of: Literal["methods", "rounds"] = "methods") -> Any:
        """Numbers as a ``pandas.DataFrame``.

        Args:
            of: methods: a row a method with its mean and spread, and each domain's; rounds: a row a method, source
                model, trial, round and client, as of ``fedwca runs export``.

        Raises:
            UsageError: pandas is not installed, or ``of`` is something else.
        """
        if of not in ("methods", "rounds"):
            raise UsageError(f"to_frame takes 'methods' or 'rounds', not {of!r}")
        try:
            import pandas
        except ImportError:
            raise UsageError("to_frame needs pandas, which is not installed: pip install 'fedwca[pandas]'") from None
        if of == "rounds":
            run = read_run(self.path)
            return pandas.DataFrame(flatten_records(self.records(), run.domains, run.classes))
        entries = self.summary["methods"]
        rows = [
            {
                "method": entry["label"],
                "mean": entry["mean"],
                "std": entry["std"],
                "runs": entry["n"],
                **entry["domains"],
            }
            for entry in entries.values()
        ]
        return pandas.DataFrame(rows, index=pandas.Index(list(entries), name="name"))

    def plot(self, name: str = "accuracy", method: str | None = None) -> Any:
        """Draw a picture of the run, one of ``fedwca plot RUN --list``.

        Args:
            name: of the picture.
            method: for pictures of one method: which; None: the composed one.

        Returns:
            A matplotlib ``Figure``, which notebooks show; of ``weights_animation`` an animation.

        Raises:
            UsageError: no such picture or method.
            FedwcaError: the run does not have what the picture shows.
        """
        (found,), run, trial = find_pictures([name]), read_run(self.path), TrialKey()
        method = find_method(run, method, trial)
        return PICTURES[found].draw(
            PictureRequest(run, predictions_when_asked(self.path, method, trial), method, trial)
        )

    def report(self, out: str | Path | None = None) -> Path:
        """Write the page of the run, or Markdown or LaTeX as the file's suffix says; returns the file."""
        return write_report([self.path], out)

    def tag(self, *tags: str, note: str | None = None) -> None:
        """Add tags to the run, by which ``fedwca runs --tag`` finds it, and a note in place of the one there is.

        Raises:
            UsageError: a tag is more than a word.
        """
        change_notes(self.path, note, tags)

    def __repr__(self) -> str:
        found = ", ".join(f"{row.marked_label} {mean_cell(row.mean)} %" for row in self.table)
        special = special_domain(self.config.model_dump())
        return f"<FinishedRun {str(self.path)!r}: {self.dataset}, {special}: {found}>"

    def __str__(self) -> str:
        return self.results_table(narrow=True).text()

    def _repr_html_(self) -> str:
        return self.results_table().html()
