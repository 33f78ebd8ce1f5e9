"""Control characters and markup in names from files and command lines have no effect wherever names are shown."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest

from fedwca.cli.deploy_init import next_steps
from fedwca.core.printable import printable
from fedwca.results.rounds_as_table import export_table
from fedwca.results.tables import Table, comma_separated
from fedwca.runs.resuming.how_to_continue import say_how_to_continue

from ..shades import write_shades
from .conftest import SMALL, Run, call

ODD = "[/b][red]$x^{$ \x1b[31m\u202e<script>alert(1)</script>`*_|&#=1+1"
"""Markup of rich, of mathtext, of HTML and Markdown; an escape sequence; a change of direction."""


def is_harmless(text: str) -> bool:
    return printable(text, lines=True) == text


@pytest.fixture(scope="session")
def odd(plain: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder in which every name was edited."""
    root = tmp_path_factory.mktemp("odd")
    folder = root / "run [x]\x1b[31m"
    shutil.copytree(plain.folder, folder)
    contents = json.loads((folder / "config.json").read_text())
    for method in contents["methods"].values():
        method["label"] = f"=cmd {ODD} {method['label']}"
    contents["config"]["source"] = f"{ODD} source"
    contents["domains"] = [f"-{ODD} {name}" for name in contents["domains"]]
    (folder / "config.json").write_text(json.dumps(contents))
    summary = json.loads((folder / "summary.json").read_text())
    for entry in summary["methods"].values():
        entry["label"] = f"={ODD} {entry['label']}"
        for key in ("domains", "domain_stds"):
            entry[key] = {f"-{ODD} {name}": value for name, value in entry[key].items()}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ["runs", "--root", "ROOT"],
        ["runs", "show", "RUN"],
        ["runs", "diff", "RUN", "PLAIN"],
        ["report", "RUN", "--format", "md"],
        ["report", "RUN", "--format", "latex"],
        ["report", "RUN", "PLAIN", "--format", "md"],
        ["plot", "RUN", "bars", "accuracy", "overview", "cost", "--to", "TO"],
        ["report", "RUN", "--out", "TO/x.html"],
    ],
    ids=" ".join,
)
def test_a_run_with_odd_names_is_shown_harmless(odd: Path, plain: Run, command: list[str], tmp_path: Path) -> None:
    places = {"ROOT": str(odd.parent), "RUN": str(odd), "PLAIN": str(plain.folder)}
    words = [places.get(word, word.replace("TO", str(tmp_path))) for word in command]
    run = call(*words, columns=600)
    assert run.code == 0, run.err
    assert is_harmless(run.out)
    assert is_harmless(run.err)
    if command[0] == "runs" or (command[0] == "report" and "md" in command):
        assert "\\x1b" in run.out
    if command[0] == "runs":
        assert "[/b][red]$x^{$" in run.out
    for file in tmp_path.glob("*.html"):
        text = file.read_text()
        assert is_harmless(text)
        assert "<script>alert" not in text
        data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
        assert all(is_harmless(method["label"]) for method in data[0]["methods"])
        assert all(is_harmless(name) for name in data[0]["domains"])


def test_brackets_of_a_label_stay(shades: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "one"
    arguments = ["--data", str(shades), *SMALL, "--baseline", "none", "--rounds", "1", "--name", "FedWCA [ours]"]
    run = call("bench", *arguments, "--out", str(out))
    assert run.code == 0, run.err
    assert "FedWCA [ours]" in run.out
    for command in (["runs", "--root", str(out.parent)], ["runs", "show", str(out)]):
        assert "FedWCA [ours]" in call(*command).out


def test_a_name_with_control_characters_is_refused(shades: Path) -> None:
    run = call("bench", "--data", str(shades), "--name", "a\x1bb")
    assert run.code == 2
    assert "control characters" in run.err
    assert is_harmless(run.err)
    run = call("compare", "a\u202eb=fedavg", "--data", str(shades))
    assert run.code == 2
    assert is_harmless(run.err)


@pytest.mark.parametrize("words", [["--\x1b[31mx"], ["nosuch\x1b[31m"], ["list", "a", "b", "\x1b[31m"]])
def test_an_argument_is_told_harmless(words: list[str]) -> None:
    run = call(*words)
    assert run.code == 2
    assert "\x1b" not in run.err


def test_domains_and_classes_of_folders_become_names_that_can_be_shown(tmp_path: Path) -> None:
    write_shades(tmp_path / "data")
    for archive in (tmp_path / "data").iterdir():
        archive.rename(archive.with_name(f"[{archive.stem}]\x1b.npz"))
    run = call("data", "check", "folder", "--data", str(tmp_path / "data"))
    assert run.code == 0, run.err
    assert is_harmless(run.out)
    assert "]\\x1b" in run.out
    out = tmp_path / "run"
    run = call("bench", "--data", str(tmp_path / "data"), *SMALL, "--rounds", "1", "--out", str(out))
    assert run.code == 0, run.err
    assert is_harmless(run.out)


def test_folders_whose_names_are_not_utf8_are_read(tmp_path: Path) -> None:
    from PIL import Image

    for domain in ("one", os.fsdecode(b"tw\xe7o")):
        for label in ("circle", os.fsdecode(b"squ\xe7re")):
            folder = tmp_path / "data" / domain / label
            folder.mkdir(parents=True)
            for number in range(4):
                Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / f"{number}.png")
    run = call("data", "check", "folder", "--data", str(tmp_path / "data"))
    assert run.code == 0, run.err
    assert "tw\\udce7o" in run.out
    assert "squ\\udce7re" in run.out


def test_no_cell_of_a_csv_is_a_formula(tmp_path: Path) -> None:
    entries = [{"method": "=1+1", "mean": -3.5, "@x": "+2", "note": "a\x1b[2J\nb"}]
    (row,) = csv.DictReader(io.StringIO(comma_separated(entries)))
    assert row == {"method": "'=1+1", "mean": "-3.5", "'@x": "'+2", "note": "a\\x1b[2J\\nb"}
    export_table(entries, "csv", tmp_path / "x.csv")
    (row,) = csv.DictReader((tmp_path / "x.csv").read_text().splitlines())
    assert row["method"] == "'=1+1"
    assert row["mean"] == "-3.5"


def test_a_markdown_table_links_nothing() -> None:
    text = Table("", ("method",), [["[a](javascript:x) `b` *c* __d__ e_f <img>"]]).markdown()
    assert r"\[a\](javascript:x) \`b\` \*c\* \_\_d\_\_ e_f &lt;img>" in text


def run_command(*words: str, close: int | None = None, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "fedwca", *words],
        env={**os.environ, **environment},
        capture_output=close is None,
        preexec_fn=None if close is None else lambda: os.close(close),
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_any_text_is_said_in_any_encoding(plain: Run, encoding: str, tmp_path: Path) -> None:
    shutil.copytree(plain.folder, tmp_path / "runs" / "nosüch")
    (tmp_path / "runs" / "nosüch" / "summary.json").unlink()
    completed = run_command("runs", "--root", str(tmp_path / "runs"), PYTHONIOENCODING=encoding)
    assert completed.returncode == 0, completed.stderr
    assert b"stopped" in completed.stdout
    completed = run_command("runs", "show", "nosüch–", PYTHONIOENCODING=encoding)
    assert completed.returncode == 2
    assert b"nos" in completed.stderr
    assert b"unexpected" not in completed.stderr


def test_a_closed_stdout_is_none_to_worry_about() -> None:
    assert run_command("list", close=1).returncode == 0
    ascii_locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    assert run_command("show", "objective", "shot", close=1, **ascii_locale).returncode == 0


@pytest.mark.parametrize("error", ["OSError('no fbgemm.dll')", "ImportError('no libcublas.so')"])
def test_a_torch_that_cannot_be_loaded_is_said_in_a_sentence(tmp_path: Path, error: str) -> None:
    (tmp_path / "torch.py").write_text(f"raise {error}")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    completed = run_command("data", "check", "digits-mini", PYTHONPATH=path)
    assert completed.returncode == 1
    assert b"a library that fedwca needs cannot be loaded (no " in completed.stderr
    assert b"Traceback" not in completed.stderr


def test_commands_to_paste_name_paths_without_single_quotes_on_windows() -> None:
    """The command prompt there takes these for part of the name."""
    assert say_how_to_continue(PureWindowsPath("runs\\first")) == "continue with: fedwca resume runs/first"
    assert say_how_to_continue(PureWindowsPath("C:\\Users\\Zoë\\a b")).endswith(' resume "C:/Users/Zoë/a b"')
    assert say_how_to_continue(PurePosixPath("a b")).endswith(" resume 'a b'")
    assert " C:/fl/clients/0 --data C:/fl/data/client-0.npz " in next_steps(PureWindowsPath("C:\\fl"), 2, True, False)


def test_a_legend_names_every_method() -> None:
    from fedwca.results.pictures.bars import draw_bars

    entry = {"label": "_mine", "mean": 1.0, "std": None, "n": 1, "domains": {"a": 1.0}, "domain_stds": {"a": None}}
    (legend,) = draw_bars({"mine": entry}, "title").legends
    assert [text.get_text().strip() for text in legend.get_texts()] == ["_mine"]


def test_the_card_of_a_model_is_text_alone(plain: Run, odd: Path, tmp_path: Path) -> None:
    from fedwca.core.model_description import ModelDescription
    from fedwca.export.card import model_card

    fields = {
        "fedwca": "1",
        "side": 32,
        "model": {"name": "lenet"},
        "rounds": 1,
        "config_hash": "x",
    }
    names = dict.fromkeys(("weights_hash", "method", "label", "holder", "dataset", "source", "domain"), ODD)
    text = model_card(ModelDescription(classes=(ODD, "b"), **fields, **names), f"{ODD}.onnx", "onnx")
    assert is_harmless(text)
    assert "<script" not in re.sub(r"`[^`]*`", "", text.replace("\\`", ""))
    assert text.count("\n| Method | ") == 1


def test_there_is_one_way_to_the_terminal() -> None:
    """Code that prints in another way could show a name with its control characters."""
    import fedwca

    package = Path(fedwca.__file__).parent
    for file in package.rglob("*.py"):
        text = file.read_text()
        if file.name != "terminal.py":
            assert "typer.echo(" not in text, file
            assert not re.search(r"(?<!\w)Console\(", text), file
