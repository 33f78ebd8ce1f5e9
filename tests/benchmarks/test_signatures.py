"""The study of when clusters find domains: pieces, snapshots during training, tables and picture by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fedwca import Keys, Method, SequentialEngine, Training, init_server
from fedwca.aggregators import aggregators
from fedwca.clusterers.true import TrueDomains
from fedwca.data.federation import ClientImages
from fedwca.data.metrics import Metrics
from fedwca.engine.client_signatures import BankSignatures
from fedwca.federated.open_round import open_round
from fedwca.models.lenet import LeNet
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.two_model import TwoModel

from .scripts import BENCHMARKS, script

pieces, study = script("signature_pieces"), script("signatures")
tables = script("signature_tables")
picture = script("signature_picture")


def test_pieces_and_their_settings() -> None:
    all_pieces = list(pieces.pieces())
    assert len(set(all_pieces)) == len(all_pieces) == 4 * 3 * 3 * 3 + 12 + 2 + 5
    assert {(p.dataset, p.source) for p in all_pieces[:8]} == {("digit_five", source) for source in pieces.DIGITS}
    layer = next(p for p in all_pieces if p.dataset == "pacs").layer(Path("data"), Path("w.pth"))
    assert (layer["aggregator"], layer["model"], layer["samples"]) == ("one_hot", "resnet18:side=64,weights=w.pth", 400)
    assert [
        p.layer(Path("data"), Path("w.pth"))["model"].split(",")[0] for p in all_pieces if p.side != pieces.SIDE
    ] == [
        *["resnet18:side=128"] * 4,
        "resnet18:side=224",
    ]


def train(training: Training) -> tuple[SequentialEngine, dict[int, torch.Tensor]]:
    """Round 0 of two clients, with five steps an epoch at one and three at the other."""
    draw = torch.Generator().manual_seed(0)
    images = [torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=draw) for count in (20, 12)]
    clients = [ClientImages(x, x[:0]) for x in images]
    engine = SequentialEngine(LeNet().build(10, seed=0), clients, workers=1)
    method = Method("own", "own", aggregators.build("one_hot"), TwoModel(), (Shot(),), TrueDomains())
    server = init_server(engine)
    with study.snapshots(engine) as banks:
        engine.run(open_round(0, server, method, engine, training, Keys(0), torch.arange(2)))
    return engine, banks


def test_a_snapshot_is_the_training_that_stops_there() -> None:
    engine, banks = train(Training(epochs=1, batch_size=4, lr=0.01))
    stopped, _ = train(Training(steps=4, batch_size=4, lr=0.01))
    assert set(banks) == set(study.STEPS)
    assert torch.equal(banks[4][0], stopped.bank[0])
    assert torch.equal(banks[4][1], engine.bank[1])  # its round is three steps long
    assert torch.equal(banks[16], engine.bank)
    assert not torch.equal(banks[1], banks[4])


def test_how_alike_clients_of_a_domain_move() -> None:
    layout = SequentialEngine(LeNet().build(10, seed=0), []).layout
    slots = layout.layers()[0]
    bank = torch.zeros(4, layout.width)
    for client, moved in enumerate([[3.0, 4.0], [4.0, 3.0], [0.0, -1.0], [0.0, -2.0]]):
        bank[client, slots[0].start : slots[0].start + 2] = torch.tensor(moved)
    metrics = Metrics(("a", "a", "b", "b"), [torch.zeros(1).long()] * 4, [torch.zeros(1).long()] * 4)
    similarity = study.alike(BankSignatures(bank, layout, torch.zeros(layout.width)), metrics)
    # Cosines 24/25 and 1 within; -4/5 twice and -3/5 twice between; lengths 5 and 1.
    assert similarity == {"within": 0.98, "between": -0.7, "lengths": 5.0}


def piece(source: str, seed: int, raw: float, moments: float, **changes: Any) -> dict[str, Any]:
    """A piece in which the index of trained signatures grows from 0 to ``raw``, and that of moments is ``moments``."""
    points = {name: [[0.0, 1], [raw, 4]] for name in study.TRAINED}
    updates = [{"within": 0.3, "between": 0.0, "lengths": 2.0}, {"within": 0.55, "between": 0.1, "lengths": 2.0}]
    fields = {
        "dataset": "digit_five",
        "source": source,
        "seed": seed,
        "images": 256,
        "lr": 0.001,
        "after_steps": [1, 20],
    }
    fields["cpu"] = "Some CPU"
    fields |= {"moments": {name: [moments, 4] for name in study.MOMENTS}, "trained": points, "updates": updates}
    return {**fields, **changes}


@pytest.fixture
def result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three source models of digits, and PACS with two layers."""
    layers = {"none": {"1": [0.25, 2], "all": [0.0, 1]}, "source": {"1": [1.0, 3], "all": [1.0, 3]}}
    pieces = [piece("mnist", 0, 0.5, 1.0), piece("mnist", 1, 0.7, 0.9), piece("usps", 0, 0.6, 1.0)]
    pieces.append(piece("photo", 0, 0.1, 1.0, dataset="pacs", layers=layers))
    file = tmp_path / "signatures.json"
    file.write_text(json.dumps({"pieces": pieces}))
    monkeypatch.setattr(tables, "RESULT", file)
    return file


def cells(table: str, *first: str) -> list[str]:
    lines = [line.strip("|").split(" | ") for line in table.replace("\\", "").splitlines() if line.startswith("|")]
    (row,) = [line for line in lines if [cell.strip() for cell in line[: len(first)]] == list(first)]
    return [cell.strip() for cell in row]


def test_tables_show_means_and_differences(result: Path) -> None:
    table = tables.BLOCKS["signatures"]()
    assert cells(table, "first layer") == ["first layer", "0.60", "0.10"]
    assert cells(table, "moments") == ["moments", "0.97", "1.00"]
    assert "(in the order of the columns 3, 1)" in table
    table = tables.BLOCKS["signatures-paired"]()
    # Differences 0.5, 0.2, 0.4: mean 0.3667, std 0.1528, half an interval 4.303 * 0.1528 / sqrt 3 = 0.3795.
    row = cells(table, "Digit-Five, 256 images, rate 0.001", "first layer")
    assert row[2 + tables.shown(tables.finished())[1:].index("moments")] == "+0.37 (-0.01 to +0.75), n = 3"
    table = tables.BLOCKS["signatures-agreement"]()
    assert cells(table, "below 0.4") == ["below 0.4", "4", "0.00", "0.00"]
    assert cells(table, "0.5 to 0.6")[1:3] == ["4", "0.47"]
    assert "8 of 8 looks. On Some CPU." in table
    table = tables.BLOCKS["signatures-layers"]()
    assert cells(table, "1st") == ["1st", "1.00", "0.25 (2)", "1.00 (3)"]
    assert cells(table, "All") == ["All", "0.00", "0.00 (1)", "1.00 (3)"]


def test_nothing_is_said_before_it_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "RESULT", tmp_path / "signatures.json")
    assert {block() for block in tables.BLOCKS.values()} == {tables.NOTHING}


def test_picture_is_a_png_file(result: Path, tmp_path: Path) -> None:
    picture.draw(json.loads(result.read_text())["pieces"], tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("kept_weights", "judged"), [("0000000a", 0), ("0000000b", 2), (None, 2)])
def test_moments_are_taken_from_a_piece_of_the_same_source_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_weights: str | None, judged: int
) -> None:
    kept = piece("mnist", 0, 0.5, 0.25, **({"source_weights": kept_weights} if kept_weights else {}))
    (tmp_path / "signatures.json").write_text(json.dumps({"pieces": [kept]}))
    results = study.read_found(tmp_path / "signatures.json").values()
    clusterers: list[Any] = []
    monkeypatch.setattr(study, "judge", lambda clusterer, *_: clusterers.append(clusterer) or [1.0, 4])
    next_piece = pieces.Piece("digit_five", "mnist", 0, 256, 0.003)
    moments = study.judge_moments(next_piece, "0000000a", None, None, results)
    assert clusterers == list(study.MOMENTS.values())[:judged]
    assert moments == dict.fromkeys(study.MOMENTS, [1.0, 4] if judged else [0.25, 4])


def test_the_committed_pieces_are_of_the_study() -> None:
    committed = study.read_found(BENCHMARKS / "results" / "signatures.json")
    assert set(committed) <= {tuple(vars(study_piece).values()) for study_piece in pieces.pieces()}
    for values in committed.values():
        assert set(values["trained"]) == set(study.TRAINED)
        assert len(values["updates"]) == len(values["after_steps"])
        assert values["after_steps"][-1] == max(values["last_steps"])
