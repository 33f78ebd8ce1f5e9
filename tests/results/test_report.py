"""Reports: warnings in plain words, tables in three formats, and a page that trusts no name."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fedwca.results.read_run import Run, read_run
from fedwca.results.report.page import page
from fedwca.results.report.page_data import page_data
from fedwca.results.report.text_report import document, summary_table
from fedwca.results.report.warnings import run_warnings

from .runs import write_run

VOID = {"meta", "br", "link", "input"}


class Checker(HTMLParser):
    """Tags must close in order; ids are one each; nothing is loaded from anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        assert not {"src", "onclick", "onload", "onerror"} & set(found)
        assert (found.get("href") or "#").startswith("#")
        if "id" in found:
            self.ids.append(str(found["id"]))
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return read_run(write_run(tmp_path / "first"))


def last(run: Run, method: str = "wca") -> dict[str, Any]:
    return run.rounds(method)[-1]  # type: ignore[return-value]


def relabelled(run: Run, label: str, **config: Any) -> Run:
    """The run with another label of its own method, and some settings changed."""
    methods = {**run.methods, "wca": {**run.methods["wca"], "label": label}}
    return replace(run, about={**run.about, "methods": methods, "config": {**run.config, **config}})


def test_a_page_is_one_whole_document(run: Run, tmp_path: Path) -> None:
    other = read_run(write_run(tmp_path / "second", methods=2, domains=2))
    for runs in ([run], [run, other]):
        text = page(runs, [one.name for one in runs])
        checker = Checker()
        checker.feed(text)
        assert checker.open == []
        assert len(checker.ids) == len(set(checker.ids))
        assert checker.tags.count("article") == len(runs)
        assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
        assert "$" not in re.sub(r"<script.*?</script>", "", text, flags=re.S)


def test_names_cannot_become_markup(run: Run) -> None:
    bad = '</script><img src=x onerror=alert(1)>&"$style'
    evil = relabelled(run, bad, source=bad)
    text = page([evil], [bad])
    assert "<img" not in text
    Checker().feed(text)
    data = re.search(r'id="data">(.*?)</script>', text, re.S)
    assert data is not None
    assert json.loads(data[1])[0]["methods"][-1]["label"] == bad
    assert "<img" not in document([evil], [bad])


def test_every_run_and_method_is_in_the_table(run: Run, tmp_path: Path) -> None:
    other = read_run(write_run(tmp_path / "second", methods=2, domains=4))
    table = summary_table([run, other], ["first", "second"])
    assert table.columns[:2] == ("run", "method")
    assert table.columns[2:6] == ("target0", "target1", "target2", "target3")
    assert len(table.rows) == 5
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert table.rows[0][5] == "–"
    assert summary_table([run], ["first"]).columns[0] == "method"
    mean = table.rows[2][table.columns.index("mean")]
    assert mean.value == run.results["wca"]["mean"]
    assert mean == f"{run.results['wca']['mean']:.1f} ± {run.results['wca']['std']:.1f}"


def test_markdown_and_latex(run: Run) -> None:
    run = relabelled(run, "a|b & 50 %_{x}")
    rows = [line for line in document([run], ["first"]).splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(run.results)
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {len(summary_table([run], ["first"]).columns) + 1}
    text = document([run], ["first"], latex=True)
    assert r"a|b \& 50 \%\_\{x\}" in text
    assert text.count(r"\\") == 1 + len(run.results)
    assert r"\begin{tabular}{lrrrrrr}" in text


def test_a_quiet_run_raises_no_doubt(run: Run) -> None:
    assert run_warnings(run) == []


def test_doubts_in_plain_words(run: Run) -> None:
    record = last(run)
    record["label_entropy"] = [0.0, *record["label_entropy"][1:]]
    record["divisor"] = [0.1, -0.2, 0.1, 0.1, 0.1, 0.1]
    record["dropped"], record["mixed"], record["agreement"] = [9.0, *[0.0] * 5], [1.0] * 6, [0.5] * 6
    run.rounds("wca")[1]["clustering"] = {  # type: ignore[index]
        "sizes": [4, 1, 1],
        "nearest": [1, 0, 1, 2, 3, 4],
        "margins": [1.5, 1.01, None, 2.0, 2.0, 2.0],
    }
    record["weights"] = [[None] * 3, *record["weights"][1:]]
    text = "\n".join(run_warnings(run))
    assert "FedWCA: client 0 gave all images one label (collapsed classes), first in round 4" in text
    assert "similarities of client 1 were divided by a number that is not above 0" in text
    assert "client 0 found no partner to mix with" in text
    assert "2 of 3 clusters have a single client" in text
    assert "the second neighbour of client 1 is at most 2 % farther" in text
    assert "in 1 rounds some cluster had a single contributor" in text


def test_doubts_about_a_whole_run(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", trials=1, complete=False))
    last(run)["accuracy"] = [1.0] * 6
    text = "\n".join(run_warnings(run))
    assert "not complete" in text
    assert "one run only" in text
    assert "ends below the source model it began from" in text
    kept = write_run(tmp_path / "kept", trials=1)
    (kept / "rounds.jsonl").unlink()
    assert "nothing here about single rounds" in run_warnings(read_run(kept))[0]


def test_a_page_stays_small(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", methods=4, clients=10, domains=5, trials=12, rounds=30))
    (data,) = page_data([run], ["run"])
    assert 1 <= len(data["units"]) < data["all"] == 12
    assert len(page([run], ["run"])) < 4_000_000


def cut(folder: Path, method: str, rounds: int) -> None:
    """Keep only so many rounds of a method on record."""
    file = folder / "rounds.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(x for x in lines if f'"{method}"' not in x or json.loads(x)["round"] < rounds))


def test_an_earlier_round_is_never_shown_as_the_last(tmp_path: Path) -> None:
    finished, stopped = (write_run(tmp_path / name, complete=name == "finished") for name in ("finished", "stopped"))
    last = read_run(finished).results["wca"]["mean"]
    for folder in (finished, stopped):
        cut(folder, "wca", 2)
    run = read_run(finished)
    assert not run.whole
    assert run.results["wca"]["mean"] == last
    assert any("rounds.jsonl lacks rounds that were run" in text for text in run_warnings(run))
    run = read_run(stopped)
    assert run.results["wca"]["mean"] != last
    text = document([run], ["stopped"])
    assert "FedWCA (2 of 4 rounds)" in text
    assert "after the last round that was run" in text
    assert "method 1 (" not in text
