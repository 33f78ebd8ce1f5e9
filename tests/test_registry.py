"""Names without imports, specs of every form, and plugins that are installed from a folder."""

from __future__ import annotations

import functools
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
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
import pytest
from pydantic import Field

from fedwca.aggregators import aggregators
from fedwca.aggregators.wca import WCA
from fedwca.clusterers import clusterers
from fedwca.component import Component, code_digest
from fedwca.config.baselines import baseline_names
from fedwca.config.component_registries import PLURALS, registry_of
from fedwca.config.presets import preset_names
from fedwca.core.interfaces import Aggregator, Objective, PseudoLabeler
from fedwca.datasets import DatasetSource
from fedwca.errors import InvalidConfig, UnknownComponent, UsageError
from fedwca.loggers import Logger
from fedwca.objectives import objectives
from fedwca.partitions import Partition
from fedwca.pseudo_labelers import pseudo_labelers
from fedwca.registry import Registry
from fedwca.runs.log_to import build_loggers
from tests.read_rounds import read_rounds

from .fork_server import CommandLine, Ended, ForkServer
from .shades import write_shades

HEAVY = ("torch", "faiss", "matplotlib", "sklearn")
EVERY = [(kind, name) for kind in PLURALS for name in registry_of(kind).names()]


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


def test_names_come_from_files() -> None:
    assert {"fedavg", "local", "one_hot", "wca"} <= set(aggregators.names())
    assert {"each", "finch", "single", "true"} <= set(clusterers.names())
    assert {"prototype", "two_model"} <= set(pseudo_labelers.names())
    assert {"shot"} <= set(objectives.names())
    assert {"fedavg", "local", "source_only"} <= set(baseline_names())
    assert {"default", "paper"} <= set(preset_names())
    assert not any(name.startswith("_") for kind in PLURALS for name in registry_of(kind).names())


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_every_name_is_a_component_with_its_papers(kind: str, name: str) -> None:
    cls = registry_of(kind).get(name)
    assert cls.name == name
    assert cls.__doc__
    assert cls.__module__.endswith(f".{name}")
    undescribed = [field for field, info in cls.model_fields.items() if not info.description]
    assert not undescribed


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_dump_and_build_are_inverse(kind: str, name: str) -> None:
    registry = registry_of(kind)
    values = {"timm": "timm:resnet18", "hub": "hub:owner/name,revision=main"}
    if name == "timm":
        pytest.importorskip(name)
    component = registry.build(values[name] if registry.get(name).positional_field else name)
    dumped = registry.dump(component)
    assert registry.build(json.loads(json.dumps(dumped))) == component
    name_and_fields = registry.parse(component)
    assert registry.build({"name": name_and_fields[0], **name_and_fields[1]}) == component
    assert dumped["name"] == name


def test_one_component_in_every_form() -> None:
    expected = WCA(ta=0.05, direction="row")
    forms: list[Any] = [
        "wca:ta=0.05,direction=row",
        " WCA: ta = 0.05 , direction = row",
        {"name": "wca", "ta": 0.05, "direction": "row"},
        {"name": "wca", "ta": "0.05", "direction": "row"},
        expected,
    ]
    assert [aggregators.build(form) for form in forms] == [expected] * len(forms)
    assert aggregators.parse(expected) == ("wca", {"ta": 0.05, "direction": "row"})


@pytest.mark.parametrize("name", ["one_hot", "one-hot", "One-Hot", " ONE_HOT "])
def test_dash_and_underscore_are_alike(name: str) -> None:
    assert aggregators.build(name).name == "one_hot"


@pytest.mark.parametrize(
    ("given", "near"), [("wac", "wca"), ("fed-avg", "fedavg"), ("onehot", "one_hot"), ("lokal", "local")]
)
def test_a_wrong_name_suggests_the_near_one(given: str, near: str) -> None:
    with pytest.raises(UnknownComponent, match=f"no aggregator .*; did you mean '{near}'") as caught:
        aggregators.build(given)
    assert "Known: " in str(caught.value)


def test_several_names_in_one_are_told_apart() -> None:
    with pytest.raises(UnknownComponent, match=r"no clusterer 'finch\+true': give each by itself, finch and true"):
        clusterers.build("finch+true")


def test_a_name_near_to_nothing_lists_what_there_is() -> None:
    with pytest.raises(UnknownComponent, match=r"no clusterer 'zzz'\. Known: ada_bn, .*; if a plugin has it, install"):
        clusterers.build("zzz")


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("wca:tc=1", "aggregator wca.tc: there is no such field"),
        ("wca:ta=0", "aggregator wca.ta: Input should be greater than 0 (given '0')"),
        ("wca:ta=hot", "aggregator wca.ta: Input should be a valid number"),
        ("wca:direction=up", "aggregator wca.direction: Input should be 'column' or 'row'"),
        ("wca:ta", "'ta' is not of the form field=value"),
        ({"ta": 1}, "a table needs a name"),
        ({"name": "wca", "ta": -1, "tb": -2}, "wca.ta: Input should be greater than 0 (given -1); aggregator wca.tb"),
        (3, "needs a name or a table, not 3"),
    ],
    ids=str,
)
def test_wrong_specs_name_the_field_and_the_bound(spec: Any, sentence: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        aggregators.build(spec)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_components_are_frozen() -> None:
    for name in ("ta", "rounds_seen"):
        with pytest.raises(
            UsageError, match=rf"WCA\.{name} cannot be set: components are frozen .* next_state returns"
        ):
            setattr(WCA(), name, 1)


@pytest.mark.parametrize(
    ("base", "name", "value", "sentence"),
    [
        (Aggregator, "references", "everyone", r"'everyone'; right is tuple[str, ...], such as ('everyone',)"),
        (Aggregator, "reports", {"alpha": (1,)}, "{'alpha': (1,)}; right is Mapping[str, Simplex | Bounded]"),
        (Aggregator, "label", 3, "3; right is str"),
        (PseudoLabeler, "models", "start", "'start'; right is tuple[str, ...], such as ('start',)"),
        (Objective, "views", ("loud",), "('loud',); right is tuple[Literal['plain', 'weak', 'strong'], ...]"),
    ],
)
def test_class_variables_have_their_types(base: type[Component], name: str, value: Any, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        type("Odd", (base,), {"__module__": "a", name: value})
    assert str(caught.value) == f"Odd.{name} is {sentence}"


def test_class_variables_may_be_lists_and_properties() -> None:
    class Listed(PseudoLabeler):
        models = ["start", "cluster"]  # type: ignore[assignment]

    class Late(Objective):
        @property
        def adapts(self) -> bool:  # type: ignore[override]
            """Depends on a field."""
            return True

    class Counted(DatasetSource):
        image_counts = MappingProxyType({"photo": np.int64(3)})  # type: ignore[assignment]

    assert (Listed.models, isinstance(Late.adapts, property)) == (["start", "cluster"], True)
    assert Counted.image_counts == {"photo": 3}


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


def test_a_name_belongs_to_one_class() -> None:
    registry: Registry[Component] = Registry("thing", "fedwca.objectives")
    registry("thing")(type("One", (Component,), {"__module__": "a"}))
    with pytest.raises(UsageError, match=r"thing 'thing' is already a\.One"):
        registry("thing")(type("Two", (Component,), {"__module__": "b"}))


def test_what_a_component_is_called_is_not_its_subclass() -> None:
    registry: Registry[Component] = Registry("thing", "fedwca.loggers")

    @registry("parent")
    class Parent(Component):
        """A published thing."""

        label = "Parent"
        paper = "Someone 2020"

    class Nameless(Parent):
        """A thing of one's own, without a name."""

    with pytest.raises(InvalidConfig, match=r"thing .*Nameless has no name; put @register\(NAME\) above the class"):
        registry.parse(Nameless())
    own = registry("own")(type("Own", (Nameless,), {"__module__": "a"}))
    assert (own.name, own.label, own.paper) == ("own", "", "")
    assert registry("titled")(type("Titled", (Parent,), {"__module__": "a", "label": "Titled"})).label == "Titled"
    assert (Parent.name, Parent.label, Parent.paper) == ("parent", "Parent", "Someone 2020")


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


def test_code_that_is_written_after_the_class_was_made_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "rewritten.py"
    file.write_text("from fedwca.aggregators.wca import WCA\nclass Own(WCA):\n    pass\n")
    own = importlib.import_module("rewritten").Own
    before = code_digest(own)
    file.write_text(f"{file.read_text()}    # changed\n")
    assert code_digest(own) == before
    assert code_digest(type("Mine", (own,), {"__module__": "rewritten"})) != before


def test_no_two_classes_that_were_typed_in_share_code() -> None:
    """As in a notebook, where a cell is changed and run again under the same name."""
    cell = "from fedwca.aggregators.wca import WCA\nclass Own(WCA):\n    pass\n"
    cells: list[dict[str, Any]] = [{"__name__": "typed_in"}, {"__name__": "typed_in"}]
    for namespace in cells:
        exec(cell, namespace)
    first, second = (code_digest(namespace["Own"]) for namespace in cells)
    assert first != second
    assert code_digest(cells[0]["Own"]) == first


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


def test_no_such_kind() -> None:
    with pytest.raises(UsageError, match=r"no kind 'agregator'; did you mean 'aggregator'\? Known: dataset, model"):
        registry_of("agregator")


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
    ("base", "name", "close"),
    [
        (Aggregator, "gathr", "gather"),
        (Aggregator, "next_sate", "next_state"),
        (Objective, "colect", "collect"),
        (Objective, "upload_bound", "upload_bounds"),
        (WCA, "deliverd", "deliver"),
        (Aggregator, "gather_all", None),
        (Aggregator, "_gathr", None),
        (WCA, "offered", None),
        (DatasetSource, "read_published", None),
    ],
)
def test_a_method_with_nearly_the_name_of_one_that_keeps_its_default_is_warned_of(
    base: type, name: str, close: str | None
) -> None:
    def define() -> type:
        members = {name: lambda self: None, "__module__": __name__}
        return type(base)("Mine", (base,), members | ({"offer": base.offer} if name == "offered" else {}))  # type: ignore[attr-defined, no-any-return]

    if close is None:
        define()
        return
    with pytest.warns(UserWarning, match=rf"Mine\.{name} is nearly {close}, whose default runs; rename it"):
        mine = define()
    type(base)("Other", (mine,), {"__module__": __name__})  # is not told again of what it inherits


def test_a_method_that_a_mixin_overrides_keeps_no_default() -> None:
    class Mixin:
        gather = Aggregator.gather

    type(Aggregator)("Mine", (Mixin, Aggregator), {"gathers": lambda self: None, "__module__": __name__})


def test_an_instance_of_a_class_without_a_name_is_told_how_to_get_one() -> None:
    class Nameless(WCA):
        name = ""

    message = r"Nameless has no name; put @register\(NAME\) above the class, after `from fedwca.aggregators import reg"
    for take in (aggregators.parse, aggregators.build):
        with pytest.raises(InvalidConfig, match=message):
            take(Nameless())


def test_an_instance_of_a_class_whose_name_is_anothers_is_refused() -> None:
    class Renamed(WCA):
        name = "fedavg"

    class Unregistered(WCA):
        name = "unregistered"

    assert aggregators.build(wca := WCA(ta=0.5)) is wca
    message = r"aggregator 'fedavg' is fedwca\.aggregators\.fedavg\.FedAvg, not .*Renamed; put @register with another"
    with pytest.raises(InvalidConfig, match=message):
        aggregators.build(Renamed())
    with pytest.raises(UnknownComponent, match=r"no aggregator 'unregistered'"):
        aggregators.build(Unregistered())


def test_a_logger_without_a_name_is_refused_before_a_run() -> None:
    class Lines(Logger):
        """A logger that is not registered, so resuming would not find it."""

        def open(self, run: Path, config: Any) -> Any: ...

    with pytest.raises(InvalidConfig, match=r"logger .*Lines has no name; put @register\(NAME\) above the class"):
        build_loggers([Lines()])


@pytest.mark.filterwarnings("ignore:Field name .name. in .Mine. shadows an attribute in parent")
@pytest.mark.parametrize("field", ["kind", "name"])
def test_a_field_under_which_results_have_something_else_is_refused(field: str) -> None:
    with pytest.raises(UsageError, match=rf"Mine\.{field} is a field, and results name a part so; call it otherwise"):
        type(WCA)("Mine", (WCA,), {"__annotations__": {field: str}, field: "cosine", "__module__": __name__})


def test_a_partition_states_its_setting() -> None:
    partitions: Registry[Partition] = Registry("partition", "fedwca.loggers", states=("setting", "default_baseline"))

    class Whole(Partition):
        """Everything to everybody."""

        setting = "ffreeda"

    with pytest.raises(UsageError, match=r"partition 'whole' \(.*Whole\) lacks default_baseline"):
        partitions("whole")(Whole)


def test_a_registered_name_is_found_however_it_is_written() -> None:
    registry: Registry[Component] = Registry("thing", "fedwca.loggers")

    @registry("My-Thing")
    class Thing(Component):
        """A thing."""

    for name in ("My-Thing", "my_thing", "my-thing"):
        assert registry.get(name) is Thing
    assert Thing.name == "my_thing"


@pytest.mark.parametrize("name", ["my agg", "a:b", "a.b", ""])
def test_a_name_that_no_spec_could_give_is_refused(name: str) -> None:
    registry: Registry[Component] = Registry("thing", "fedwca.loggers")
    with pytest.raises(UsageError, match=rf"thing '{name}' \(Component\): a name is of letters a-z, digits, _ and -"):
        registry(name)(Component)


def test_a_default_that_its_own_field_refuses_is_refused() -> None:
    registry: Registry[Component] = Registry("thing", "fedwca.loggers")

    @registry("thing")
    class Thing(Component):
        """A thing."""

        share: Annotated[float, Field(le=1)] = 3

    with pytest.raises(InvalidConfig, match=r"thing thing\.share: Input should be less than or equal to 1 \(given 3\)"):
        registry.build("thing")


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


@pytest.mark.parametrize(
    ("method", "taken", "right"),
    [
        (lambda self, predictions: 0, "self, predictions", "self, predictions, draws"),
        (lambda predictions, draws: 0, "predictions, draws", "self, predictions, draws"),
        (lambda self, **given: 0, "self, **given", "self, predictions, draws"),
        (lambda self, a, b, *, c: 0, "self, a, b, *, c", "self, predictions, draws"),
        (staticmethod(lambda self, a, b: 0), "self, a, b", "predictions, draws"),
        (classmethod(lambda cls, a: 0), "cls, a", "cls, predictions, draws"),
    ],
)
def test_a_method_with_other_parameters_is_refused(method: Any, taken: str, right: str) -> None:
    with pytest.raises(UsageError) as caught:
        type("Mine", (PseudoLabeler,), {"__call__": method, "__module__": "mine"})
    assert str(caught.value) == f"Mine.__call__ takes ({taken}); right is ({right})"


def test_parameters_are_compared_in_mixins_and_with_defaults_of_what_is_overridden() -> None:
    class Sized:
        def load(self, size: int) -> None: ...

    for bases, methods, taken in [
        ((DatasetSource,), {"load": lambda self: 0}, "self"),
        ((Sized, DatasetSource), {}, "self, size"),
    ]:
        with pytest.raises(UsageError, match=rf"Mine\.load takes \({taken}\); right is \(self, size=32\)"):
            type("Mine", bases, {**methods, "__module__": "mine"})


def test_a_method_in_place_of_a_property_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Mine\.mixes is a method; right is a property, so write @property above it"):
        type("Mine", (PseudoLabeler,), {"mixes": lambda self: False, "__module__": "mine"})


def _gives_first(method: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator whose wrapper takes less than the function inside."""

    @functools.wraps(method)
    def wrapper(self: Any, predictions: Any, draws: Any) -> Any:
        return method(self, 0, predictions, draws)

    return wrapper


@pytest.mark.parametrize(
    "method",
    [
        lambda self, *given: 0,
        lambda self, a, b: 0,
        lambda self, a, b, c=1, *, d=2, **more: 0,
        staticmethod(lambda a, b: 0),
        classmethod(lambda cls, a, b: 0),
        functools.lru_cache(lambda self, a, b: 0),
        _gives_first(lambda self, first, a, b: first),
    ],
)
def test_parameters_may_have_other_names_and_more_may_have_defaults(method: Any) -> None:
    members = {"__call__": method, "mixes": functools.cached_property(lambda self: False), "__module__": "mine"}
    made = type("Mine", (PseudoLabeler,), members)()
    assert (made(1, 2), made.mixes) == (0, False)
