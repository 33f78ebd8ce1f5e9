"""Settings and fixtures of all tests: small federations, a private cache, one thread per process."""

from __future__ import annotations

import atexit
import gc
import math
import os
import sys
from collections.abc import Generator, Hashable, Iterator
from contextlib import suppress
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from typing import Any

import pytest
import torch
from _pytest.doctest import DoctestModule
from hypothesis import settings
from PIL import Image

from fedwca.core.files import write_atomically
from fedwca.core.mean import mean
from fedwca.core.network import Network
from fedwca.data.federation import ClientImages
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.models import models
from fedwca.results.diverged_runs import DIVERGED
from fedwca.results.environment import commit_of
from fedwca.results.pictures.overview import draw_overview
from fedwca.results.trial_key import TrialKey

from .fork_server import ForkServer
from .shades import write_shades

pytest.register_assert_rewrite("tests.engine.federations")
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.load_profile("fixed")
HERE = Path(__file__).resolve().parent
SHARED = Path(os.environ.get("FEDWCA_SHARED", HERE.parents[1] / "shared"))
SMALL_MODEL = "convnet:side=8,width=4,head=bottleneck,bottleneck=16,dropout=0.5"
"""It has what a LeNet has, in a hundredth of the computation."""
MINI = "convnet:side=32,width=4,head=bottleneck,bottleneck=8,dropout=0.5"
"""Such a model for images of 32×32 pixels, as those of Digits-mini are; smaller ones would be resized for each run."""
UNIT = (
    "functional",
    "components",
    "config",
    "test_imports.py",
    "test_names.py",
    "test_old_names.py",
    "test_project_files.py",
    "test_plugins.py",
    "test_registered_classes.py",
    "test_registry.py",
)
"""Folders and files here whose tests are selected by ``-m unit``; together they take seconds."""
TOO_LONG = {
    "test_a_forked_process_is_refused_where_it_would_wait_forever",
    "test_a_plugin_that_does_not_load_leaves_the_others_alone",
    "test_an_installed_plugin_is_listed_and_runs",
}
"""Tests in those files that ``-m unit`` leaves out, because they start processes."""
HAS_CUDA = torch.cuda.is_available()


class ExamplesWhereThereAre:
    """Looks for examples in the docstrings of files that have any; to search a module takes a hundredth of a second."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        collectors = yield
        if file_path.suffix != ".py" or b">>>" in file_path.read_bytes():
            return collectors
        return [collector for collector in collectors if not isinstance(collector, DoctestModule)]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ExamplesWhereThereAre())  # a hook of this file would not be asked outside tests/


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what stays to the end, libraries and tests, out of the garbage collector, which needs a second for them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # or libraries complain of objects that nobody has freed


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    are_unit = {path: any(path.is_relative_to(HERE / name) for name in UNIT) for path in {item.path for item in items}}
    for item in items:
        if are_unit[item.path] and item.name not in TOO_LONG:
            item.add_marker("unit")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Give each process one thread, and so the processes it starts, because tests run in parallel (``-n``)."""
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def plain_terminal() -> None:
    """Keep the variables of the user's terminal and of a launcher away from the tests."""
    os.environ["TERM"] = "xterm"
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
        os.environ.pop(name, None)


@pytest.fixture(scope="session", autouse=True)
def short_runs() -> Iterator[None]:
    """Leave out of runs in this process what takes a third of the time of a small one, and is tested by itself.

    These are the rendering of `overview.png`, the drawing of one with the same methods, groups and rounds as an earlier
    one, the wait for the disk after each file, and git and the search for plugins after the first time.
    """
    drawn = set()
    commits: dict[Path | None, str | None] = {}
    points: dict[tuple[str, ...], EntryPoints] = {}

    def overview(records: Any, results: Any, path: Path, title: str, first_models: Any) -> None:
        if (outline := outline_of(records, results)) not in drawn:
            draw_overview(records, results, title, first_models)
            drawn.add(outline)
        write_atomically(path, lambda file: Image.new("RGB", (6, 4)).save(file, "PNG"))

    def commit(folder: Path) -> str | None:
        repository = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), None)
        if repository not in commits:
            commits[repository] = commit_of(folder)
        return commits[repository]

    def installed() -> EntryPoints:
        search_path = tuple(sys.path)
        if search_path not in points:
            points[search_path] = entry_points()
        return points[search_path]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedwca.runs.write_summary.overview", overview)
        patch.setattr("fedwca.results.environment.commit_of", commit)
        patch.setattr("fedwca.results.environment.entry_points", installed)
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


def outline_of(records: Any, results: Any) -> Hashable:
    """What a picture of the rounds and results of a run shows besides its title and the numbers themselves."""

    def kind(value: float | None) -> bool | None:
        return None if value is None or math.isnan(value) else value != 0

    methods = [
        (name, entry["label"], "round" in entry, kind(entry["mean"]), kind(entry["std"]))
        for name, entry in results.items()
    ]
    groups = [
        (group, kind(value), kind(entry["domain_stds"][group]))
        for entry in results.values()
        for group, value in entry["domains"].items()
    ]
    rounds = {
        (
            record["method"],
            TrialKey.of(record),
            record["round"],
            DIVERGED in record,
            math.isnan(mean(record["accuracy"])),
        )
        for record in records
    }
    return tuple(methods), tuple(groups), frozenset(rounds)


@pytest.fixture(autouse=True)
def same_draws() -> None:
    """Seed torch's global generators, so that what a test draws does not depend on the tests before it."""
    torch.default_generator.manual_seed(0)  # torch.manual_seed formats the stack for each kind of device: 5 ms a test
    if HAS_CUDA:
        torch.cuda.manual_seed_all(0)


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder for the session, so that tests leave the user's cache alone and train each source model once.

    Under ``-n`` all processes share it, as several runs of one user do. ``FEDWCA_DRAWN`` names a folder with a
    digits-mini that was drawn by this code; without it a session draws its own, which takes longer than most tests.
    """
    session = tmp_path_factory.getbasetemp()
    folder = (session.parent if "PYTEST_XDIST_WORKER" in os.environ else session) / "cache"
    folder.mkdir(exist_ok=True)
    for drawn in Path(os.environ["FEDWCA_DRAWN"]).glob("digits_mini*.npz") if "FEDWCA_DRAWN" in os.environ else ():
        with suppress(FileExistsError):  # another process was quicker
            (folder / drawn.name).symlink_to(drawn)
    os.environ["FEDWCA_CACHE"] = str(folder)
    os.environ.pop("FEDWCA_DATA", None)
    return folder


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Runs commands in processes of their own that need not import anything."""
    with ForkServer(250) as server:
        yield server


@pytest.fixture(scope="session")
def shades(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of images that all tests read; at the end of the session it must be unchanged."""
    folder = write_shades(tmp_path_factory.mktemp("data") / "shades")
    contents = {file: file.read_bytes() for file in folder.rglob("*")}
    yield folder
    assert {file: file.read_bytes() for file in folder.rglob("*")} == contents, "a test wrote to images of all tests"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real images for development; a test that uses it is skipped where the folder is missing."""
    folder = SHARED / "data"
    if not folder.is_dir():
        pytest.skip(f"the folder of real images is not here ({folder.name} in FEDWCA_SHARED)")
    return folder


def a_network(seed: int = 1) -> Network:
    """A small network with random weights, three classes."""
    return models.build(SMALL_MODEL).build(3, seed)


def some_images() -> list[ClientImages]:
    """Four clients of unequal size with random images."""
    generator = torch.Generator().manual_seed(0)

    def random_images(n: int) -> torch.Tensor:
        return torch.randint(0, 256, (n, 3, 8, 8), dtype=torch.uint8, generator=generator)

    return [ClientImages(random_images(n), random_images(5)) for n in (13, 20, 9, 16)]


@pytest.fixture
def network() -> Network:
    return a_network()


@pytest.fixture
def images() -> list[ClientImages]:
    return some_images()


@pytest.fixture
def loop(network: Network, images: list[ClientImages]) -> SequentialEngine:
    """A sequential engine with the network and the clients."""
    return SequentialEngine(network, images, "cpu", workers=2)
