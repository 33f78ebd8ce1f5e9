"""Names of the package: each stands for one thing, and none is a bare participle or a metaphor."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import fedwca

ROOT = Path(fedwca.__file__).parent

MEANT_FILES: dict[str, tuple[set[str], str]] = {
    "engine.py": ({"engine/sequential", "engine/stacked"}, "each engine has one"),
    "worker.py": ({"engine/sequential", "engine/stacked"}, "each engine has one"),
    "evidence.py": ({"engine/sequential", "engine/stacked"}, "each engine has one"),
    "network.py": ({"core", "engine/stacked"}, "a network, and many of them stacked"),
    "finch.py": ({"clusterers", "functional"}, "a component, whose name is a word of users, and its equation"),
    "ladd.py": ({"aggregators", "clusterers"}, "two components of one method, whose name is a word of users"),
    "neighbours.py": ({"functional", "results/pictures"}, "an equation, and a picture, whose name is a word of users"),
    "client.py": ({"cli", "deploy"}, "a command and what it calls"),
    "compare.py": ({"cli", "runs"}, "a command and what it calls"),
    "join.py": ({"cli", "newcomers"}, "a command and what it calls"),
    "predict.py": ({"cli", "export"}, "a command and what it calls"),
    "server.py": ({"cli", "federated"}, "the command of one who runs a server, and what a server does in a round"),
}
"""File names that several folders have: which folders, and why. ``__init__.py`` is allowed everywhere."""

METAPHOR = re.compile(
    r"(?:^|_)(?:attendance|company|contest|crowd|desk|guest|handover|keeper|lesson|lonely|pile|room|seat|span|standing|teams?|(?<!in_)turn|welcome)"
    r"s?($|_)"
)
IRREGULAR = (
    "built chosen drawn found given held hidden kept known made said sent shown spent spelled taken told unknown"
)
PARTICIPLE = re.compile(rf"[a-z]*[b-df-hj-np-tv-z]ed|[a-z]*[aeiou][a-z]ed|{'|'.join(IRREGULAR.split())}")
NOUNS = {"bed", "feed", "need", "red", "seed", "speed"}
KEPT = {
    "adapted": "an objective, whose name was fixed before it was written: cross-entropy of adapted outputs",
    "generated": "an adaptation, whose name was fixed before it was written: a model that is generated",
    "learned": "an adaptation, whose name was fixed before it was written: a loss that is learned",
    "deprecated": "what other libraries call such a module",
    "bounded": "plugins import it",
    "diverged": "an error says what happened",
    "truncated": "an error says what happened",
    "pooled": "what the literature calls domains that are trained on together",
    "trusted": "a labeler, whose name is a word of users",
}
"""Participles of one word that stay, and why."""


def words(name: str) -> str:
    """A name in small letters with underscores between its words.

    >>> words("StartModel")
    'start_model'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def says_nothing(name: str) -> bool:
    """Whether a name is a single participle, which does not say of what, or contains a metaphor.

    >>> [name for name in ("settled", "sent", "Desk", "split_source", "seed", "returns") if says_nothing(name)]
    ['settled', 'sent', 'Desk']
    """
    name = words(name)
    return bool(METAPHOR.search(name) or (PARTICIPLE.fullmatch(name) and name not in NOUNS and name not in KEPT))


def modules() -> Iterator[tuple[str, str, ast.Module]]:
    """Folder below the package, file name and source of every module."""
    for file in sorted(ROOT.rglob("*.py")):
        path = file.relative_to(ROOT)
        yield path.parent.as_posix(), path.name, ast.parse(file.read_text())


def public(tree: ast.Module) -> Iterator[str]:
    """Names of a module's public functions and classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def variables(tree: ast.Module) -> Iterator[str]:
    """Names of a module's arguments and variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def offences() -> set[str]:
    """One line for each problem with a name of the package."""
    folders_by_file, files_by_name, problems = defaultdict(set), defaultdict(set), set()
    for folder, file, tree in modules():
        folders_by_file[file].add(folder)
        if says_nothing(file.removesuffix(".py").lstrip("_")):
            problems.add(f"word {folder}/{file}")
        problems |= {f"variable {name} in {folder}/{file}" for name in variables(tree) if METAPHOR.search(name)}
        for name in public(tree):
            # Each command's file names its function ``command``.
            if (folder, name) != ("cli", "command"):
                files_by_name[name].add(f"{folder}/{file}")
            if says_nothing(name):
                problems.add(f"word {name} in {folder}/{file}")
    for file, folders in folders_by_file.items():
        if len(folders) > 1 and file != "__init__.py" and folders != MEANT_FILES.get(file, (set(), ""))[0]:
            problems.add(f"file {file} in {', '.join(sorted(folders))}")
    return problems | {
        f"name {name} in {', '.join(sorted(files))}" for name, files in files_by_name.items() if len(files) > 1
    }


def test_names_say_one_thing_each() -> None:
    assert offences() == set()


def test_excepted_files_exist() -> None:
    for file, (folders, _) in MEANT_FILES.items():
        assert all((ROOT / folder / file).is_file() for folder in folders), file
