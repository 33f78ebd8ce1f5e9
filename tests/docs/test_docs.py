"""The documentation is true: examples run, links lead somewhere, commands and names exist."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from filelock import FileLock

import fedwca
import fedwca.functional
from fedwca._deprecated import GONE_IN, MEMBERS, MODULES
from fedwca.cli import make_command
from fedwca.config.component_registries import PLURALS, registry_of
from fedwca.config.resolve_config import resolve_plan
from fedwca.config.run_config import RunConfig
from fedwca.core import network
from fedwca.core.training_settings import CentralTraining, FinishTraining, SourceTraining, Training
from fedwca.errors import UnknownComponent
from fedwca.federated import round as rounds
from fedwca.federated import source_model
from fedwca.registry import canonical_name
from fedwca.reproduce.definitions import definition
from tests.read_rounds import read_rounds

from ..cli.conftest import call
from ..fork_server import CommandLine, ForkServer
from ..shades import write_shades
from .pages import PAGES, ROOT, Block, anchors, blocks, commands, files, links, mentions, plugin_files, prose

SIZE = "--rounds 2 --epochs 1 --clients 2 --device cpu"
SHORT = [*SIZE.split(), "--set", "source_training.epochs=1", "--baseline", "none"]
PLUGINS = {"lean", "ward", "confident", "entropy", "small", "mobilenet"}
ELSEWHERE = {"fedwca_lean.py", "fedwca_more.py", "join_late.py"}
"""Files of the pages that other tests run."""
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory, private_cache: Path, fork_server: ForkServer) -> Path:
    """A folder with the plugins of the docs installed, their example images, and a run that uses all of these.

    Under ``-n`` it is made once, and each process has a copy.
    """
    prepared = private_cache.parent / "docs"
    with FileLock(f"{prepared}.lock"):
        if not (prepared / "summary.json").exists():
            write_workplace(prepared, fork_server)
    return shutil.copytree(prepared, tmp_path_factory.mktemp("docs") / "workplace")


def write_workplace(folder: Path, server: ForkServer) -> None:
    """Write what `workplace` has; ``summary.json``, the summary of the run, is written last."""
    folder.mkdir(exist_ok=True)
    for block in plugin_files(".py"):
        (folder / block.title).write_text(block.text)
    points = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for block in plugin_files(".toml")
        for group, entries in tomllib.loads(block.text)["project"]["entry-points"].items()
    ]
    info = folder / "docs_plugins-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: docs-plugins\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(points))
    (archives,) = [block for block in files("data", ".py") if "savez" in block.text]
    subprocess.run(
        [sys.executable, "-c", archives.text], cwd=folder, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    (line,) = [words for _, words in commands() if "entropy" in words]
    arguments = [*line, "--set", "aggregator.p=0.7", "--data", "photos", *SHORT, "--out", "runs/first", "--json"]
    (folder / "summary.json").write_text(fedwca_in(folder, server, *arguments))


def fedwca_in(folder: Path, server: ForkServer, *words: str, before: str = "") -> str:
    """Run a command line in a process of its own, so that plugins are known only there; return its output.

    Args:
        folder: the working directory, in which the plugins are.
        server: forks the process.
        words: without ``fedwca``.
        before: Python code that is run first.
    """
    install = f"import sys; sys.path.insert(0, {str(folder)!r})\n"
    ended = server.run(CommandLine(list(words), str(folder), dict(os.environ), install + before))
    assert ended.code == 0, ended.err
    return ended.out


def test_the_plugins_of_the_docs_run(workplace: Path) -> None:
    summary = json.loads((workplace / "summary.json").read_text())
    assert list(summary["methods"]) == ["lean"]
    assert summary["config"]["components"]["aggregator"] == {"lean": {"p": 0.7}}
    last = read_rounds(workplace / "runs/first")[-1]
    labels = last["labels"]
    for client, label in enumerate(labels):
        share = labels.count(label) / len(labels)
        assert last["weights"][client][label] == pytest.approx(0.7 + 0.3 * share)
        assert sum(last["weights"][client]) == pytest.approx(1)


def test_the_examples_of_the_docs_can_be_named(workplace: Path, fork_server: ForkServer) -> None:
    examples = {"adaptation": "peaked", "central": "mean_gap", "clusterer": "ward"}
    for kind, name in examples.items():
        lines = fedwca_in(workplace, fork_server, "show", kind, name).splitlines()
        assert any(line.startswith(f"{kind} {name}") for line in lines), lines


@pytest.mark.parametrize("block", [block for block in files("", ".py") if block.title not in ELSEWHERE], ids=str)
def test_a_python_example_runs(
    block: Block,
    workplace: Path,
    fork_server: ForkServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(workplace)
    text = re.sub(r"SourceTraining\(epochs=\d+", "SourceTraining(epochs=1", block.text)
    text = re.sub(r"\bsamples=\d+", "samples=20", text).replace("in range(3)", "in range(1)")
    if "open_run(" in text:  # opens a run of plugins, which this process does not know
        assert "after round 1" in fedwca_in(workplace, fork_server, "--version", before=text)
        return
    exec(compile(text, str(block), "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out or "savez" in text


def test_the_plan_in_the_tutorial_is_the_one_that_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    (shown,) = [block.text for block in blocks() if block.page.stem == "tutorial" and "\nMethods: " in block.text]
    command, dataset, *lines = shown.splitlines()
    assert dataset.startswith("digits_mini: ")
    monkeypatch.setattr("fedwca.runs.execute_run.run_bench", stop)
    words = command.removeprefix("$ fedwca ").replace("runs/first", str(tmp_path / "first")).split()
    run = call(*words, "--data", str(write_shades(tmp_path / "shades")))
    # Values and the preset differ, because the data are others; only what each line is about is compared.
    kinds = [
        [re.split("[:,]", line)[0] for line in plan_lines if not line.startswith("From preset")]
        for plan_lines in (lines, run.out.splitlines()[1:])
    ]
    assert kinds[0] == kinds[1]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_the_tutorials_first_run_has_clusters(tmp_path: Path, private_cache: Path) -> None:
    (shown,) = [block.text for block in blocks() if block.page.stem == "tutorial" and "\nMethods: " in block.text]
    words = shown.splitlines()[0].removeprefix("$ fedwca ").replace("runs/first", str(tmp_path / "first")).split()
    run = call(*words, "--device", "cpu", folder=tmp_path / "first")
    assert run.code == 0, run.err
    (grouped,) = read_rounds(run.folder, "wca", number=0)
    assert max(grouped["labels"]) > 0
    assert run.summary["methods"]["wca"]["mean"] != run.summary["methods"]["fedavg"]["mean"]


def test_every_python_block_of_the_docs_is_run() -> None:
    python_blocks = [block for block in blocks() if block.language == "python" and block.page.parent.name == "docs"]
    assert [block.text for block in python_blocks if not block.title.endswith(".py")] == []


@pytest.mark.parametrize("page", sorted({*PAGES, *ROOT.glob("*.md")}), ids=lambda page: page.stem)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if target.suffix == ".md" and ROOT / "docs" in page.parents:
            assert ROOT / "docs" in target.parents, f"{page.name}: {link} is no page of the site"
        assert not anchor or anchor in anchors(target), f"{page.name}: {link} has no such heading"


def known(words: list[str]) -> bool:
    """Whether a command line names no plugin."""
    return not PLUGINS & {canonical_name(re.split("[:.]", word)[0]) for word in words}


@pytest.mark.parametrize(
    ("page", "words"),
    [*commands(), *mentions()],
    ids=lambda value: " ".join(value[:9]) if isinstance(value, list) else "",
)
def test_a_command_line_parses(page: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    command = make_command()
    names = list(words)
    while names and getattr(command, "commands", None):
        if names[0].startswith("-"):
            option = next((option for option in command.params if names[0] in option.opts), None)
            assert option is not None or names[0] == "--help", f"no option {names[0]}"
            del names[: 1 if option is None or option.is_flag else 2]
            if not names:
                return
            continue
        assert names[0] in command.commands, f"fedwca has no command {names[0]}"
        command = command.commands[names.pop(0)]
    context = command.make_context(words[0], list(names))
    if words[0] == "bench" and known(words):
        values = context.params
        monkeypatch.setattr("fedwca.runs.start_run.start_run", planned)
        if values["config"] is None:
            with pytest.raises(typer.Exit):
                command.callback(**{**values, "dry_run": False})  # which reads the data
    if words[0] == "compare":
        options = {name: context.params[name] for name in ("partition", "model") if context.params[name]}
        target = {"target": "neon"} if context.params["target"] else {}
        layer = {**options, **target, "baselines": context.params["methods"], "composed": False}
        resolve_plan(layer, preset_name=context.params["preset"])
    if words[0] == "reproduce":
        definition(context.params["table"]).chosen(context.params["row"] or [])
    if words[0] == "show" and known(words) and canonical_name(words[1]) in PLURALS:
        assert registry_of(words[1]).get(words[2])


def planned(request: Any, *_: Any) -> None:
    """In place of a run: make all checks that precede it, without data."""
    request.plan()
    raise typer.Exit


@by_page
def test_a_set_option_names_a_field_and_a_value_of_it(page: Path) -> None:
    if page.stem == "decisions":
        return  # test_decisions.py asks more of that page
    for key, value in re.findall(r"--set ([\w.-]+)=([\w.-]+)", page.read_text()):
        head, *rest = key.split(".")
        if head == "training":
            Training(**{**({"epochs": 1} if rest[0] == "rounds_per_epoch" else {}), rest[0]: value})
        elif head == "source_training":
            SourceTraining(**{rest[0]: value})
        elif head == "finish_training":
            FinishTraining(**{rest[0]: value})
        elif head == "central_training":
            CentralTraining(**{rest[0]: value})
        elif rest[0] not in PLUGINS and not (head == "aggregator" and rest[0] == "p"):
            names = [rest[0]] if len(rest) == 2 else [chosen(head, rest[-1])]
            registry_of(head).build({"name": names[0], rest[-1]: value})


def chosen(kind: str, field: str) -> str:
    """The default component of a kind, or for a data set one that has the field."""
    if kind == "dataset":
        return "digit_five"
    if kind == "clusterer":
        return "finch"
    default = RunConfig.model_fields["objectives" if kind == "objective" else kind].default
    return default[0] if isinstance(default, tuple) else default


@cache
def resolved(name: str) -> bool:
    """Whether a dotted name is a module or something in one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


@by_page
def test_names_and_files_in_the_text_exist(page: Path) -> None:
    quoted = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose(page))
    missing = [name for name in quoted if re.fullmatch(r"fedwca(\.\w+)+", name) and not resolved(name)]
    paths = [name for name in quoted if re.fullmatch(r"(fedwca|tests|docs|baselines|\.ci)/[\w./-]*", name)]
    example = {"fedwca/aggregators/lean.py"}
    missing += [path for path in paths if not (ROOT / path).exists() and path not in example]
    assert missing == []


def test_the_map_names_every_equation_function() -> None:
    from fedwca import functional

    text = (ROOT / "docs" / "paper-to-code.md").read_text()
    no_equations = {"Metric", "VectorError", "class_entropy", "finch_levels"}
    assert [
        name for name in functional.__all__ if name not in no_equations and f"`fedwca.functional.{name}`" not in text
    ] == []


def test_the_map_has_every_equation_line_table_and_figure() -> None:
    text = (ROOT / "docs" / "paper-to-code.md").read_text()

    def rows(under: str, pattern: str) -> set[int]:
        """Numbers and ranges in the first column of a section's tables, in what a pattern takes of it."""
        section = text.partition(f"## {under}")[2].partition("\n## ")[0]
        cells = re.findall(r"^\| ([^|]+) \|", section, re.M)
        spans = [
            span for cell in cells for part in re.findall(pattern, cell) for span in re.findall(r"\d+(?:–\d+)?", part)
        ]
        ends = [tuple(map(int, span.split("–"))) for span in spans]
        return {number for first, *last in ends for number in range(first, (last or [first])[0] + 1)}

    assert rows("Equations", r"Eqs?\. [\d, and–]+") == set(range(1, 10))
    whole_algorithm = "| 1–22 |"
    assert whole_algorithm in text
    text = text.replace(whole_algorithm, "| whole |")
    assert rows("Algorithm 1", r"^[\d, –]+$") >= set(range(1, 23)) - {21}  # line 21 is empty
    assert rows("Algorithm 2", r"^[\d, –]+$") >= set(range(2, 14)) - {4, 10}  # "else", and an empty line
    assert rows("Tables and figures", r"Tables? [\d–]+") == set(range(1, 15))
    assert rows("Tables and figures", r"Figures? [\d–]+") == set(range(1, 7))


def test_the_site_has_every_page_and_every_public_module() -> None:
    site = (ROOT / "mkdocs.yml").read_text()
    pages = [str(page.relative_to(ROOT / "docs")) for page in PAGES if ROOT / "docs" in page.parents]
    assert [page for page in pages if not re.search(rf": {re.escape(page)}$", site, re.M)] == []
    dumps = [page.read_text() for page in (ROOT / "docs/internals/api").glob("*.md")]
    shown = re.findall(r"^::: (\S+)$", "\n".join(dumps), re.M)
    files = [
        *(ROOT / "fedwca").glob("[!_]*.py"),
        *(path.parent for path in (ROOT / "fedwca").glob("[!_]*/__init__.py")),
    ]
    modules = {f"fedwca.{path.stem}" for path in files}
    assert modules - set(shown) - {"fedwca.cli"} == set()


def old_names() -> str:
    """The table of deprecated names, as their page shows it."""
    rows = [
        f"| `{old}` in `{module.__name__}` | `{new}` |"
        for module in (fedwca, fedwca.functional, network, rounds, source_model)
        for old, new in sorted(module._RENAMED.items())
    ]
    for old, (new, renamed) in sorted(MODULES.items()):
        rows.append(f"| `{old}` | `{new}` |")
        for name, after in sorted(renamed.items()):
            new_module, _, now = after.rpartition(".")
            rows.append(f"| `{name}` in `{old}` | `{now}` in `{new_module or new}` |")
    members = [
        f"| `{old}` of `{base}` | `{new}` |" for base, renamed in MEMBERS.items() for old, new in renamed.items()
    ]
    gone = "A class that defines one of these is refused, with the new name:"
    heads = ["| Old | Now |", "|---|---|"]
    return "\n".join([f"They go in fedwca {GONE_IN}.", "", *heads, *rows, "", gone, "", *heads, *members])


def test_the_page_of_old_names_lists_all() -> None:
    text = (ROOT / "docs" / "internals" / "old-names.md").read_text()
    shown = text.split("<!-- begin old-names -->\n")[1].split("\n<!-- end old-names -->")[0]
    assert shown == old_names(), f"docs/internals/old-names.md, block old-names, should be:\n{old_names()}"


def test_no_line_stands_twice_in_the_changelog() -> None:
    lines = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if len(line) > 40]
    assert [line for line, count in Counter(lines).items() if count > 1] == []


def test_every_public_name_of_the_package_is_on_the_page() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    assert [name for name in fedwca.__all__ if name[0] != "_" and f"`fedwca.{name}`" not in text] == []


def test_every_open_question_has_a_row() -> None:
    text = (ROOT / "docs" / "decisions.md").read_text()
    assert re.findall(r"^\| (A\d+) \|", text, re.M) == [f"A{number}" for number in range(1, 41)]


def test_the_plugins_of_the_docs_stay_where_they_were_installed(workplace: Path) -> None:
    with pytest.raises(UnknownComponent):
        registry_of("aggregator").get("lean")
