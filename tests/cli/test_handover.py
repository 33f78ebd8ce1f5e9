"""`fedwca export`, `predict` and `join`: a run's models as files, their predictions, and a new client."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedwca.cli.join import usual_folder
from fedwca.export.load_model import open_model
from fedwca.export.write_model import check_installed
from fedwca.results.json_output.printed_join import PrintedJoin
from tests.read_rounds import read_rounds

from .conftest import Run, call

onnx = pytest.param(".onnx", marks=pytest.mark.skipif(not check_installed("onnx"), reason="the extra onnx is missing"))


@pytest.fixture(scope="module")
def done(bench: Callable[..., Run]) -> Path:
    """A run whose clusters are the domains, and whose models were kept."""
    run = bench("--clusterer", "true", "--baseline", "local", "--baseline", "source-only")
    assert run.code == 0, run.err
    return run.folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory, shades: Path) -> Path:
    """Images of a new client in a flat folder, one of them broken."""
    folder = tmp_path_factory.mktemp("new") / "photos"
    folder.mkdir()
    with np.load(shades / "coral.npz") as archive:
        for index, pixels in enumerate(archive["images"][:12]):
            Image.fromarray(pixels).save(folder / f"{index:02}.png")
    (folder / "torn.jpg").write_bytes(b"\xff\xd8")
    return folder


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("suffix", [".safetensors", ".pt2", onnx])
def test_a_clients_model_leaves_and_predicts(
    suffix: str, done: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, file = digests(done), tmp_path / f"model{suffix}"
    run = call("export", str(done), "--client", "3", "--out", str(file))
    assert (run.code, run.err) == (0, "")
    assert "coral" in run.out
    opened = open_model(file, trust_code=True).about
    last = read_rounds(done)[-1]
    assert opened.accuracy == pytest.approx(last["accuracy"][3])
    assert (opened.holder, opened.domain, opened.method, opened.rounds) == ("client 3", "coral", "wca", 2)
    assert opened.images == 6
    trust = ["--trust-code"] if suffix == ".pt2" else []
    run = call("predict", str(file), str(photos), "--out", str(tmp_path / "labels.csv"), "--top", "2", *trust)
    assert run.code == 0
    assert "1 of 13 could not be read" in run.err
    rows = table((tmp_path / "labels.csv").read_text())
    assert [Path(row["file"]).name for row in rows] == [*(f"{i:02}.png" for i in range(12)), "torn.jpg"]
    assert [bool(row["error"]) for row in rows] == [False] * 12 + [True]
    assert all(float(r["probability"]) + float(r["probability_2"]) == pytest.approx(1, abs=1e-5) for r in rows[:12])
    direct = call("predict", str(done), str(photos), "--client", "3", "--batch-size", "5")
    columns = ("file", "label", "error")
    assert [[row[k] for k in columns] for row in table(direct.out)] == [[row[k] for k in columns] for row in rows]
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then shows its bar, and once sent the rows where that is
    assert call("predict", str(done), str(photos), "--client", "3", "--batch-size", "5").out == direct.out
    assert digests(done) == before


def test_a_clusters_model_counts_all_its_clients(done: Path, tmp_path: Path) -> None:
    file = tmp_path / "deep" / "cluster.safetensors"
    run = call("export", str(done), "--cluster", "1", "--out", str(file), "--to", "safetensors")
    assert run.code == 0, run.err
    about = open_model(file).about
    assert (about.clients, about.domain, about.images) == ((2, 3), "coral", 12)
    assert "clients 2, 3" in Path(f"{file}.md").read_text()


def test_the_source_model_can_be_exported(done: Path, tmp_path: Path) -> None:
    file = tmp_path / "source.safetensors"
    run = call("export", str(done), "--method", "source-only", "--client", "0", "--out", str(file))
    assert run.code == 0, run.err
    about = open_model(file).about
    assert about.accuracy == about.source_accuracy
    assert about.rounds == 0


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["export", "RUN", "--out", "OUT/a.onnx"], 2, "say whose model"),
        (["export", "RUN", "--out", "OUT/a.safetensors", "--client", "9"], 2, "clients 0 to 3"),
        (["export", "RUN", "--out", "OUT/a.safetensors", "--cluster", "9"], 2, "clusters 0 to 1"),
        (["export", "RUN", "--out", "OUT/a.bin", "--client", "0"], 2, "names no format"),
        (["export", "RUN", "--out", "OUT/a.pt2", "--client", "0", "--method", "wac"], 2, "did you mean 'wca'"),
        (["export", "nowhere", "--out", "OUT/a.pt2", "--client", "0"], 2, "no such run"),
        (["predict", "RUN", "PHOTOS"], 2, "say whose with --client"),
        (["predict", "PHOTOS", "m.safetensors"], 2, "holds no run"),
        (["predict", "RUN/config.json", "PHOTOS"], 1, "not an exported model"),
        (["predict", "RUN/config.json", "PHOTOS", "--client", "0"], 2, "are for run folders"),
        (["predict", "RUN/config.json", "PHOTOS", "--trial", "1"], 2, "are for run folders"),
        (["predict", "RUN", "PHOTOS", "--client", "0", "--source-model", "7"], 2, "source model"),
        (["predict", "nowhere.onnx", "PHOTOS"], 2, "no such file or run"),
        (["predict", "RUN", "nothing", "--client", "0"], 2, "no such file or folder"),
        (["predict", "RUN", "PHOTOS/torn.jpg", "--client", "0", "--out", "OUT/t.csv"], 1, "no image could be read"),
        (["join", "RUN", "--data", "PHOTOS", "--method", "local", "--out", "OUT"], 2, "keeps every client's model"),
        (["join", "RUN", "--data", "PHOTOS", "--method", "source-only", "--out", "OUT"], 2, "has no rounds"),
        (["join", "RUN", "--data", "PHOTOS/torn.jpg", "--out", "OUT"], 1, "no image could be read"),
        (["join", "RUN", "--data", "PHOTOS/00.png", "--out", "OUT"], 2, "at least 2 images"),
        (["join", "RUN", "--data", "PHOTOS", "--out", "RUN/new"], 2, "lies in the run folder"),
        (["join", "RUN", "--data", "PHOTOS", "--adapt", "learned", "--out", "OUT"], 2, "has not trained"),
        (["join", "RUN", "--data", "PHOTOS", "--adapt", "entropi", "--out", "OUT"], 2, "did you mean 'entropy'"),
        (["join", "RUN", "--data", "PHOTOS", "--adapt", "-1", "--out", "OUT"], 2, "epochs are 0 to"),
        (["join", "RUN", "--data", "PHOTOS", "--adapt=+-5", "--out", "OUT"], 2, "no adaptation '+_5'"),
    ],
)
def test_a_mistake_is_one_sentence_and_writes_nothing(
    arguments: list[str], code: int, sentence: str, done: Path, photos: Path, tmp_path: Path
) -> None:
    places = {"RUN": done, "PHOTOS": photos, "OUT": tmp_path}
    words = list(arguments)
    for name, place in places.items():
        words = [word.replace(name, str(place), 1) if word.startswith(name) else word for word in words]
    if not check_installed("onnx") and any(word.endswith(".onnx") for word in words):
        pytest.skip("the extra onnx is missing")
    before, run = digests(done), call(*words)
    assert (run.code, sentence in run.err) == (code, True), run.err
    assert run.err.count("Error: ") == 1
    assert digests(done) == before
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".safetensors", ".pt2", ".onnx", ".md")]


@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_an_exported_program_is_not_rewritten(suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"a{suffix}").write_bytes(b"a program")
    run = call("export", str(tmp_path / f"a{suffix}"), "--out", str(tmp_path / "b.safetensors"))
    assert run.code == 2
    assert f"a{suffix}: only .safetensors models can be written in other forms" in run.err


@pytest.mark.parametrize("by", ["update", "alignment"])
def test_a_new_client_joins_and_the_run_stays_as_it_was(by: str, done: Path, photos: Path, tmp_path: Path) -> None:
    before = digests(done)
    run = call("join", str(done), "--data", str(photos), "--by", by, "--adapt", "1", "--out", str(tmp_path / "new"))
    assert run.code == 0, run.err
    assert digests(done) == before
    assert "1 of 13 images could not be read" in run.err
    assert "no labels; trained on them, epochs: 1." in (tmp_path / "new" / "model.safetensors.md").read_text()
    for part in (
        f", by {by}: ",
        "Runner-up cluster",
        "Start: cluster 0 ",
        "alpha: ",
        "Adapted for 1 epoch\n",
        "Labels: ",
    ):
        assert part in run.out
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == ["model.safetensors", "model.safetensors.md", "predictions.csv"]
    about = open_model(tmp_path / "new" / "model.safetensors").about
    assert (about.holder, about.domain, about.accuracy) == ("a newcomer", None, None)
    rows = table((tmp_path / "new" / "predictions.csv").read_text())
    again = call("predict", str(tmp_path / "new" / "model.safetensors"), str(photos))
    assert [row["label"] for row in table(again.out)] == [row["label"] for row in rows]
    refused = call("join", str(done), "--data", str(photos), "--out", str(tmp_path / "new"))
    assert refused.code == 2
    assert "holds a model.safetensors already" in refused.err


def test_a_new_client_may_take_steps_on_its_outputs(done: Path, photos: Path, tmp_path: Path) -> None:
    new, words = tmp_path / "new", ["--by", "alignment", "--adapt", "entropy:steps=4,patience=2,lr=0.05"]
    run = call("join", str(done), "--data", str(photos), *words, "--out", str(new))
    assert run.code == 0, run.err
    assert "on entropy; taken: the model after step" in run.out
    assert "Entropy of the outputs, in nats, by step: 0: " in run.out
    assert "steps on entropy of its outputs:" in (new / "model.safetensors.md").read_text()
    again = call("predict", str(new / "model.safetensors"), str(photos))
    csv_rows = table((new / "predictions.csv").read_text())
    assert [row["label"] for row in table(again.out)] == [row["label"] for row in csv_rows]
    arguments = ["join", str(done), "--data", str(photos), "--json", "--out"]
    printed = call(*arguments, str(tmp_path / "again"), *words)
    joined = PrintedJoin.model_validate_json(printed.out)
    assert joined.adaptation is not None
    assert joined.adaptation.fields["patience"] == 2
    assert len(joined.adaptation.entropies) == joined.adaptation.steps + 1
    assert joined.adaptation.entropies[joined.adaptation.taken] == min(joined.adaptation.entropies[1:])  # type: ignore[type-var]
    assert sum(joined.labels.values()) == 12
    assert (new / "model.safetensors").read_bytes() == (tmp_path / "again" / "model.safetensors").read_bytes()
    plain = PrintedJoin.model_validate_json(call(*arguments, str(tmp_path / "plain")).out)
    assert (plain.adaptation, plain.epochs) == (None, 0)
    assert "images and no labels; not adapted to them." in (tmp_path / "plain" / "model.safetensors.md").read_text()


def test_archives_need_no_labels(done: Path, shades: Path, tmp_path: Path) -> None:
    with np.load(shades / "brass.npz") as archive:
        np.savez(tmp_path / "bare.npz", images=archive["images"][:10])
    run = call("join", str(done), "--data", str(tmp_path / "bare.npz"), "--out", str(tmp_path / "new"))
    assert run.code == 0, run.err
    assert "bare.npz[9]" in (tmp_path / "new" / "predictions.csv").read_text()


def test_a_model_cannot_be_written_everywhere(done: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = call("export", str(done), "--client", "0", "--out", str(tmp_path / "file" / "model.safetensors"))
    assert run.code == 1
    assert "cannot be written" in run.err


def test_where_a_newcomers_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("site.v1", "site.v2/inner"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "site.v2/inner")
    folders = {usual_folder(Path(data)).as_posix() for data in (tmp_path / "site.v1", "..", ".", "one.npz")}
    assert folders == {"joined/site.v1", "joined/site.v2", "joined/inner", "joined/one"}
