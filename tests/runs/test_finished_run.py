"""What a finished run shows of itself: the table, also in a notebook, numbers and pictures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import fedwca
from fedwca.errors import FedwcaError, UsageError
from fedwca.results.read_run import read_run
from fedwca.results.read_run_files import read_notes
from fedwca.runs.finished_run import FinishedRun
from tests.results.runs import write_run


@pytest.fixture(scope="module")
def done(shades: Path, tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    with pytest.warns(UserWarning, match=r"little about|train nothing"):
        return fedwca.bench(
            data=shades,
            clusterer="true",
            clients=1,
            samples=20,
            rounds=2,
            epochs=1,
            batch_size=16,
            device="cpu",
            overrides={"source_training.epochs": 0, "model.bottleneck": 4},
            out=tmp_path_factory.mktemp("finished") / "run",
        )


def test_it_prints_as_the_table(done: FinishedRun) -> None:
    title, head, rule, *rows = str(done).splitlines()
    assert title.startswith("shades, source amber: accuracy in percent after the last round, n = 1 run")
    assert head.split()[0] == "method"
    assert set(rule) == {"-", " "}
    assert [row.split("  ")[0] for row in rows] == [row.label for row in done.table]
    assert len({len(row) for row in (head, rule, *rows)}) == 1
    assert f"{done.table[-1].mean:.1f}" in rows[-1]
    assert len(repr(done)) < 300


def test_a_notebook_shows_it(done: FinishedRun) -> None:
    page = done._repr_html_()
    assert page.startswith("<table><caption>shades, source amber")
    assert page.count("<tr>") == len(done.table) + 1
    table = done.results_table()
    assert all(float(row[table.columns.index("seconds")]) >= 0 for row in table.rows)


def test_it_can_be_tagged(done: FinishedRun) -> None:
    done.tag("night", note="why")
    done.tag("lr")
    assert read_notes(done.path) == {"note": "why", "tags": ["night", "lr"]}


def test_to_frame(done: FinishedRun) -> None:
    methods = done.to_frame()
    assert list(methods.index) == [row.name for row in done.table]
    assert methods.loc[done.table[-1].name, "mean"] == pytest.approx(done.table[-1].mean)
    assert {"brass", "coral"} <= set(methods.columns)
    assert methods["std"].dtype == float
    rounds = done.to_frame("rounds")
    assert set(rounds["client"]) == {0, 1}
    assert set(rounds["domain"]) == {"brass", "coral"}
    assert len(rounds) == sum(len(record["accuracy"]) for record in done.records())
    with pytest.raises(UsageError, match="to_frame takes 'methods' or 'rounds', not 'clients'"):
        done.to_frame("clients")  # type: ignore[arg-type]


def test_a_domain_named_as_a_column_keeps_both(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", methods=1)
    file = folder / "summary.json"
    summary = json.loads(file.read_text())
    summary["methods"]["wca"] |= {"mean": 60.0, "domains": {"mean": 50.0, "fog": 70.0}}
    file.write_text(json.dumps(summary))
    row = FinishedRun(read_run(folder)).to_frame().loc["wca"]
    assert list(row.index) == ["method", "mean", "std", "runs", "accuracy_mean", "fog"]
    assert list(row[["mean", "accuracy_mean", "fog"]]) == [60.0, 50.0, 70.0]


def test_pandas_is_optional(done: FinishedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"pip install 'fedwca\[pandas\]'"):
        done.to_frame()


def test_plot(done: FinishedRun) -> None:
    assert isinstance(done.plot(), Figure)
    assert isinstance(done.plot("confusion", "FedAvg"), Figure)
    with pytest.raises(UsageError, match="did you mean 'bars'"):
        done.plot("barz")
    with pytest.raises(UsageError, match="no picture '3'"):
        done.plot(3)  # type: ignore[arg-type]
    with pytest.raises(FedwcaError, match="method"):
        done.plot("confusion", "nosuch")


def test_report(done: FinishedRun, tmp_path: Path) -> None:
    assert done.report(tmp_path / "r.md").read_text().startswith("shades, source amber")
    assert done.report() == done.path / "report.html"


def test_completion_offers_public_names_alone() -> None:
    assert dir(fedwca) == sorted(fedwca.__all__)
