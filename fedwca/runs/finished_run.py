"""The result of a finished run, for Python code and notebooks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedwca.config.run_config import RunConfig, validate
from fedwca.errors import UsageError
from fedwca.results.change_notes import change_notes
from fedwca.results.describe_run import data_and_domain, describe_spread, shown_round
from fedwca.results.pictures.catalogue import PICTURES, PictureRequest, find_method, find_pictures
from fedwca.results.read_run import Run
from fedwca.results.read_run_files import read_records
from fedwca.results.results_table import columns_for, requested_columns, results_table
from fedwca.results.rounds_as_table import flatten_records
from fedwca.results.table_rows import Row
from fedwca.results.tables import Table, mean_cell
from fedwca.results.trial_key import TrialKey
from fedwca.runs.final_model_predictions import lazy_predictions
from fedwca.runs.write_report import write_report


@dataclass(frozen=True, repr=False)
class FinishedRun:
    """A finished run; ``print`` and notebooks show its table."""

    run: Run

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.run.path

    @property
    def config(self) -> RunConfig:
        """The run's configuration, as stored in its folder."""
        return validate(dict(self.run.config))

    @property
    def dataset(self) -> str:
        """Name of the data set."""
        return self.run.dataset_name

    @property
    def table(self) -> list[Row]:
        """One row per method, the composed method last."""
        return self.run.table

    @property
    def summary(self) -> Mapping[str, Any]:
        """The contents of ``summary.json``."""
        return self.run.summary

    def records(self) -> list[dict[str, Any]]:
        """The records of all rounds: the lines of ``rounds.jsonl``."""
        return read_records(self.path)

    def results_table(self, narrow: bool = False, columns: Sequence[str] = ()) -> Table:
        """The table that ``fedwca bench`` prints: mean ± std over runs, by target domain, and difference to FedAvg.

        Args:
            narrow: leave out the columns that a terminal leaves out.
            columns: names of additional columns, as of ``fedwca bench --column``.

        Raises:
            UsageError: there is no such column.
        """
        entries = [
            ((entry["label"],), {**entry, "seconds": self.run.seconds(name)})
            for name, entry in self.summary["methods"].items()
        ]
        spread = describe_spread([entry["n"] for _, entry in entries])
        dataset_text = data_and_domain(self.run.config, self.dataset)
        round_text = shown_round(any("round" in entry for _, entry in entries))
        title = f"{dataset_text}: accuracy in percent {round_text}, {spread}"
        table_columns = [column for column in columns_for([self.run]) if column.narrow or not narrow]
        if columns:
            table_columns += requested_columns(columns, self.run.classes, [entry for _, entry in entries])
        return results_table(title, entries, columns=table_columns)

    def to_frame(self, of: Literal["methods", "rounds"] = "methods") -> Any:
        """Results as a ``pandas.DataFrame``.

        Args:
            of: ``methods``: one row per method, with its mean, its spread and each domain's mean (``accuracy_…`` where
                the domain has the name of another column); ``rounds``: one row per method, source model, trial, round
                and client, as of ``fedwca runs export``.

        Raises:
            UsageError: pandas is not installed, or ``of`` has another value.
        """
        if of not in ("methods", "rounds"):
            raise UsageError(f"to_frame takes 'methods' or 'rounds', not {of!r}")
        try:
            import pandas
        except ImportError:
            raise UsageError("to_frame needs pandas, which is not installed: pip install 'fedwca[pandas]'") from None
        if of == "rounds":
            return pandas.DataFrame(flatten_records(self.records(), self.run.domains, self.run.classes))
        entries = self.summary["methods"]
        rows = [_frame_row(entry) for entry in entries.values()]
        return pandas.DataFrame(rows, index=pandas.Index(list(entries), name="name"))

    def plot(self, name: str = "accuracy", method: str | None = None) -> Any:
        """Draw a picture of the run, one of ``fedwca plot RUN --list``.

        Args:
            name: name of the picture.
            method: the method, for pictures that show a single one; None: the composed method.

        Returns:
            A matplotlib ``Figure``, which notebooks show; for ``weights_animation``, an animation.

        Raises:
            UsageError: no such picture or method.
            FedwcaError: the run lacks the data that the picture shows.
        """
        (picture,), trial = find_pictures([str(name)]), TrialKey()
        method = find_method(self.run, method, trial)
        predictions = lazy_predictions(self.path, method, trial)
        return PICTURES[picture].draw(PictureRequest(self.run, predictions, method, trial))

    def report(self, out: str | Path | None = None) -> Path:
        """Write the run's report as HTML, Markdown or LaTeX, by the file's suffix; returns the file's path.

        Raises:
            UsageError: the file's suffix is of no format.
        """
        return write_report([self.path], out)

    def tag(self, *tags: str, note: str | None = None) -> None:
        """Add tags to the run, by which ``fedwca runs --tag`` finds it, and replace its note if one is given.

        Raises:
            UsageError: a tag is not a single word.
        """
        change_notes(self.path, note, tags)

    def __repr__(self) -> str:
        accuracies = ", ".join(f"{row.marked_label} {mean_cell(row.mean)} %" for row in self.table)
        dataset_text = data_and_domain(self.run.config, self.dataset)
        return f"<FinishedRun {str(self.path)!r}: {dataset_text}: {accuracies}>"

    def __str__(self) -> str:
        return self.results_table(narrow=True).text()

    def _repr_html_(self) -> str:
        return self.results_table().html()


def _frame_row(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A method's row of the data frame, from its results in ``summary.json``."""
    std = math.nan if entry["std"] is None else entry["std"]  # None would make a column of objects
    row = {"method": entry["label"], "mean": entry["mean"], "std": std, "runs": entry["n"]}
    return row | {f"accuracy_{name}" if name in row else name: value for name, value in entry["domains"].items()}
