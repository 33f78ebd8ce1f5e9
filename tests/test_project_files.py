"""Files at the top of the repository agree with one another."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from .conftest import HERE, UNIT

ROOT = HERE.parent
CONFIGURATION = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = CONFIGURATION["project"]


def wanted(extra: str = "") -> Iterator[Requirement]:
    """Requirements of the package or of one of its extras, with those of the extras that it includes."""
    for text in PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]:
        requirement = Requirement(text)
        if requirement.name != PROJECT["name"]:
            yield requirement
        for nested_extra in sorted(requirement.extras) if requirement.name == PROJECT["name"] else ():
            yield from wanted(nested_extra)


TESTED = [*wanted(), *wanted("dev")]


def pins(name: str) -> dict[str, Version]:
    lines = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / name).read_text(), re.M)
    return {package: Version(version) for package, version in lines}


def test_the_lowest_versions_are_those_that_the_package_claims() -> None:
    floors = {}
    for requirement in TESTED:
        (floor,) = requirement.specifier
        assert floor.operator == ">=", requirement
        floors[requirement.name] = Version(floor.version)
    lowest = pins("constraints-lowest.txt")
    assert {name: lowest.get(name) for name in floors} == floors


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("constraints.txt", ("dev", "docs")),
        ("constraints-flower.txt", ("dev", "flower", "simulation")),
        ("constraints-lowest.txt", ("dev",)),
    ],
)
def test_every_requirement_is_pinned_within_what_the_package_claims(name: str, extras: tuple[str, ...]) -> None:
    pinned, requirements = pins(name), [*wanted(), *(each for extra in extras for each in wanted(extra))]
    assert [each.name for each in requirements if each.name not in pinned] == []
    assert [str(each) for each in requirements if pinned[each.name] not in each.specifier] == []


def test_flower_is_tested_beside_the_usual_versions() -> None:
    usual, beside_flower = pins("constraints.txt"), pins("constraints-flower.txt")
    wanted_older = {"rich", "typer"}  # by flwr 1.41
    assert {each.name for each in TESTED if beside_flower[each.name] != usual[each.name]} == wanted_older


def test_the_source_archive_holds_what_its_tests_read() -> None:
    always = [
        "/pyproject.toml",
        "/.gitignore",
        f"/{PROJECT['readme']}",
        *(f"/{name}" for name in PROJECT["license-files"]),
    ]
    included = [*CONFIGURATION["tool"]["hatch"]["build"]["targets"]["sdist"]["include"], *always]
    never = [".git", *(line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines())]
    # A checkout may have a cache beside its files, of which no test reads anything.
    never = [*never, ".cache"]
    names = [path.name for path in ROOT.iterdir() if not any(fnmatch(path.name, pattern) for pattern in never)]
    # Some tests look for the files that a page names.
    readers = [*HERE.rglob("*.py"), *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(file.read_text() for file in readers)
    read = {name for name in names if re.search(rf"[\"/`]{re.escape(name)}[\"/`]", text)}
    assert {"tests", "Dockerfile", "CONTRIBUTING.md", ".ci"} <= read
    assert [name for name in sorted(read) if not any(fnmatch(f"/{name}", pattern) for pattern in included)] == []


def test_every_python_that_the_package_claims_is_tested() -> None:
    claimed = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    assert jobs["tests"]["strategy"]["matrix"]["python"] == claimed
    assert Version(claimed[0]) in Requirement(f"python{PROJECT['requires-python']}").specifier


@pytest.mark.parametrize("name", UNIT)
def test_a_part_of_the_unit_ring_is_there(name: str) -> None:
    assert (HERE / name).exists()


def test_no_record_or_page_names_a_place_of_the_machine_it_was_made_on() -> None:
    machine_path = re.compile(r"(?<![\w.])/(?:tmp|home|root|work|private|Users|var)/\S*")
    kinds = {".json", ".jsonl", ".md", ".csv", ".log", ".svg", ".sh", ".toml", ".ipynb"}
    files = [ROOT / "README.md", ROOT / "CHANGELOG.md", HERE / "docs" / "commands.json"]
    for folder in ("baselines", "benchmarks", "docs"):
        files += [file for file in (ROOT / folder).rglob("*") if file.suffix in kinds]
    paths_by_file = {str(file.relative_to(ROOT)): machine_path.findall(file.read_text()) for file in files}
    assert {file: paths for file, paths in paths_by_file.items() if paths} == {}
