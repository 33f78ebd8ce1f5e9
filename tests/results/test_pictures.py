"""Pictures: the values on their axes, and that runs and models of any size are drawn."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedwca.results import pictures
from fedwca.results.diverged_runs import DIVERGED
from fedwca.results.pictures.accuracy import draw_curve, draw_curves, mean_by_round
from fedwca.results.pictures.catalogue import PICTURES, PictureRequest, find_pictures
from fedwca.results.pictures.clusters import take_in_turn
from fedwca.results.pictures.confusion import matrix
from fedwca.results.pictures.cost import cumulative_cost
from fedwca.results.pictures.final_models import Models
from fedwca.results.pictures.neighbours import components
from fedwca.results.pictures.overview import draw_overview
from fedwca.results.pictures.png_of_figure import png_bytes
from fedwca.results.pictures.style import COLOURS, LINES, OWN, NotDrawn, draw_line, figure, line_style, looks, save
from fedwca.results.read_run import Run, read_run
from fedwca.results.table_rows import summarise, table_rows

from .runs import write_run

SIZES = {
    "one": {"methods": 1, "clients": 1, "domains": 3, "trials": 1, "rounds": 2, "clusters": 2},
    "some": {},
    "many": {"methods": 12, "clients": 12, "domains": 5, "trials": 3, "rounds": 6, "clusters": 7},
}
FROM_RECORDS = ("overview", "accuracy", "bars", "weights", "weights_animation", "pseudo_labels", "cost")
FROM_MODELS = ("clusters", "confusion", "embedding", "mistakes")


@pytest.fixture(scope="module", params=SIZES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return read_run(write_run(tmp_path_factory.mktemp("runs") / request.param, **SIZES[request.param]))


@pytest.fixture(scope="module", params=[(3, 2), (24, 12)], ids=["few", "many"])
def models(request: pytest.FixtureRequest) -> Models:
    clients, classes = request.param
    random = np.random.default_rng(0)
    sizes = [0, *range(6, 5 + clients)]  # the first client has no test images
    truth = [random.integers(0, classes, n) for n in sizes]
    return Models(
        title="FedWCA: made up",
        classes=[f"class {number}" for number in range(classes)],
        domains=[f"domain {k % 3}" for k in range(clients)],
        labels=[k % 2 for k in range(clients)],
        images=[random.integers(0, 255, (n, 32, 32, 3), dtype=np.uint8) for n in sizes],
        truth=truth,
        predicted=[np.where(random.random(len(t)) < 0.5, t, random.integers(0, classes, len(t))) for t in truth],
        confidences=[random.random(n) for n in sizes],
        before=[random.normal(size=(n, 5)) for n in sizes],
        after=[random.normal(size=(n, 5)) for n in sizes],
    )


def no_models() -> Models:
    raise NotDrawn("no checkpoint is kept")


def texts(figure: Any) -> str:
    """All text on a figure, one piece a line."""
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in figure.findobj(Text))


def test_every_picture_is_tested_here() -> None:
    assert {*FROM_RECORDS, *FROM_MODELS, "neighbours"} == set(PICTURES)


@pytest.mark.parametrize("name", [name for name in FROM_RECORDS if name != "weights_animation"])
def test_pictures_from_records_have_titles_and_units(run: Run, name: str, tmp_path: Path) -> None:
    figure = PICTURES[name].draw(PictureRequest(run, no_models))
    assert "made_up, source home" in figure.get_suptitle().replace("\n", " ")
    for axis in figure.axes:
        assert axis.get_ylabel() or name in ("weights", "cost")
    written = texts(figure)
    assert any(unit in written for unit in ("(%)", "weight"))
    if name not in ("weights", "pseudo_labels"):
        assert all(label in written for label in run.labels.values())
    assert figure.get_figwidth() <= 16
    save(figure, tmp_path / f"{name}.png", dpi=30)
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["overview", "accuracy", "bars", "cost"])
def test_no_text_is_cut_and_no_names_overlap(name: str, tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", methods=4, domains=7))
    method_labels = {method: f"{label} (1 to 3 of 4 rounds, 1 of 2 runs)" for method, label in run.labels.items()}
    longer = {domain: f"{domain} in the north east" for domain in run.domains}
    results = {
        method: {
            **entry,
            "label": method_labels[method],
            "domains": {longer[domain]: value for domain, value in entry["domains"].items()},
            "domain_stds": {longer[domain]: value for domain, value in entry["domain_stds"].items()},
        }
        for method, entry in run.results.items()
    }
    vars(run)["results"] = results
    figure = PICTURES[name].draw(PictureRequest(run, no_models))
    figure.draw_without_rendering()
    shown = [*(axis.title for axis in figure.axes), *figure.legends, *figure.texts]
    assert all(text.get_window_extent().x0 >= 0 and text.get_window_extent().x1 <= figure.bbox.width for text in shown)
    for axis in figure.axes if name == "bars" else figure.axes[1:]:
        boxes = [tick.get_window_extent() for tick in axis.get_xticklabels()]
        assert all(left.x1 <= right.x0 for left, right in pairwise(boxes))


@pytest.mark.parametrize("name", ["overview", "accuracy", "pseudo_labels"])
def test_ticks_are_at_whole_rounds(name: str, tmp_path: Path) -> None:
    axis = PICTURES[name].draw(PictureRequest(read_run(write_run(tmp_path / "run", rounds=1)), no_models)).axes[0]
    assert all(tick == int(tick) for tick in axis.get_xticks())


def test_a_curve_is_the_mean_over_runs(run: Run) -> None:
    axis = pictures.accuracy(run).axes[0]
    lines = {line.get_label(): line for line in axis.get_lines()}
    curve = lines[run.labels["wca"]]
    values = mean_by_round(run.rounds("wca"), "accuracy")
    assert list(curve.get_xdata()) == list(values) == list(range(int(run.config["rounds"]) + 1))
    assert curve.get_ydata() == pytest.approx([np.mean(v) for v in values.values()])
    assert len(axis.collections) == (
        0 if run.config["trials"] == 1 else len(run.labels) - 1
    )  # a level line has no band
    assert curve.get_color() == OWN


def test_bars_stand_for_the_table(run: Run) -> None:
    figure = pictures.bars(run)
    groups = [tick.get_text() for axis in figure.axes for tick in axis.get_xticklabels()]
    assert groups == [*dict.fromkeys(run.domains), "mean"]
    heights = [bar.get_height() for axis in figure.axes for bar in axis.patches]
    expected = [v for e in run.results.values() for v in (*e["domains"].values(), e["mean"])]
    assert sorted(heights) == pytest.approx(sorted(expected))


def test_bars_need_no_rounds(run: Run, tmp_path: Path) -> None:
    bare = read_run(shutil.copytree(run.path, tmp_path / "kept"))
    (bare.path / "rounds.jsonl").unlink()
    assert pictures.bars(bare).axes
    with pytest.raises(NotDrawn, match=r"rounds\.jsonl is not in the folder"):
        pictures.accuracy(bare)


def test_weights_are_those_of_the_records(run: Run) -> None:
    figure = pictures.weights(run)
    shown = [axis for axis in figure.axes if axis.images]
    first = run.rounds("wca", (0, 0))[2]
    assert shown[0].get_title() == "round 2"
    framed = len(run.domains) <= 40
    assert [text.get_text() for legend in figure.legends for text in legend.get_texts()] == (
        ["the client's own cluster"] if framed else []
    )
    assert shown[-1].get_title() == f"round {run.config['rounds']}"
    drawn = np.asarray(shown[0].images[0].get_array())
    if len(run.domains) <= 40:
        assert drawn == pytest.approx(np.array(first["weights"]))
    else:
        assert drawn[0] == pytest.approx(np.array(first["weights"][:12]).mean(0))
    with pytest.raises(NotDrawn, match="has no second round with more than one cluster model"):
        pictures.weights(run, method=next(iter(run.labels)), trial=(9, 9))


def test_the_axis_of_a_share_ends_at_one(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    for record in run.rounds(run.composed):
        record["agreement"] = [1.0 if record["round"] == 0 else 0.5] * len(record["accuracy"])
    _, axis = pictures.pseudo_labels(run).axes
    assert axis.get_ylim()[1] == 1
    assert max(max(line.get_ydata()) for line in axis.get_lines()) == 1
    assert not any(line.get_clip_on() for line in axis.get_lines())


def test_an_animation_is_a_gif_of_every_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    run = read_run(write_run(tmp_path / "run"))
    run.methods["wca"]["label"] = r"a $\x$ b"  # no formula
    animated = pictures.weights_animation(run)
    assert len(animated._fig.legends) == 1
    save(animated, tmp_path / "weights.gif", dpi=30)
    with Image.open(tmp_path / "weights.gif") as animation:
        assert animation.n_frames == int(run.config["rounds"]) - 1
    monkeypatch.setattr(sys.modules["fedwca.results.pictures.weights"], "FRAMES", 2)
    save(pictures.weights_animation(run), tmp_path / "short.gif", dpi=30)
    with Image.open(tmp_path / "short.gif") as animation:
        assert animation.n_frames == 2


def test_a_title_counts_the_runs_whose_rounds_are_drawn(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", methods=1, trials=1)
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    last = {**json.loads(lines[-1]), "diverged": "values that are not finite"}
    (folder / "rounds.jsonl").write_text("\n".join([*lines[:-1], json.dumps(last)]) + "\n")
    assert "one run, so no spread" in pictures.accuracy(read_run(folder)).axes[0].get_title()


@pytest.mark.parametrize("name", ["overview", "accuracy", "pseudo_labels", "bars"])
def test_titles_say_what_bands_and_whiskers_are(run: Run, name: str) -> None:
    axes = PICTURES[name].draw(PictureRequest(run, no_models)).axes
    marks = {"overview": ["band", "whiskers"], "bars": ["whiskers"]}.get(name, ["band"] * len(axes))
    trials = run.config["trials"]
    for mark, axis in zip(marks, axes, strict=False):
        title = axis.get_title().replace("\n", " ")
        assert (f"{mark}: one standard deviation over {trials} runs" in title) == (trials > 1)
        if mark == "band":
            assert axis.get_xlabel() == "rounds done (0: the source model)"


def test_an_axis_says_whose_accuracy_it_is(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", methods=1, trials=1))
    for entry in run.results.values():
        entry["round"] = 4  # that validation images chose
    assert pictures.accuracy(run).axes[0].get_ylabel() == "new clients' accuracy (%)"
    assert pictures.cost(run).axes[0].get_ylabel() == "new clients' accuracy, mean over clients (%)"


def test_cost_counts_from_the_source_model(run: Run) -> None:
    points = cumulative_cost(run, "wca", "bytes")
    assert [x for x, _ in points] == pytest.approx([3.0 * r for r in range(len(points))])
    assert cumulative_cost(run, "wca", "seconds")[-1][0] == pytest.approx(0.5 * (len(points) - 1))


@pytest.mark.parametrize("name", FROM_MODELS)
def test_pictures_of_models(models: Models, name: str, tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    figure = PICTURES[name].draw(PictureRequest(run, lambda: models, how="pca"))
    assert "FedWCA: made up" in figure.get_suptitle()
    written = texts(figure)
    assert "domain 1" in written
    save(figure, tmp_path / f"{name}.svg")
    assert (tmp_path / f"{name}.svg").read_text().lstrip().startswith("<?xml")


def test_pictures_without_data_say_why(models: Models) -> None:
    from dataclasses import replace

    empty: Any = [[] for _ in models.domains]
    with pytest.raises(NotDrawn, match="no client has test images"):
        pictures.confusion(replace(models, truth=empty, predicted=empty))
    with pytest.raises(NotDrawn, match="no test image is classified wrongly"):
        pictures.mistakes(replace(models, predicted=models.truth))
    with pytest.raises(NotDrawn, match="no client has test images"):
        pictures.clusters(models.labels, empty, models.domains, models.title)
    with pytest.raises(NotDrawn, match="too few"):
        pictures.embedding(replace(models, before=empty, after=empty, truth=empty))


def test_tsne_is_the_same_every_time() -> None:
    from fedwca.results.pictures.embedding import project_to_plane

    x = np.random.default_rng(0).normal(size=(20, 4))
    assert np.array_equal(project_to_plane(x, "tsne"), project_to_plane(x, "tsne"))


def test_a_graph_has_an_arrow_for_every_client() -> None:
    from matplotlib.text import Annotation

    nearest = [1, 0, 1, 4, 3, 2, 2]
    figure = pictures.neighbours(nearest, ["a", "a", "b", "b", "b", "a", "b"], "made up", [1.5, 1.01, 2, 2, 2, 2, 2])
    arrows = [element for element in figure.axes[0].get_children() if isinstance(element, Annotation)]
    assert len(arrows) == len(nearest)
    assert [arrow.arrow_patch.get_linestyle() for arrow in arrows].count("--") == 1
    assert "component 1" in texts(figure)
    places = {element.get_position() for element in figure.axes[0].texts if element.get_text().isdigit()}
    assert len(places) == len(nearest)


def test_numbers_of_clients_stand_out_from_every_colour() -> None:
    from matplotlib.colors import to_rgb

    def luminance(colour: Any) -> float:  # WCAG 2.2
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
        return float(np.dot(parts, (0.2126, 0.7152, 0.0722)))

    domains = [str(number) for number in range(8)]
    (axis,) = pictures.neighbours([1, 0, 3, 2, 5, 4, 7, 6], domains, "made up").axes
    fills = [points.get_facecolor()[0][:3] for points in axis.collections]
    inks = [text.get_color() for text in axis.texts if text.get_text().isdigit()]
    assert len(fills) == len(inks) == 8
    for light, dark in (sorted(map(luminance, pair), reverse=True) for pair in zip(fills, inks, strict=True)):
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_components_are_finchs_first_partition() -> None:
    import torch

    from fedwca.functional.neighbours import connected_components

    nearest = torch.randint(0, 30, (30,), generator=torch.Generator().manual_seed(0))
    labels = connected_components(nearest)
    expected = [(labels == c).nonzero()[:, 0].tolist() for c in range(int(labels.max()) + 1)]
    assert components(nearest.tolist()) == expected


def test_notebooks_show_dollar_signs_as_files_do() -> None:
    for title in (r"$\x$", "$5 to $9"):
        picture = figure(6, 4, title)
        assert picture._repr_png_() == png_bytes(picture)
        assert [text.get_parse_math() for text in picture.texts if text.get_text() == title] == [False]


def test_a_band_is_over_runs_that_did_not_diverge(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", methods=1, trials=2)
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for line in (line for line in lines if (line["trial"], line["round"]) == (1, 2)):
        line[DIVERGED] = "too large a step"
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (axis,) = pictures.accuracy(read_run(folder)).axes
    assert "one run, so no spread" in axis.get_title() + axis.get_xlabel() + str(axis.figure.texts)


@pytest.mark.parametrize(("field", "most"), [("accuracy", 100.0), ("agreement", 1.0)])
def test_a_band_ends_where_no_value_can_be(field: str, most: float) -> None:
    values = {0: (0.0, 0.3), 1: (0.7, 1.0)}  # standard deviations of 0.2 over two runs
    records = [
        {"method": "wca", "source_model": 0, "trial": trial, "round": number, field: [share * most]}
        for number, shares in values.items()
        for trial, share in enumerate(shares)
    ]
    axis = figure(4, 3, "made up").subplots()
    draw_curve(axis, records, line_style(looks(["wca"])["wca"], True), "FedWCA", field)
    heights = axis.collections[0].get_paths()[0].vertices[:, 1]
    assert (min(heights), max(heights)) == (0, most)


def test_neighbours_are_drawn_from_the_record(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    with pytest.raises(NotDrawn, match="grouped its clients by their parameters"):
        PICTURES["neighbours"].draw(PictureRequest(run, no_models))
    first = next(record for record in run.records if record["method"] == "wca" and record["round"] == 0)
    first["clustering"] = {"nearest": [1, 0, 3, 2, 5, 4], "margins": [1.5, math.nan, 2, 2, 2, 2]}  # type: ignore[index]
    assert PICTURES["neighbours"].draw(PictureRequest(run, no_models)).axes


def test_images_are_taken_in_turn() -> None:
    images = [[f"{k}{i}" for i in range(4)] for k in range(3)]
    assert take_in_turn([0, 2], images, 3) == ["00", "02", "20"]
    assert take_in_turn([1], images, 9) == ["10", "11", "12", "13"]


def test_a_confusion_matrix() -> None:
    pairs = [(np.array([0, 0, 1]), np.array([0, 1, 1])), (np.array([0]), np.array([1]))]
    assert matrix(pairs, 2).tolist() == [[1, 2], [0, 1]]


def test_mistakes_are_the_surest_first(run: Run, models: Models) -> None:
    figure = PICTURES["mistakes"].draw(PictureRequest(run, lambda: models))
    titles = [axis.get_title() for axis in figure.axes[:10] if axis.get_title()]
    sure = [int(title.split()[-2]) for title in titles]
    assert sure == sorted(sure, reverse=True)


def test_no_two_methods_look_alike() -> None:
    look_by_method = looks([str(number) for number in range(20)])
    seen = {(look["color"], look["linestyle"], look["marker"]) for look in look_by_method.values()}
    assert len(seen) == 20
    assert OWN not in COLOURS
    one_colour = (
        "fedprox",
        "tent",
        "scaffold",
        "fedgma",
        "fedsr",
        "fedtta_pp",
        "pfl_sampled",
        "pfl_ensemble",
        "fedtta_prox",
    )
    alike = looks(one_colour).values()
    assert {look["color"] for look in alike} == {COLOURS[3]}
    # Bars have a hatch alone, and curves of the page a dash alone.
    assert len({look["hatch"] for look in alike}) == len({LINES[look["linestyle"]] for look in alike}) == 9


@pytest.mark.parametrize("one_colour", [("dann", "fada"), ("oracle", "pooled"), ("source_only",)])
def test_level_lines_of_one_colour_differ_and_are_like_no_curve(one_colour: Sequence[str]) -> None:
    alike = looks(one_colour)
    assert len({look["color"] for look in alike.values()}) == 1
    axis = figure(3, 2, "").subplots()
    for name, look in alike.items():
        draw_line(axis, [(0, 50.0)], line_style(look, False), name, level=True)
    assert [line.get_linestyle() for line in axis.get_lines()] == ["--", ":"][: len(one_colour)]
    assert not {"--", "6 4"} & {*LINES, *LINES.values()}


def test_a_single_long_name_stands_upright(tmp_path: Path) -> None:
    def entry(domains: Sequence[str]) -> dict[str, Any]:
        values = dict.fromkeys(domains, 50.0)
        return {"label": "FedAvg", "mean": 50.0, "std": 0.0, "n": 1, "domains": values, "domain_stds": values}

    names = ["day", "night", "fog", "a_domain_with_a_really_long_name", "rain"]
    (axis,) = pictures.draw_bars({"fedavg": entry(names)}, "one run").axes
    labels = axis.get_xticklabels()
    assert {label.get_rotation() for label in labels} == {90}
    assert "".join(label.get_text().replace("\n", "") for label in labels) == "".join([*names, "mean"])


def test_the_overview_of_many_domains_has_their_mean(tmp_path: Path) -> None:
    accuracies = [*[0.0] * 130, *[100.0] * 130]  # the last domain has 131 clients, each other one
    record = {"method": "fedavg", "source_model": 0, "trial": 0, "round": 0, "accuracy": accuracies}
    domains = [str(min(client, 129)) for client in range(260)]
    results = summarise(table_rows([record], {"fedavg": "FedAvg"}, domains))
    _, by_domain = draw_overview([record], results, "one run").axes
    (bar,) = by_domain.patches
    assert bar.get_height() == 50.0, "the mean over clients, not over groups"
    assert [tick.get_text() for tick in by_domain.get_xticklabels()] == ["mean"]
    assert by_domain.get_title().splitlines() == [
        "After the last round, mean over clients",
        "(fedwca plot RUN bars shows each of 130 groups)",
    ]


def test_an_overview_is_drawn_where_every_run_diverged() -> None:
    tag = {"method": "fedavg", "source_model": 0, "trial": 0}
    accuracies = [(-1, 50.0), (0, 60.0), (1, math.nan)]
    records = [{**tag, "round": number, "accuracy": [accuracy] * 2} for number, accuracy in accuracies]
    records[-1][DIVERGED] = "too large a step"
    results = summarise(table_rows(records, {"fedavg": "FedAvg"}, ["day", "night"]))
    assert results["fedavg"]["domains"] == {}
    _, by_domain = draw_overview(records, results, "one run").axes
    assert by_domain.get_title() == "After the last round, mean over clients"
    assert [tick.get_text() for tick in by_domain.get_xticklabels()] == ["mean"]


@pytest.mark.parametrize("order", [("lost", "fedavg"), ("fedavg", "lost")])
def test_bars_of_a_method_that_diverged_in_a_folder_of_its_own_are_left_out(order: Sequence[str]) -> None:
    domains, spread = {"day": 50.0, "night": 70.0}, dict.fromkeys(("day", "night"), 1.0)
    lost = {"label": "Lost", "mean": math.nan, "std": None, "n": 0, "domains": {}, "domain_stds": {}}
    kept = {"label": "FedAvg", "mean": 60.0, "std": 2.0, "n": 2, "domains": domains, "domain_stds": spread}
    results = {name: {"lost": lost, "fedavg": kept}[name] for name in order}
    (axis,) = pictures.draw_bars(results, "one run").axes
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["day", "night", "mean"]
    drawn = [bars for bars in axis.containers if bars.get_label() in ("Lost", "FedAvg")]
    heights = {bars.get_label(): [bar.get_height() for bar in bars] for bars in drawn}
    assert heights["FedAvg"] == [50.0, 70.0, 60.0]
    assert all(map(math.isnan, heights["Lost"]))


def test_whiskers_and_numbers_above_100_percent_are_inside_the_picture() -> None:
    lost = {"label": "Lost", "mean": math.nan, "std": None, "n": 0, "domains": {}, "domain_stds": {}}
    kept = {"label": "FedAvg", "mean": 99.2, "std": 14.0, "n": 2, "domains": {"day": 99.2}, "domain_stds": {"day": 3.0}}
    for drawn in (
        pictures.draw_bars({"lost": lost, "fedavg": kept}, "two runs"),
        draw_overview([], {"fedavg": {**kept, "domain_stds": {"day": 14.0}}}, "two runs"),
    ):
        assert drawn.axes[-1].get_ylim() == (0, pytest.approx(99.2 + 14 + 9))
        drawn.draw_without_rendering()
        number = next(text for text in drawn.axes[-1].texts if text.get_text() == "99")
        assert number.get_window_extent().y1 <= drawn.axes[-1].bbox.y1
    assert pictures.draw_bars({"lost": lost}, "two runs").axes[0].get_ylim() == (0, 109)


def test_the_legend_of_an_overview_has_the_hatches_of_bars_of_one_colour() -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    def entry(label: str) -> dict[str, Any]:
        return {"label": label, "mean": 50.0, "std": 9.0, "n": 2, "domains": {"day": 50.0}, "domain_stds": {"day": 9.0}}

    names = ["dann", "fada"]
    tag = {"source_model": 0, "trial": 0}
    records = [{"method": "dann", **tag, "round": number, "accuracy": [50.0]} for number in (-1, 0)]
    figure = draw_overview(records, {name: entry(name) for name in names}, "two runs")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == names, "fada has bars and no curve"
    hatches = [patch.get_hatch() or "" for patch in legend.findobj(Rectangle)]
    assert hatches == [looks(names)[name]["hatch"] for name in names]
    assert len(set(hatches)) == 2
    assert len(legend.findobj(Line2D)) == 1
    for bars in figure.axes[1].containers:
        if bars.get_label() in names:
            assert all(line.get_path_effects() for line in bars.errorbar.lines[2]), "visible in a black bar"


def test_a_method_has_its_colour_in_a_figure_of_the_paper(run: Run) -> None:
    figure = draw_curves({"wca": ("\u03bb = 0.2", run.lines_of("wca"))}, "made up")
    (curve,) = (line for line in figure.axes[0].get_lines() if line.get_label() == "\u03bb = 0.2")
    assert curve.get_color() == OWN


def test_the_same_picture_gives_the_same_file(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    for number in (1, 2):
        for suffix in ("svg", "pdf", "png"):
            save(pictures.bars(run), tmp_path / f"{number}.{suffix}", dpi=30)
    for suffix in ("svg", "pdf", "png"):
        assert (tmp_path / f"1.{suffix}").read_bytes() == (tmp_path / f"2.{suffix}").read_bytes()


def test_pictures_are_found_by_name() -> None:
    assert find_pictures(["weights-animation", "bars", "bars"]) == ["weights_animation", "bars"]
    assert find_pictures([]) == list(PICTURES)


def test_a_run_that_was_killed_is_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "summary.json").unlink()
    run = read_run(folder)
    assert run.domains == ("target0", "target0", "target1", "target1", "target2", "target2")
    assert not run.complete
    assert pictures.bars(run).axes


def test_a_backend_that_is_not_there_costs_no_picture() -> None:
    code = "from fedwca.results.pictures import style; print(style.figure(1, 1, 'x').get_figwidth())"
    environment = {**os.environ, "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (process.stdout.strip(), process.returncode) == ("1.0", 0), process.stderr


def test_figure_5_has_a_row_a_method_and_a_column_a_round(run: Run) -> None:
    records = run.rounds("wca", (0, 0))[2:]
    figure = pictures.draw_weights({"A": records, "B": records}, run.domains, "made up")
    titles = [axis.get_title() for axis in figure.axes if axis.images and axis.get_title()]
    assert titles == [f"{name}, r = {record['round']}" for name in "AB" for record in records]


def test_many_clients_have_the_same_rows_in_each_round() -> None:
    domains = ["a"] * 25 + ["b"] * 20
    first = {"round": 1, "labels": [0] * 25 + [1] * 20, "weights": [[1.0, 0.0]] * 45}
    later = {"round": 2, "labels": [0] * 25 + [1] * 19 + [0], "weights": [[None, None]] * 25 + [[0.0, 1.0]] * 20}
    figure = pictures.draw_weights({"A": [first, later]}, domains, "made up")
    left, right = (axis for axis in figure.axes if axis.images and axis.get_title())
    assert [text.get_text() for text in left.get_yticklabels()] == ["a, cluster 0", "b, cluster 0", "b, cluster 1"]
    left_weights, right_weights = (
        np.ma.filled(axis.images[0].get_array().astype(float), np.nan) for axis in (left, right)
    )
    np.testing.assert_array_equal(left_weights, [[1, 0], [np.nan] * 2, [1, 0]])
    np.testing.assert_array_equal(right_weights, [[np.nan] * 2, [0, 1], [0, 1]])
