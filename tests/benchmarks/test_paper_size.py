"""Tables of a size that counts: pieces, what is kept of a run, tables by hand, and a rehearsal of all commands."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedwca.config.compose_methods import compose
from fedwca.config.config_layers import layer_from_words
from fedwca.config.method_spec import parse_method
from fedwca.config.resolve_config import resolve_plan
from fedwca.config.run_config import RunConfig
from fedwca.core.tensor_files import checksum, write_tensors
from fedwca.results.pictures.accuracy import draw_curves

from .scripts import BENCHMARKS, script

DATA = BENCHMARKS.parents[1] / "shared" / "data"
paper_size = script("paper_size")
pieces = script("paper_size_pieces")
tables = script("paper_size_tables")
numbers = sys.modules["paper_size_numbers"]  # as the tables imported it
picture = script("paper_size_picture")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with an empty folder for each data set."""
    for kind in pieces.KINDS:
        (tmp_path / "data" / kind.dataset).mkdir(parents=True, exist_ok=True)
    return tmp_path / "data"


def test_pieces_are_those_whose_data_exist(data: Path) -> None:
    by_name = {piece.name: piece for piece in pieces.pieces(data)}
    assert len(by_name) == 12 + 1 + 7 + 7 + 12 + 12 + 25 + 20 + 20
    assert {"digits-usps-22", "digits40-synth-20", "pacs-sketch-21", "paper_office-real_world-4"} <= set(by_name)
    assert [piece.name for piece in pieces.pieces(data, small=True)] == [
        *("digits-mnist-20", "digits40-synth-20", "moments-mnist-20", "moments_source-mnist-20"),
        *("pacs-art_painting-20", "moments_pacs-art_painting-20"),
        *("paper_digits-mnist-0", "paper_pacs-art_painting-0", "paper_office-art-0"),
    ]
    (data / "office_home").rmdir()
    assert not [piece for piece in pieces.pieces(data) if piece.kind.dataset == "office_home"]


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("digits-mnist-20", (4, 10, 1e-3, 1, 1, 20)),
        ("digits40-synth-20", (4, 40, 1e-3, 1, 1, 20)),
        ("pacs-photo-20", (3, 10, 1e-4, 1, 1, 20)),
        ("paper_digits-svhn-3", (8, 100, 1e-3, 1, 3, 3)),
        ("paper_office-art-0", (3, 50, 1e-4, 1, 3, 0)),
    ],
)
def test_a_piece_is_the_papers_preset_but_for_its_size(data: Path, name: str, size: tuple[float, ...]) -> None:
    (piece,) = (piece for piece in pieces.pieces(data) if piece.name == name)
    settings = piece.settings(Path("w.pth"), small=False)
    config = resolve_plan(layer_from_words({k: v for k, v in settings.items() if k != "preset"}), (), "paper").config
    assert settings["preset"] == "paper"
    sizes = (config.clients, config.rounds, config.training.lr, config.source_models, config.trials, config.seed)
    assert sizes == size
    assert (config.samples, config.training.epochs) == (None, 5)
    assert config.components["pseudo_labeler"]["two_model"]["selection"] == "ratio"


def test_methods_are_told_apart() -> None:
    methods = [method for method, _ in compose(RunConfig(baselines=pieces.TABLE2, composed=False))]
    assert len({method.name for method in methods}) == len({method.label for method in methods}) == 12
    clusterers = {m.name: (m.clusterer.name, getattr(m.clusterer, "reference", "")) for m in methods if m.clusterer}
    assert clusterers["fedwca"] == ("finch", "none")
    assert clusterers["fedwca by update"] == ("finch", "source")
    assert clusterers["fedwca by moments"] == ("ada_bn", "")
    assert clusterers["fedwca in true clusters"][0] == "true"


def test_a_run_stops_with_a_round_that_is_done() -> None:
    clock = paper_size.StopsAfter(1)
    with clock.watch(None) as progress:
        progress.round_done(1, 50.0)
        clock.end = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            progress.round_done(2, 50.0)


def test_a_method_that_is_kept_is_not_run_again(data: Path, tmp_path: Path) -> None:
    (piece,) = (piece for piece in pieces.pieces(data) if piece.name == "digits-synth-20")
    options = argparse.Namespace(out=tmp_path, runs=tmp_path / "runs", small=True, again=False)
    assert paper_size.say_state(piece, options) == "nothing"
    result = paper_size.read_found(piece, options)
    result["methods"] = {"source_only": {}, "fedwca by update": {}}
    (tmp_path / "digits-synth-20.json").write_text(json.dumps(result))
    missing = paper_size.missing_methods(piece, paper_size.read_found(piece, options))
    assert missing == [method for method in pieces.MAIN if method != "source_only" and "by update" not in method]
    assert paper_size.say_state(piece, options) == "2 of 10 methods"
    assert paper_size.missing_methods(piece, result, ["fedscal", "fedwca by update", "fedavg"]) == ["fedavg", "fedscal"]


def test_a_piece_goes_on_from_the_source_model_it_was_begun_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDWCA_CACHE", str(tmp_path / "cache"))
    tensors = {"weight": torch.ones(2)}
    write_tensors(tmp_path / "synth-lenet-0.safetensors", {**tensors, "accuracy": torch.tensor(90.0)})
    cached = tmp_path / "cache" / "sources" / "synth-lenet-0.safetensors"
    for weights, restored in ((None, False), ("00000000", False), (f"{checksum(tensors):08x}", True)):
        paper_size.restore_source({"methods": {"fedavg": {"source_weights": weights}}}, tmp_path)
        assert cached.exists() == restored
    cached.write_bytes(b"as this CPU trained it")
    paper_size.restore_source({"methods": {"fedavg": {"source_weights": weights}}}, tmp_path)
    assert cached.read_bytes() == (tmp_path / "synth-lenet-0.safetensors").read_bytes()


def test_processes_share_the_methods_of_a_piece(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (piece,) = (piece for piece in pieces.pieces(data) if piece.name == "digits-synth-20")
    options = argparse.Namespace(
        out=tmp_path, runs=tmp_path / "runs", small=True, again=False, methods=["fedavg", "local"]
    )

    def play(piece: Any, method: str, given: Any, clock: Any) -> Any:
        """As if another process added its method in the meantime."""
        result = paper_size.read_found(piece, given)
        result["methods"][f"beside {method}"] = {}
        (tmp_path / "digits-synth-20.json").write_text(json.dumps(result))
        return SimpleNamespace(config={}, method=method, records=[])

    monkeypatch.setattr(paper_size, "play", play)
    monkeypatch.setattr(paper_size, "add_results", lambda run, result, same: result["methods"].update({run.method: {}}))
    paper_size.run_missing(piece, options, paper_size.StopsAfter(1))
    result = json.loads((tmp_path / "digits-synth-20.json").read_text())
    assert set(result["methods"]) == {"fedavg", "local", "beside fedavg", "beside local"}
    assert not result["complete"]


def test_a_method_without_rounds_is_of_the_same_source_model(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (piece,) = (piece for piece in pieces.pieces(data) if piece.name == "digits-synth-20")
    options = argparse.Namespace(out=tmp_path, runs=tmp_path / "runs", small=True, again=False, methods=["source_only"])
    kept = {"methods": {"fedwca": {"source_weights": "here", "accuracy": []}}}
    (tmp_path / "digits-synth-20.json").write_text(json.dumps(kept))
    other = SimpleNamespace(config={}, records=[{"round": -1, "source_weights": "there"}])
    monkeypatch.setattr(paper_size, "play", lambda *_: other)
    with pytest.raises(SystemExit, match="was begun with another source model"):
        paper_size.run_missing(piece, options, paper_size.StopsAfter(1))
    assert json.loads((tmp_path / "digits-synth-20.json").read_text()) == kept


def test_one_run_stands_for_methods_with_the_same_clusters(data: Path, tmp_path: Path) -> None:
    (piece,) = (piece for piece in pieces.pieces(data) if piece.name == "digits-synth-20")
    entry = {"accuracy": [[50.0]], "labels": [0, 0, 1, 1], "seconds": 9.0, "bytes": 8}
    result = {"methods": {"fedwca": entry, "fedavg": entry, "fedwca by update": {"accuracy": [[1.0]]}}}
    assert paper_size.known_clusters(piece.kind.methods[7], result) == {"fedwca": [0, 0, 1, 1]}
    assert paper_size.known_clusters("one_hot", result) == {}
    name, folder = "fedwca by moments", tmp_path / "run"
    folder.mkdir()
    environment = {"commit": "x", "device": "cpu", "cores": 2, "cpu": "y"}
    run = Any
    for labels, same in (([0, 0, 1, 1], "fedwca"), ([0, 1, 1, 1], None)):
        rounds = [{"round": -1}, {"round": 0, "labels": labels, "accuracy": [60.0]}]
        run = SimpleNamespace(
            domains=["a"],
            methods={name: {"label": "FedWCA by moments"}},
            runs=["0"],
            diverged={},
            environment=environment,
            records=[{"round": -1, "source_weights": "here"}],
            rounds=lambda *_, rounds=rounds: rounds,
        )
        stops = paper_size.StopsEarly(paper_size.StopsAfter(1), folder, result, {"fedwca": [0, 0, 1, 1]})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(paper_size, "read_run", lambda _, run=run: run)
            with pytest.raises(paper_size.SameClusters) if same else nullcontext():
                stops.check(1, 50.0)
            stops.check(2, 50.0)
        assert stops.same == same
    other_source = paper_size.StopsEarly(
        paper_size.StopsAfter(1), folder, {"methods": {"x": {"source_weights": "a"}}}, {}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paper_size, "read_run", lambda _, run=run: run)
        with pytest.raises(SystemExit, match="was begun with another source model"):
            other_source.check(1, 50.0)
    paper_size.add_results(run, result, "fedwca")
    assert result["methods"][name] == {
        "accuracy": [[50.0]],
        "labels": [0, 0, 1, 1],
        "label": "FedWCA by moments",
        "same_run_as": "fedwca",
    }


def test_what_is_kept_of_a_configuration_names_no_place() -> None:
    model = {"resnet18": {"side": 64, "weights": "/somewhere/w.pth"}}
    settings = {"rounds": 3, "data": "/somewhere", "device": "cuda", "components": {"model": model}}
    assert paper_size.kept_settings(settings) == {
        "rounds": 3,
        "components": {"model": {"resnet18": {"side": 64, "weights": "w.pth"}}},
    }


def test_methods_of_one_piece_have_one_setting() -> None:
    def settings(rounds: int = 10, **components: Any) -> dict[str, Any]:
        return {"rounds": rounds, "components": {"aggregator": {"wca": {}, **components}}}

    alone, mixing = settings(), settings(wca={"ta": 0.01})
    assert paper_size.join_settings(alone, mixing) == paper_size.join_settings(mixing, alone) == mixing
    assert paper_size.join_settings(mixing, settings(wca={"ta": 0.1})) is None
    assert paper_size.join_settings(alone, settings(rounds=40)) is None
    assert paper_size.join_settings(alone, {"components": {}}) is None


def write(folder: Path, kind: str, source: str, seed: int, accuracy: dict[str, Sequence[float]], rounds: int) -> None:
    """Write a piece in which FedWCA found the domains, and all clients have the same accuracy in a trial."""
    methods: dict[str, Any] = {}
    for name, trials in accuracy.items():
        ari = [{"ari": 1.0, "sizes": [4, 4]} for _ in trials] if name == "fedwca" else []
        curves = [[10.0, *[value] * rounds] for value in trials]
        entry = {"label": name.upper(), "accuracy": [[value, None, value] for value in trials], "curve": curves}
        methods[name] = {**entry, "clusters": ari, "seconds": 1.0, "bytes": 2}
    config = {"clients": 4, "rounds": rounds, "trials": 2, "training": {"epochs": 5, "lr": 0.001}}
    environment = {"device": "cpu", "cores": 2, "cpu": "Some CPU"}
    result = {"kind": kind, "source": source, "seed": seed, "complete": True, "domains": ["x", "x", "y"]}
    result |= {"methods": methods, "config": config, "environment": environment}
    (folder / f"{kind}-{source}-{seed}.json").write_text(json.dumps(result))


def cells(table: str, first: str) -> list[str]:
    (line,) = [line for line in table.replace("\\", "").splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_tables_show_means_and_differences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "RESULTS", tmp_path)
    texts = {name: block() for name, block in tables.BLOCKS.items()}
    assert set(map(len, map(str.splitlines, texts.values()))) == {1}
    assert texts["paper_size-paper_pacs"] == "Not measured yet: `python benchmarks/paper_size.py --device cuda`."
    write(tmp_path, "digits", "mnist", 20, {"fedwca": [50.0, 52.0], "local": [40.0, 46.0]}, 10)
    write(tmp_path, "digits", "mnist", 21, {"fedwca": [54.0, 56.0], "local": [46.0, 48.0]}, 10)
    write(tmp_path, "digits", "usps", 20, {"fedwca": [60.0]}, 10)  # stopped before Local
    table = tables.BLOCKS["paper_size-digits"]()
    assert cells(table, "method") == ["method", "source mnist", "source usps", "mean", "FEDWCA minus it", "ARI", "n"]
    # Means over trials are 51, 55 and 60 for FedWCA, 43 and 47 for Local. The mean is over all sources, not runs.
    assert cells(table, "FEDWCA") == ["FEDWCA", "53.0 ± 2.8", "60.0", "56.5", "", "1.00", "3"]
    assert cells(table, "LOCAL") == ["LOCAL", "45.0 ± 2.8", "–", "–", "+8.0 [+8.0, +8.0]", "", "2"]
    assert "(seeds 20, 21), 2 trials each" in table
    assert "4 clients per target domain with all their images, 10 rounds of 5 epochs, learning rate 0.001" in table
    assert "2 cores of Some CPU" in table


def test_a_piece_that_lacks_methods_is_left_out_beside_whole_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that was whole before a method was added to its kind."""
    monkeypatch.setattr(numbers, "RESULTS", tmp_path)
    write(tmp_path, "digits", "usps", 20, {"fedwca": [60.0]}, 10)
    assert json.loads((tmp_path / "digits-usps-20.json").read_text())["complete"]
    assert cells(tables.BLOCKS["paper_size-digits"](), "FEDWCA")[:3] == ["FEDWCA", "60.0", "60.0"]
    write(tmp_path, "digits", "mnist", 20, {parse_method(method).name: [50.0] for method in pieces.MAIN}, 10)
    assert cells(tables.BLOCKS["paper_size-digits"](), "FEDWCA")[:3] == ["FEDWCA", "50.0", "50.0"]


def test_tables_say_in_how_many_trials_a_method_diverged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "RESULTS", tmp_path)
    for seed in (20, 21):
        write(tmp_path, "digits", "mnist", seed, {"fedwca": [50.0, 52.0], "local": [40.0] if seed == 20 else []}, 10)
        file = tmp_path / f"digits-mnist-{seed}.json"
        result = json.loads(file.read_text())
        result["methods"]["local"]["diverged"] = seed - 19
        file.write_text(json.dumps(result))
    row = "LOCAL (diverged in 3 of 4 trials)"
    assert cells(tables.BLOCKS["paper_size-digits"](), row) == [row, "40.0", "40.0", "+11.0", "", "1"]


def test_tables_do_not_wait_for_what_a_piece_may_lack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "RESULTS", tmp_path)
    (required := {parse_method(method).name: [50.0] for method in pieces.MAIN}).pop("fedwca by update")
    for seed, accuracies in ((20, required), (21, required | {"fedwca by update": [60.0]}), (22, {"fedwca": [70.0]})):
        write(tmp_path, "pacs", "photo", seed, accuracies, 10)
        part = tmp_path / f"pacs-photo-{seed}.json"
        part.write_text(json.dumps(json.loads(part.read_text()) | {"complete": seed == 21}))
    table = tables.BLOCKS["paper_size-pacs"]()
    assert cells(table, "FEDWCA")[1::5] == ["50.0 ± 0.0", "2"]
    assert cells(table, "FEDWCA BY UPDATE")[1::5] == ["60.0", "1"]


@pytest.mark.parametrize("methods", [["source_only", "source_ada_bn"], ["source_only", "fedwca"]])
def test_pages_can_be_written_after_a_pieces_first_methods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, methods: list[str]
) -> None:
    monkeypatch.setattr(numbers, "RESULTS", tmp_path)
    accuracies = {method: [60.0] for method in methods}
    for kind, source, rounds in (("digits", "usps", 10), ("pacs", "photo", 10), ("paper_digits", "usps", 100)):
        write(tmp_path, kind, source, 20, accuracies, rounds)
        part = next(tmp_path.glob(f"{kind}-*.json"))
        part.write_text(json.dumps(json.loads(part.read_text()) | {"complete": False}))
    for name, block in tables.BLOCKS.items():
        assert block(), name


def test_by_target_is_over_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "RESULTS", tmp_path)
    write(tmp_path, "digits", "usps", 20, {"fedwca": [60.0, 70.0], "local": []}, 10)
    finished = numbers.finished(numbers.DIGITS)
    assert numbers.by_target(finished, "fedwca") == {("usps", 20, "x"): 65.0, ("usps", 20, "y"): 65.0}
    assert numbers.by_target(finished, "local") == numbers.by_target(finished, "fedavg") == {}


def set_source_weights(file: Path, weights: str) -> None:
    """Let all methods of a piece have begun from the source model of this checksum."""
    result = json.loads(file.read_text())
    for entry in result["methods"].values():
        entry["source_weights"] = weights
    file.write_text(json.dumps(result))


def test_one_hot_by_moments_stands_beside_methods_from_its_source_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbers, "RESULTS", tmp_path)
    for seed, moments_weights in ((20, "b"), (21, "a")):
        write(tmp_path, "pacs", "photo", seed, {numbers.MOMENTS: [50.0]}, 10)
        write(
            tmp_path, "moments_pacs", "photo", seed, {numbers.MOMENTS: [55.0], numbers.ONE_HOT_BY_MOMENTS: [52.0]}, 10
        )
        set_source_weights(tmp_path / f"pacs-photo-{seed}.json", "a")
        set_source_weights(tmp_path / f"moments_pacs-photo-{seed}.json", moments_weights)
    joined = numbers.finished_with(numbers.MOMENTS_PACS, numbers.ONE_HOT_BY_MOMENTS, numbers.PACS)
    assert numbers.by_target(joined, numbers.ONE_HOT_BY_MOMENTS) == {("photo", 21, "x"): 52.0, ("photo", 21, "y"): 52.0}
    assert numbers.by_target(joined, numbers.MOMENTS)["photo", 21, "x"] == 50.0


def test_source_ada_bn_stands_by_moments_where_it_has_their_source_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From one source of two alone, so without a mean."""
    monkeypatch.setattr(numbers, "RESULTS", tmp_path)
    for source, weights in (("usps", "a"), ("synth", "b")):
        write(tmp_path, "moments", source, 20, {numbers.MOMENTS: [50.0], numbers.ONE_HOT_BY_MOMENTS: [52.0]}, 10)
        write(tmp_path, "moments_source", source, 20, {"source_ada_bn": [40.0]}, 10)
        set_source_weights(tmp_path / f"moments-{source}-20.json", "a")
        set_source_weights(tmp_path / f"moments_source-{source}-20.json", weights)
    table = tables.BLOCKS["paper_size-moments"]()
    assert cells(table, "SOURCE_ADA_BN") == ["SOURCE_ADA_BN", "–", "40.0", "–", "+10.0", "", "1"]


def test_curves_are_shown_as_table_and_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "RESULTS", tmp_path)
    write(tmp_path, "digits40", "synth", 20, {"fedwca": [60.0], "local": [50.0]}, 40)
    table = tables.BLOCKS["paper_size-digits40"]()
    assert cells(table, "LOCAL") == ["LOCAL", "10.0", "50.0", "50.0", "50.0", "50.0"]
    picture.draw(numbers.finished(picture.KIND)[0], tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    for runs, title in ((1, "Mean over clients; one run, so no spread"), (2, "Mean over clients; band: one standard")):
        record = {"method": "local", "source_model": 0, "round": 0}
        records = [{**record, "trial": trial, "accuracy": [50.0 + trial]} for trial in range(runs)]
        figure = draw_curves({"local": ("Local", records)}, "title")
        assert figure.axes[0].get_title().startswith(title)


def test_gains_by_target_domain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "RESULTS", tmp_path)
    values = {name: [50.0] for name in ("source_only", "source_ada_bn", "fedavg", "local", "one_hot", "fedscal")}
    for seed, source in enumerate(("mnist", "usps"), 20):
        write(tmp_path, "digits", source, seed, {**values, "fedwca": [52.0]}, 10)
    # A second source model of a source is no further pair: its values are averaged with the first one's.
    write(tmp_path, "digits", "mnist", 22, {**values, "source_only": [52.0], "fedwca": [52.0]}, 10)
    write(tmp_path, "pacs", "photo", 20, {**values, "fedwca": [40.0], "fedwca by moments": [53.0]}, 10)
    assert "+2.00 (+2.00 to +2.00)**, n = 4 |" in tables.BLOCKS["paper_size-digits-right"]()
    table = tables.BLOCKS["paper_size-pacs-right"]()
    assert "+3.00, n = 2 |" in table  # an interval of two says nothing
    assert "FEDWCA BY MOMENTS minus the method of each column" in table
    picture.draw_by_target(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-W", "ignore", str(BENCHMARKS / "paper_size.py"), "--data", str(DATA), *arguments]
    weights = DATA / "weights" / "resnet18_imagenet_fp16.pth"
    return subprocess.run([*words, "--weights", str(weights)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--small"], "give another --out"),
        (["digits-synth-20", "--again"], "--again repeats what is kept"),
        (["--again", "--out", "elsewhere"], "give names of pieces"),
        (["--methods", "fedscal", "fedwc", "--list"], "no method 'fedwc'; there are fedavg, "),
    ],
)
def test_what_cannot_be_run_or_kept_is_refused(
    words: list[str], reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["paper_size.py", "--data", str(DATA), *words])
    with pytest.raises(SystemExit) as ended:
        paper_size.main()
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


def test_data_that_are_not_there_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["paper_size.py", "--list", "--data", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        paper_size.main()
    assert ended.value.code == 2
    stderr = capsys.readouterr().err
    assert f"{tmp_path} has no folder for any piece (digit_five, office_home, pacs); name another with --data" in stderr


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not (DATA / "pacs").is_dir(), reason="the files are not there")
def test_all_is_rehearsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = run("--small", "--out", str(tmp_path), "--minutes", "0.1", "digits-mnist-20")
    assert stopped.returncode == 0, stopped.stderr
    assert "the same command goes on" in stopped.stdout
    process = run("--small", "--out", str(tmp_path))
    assert process.returncode == 0, process.stderr
    monkeypatch.setattr(numbers, "RESULTS", tmp_path)
    for kind in pieces.KINDS:
        if (DATA / kind.dataset).is_dir():
            (file,) = tmp_path.glob(f"{kind.name}-*.json")
            result = json.loads(file.read_text())
            assert result["complete"]
            assert len(result["methods"]) == len(kind.methods)
            assert str(DATA) not in file.read_text()
    assert "| FedWCA |" in tables.BLOCKS["paper_size-pacs"]()
    listed = run("--small", "--out", str(tmp_path), "--list").stdout.splitlines()
    assert {line.partition(" ")[2] for line in listed} == {"done"}
