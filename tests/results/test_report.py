"""Reports: warnings in plain words, tables in three formats, and a page that escapes all names."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest

from fedwca.results.pictures.catalogue import PICTURES, PictureRequest
from fedwca.results.pictures.style import NotDrawn, looks
from fedwca.results.read_run import Run, read_run
from fedwca.results.report.class_tables import class_tables
from fedwca.results.report.embedded_pictures import embedded_pictures
from fedwca.results.report.html_tables import escape, html_table
from fedwca.results.report.page import page
from fedwca.results.report.page_data import page_data
from fedwca.results.report.results_csv import csv_address, results_csv
from fedwca.results.report.text_report import document, summary_table
from fedwca.results.report.warnings import run_warnings
from fedwca.results.table_rows import table_rows
from fedwca.results.tables import Table

from .runs import write_run

VOID = {"meta", "br", "link", "input", "img"}


class Checker(HTMLParser):
    """Checks that tags close in order, without script handlers or addresses outside the page; collects ids and tags."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        assert not {"onclick", "onload", "onerror"} & set(attributes)
        assert re.match(r"#|data:text/csv;charset=utf-8,[\w.%-]*$", attributes.get("href") or "#")
        assert re.match(r"data:image/png;base64,[\w+/=]*$", attributes.get("src") or "data:image/png;base64,")
        if "id" in attributes:
            self.ids.append(str(attributes["id"]))
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
    second = read_run(write_run(tmp_path / "second", methods=2, domains=2))
    for runs in ([run], [run, second]):
        text = page(runs, [run.name for run in runs])
        checker = Checker()
        checker.feed(text)
        assert checker.open == []
        assert len(checker.ids) == len(set(checker.ids))
        assert checker.tags.count("article") == len(runs)
        assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
        assert "$" not in re.sub(r"<script.*?</script>", "", text, flags=re.S)


def test_a_page_says_what_the_band_of_its_chart_is(tmp_path: Path) -> None:
    phrase = "Mean over clients; band and ±: one standard deviation over 2 runs"
    for trials in (1, 2):
        written = page([read_run(write_run(tmp_path / str(trials), trials=trials, methods=1, rounds=1))], ["made up"])
        assert (phrase in written) == (trials > 1)


def test_names_cannot_become_markup(run: Run) -> None:
    bad = '</script><img src=x onerror=alert(1)>&"$style'
    evil = relabelled(run, bad, source=bad)
    evil = replace(evil, about={**evil.about, "classes": [bad, "=1+1", *run.classes[2:]]})
    text = page([evil], [bad])
    assert "<img src=x" not in text
    Checker().feed(text)
    data = re.search(r'id="data">(.*?)</script>', text, re.S)
    assert data is not None
    assert json.loads(data[1])[0]["methods"][-1]["label"] == bad
    assert "<img" not in document([evil], [bad], columns=["class-accuracy"])
    assert "'=" not in results_csv([evil], [bad])
    (row, *_) = csv.DictReader(io.StringIO(unquote(csv_address([evil], ["=2+2"]).partition(",")[2])))
    assert row["run"] == "'=2+2"


def test_a_page_holds_the_table_as_csv(run: Run, tmp_path: Path) -> None:
    second = read_run(write_run(tmp_path / "second", methods=2, domains=4))
    text = unquote(csv_address([run, second], ["first", "second"]).partition(",")[2])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["run"], row["method"]) for row in rows[-2:]] == [("second", "source_only"), ("second", "wca")]
    assert float(rows[2]["mean"]) == run.results["wca"]["mean"]
    assert float(rows[2]["f1_mean"]) == run.results["wca"]["f1"]["mean"]
    assert (rows[0]["accuracy_target3"], rows[-1]["accuracy_target3"] != "") == ("", True)
    assert float(rows[0]["accuracy_of_class_zero"]) == 75.0
    assert f'href="{escape(csv_address([run], ["first"]))}" download' in page([run], ["first"])


def test_classes_have_numbers_and_empty_ones_say_so(run: Run) -> None:
    text = class_tables(run)
    (first_part, *other_parts) = re.findall(r"<details.*?</details>", text, re.S)
    assert first_part.startswith("<details open><summary>FedWCA</summary>")
    assert all(part.startswith("<details><summary>") for part in other_parts)
    assert len(other_parts) == 2
    matrix = first_part.partition("confusion")[2].partition("</table>")[0]
    rows = re.findall(r"<tr.*?</tr>", matrix, re.S)
    assert re.findall(r"<td[^>]*>(.*?)</td>", rows[1]) == ["12", "4", "", ""], "of both trials together"
    assert re.findall(r"<td[^>]*>(.*?)</td>", rows[4]) == ["no test image"]
    assert 'class="empty"' in rows[4]
    by_class = re.findall(r"<tr>.*?</tr>", first_part.partition("Test images by class")[2], re.S)
    cells = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in by_class]
    assert cells[1] == ["zero", "16", "14", "75.0", "80.0", "60", "40", "1.50 ×"]
    assert cells[4] == ["three", "no test image", "0", "–", "–", "0", "0", ""]
    assert 'class="bars"' in first_part
    assert 'class="bars"' not in other_parts[-1], "Source Only guesses nothing"
    old = replace(run, about=run.about)
    for record in old.records:
        del record["confusion"]  # type: ignore[attr-defined]
    assert "no counts by class" in class_tables(old)


def test_many_classes_are_a_list_alone(run: Run) -> None:
    many = replace(run, about={**run.about, "classes": [f"class {number}" for number in range(60)]})
    text = class_tables(many)
    assert "confusion" not in text
    assert "class 59" in text


def test_pictures_are_in_the_page_or_say_why_not(run: Run) -> None:
    text = embedded_pictures(run)
    assert text.count("<img") == 1
    assert "Weights of the cluster models" in text
    assert "mistakes" not in text
    assert text.count("not drawn (fedwca report draws it") == 2


def test_the_page_has_no_pictures_of_clusters_where_there_are_none(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", clusters=1))
    text = embedded_pictures(run)
    assert "luster" not in text
    assert text.count("not drawn") == 1, "of mistakes"
    request = PictureRequest(run, lambda: pytest.fail("no model is needed to say so"))
    with pytest.raises(NotDrawn, match=r"^FedWCA makes no clusters; --method names another method$"):
        PICTURES["clusters"].draw(request)
    for record in run.records:  # one cluster of all clients, but made by a clusterer
        record["clustering"] = {"sizes": [6]}  # type: ignore[index]
    assert "Images of the clients in each cluster" in embedded_pictures(run)


def test_a_method_has_one_colour_wherever_it_stands(run: Run, tmp_path: Path) -> None:
    def colours(some_run: Run) -> dict[str, str]:
        return {method["name"]: method["colour"] for method in page_data([some_run], ["x"])[0]["methods"]}

    second = read_run(write_run(tmp_path / "second", methods=5))
    assert colours(run).items() <= colours(second).items()
    assert colours(run)["wca"] == looks(["wca", "fedavg"])["wca"]["color"] == looks(["fedavg", "wca"])["wca"]["color"]


def test_every_run_and_method_is_in_the_table(run: Run, tmp_path: Path) -> None:
    second = read_run(write_run(tmp_path / "second", methods=2, domains=4))
    table = summary_table([run, second], ["first", "second"])
    assert table.columns[:2] == ("run", "method")
    assert table.columns[2:6] == ("target0", "target1", "target2", "target3")
    assert len(table.rows) == 5
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert table.rows[0][5] == "–"
    assert summary_table([run], ["first"]).columns[0] == "method"
    columns = summary_table([run], ["first"], ["f1", "class-accuracy"]).columns
    assert columns[-4:] == ("macro F1", "class zero", "class one", "class two")
    mean = table.rows[2][table.columns.index("mean")]
    assert mean.value == run.results["wca"]["mean"]
    assert mean == f"{run.results['wca']['mean']:.1f} ± {run.results['wca']['std']:.1f}"


def test_the_mean_is_marked_beside_a_domain_of_its_name() -> None:
    columns, row = ("method", "mean", "fog", "mean", "seconds"), ("FedWCA", "50.0", "70.0", "60.0", "9")
    heads = html_table(Table("title", columns, [row])).partition("</thead>")[0].split("<th ")[1:]
    assert [" data-first" in head for head in heads] == [False, False, False, True, False]


def test_markdown_and_latex(run: Run) -> None:
    run = relabelled(run, "a|b & 50 %_{x}")
    rows = [line for line in document([run], ["first"]).splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(run.results)
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {len(summary_table([run], ["first"]).columns) + 1}
    text = document([run], ["first"], latex=True)
    assert r"a\textbar{}b \& 50 \%\_\{x\}" in text
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
    # With mu = 0 no image is mixed: of 20 images on which the models of client 1 disagree, one found no partner.
    record["dropped"][1], record["mixed"][1], record["agreement"][1] = 1.0, 0.0, 0.8
    record["dropped"][2], record["mixed"][2], record["agreement"][2] = 30.0, 0.0, 1.0  # unsure images, as LADD's
    for first in (first for first in run.rounds("wca") if first["round"] < 0):
        first["train_images"] = [30, 100, 50, 50, 50, 50]  # type: ignore[index]
    text = "\n".join(run_warnings(run))
    assert "FedWCA: client 0 gave all images one label (collapsed classes), first in round 4" in text
    assert "similarities of client 1 were divided by a number that is not above 0" in text
    assert "client 0 found no partner to mix with" in text
    assert "2 of 3 clusters have a single client" in text
    assert "the second neighbour of client 1 is at most 2 % farther" in text
    assert "in 1 round some cluster had a single contributor" in text


def test_one_label_for_a_few_images_says_nothing(run: Run) -> None:
    for record in run.rounds("wca"):
        if record["round"] < 0:
            record["train_images"] = [10, 11, 50, 50, 50, 50]  # type: ignore[index]
    last(run)["label_entropy"] = [0.0, 0.0, *last(run)["label_entropy"][2:]]
    assert [text for text in run_warnings(run) if "one label" in text] == [
        "FedWCA: client 1 gave all images one label (collapsed classes), first in round 4 of model 0, trial 1. "
        "Training on such labels cannot help."
    ]


def test_doubts_about_a_whole_run(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", trials=1, complete=False))
    last(run)["accuracy"] = [1.0] * 6
    text = "\n".join(run_warnings(run))
    assert "not complete" in text
    assert "one run only" in text
    assert "ends below the source model it began from" in text
    run.about["methods"]["wca"]["components"].append({"kind": "central", "name": "pooled"})  # type: ignore[index]
    assert "FedWCA: ends below the centrally trained model it began from" in "\n".join(run_warnings(run))
    (data,) = page_data([run], ["run"])
    assert data["first_model"] == "source model or centrally trained model"
    starts = {method["name"]: (method["first_model"], method["rounds"]) for method in data["methods"]}
    assert starts["wca"] == ("centrally trained model", "rounds done (0: the centrally trained model)")
    assert {start for name, (start, _) in starts.items() if name != "wca"} == {"source model"}
    # 10 of 36 images are right; means over clients of 6 images differ in the last digit.
    start, end = ([100 * right / 6 for right in clients] for clients in ([6, 0, 0, 4, 0, 0], [1, 1, 5, 0, 3, 0]))
    run.rounds("wca")[0]["accuracy"], last(run)["accuracy"] = start, end  # type: ignore[index]
    assert "FedWCA: ends below" not in "\n".join(run_warnings(run))
    bare = write_run(tmp_path / "kept", trials=1)
    (bare / "rounds.jsonl").unlink()
    assert "nothing here about single rounds" in run_warnings(read_run(bare))[0]


def test_clients_without_test_images_are_named(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    for record in run.records:
        record["accuracy"] = [math.nan, *record["accuracy"][1:]]  # type: ignore[index]
    assert "Without test images: client 0. No mean counts it." in run_warnings(run)
    run.about["newcomers"] = 2  # type: ignore[index]
    assert "Without test images" not in "\n".join(run_warnings(run)), "a client that trains is not measured there"
    for record in run.records:
        record["accuracy"] = [*[math.nan] * 3, 50.0, math.nan, math.nan]  # type: ignore[index]
    assert "Without test images: clients 4, 5. No mean counts them." in run_warnings(run)


def test_clients_and_doubts_are_of_the_round_that_tables_show(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", trials=1, rounds=3))
    first, *trained = run.rounds("wca")
    first["accuracy"] = [50.0] * 6
    for record, training, new in zip(trained, (70.0, 90.0, 80.0), (40.0, 60.0, 30.0), strict=True):
        record["accuracy_validation"] = [training] * 3 + [math.nan] * 3
        record["accuracy"] = [math.nan] * 3 + [new] * 3
    (data,) = page_data([run], ["run"])
    shown = data["units"][0]["methods"]["wca"]
    assert (shown["rounds"], shown["rounds"][shown["shown"]]) == ([0, 1, 2, 3], 2)
    assert "ends below" not in "\n".join(run_warnings(run))
    trained[1]["accuracy_validation"] = trained[0]["accuracy_validation"]
    assert "(50.0 % before, 30.0 % after)" in "\n".join(run_warnings(run))


def test_the_page_rounds_numbers_once_as_the_table_does(run: Run) -> None:
    """71.247 rounded to 71.25 and then to 71.3 would be 71.2 in the table."""
    last(run)["accuracy"][:2], last(run)["agreement"][:2] = [71.247, 71.25], [0.71247, 0.71251]
    (data,) = page_data([run], ["run"])
    client = data["units"][-1]["methods"]["wca"]
    assert (client["accuracy"][-1][:2], client["agreement"][-1][:2]) == ([71.247, 71.25], [0.71247, 0.71251])
    for row, method in zip(table_rows(run.lines, run.labels, run.domains), data["methods"], strict=True):
        assert method["curve"][-1][1:] == [row.mean, row.std]


@pytest.mark.skipif(not shutil.which("node"), reason="Node.js is not installed")
def test_numbers_of_the_script_are_written_as_in_tables() -> None:
    script = resources.files("fedwca.results.report").joinpath("page.js").read_text(encoding="utf-8")
    (function,) = re.findall(r"^function shown\(.*?^}$", script, re.S | re.M)
    numbers = [*(step / 8 for step in range(41)), -1.25, -1.75, 71.25, 71.35, 71.45, 71.247, 71.25000000000001]
    written = f"console.log(JSON.stringify({numbers}.flatMap((n) => [0, 1, 2].map((digits) => shown(n, digits)))))"
    process = subprocess.run(["node", "-e", function + written], capture_output=True, text=True, check=True)
    assert json.loads(process.stdout) == [f"{number:.{digits}f}" for number in numbers for digits in (0, 1, 2)]


def test_seconds_are_of_a_run(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", trials=4))
    assert run.timing["methods"]["wca"] == 1.0
    assert run.seconds("wca") == 0.25
    assert [*csv.DictReader(results_csv([run], ["run"]).splitlines())][-1]["seconds"] == "0.25"
    bare = write_run(tmp_path / "kept", trials=4)
    (bare / "rounds.jsonl").unlink()
    assert read_run(bare).seconds("wca") == 0.25
    assert read_run(bare).seconds("no_method") is None


def test_the_csv_has_all_numbers_of_the_table(run: Run) -> None:
    entry = run.results["wca"]
    difference = {"difference": {"mean": 1.5, "std": 0.5}, "round": {"mean": 3.0, "std": None}}
    other: Any = SimpleNamespace(results={"wca": {**entry, **difference}}, classes=run.classes, seconds=run.seconds)
    (row,) = csv.DictReader(results_csv([other], ["x"]).splitlines())
    assert (row["difference_mean"], row["difference_std"], row["round_mean"]) == ("1.5", "0.5", "3.0")
    assert (row["before_mean"], row["last_std"]) == ("", "")
    assert float(row["accuracy_std_target0"]) == entry["domain_stds"]["target0"]


def test_rounds_of_a_run_that_is_too_large_for_a_page_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = read_run(write_run(tmp_path / "run", trials=2, rounds=30))
    for record in run.lines:
        if record["round"] == 0:
            record["trust"] = [0.25] * len(record["accuracy"])
    (whole,) = page_data([run], ["run"])
    monkeypatch.setattr("fedwca.results.report.page_data.MOST", 500)
    (data,) = page_data([run], ["run"])
    assert (whole["every"], len(data["units"])) == (1, 1)
    shown = data["units"][0]["methods"]["wca"]
    assert len(shown["rounds"]) == len(shown["accuracy"]) <= 3 + 31 / data["every"] < 31
    assert shown["rounds"][shown["shown"]] == shown["rounds"][-1] == 30
    assert [trust for trust in shown["trust"] if trust] == [[0.25] * len(shown["accuracy"][0])]
    assert len(data["methods"][-1]["curve"]) == 31, "curves are whole"


def test_a_page_stays_small(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", methods=4, clients=10, domains=5, trials=12, rounds=30))
    (data,) = page_data([run], ["run"])
    assert 1 <= len(data["units"]) < data["all"] == 12
    assert len(page([run], ["run"])) < 4_000_000


def cut(folder: Path, method: str, rounds: int) -> None:
    """Keep the records of only the first ``rounds`` rounds of a method."""
    file = folder / "rounds.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(x for x in lines if f'"{method}"' not in x or json.loads(x)["round"] < rounds))


def test_an_earlier_round_is_never_shown_as_the_last(tmp_path: Path) -> None:
    finished, stopped = (write_run(tmp_path / name, complete=name == "finished") for name in ("finished", "stopped"))
    last = read_run(finished).results["wca"]["mean"]
    for folder in (finished, stopped):
        cut(folder, "wca", 2)
    run = read_run(finished)
    assert not run.has_all_rounds
    assert run.results["wca"]["mean"] == last
    assert any("rounds.jsonl lacks rounds that were run" in text for text in run_warnings(run))
    run = read_run(stopped)
    assert run.results["wca"]["mean"] != last
    text = document([run], ["stopped"])
    assert "FedWCA (2 of 4 rounds)" in text
    assert "after the last round that was run" in text
    assert "method 1 (" not in text
