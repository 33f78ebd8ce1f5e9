"""Plugins that are installed from a folder, and what Python imports before one is used."""

from __future__ import annotations

import importlib
import json
import os
import py_compile
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from fedwca.aggregators.wca import WCA
from fedwca.component import Component, code_digest
from fedwca.config.component_registries import registry_of
from fedwca.errors import UsageError
from fedwca.registry import Registry
from tests.read_rounds import read_rounds

from .fork_server import CommandLine, Ended, ForkServer
from .shades import write_shades

HEAVY = ("torch", "faiss", "matplotlib", "sklearn")


def python(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python in a new process, with ``path`` as a folder of plugins if it is given."""
    environment = {**os.environ, "PYTHONPATH": str(path) if path else "", "COLUMNS": "200", "NO_COLOR": "1"}
    root = Path(__file__).resolve().parents[1]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment["PYTHONPATH"], str(root)]))
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)


@pytest.mark.parametrize("arguments", [["--help"], ["bench", "--help"], ["list"], ["--version"], ["runs"]])
def test_looking_around_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        f"import sys, fedwca.cli; code = fedwca.cli.run({arguments}); found = [m for m in {HEAVY} if m in sys.modules]"
    )
    result = python("-c", code + "; sys.exit(f'{code} {found}' if code or found else 0)")
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_a_subclass_does_not_inherit_the_label_of_a_plugin_that_was_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Parent(WCA):
        name = ""
        label, paper = "Parent", "Somewhere"

    class Child(Parent):
        pass

    point = EntryPoint("parent", f"{Parent.__module__}:{Parent.__qualname__}", "fedwca.aggregators")
    monkeypatch.setattr(Registry, "_plugins", lambda self: {"parent": point})
    Registry[Component]("thing", "fedwca.loggers")("child")(Child)
    assert (Child.name, Child.label, Child.paper) == ("child", "", "")


def test_the_code_of_a_plugin_is_told_from_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    digests = []
    for number in (1, 2, 2):
        (tmp_path / "changing.py").write_text(
            f"from fedwca.aggregators.wca import WCA\nclass Own(WCA):\n    pass  # {number}\n"
        )
        sys.modules.pop("changing", None)
        importlib.invalidate_caches()
        digests.append(code_digest(importlib.import_module("changing").Own))
    assert digests[0] != digests[1] == digests[2]
    assert code_digest(WCA) == {}


def test_a_compiled_plugin_has_the_same_code_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    source = tmp_path / "only_compiled.py"
    source.write_text("from fedwca.aggregators.wca import WCA\nclass Own(WCA):\n    pass\n")
    py_compile.compile(str(source), cfile=str(tmp_path / "only_compiled.pyc"))
    source.unlink()
    digests = []
    for _ in range(2):
        sys.modules.pop("only_compiled", None)
        digests.append(code_digest(importlib.import_module("only_compiled").Own))
    assert digests[0] == digests[1] != {}


# Plugins

BLENDED = '''
"""One file: every client starts half from its own model, half from everybody's mean."""

import torch

from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Blend, Offer


class HalfAndHalf(Aggregator):
    """Half the own cluster's model, half the mean of all clusters' models."""

    label = "Half and half"
    share: float = 0.5

    def offer(self, state, round, rows):
        own = super().offer(state, round, rows)
        return Offer(own.personal, torch.full((1, len(rows)), 1 / len(rows), dtype=torch.float64))

    def blend(self, round, view):
        return Blend(view.own * (1 - self.share) + view.shared * self.share)
'''


MODULES = {
    "blended.py": BLENDED,
    "bare.py": "from fedwca.registry import Component\nclass Bare(Component):\n    def offer(self): ...\n",
    "mute.py": "from fedwca.core.interfaces import Objective\nclass Mute(Objective):\n    pass\n",
    "plain_class.py": "class Plain:\n    def __call__(self, batch): ...\n",
    "labels.py": "from fedwca.pseudo_labelers.argmax import Argmax\nclass Labels(Argmax): ...\n",
    "broken.py": "import a_library_that_is_not_there\n",
    "lowly.py": "def lowly(batch): ...\n",
    "bare_field.py": "from fedwca.aggregators.fedavg import FedAvg\nclass BareField(FedAvg):\n    n = 3\n",
    "tensor_field.py": "from torch import Tensor\nfrom fedwca.aggregators.fedavg import FedAvg\n"
    "class TensorField(FedAvg):\n    n: Tensor\n",
    "loud.py": "from fedwca.aggregators.fedavg import FedAvg\nclass Loud(FedAvg): ...\nprint('imported')\n",
    "ends.py": "raise SystemExit(3)\n",
    "related.py": "from .ends import Ends\n",
    "unknown.py": "from __future__ import annotations\nfrom fedwca.aggregators.fedavg import FedAvg\n"
    "class Unknown(FedAvg):\n    share: Annotated[float, 1] = 1\n",
}


POINTS = """
[fedwca.aggregators]
half-and-half = blended:HalfAndHalf
bare = bare:Bare
broken = broken:Broken
unknown = unknown:Unknown
bare-field = bare_field:BareField
tensor = tensor_field:TensorField
ends = ends:Ends
related = related:Related
loud = loud:Loud
WCA = blended:HalfAndHalf

[fedwca.datasets]
broken = broken:Broken

[fedwca.partitions]
broken = broken:Broken

[fedwca.objectives]
mute = mute:Mute
plain = plain_class:Plain
labels = labels:Labels
lowly = lowly:lowly
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as an installer leaves it: modules, and the metadata of one distribution."""
    folder = tmp_path_factory.mktemp("site")
    for name, text in MODULES.items():
        (folder / name).write_text(text)
    metadata = folder / "fedwca_extras-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fedwca-extras\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(POINTS)
    return folder


@pytest.fixture
def command(site: Path, tmp_path: Path, fork_server: ForkServer) -> Callable[..., Ended]:
    """Runs a command line in a process of its own, where the plugins are installed."""
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    install = f"import sys; sys.path.insert(0, {str(site)!r})"
    return lambda *words: fork_server.run(CommandLine(list(words), str(tmp_path), environment, install))


def test_an_installed_plugin_is_listed_and_runs(site: Path, tmp_path: Path, command: Callable[..., Ended]) -> None:
    listed = python("-m", "fedwca", "list", "aggregators", path=site)
    assert "half_and_half" in listed.stdout, listed.stderr
    data = write_shades(tmp_path / "shades", images=16)
    small = "--clients 1 --rounds 2 --epochs 1 --baseline none --set source_training.epochs=0 --json"
    out = ["--data", str(data), "--out", str(tmp_path / "run")]
    result = command("bench", "--aggregator", "half-and-half:share=0.25", *small.split(), *out)
    assert result.code == 0, result.err
    summary = json.loads(result.out)
    assert set(summary["methods"]) == {"half_and_half"}
    assert summary["config"]["components"] == {"aggregator": {"half_and_half": {"share": 0.25}}}
    # FINCH puts two clients in one cluster, so the own model and the mean are the same model.
    assert read_rounds(tmp_path / "run")[-1]["weights"] == [[1.0], [1.0]]
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["versions"]["fedwca-extras"] == "1.0"
    assert re.fullmatch("[0-9a-f]{8}", environment["plugin_code"]["fedwca-extras"])


def test_what_holds_before_components_are_looked_at(site: Path) -> None:
    """An instance of a plugin is known, and a name of fedwca is not taken before its own class is imported."""
    text = """
import sys
from blended import HalfAndHalf
from fedwca.aggregators import aggregators, register
print(aggregators.parse(HalfAndHalf(share=0.25)))
from fedwca.aggregators.wca import WCA
print("fedwca.aggregators.fedavg" in sys.modules)
try:
    register("fedavg")(type("Own", (WCA,), {"__module__": "own"}))
except ValueError as error:
    print(error)
"""
    result = python("-c", text, path=site)
    assert result.returncode == 0, result.stderr
    instance, imported, refused = result.stdout.splitlines()
    assert (instance, imported) == ("('half_and_half', {'share': 0.25})", "False")
    assert "'fedavg' is already in fedwca.aggregators.fedavg; take another name" in refused


@pytest.mark.parametrize(
    ("kind", "name", "sentence"),
    [
        (
            "aggregators",
            "bare",
            "aggregator 'bare' (bare.Bare) lacks the base class fedwca.core.aggregator.Aggregator",
        ),
        ("objectives", "mute", "objective 'mute' (mute.Mute) lacks __call__"),
        (
            "objectives",
            "plain",
            "objective 'plain' (plain_class.Plain) lacks the base class fedwca.core.objective.Objective",
        ),
        (
            "objectives",
            "labels",
            "objective 'labels' (labels.Labels) lacks the base class fedwca.core.objective.Objective",
        ),
        ("objectives", "lowly", "objective 'lowly' is not a class but <function lowly"),
        (
            "aggregators",
            "broken",
            "aggregator 'broken' from fedwca-extras could not be loaded: No module named 'a_library_that_is_not_there' "
            "(broken.py:1)",
        ),
        ("aggregators", "bare_field", "could not be loaded: `n = 3` has no type annotation, as a field needs; of what"),
        ("aggregators", "tensor", "a field has the type <class 'torch.Tensor'>; right is one whose values JSON can"),
        ("aggregators", "ends", "could not be loaded: its file ends Python when it is imported (ends.py:1)"),
        (
            "aggregators",
            "related",
            "no known parent package; right is the other file's own name, without dots, where",
        ),
        ("aggregators", "unknown", "could not be loaded: name 'Annotated' is not defined"),
    ],
)
def test_a_plugin_that_does_not_fit_is_told_why(
    site: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str, sentence: str
) -> None:
    monkeypatch.syspath_prepend(str(site))
    with pytest.raises(UsageError) as caught:
        registry_of(kind).get(name)
    assert sentence in str(caught.value)


def test_what_a_plugins_file_prints_is_kept_out_of_json(command: Callable[..., Ended]) -> None:
    result = command("show", "aggregator", "loud", "--json")
    assert json.loads(result.out)["name"] == "loud"
    assert result.err == "imported\n"


def test_a_plugin_with_a_name_that_is_taken_is_not_left_out_in_silence(
    site: Path, command: Callable[..., Ended]
) -> None:
    result = command("bench", "--aggregator", "wca")
    assert result.code == 2
    owners = "fedwca and of fedwca-extras (blended:HalfAndHalf)"
    message = f"aggregator 'wca' is of {owners}; uninstall one, or give its entry point another name"
    assert result.err == f"Error: {message}\n"
    # In the first call it is not imported yet; before the last one, a component that extends it has imported it.
    text = """
from fedwca.aggregators import aggregators as a
try:
    a.get("wca")
except ValueError as error:
    print(error)
a.get("revised_wca")
a.get("wca")
"""
    fresh = python("-c", text, path=site)
    assert message in fresh.stdout
    assert message in fresh.stderr


def test_a_plugin_that_does_not_load_leaves_the_others_alone(command: Callable[..., Ended]) -> None:
    result = command("bench", "--aggregator", "broken")
    assert result.code == 2
    assert result.err.startswith("Error: aggregator 'broken' from fedwca-extras could not be loaded")
    assert result.err.count("\n") == 1
    assert command("list", "aggregators").code == 0
    # Every plan and some sentences look at all partitions.
    refused = command("bench", "--preset", "upfl", "--source", "photo").err
    assert refused.startswith("Error: preset upfl is for the setting upfl (--partition dirichlet, or another one of")
    assert command("bench", "--partition", "broken").err.startswith(
        "Error: partition 'broken' from fedwca-extras could"
    )
    listed = command("data", "list")
    assert listed.code == 0
    assert "'broken' from fedwca-extras could not be loaded" in " ".join(listed.out.split())
    assert "Those that are: cifar10, cifar100" in command("data", "get", "digits-mini").err
