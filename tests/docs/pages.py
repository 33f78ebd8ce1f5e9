"""The documentation as data: pages, fenced blocks, headings, links and command lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELLS = {"sh", "console"}
FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\s*\n(.*?)^```\s*$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block; a block with a title is a file."""

    page: Path
    language: str
    title: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.stem}-{self.title}"


def blocks() -> list[Block]:
    return [Block(page, *match) for page in PAGES for match in FENCE.findall(page.read_text())]


def files(page: str, suffix: str) -> list[Block]:
    """Blocks that are files with this suffix, of one page or, if ``page`` is '', of all pages."""
    return [block for block in blocks() if block.title.endswith(suffix) and page in ("", block.page.stem)]


def plugin_files(suffix: str) -> list[Block]:
    """Files with this suffix on the pages for authors of components."""
    return [block for page in ("first-component", "interfaces") for block in files(page, suffix)]


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as code hosts derive them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> Iterator[str]:
    yield from re.findall(r"\]\(([^)\s]+)\)", prose(page))


def mentions() -> list[tuple[Path, list[str]]]:
    """Page and arguments of every fedwca command line between backquotes in running text.

    Command lines with placeholders, and mere names of commands, are left out.
    """
    quoted = [(page, text) for page in PAGES for text in re.findall(r"(?<!`)`fedwca ([^`\n]+)`(?!`)", prose(page))]
    lines = [(page, shlex.split(text)) for page, text in quoted if not re.search(r"\b[A-Z]{2,}|…", text)]
    return [(page, words) for page, words in lines if len(words) > 2 or (words[0] == "reproduce" and words[1:])]


def commands() -> list[tuple[Path, list[str]]]:
    """Page and arguments of every fedwca command line in a shell block, without redirections and the like."""
    command_lines = []
    for block in blocks():
        if block.language not in SHELLS:
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            if block.language == "console" and not line.startswith("$ "):
                continue
            words = shlex.split(line.removeprefix("$ "), comments=True)
            words = list(dropwhile(re.compile(r"[A-Z_]+=").match, words))
            words = words[: next((i for i, word in enumerate(words) if word in {">", "|", "&&", "&"}), len(words))]
            if words and Path(words[0]).name == "fedwca":
                command_lines.append((block.page, words[1:]))
    return command_lines
