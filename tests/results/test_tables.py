"""Tables of results as Markdown, LaTeX and CSV, and comparisons of methods."""

from __future__ import annotations

import csv
import io
from types import SimpleNamespace
from typing import Any

import pytest

from fedwca.errors import UsageError
from fedwca.results.comparison import Comparison
from fedwca.results.describe_run import describe_spread
from fedwca.results.results_table import COLUMNS, ResultColumn, columns_for, requested_columns, results_table
from fedwca.results.statistics import Difference, Sample
from fedwca.results.table_rows import Row
from fedwca.results.tables import Table, comma_separated, difference_cell, mean_cell, sample_cell

GRID = Table("a_b: 50 %", ("method", "x|y"), [["One & two", "1.0 ± 0.5"]], ("n = 2.", "Second note."))


def test_markdown() -> None:
    lines = GRID.markdown().splitlines()
    assert lines[2:5] == ["| method | x\\|y |", "|---|--:|", "| One & two | 1.0 ± 0.5 |"]
    assert lines[0] == "**a_b: 50 %**"
    assert lines[-2:] == ["n = 2.", "Second note."]


def test_latex_escapes_what_latex_reads() -> None:
    text = GRID.latex()
    assert r"One \& two & 1.0 $\pm$ 0.5 \\" in text
    assert r"\caption{a\_b: 50 \%. n = 2. Second note.}" in text
    assert r"\begin{tabular}{lr}" in text


@pytest.mark.parametrize(
    ("letter", "written"),
    [
        ("{", r"\{"),
        ("}", r"\}"),
        ("\\", r"\textbackslash{}"),
        ("~", r"\textasciitilde{}"),
        ("^", r"\textasciicircum{}"),
        ("|", r"\textbar{}"),
        ("<", r"\textless{}"),
        (">", r"\textgreater{}"),
    ],
)
def test_a_label_cannot_break_a_latex_file(letter: str, written: str) -> None:
    table = Comparison.of("shades", {"a": [Row("x", f"1{letter}2", {(0, 0): 50.0}, {})]}, None).table()
    assert f"1{written}2 & 50.0 " in table.latex()


@pytest.mark.parametrize("label", ["[mine]", "* best"])
def test_a_label_is_no_option_of_the_latex_line_before(label: str) -> None:
    assert f"{{}}{label} & 50.0 " in Table("", ("method", "a"), [[label, "50.0"], [label, "50.0"]]).latex()


def test_the_difference_is_to_the_row_it_is_taken_to() -> None:
    def run(label: str) -> Any:
        results = {
            "fedavg": {"label": f"{label} (diverged in 1 of 3 runs)"},
            "local": {"label": "Local", "difference": {"to": "fedavg", "mean": -1.0, "std": None}},
        }
        return SimpleNamespace(results=results, methods={"fedavg": {"label": label}})

    composed, fedavg = run("FedAvg, two models + mixup"), run("FedAvg")
    assert "to FedAvg, two models + mixup" in [column.heading for column in columns_for([composed])]
    for runs in ([fedavg], [composed, fedavg]):
        assert "to FedAvg" in [column.heading for column in columns_for(runs)]


def test_another_column_is_one_edit() -> None:
    entry = {"domains": {"a": 1.0}, "domain_stds": {"a": None}, "mean": 1.0, "std": None, "n": 1, "worst": 0.5}
    worst = ResultColumn("worst", lambda entry: mean_cell(entry["worst"]), known=lambda entry: "worst" in entry)
    table = results_table("", [(("X",), entry)], columns=[*COLUMNS, worst])
    assert table.columns == ("method", "a", "mean", "runs", "seconds", "worst")
    assert table.rows == [["X", "1.0", "1.0", "1", "–", "0.5"]]
    bare = {key: value for key, value in entry.items() if key != "worst"}
    assert "worst" not in results_table("", [(("X",), bare)], columns=[*COLUMNS, worst]).columns


def test_columns_stand_in_the_table_on_request() -> None:
    entry = {
        **{"domains": {"a": 1.0}, "domain_stds": {"a": None}, "mean": 1.0, "std": None, "n": 2},
        "f1": {"mean": 50.0, "std": 2.0},
        "worst": {"mean": 0.5, "std": None},
        "class_accuracy": {"0": 25.0, "2": 75.0, "10": 30.0},
    }
    old = {key: value for key, value in entry.items() if key not in ("f1", "worst", "class_accuracy")}
    entries = [(("X",), entry), (("Old",), old)]
    names = ("worst", "f1", "calibration-error", "class-accuracy", "worst")
    extra_columns = requested_columns(names, ["zero", "one", "two"], [entry, old])
    table = results_table("", entries, columns=extra_columns)
    assert table.columns == ("method", "a", "worst client", "macro F1", "class zero", "class two", "class 10")
    assert table.rows[0] == ["X", "1.0", "0.5", "50.0 ± 2.0", "25.0", "75.0", "30.0"]
    assert table.rows[1] == ["Old", "1.0", "", "", "–", "–", "–"]
    with pytest.raises(UsageError, match="--column wrst: no column 'wrst'; did you mean 'worst'"):
        requested_columns(["wrst"], (), [])
    for word_as_list in (lambda: requested_columns("f1", (), []), lambda: compared().table("f1")):
        with pytest.raises(UsageError, match=r"^columns needs a list, such as \['f1'\], not 'f1'$"):
            word_as_list()
    with pytest.raises(UsageError, match="no column 'class_accuracy'"):
        compared().table(["class_accuracy"])


def test_numbers_of_a_comparison_are_over_all_runs() -> None:
    def row(source: float, *worst: float) -> Row:
        runs = {(index, 0): source for index in range(2)}
        return Row("x", "X", runs, {}, numbers={"worst": {(index, 0): value for index, value in enumerate(worst)}})

    comparison = Comparison.of("shades", {"a": [row(50.0, 10.0, 20.0)], "b": [row(60.0, 30.0)]}, None)
    table = comparison.table(["worst", "f1"])
    assert table.columns == ("method", "a", "b", "Avg.", "worst client", "macro F1")
    assert table.rows[0][-2:] == ["20.0 ± 10.0", ""]
    first, _, all_sources = comparison.flat()
    assert first["worst"] == {"mean": 15.0, "std": pytest.approx(50**0.5)}
    assert (all_sources["worst"]["mean"], all_sources["f1"]) == (20.0, None)
    assert "worst_mean" in comma_separated(comparison.flat()).splitlines()[0]


def test_the_title_of_a_comparison_says_what_its_columns_are() -> None:
    shards, target = [Row("x", "X", {(0, 0): 50.0}, {})], [Row("x", "X", {(0, 0): 50.0}, {"a": {(0, 0): 50.0}})]
    one = Comparison.of("shades", {"shards": shards}, None, named="partition")
    assert one.table().title.endswith("after the last round, partition shards")
    assert Comparison.of("shades", {"a": target, "b": target}, None).table().title.endswith("round, by source")


def test_tables_in_entries_may_have_different_keys() -> None:
    text = comma_separated([{"mean": 1, "of": {"a": 2}}, {"mean": 3, "of": {"b": 4}}, {"mean": 5, "of": None}])
    assert text.splitlines() == ["mean,of_a,of_b", "1,2,", "3,,4", "5,,"]


def test_a_missing_spread_is_not_shown() -> None:
    assert sample_cell(Sample(1.25, None, 1)) == "1.2"
    assert sample_cell(Sample(float("nan"), None, 0)) == "–"
    assert difference_cell(Difference(1.0, None, 1, None, None, None)) == "+1.0"
    assert difference_cell(Difference(1.0, 0.5, 3, -0.24, 2.24, None)) == "+1.0 [-0.2, +2.2]"
    assert difference_cell(Difference(-0.01, 0.5, 3, -0.04, 0.02, None)) == "+0.0 [-0.0, +0.0]", "bounds have signs"
    assert difference_cell(Difference(0.0, 0.0, 3, -1e-15, 0.0, None)) == "+0.0 [+0.0, +0.0]", "this one is 0"


def compared() -> Comparison:
    def row(name: str, *values: float) -> Row:
        return Row(name, name.title(), {(index, 0): value for index, value in enumerate(values)}, {})

    tables = {
        "a": [row("fedavg", 50.0, 60.0), row("fedwca", 52.0, 64.0)],
        "b": [row("fedavg", 70.0, 80.0), row("fedwca", 71.0, 80.0)],
    }
    return Comparison.of("shades", tables, "fedavg")


def test_a_comparison_of_one_source_has_a_column_for_each_domain() -> None:
    def row(name: str, fog: list[float], snow: list[float]) -> Row:
        means = {(index, 0): (a + b) / 2 for index, (a, b) in enumerate(zip(fog, snow, strict=True))}
        return Row(name, name.title(), means, {"fog": fog, "snow": snow})

    rows = [row("fedavg", [50.0, 60.0], [10.0, 20.0]), row("fedwca", [54.0, 60.0], [10.0, 30.0])]
    comparison = Comparison.of("shades", {"sun": rows}, "fedavg")
    table = comparison.table()
    assert table.columns == ("method", "fog", "snow", "mean", "to Fedavg [95 % CI]", "Wilcoxon p")
    assert table.rows[1][:4] == ["Fedwca", "57.0 ± 4.2", "20.0 ± 14.1", "38.5 ± 9.2"]
    assert comparison.flat()[0]["domains"] == {"fog": 55.0, "snow": 15.0}
    assert comparison.flat()[0]["domain_stds"]["fog"] == pytest.approx(50**0.5)
    assert ",domains_fog,domains_snow,domain_stds_fog," in comma_separated(comparison.flat()).splitlines()[0]
    both = Comparison.of("shades", {"sun": rows, "fog": [row("fedavg", [1.0], [2.0])]}, "fedavg")
    assert both.table().columns[:4] == ("method", "sun", "fog", "Avg.")
    assert [entry["domains"].keys() for entry in both.flat()[:3]] == [{"fog", "snow"}, {"fog", "snow"}, set()]


def test_a_single_run_has_no_spread() -> None:
    table = Comparison.of("shades", {"a": [Row("x", "X", {(0, 0): 50.0}, {"fog": [50.0]})]}, None).table()
    assert table.columns == ("method", "mean")
    assert table.notes == ["One run of each, so there is no spread."]
    nothing = Comparison.of("shades", {"a": [Row("x", "X", {}, {})]}, None).table()
    assert nothing.notes == ["No run gave a result."]


def test_letters_that_take_two_places_are_aligned() -> None:
    lines = Table("", ("域", "acc"), [["中文", "1.0"], ["ab", "10.0"]]).text().splitlines()
    assert lines == ["域     acc", "----  ----", "中文   1.0", "ab    10.0"]


def test_a_comparison_pairs_over_sources() -> None:
    comparison = compared()
    assert comparison.sample("fedavg") == Sample(65.0, 12.909944487358056, 4)
    difference = comparison.difference("fedwca")
    assert difference is not None
    assert (difference.mean, difference.n, difference.p) == (1.75, 4, None)
    assert comparison.difference("fedavg") is None


def test_csv_of_nothing_is_empty() -> None:
    assert comma_separated([]) == ""


def test_csv_has_a_row_per_method_and_source() -> None:
    entries = list(csv.DictReader(io.StringIO(comma_separated(compared().flat()))))
    assert [(e["method"], e["source"]) for e in entries] == [
        (method, source) for method in ("fedavg", "fedwca") for source in ("a", "b", "all runs of all sources")
    ]
    assert entries[0]["difference_mean"] == ""
    assert (float(entries[3]["difference_mean"]), entries[5]["n"]) == (3.0, "4")


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ([], "n = 0 runs, so there is no spread"),
        ([1, 1], "n = 1 run, so there is no spread"),
        ([3, 3], "mean ± std (ddof 1) over n = 3 runs"),
        ([1, 3], "mean ± std (ddof 1) over n = 1 to 3 runs (a method that diverged has fewer)"),
    ],
)
def test_a_spread_is_of_as_many_runs_as_there_are(sizes: list[int], text: str) -> None:
    assert describe_spread(sizes) == text


def test_a_comparisons_methods_and_sources_are_found_however_they_are_spelled() -> None:
    rows = [Row("one_hot", "One-hot", {(0, 0): 50.0}, {"snow": [50.0]}), Row("fedavg", "FedAvg", {(0, 0): 40.0}, {})]
    comparison = Comparison.of("office_home", {"real_world": rows}, "fedavg")
    assert comparison.sample("One-Hot", "Real World").mean == 50.0
    difference = comparison.difference("one-hot", "real-world")
    assert difference is not None
    assert comparison.difference("FedAvg") is None
    assert comparison.domain("One-Hot", "snow", "Real World").mean == 50.0
    assert comparison.domain_names("Real World") == ["snow"]
    assert comparison.number("One-Hot", "client-std") is None
    with pytest.raises(UsageError, match="no number 'client_sd'"):
        comparison.number("one_hot", "client_sd")
    with pytest.raises(UsageError, match="no domain 'rain'"):
        comparison.domain("one_hot", "rain", "real_world")
    for method, source, text in (("ifca", None, "no method 'ifca'"), ("fedavg", "art", "no source 'art'")):
        with pytest.raises(UsageError, match=text):
            comparison.sample(method, source)
