"""The model card beside an exported model: its origin, its inputs and outputs, its accuracy, and caveats."""

from __future__ import annotations

from fedwca.core.model_description import ModelDescription
from fedwca.core.printable import printable
from fedwca.results.tables import escape_markdown

RUN = {
    "safetensors": "Weights for the architecture of fedwca; read with `fedwca predict` or `fedwca.export`.",
    "onnx": "ONNX; input `images` uint8 [N, 3, H, W], output `logits` float32 [N, M], N is free. Runs without fedwca.",
    "torch-export": "torch.export program; `torch.export.load(file).module()(images)`. Runs without fedwca. "
    "It is code: load it only if you trust its maker.",
}
CAVEATS = (
    "Probabilities are not calibrated: training makes a model surer than it is right, most of all on self-made labels.",
    "Images of other domains than the holder's, and things of none of the classes, get a label all the same.",
    "Where it was adapted without labels, errors that it made on such images before may have become firmer.",
)


def model_card(about: ModelDescription, file: str, kind: str) -> str:
    """Return the model card as Markdown.

    Args:
        about: the model's description.
        file: name of the model's file.
        kind: its format.
    """
    fields = ", ".join(f"{key} {value}" for key, value in about.model.items() if key != "name")
    escape = escape_markdown
    rounds = f"rounds: {about.rounds}{', then the last phase at the target' if about.last_phase else ''}"
    members = f" (clients {', '.join(map(str, about.clients))})" if len(about.clients) > 1 else ""
    rows = [
        ("Method", f"{escape(about.label)} ({_code(about.method)}), {rounds}"),
        ("Model of", escape(about.holder) + members),
        ("Domain", escape(about.domain or "unknown")),
        ("Made from", f"labelled images of {': '.join(filter(None, map(escape, (about.dataset, about.source))))}"),
        ("Architecture", escape(str(about.model["name"])) + (f" ({escape(fields)})" if fields else "")),
        ("Configuration", f"hash {_code(about.config_hash)}"),
        ("Weights", f"hash {_code(about.weights_hash)}"),
        ("Written by", f"fedwca {escape(about.fedwca)}"),
    ]
    lines = [
        f"# {escape(about.label)}, {escape(about.holder)}",
        "",
        f"{_code(file)}: {RUN[kind]}",
        "",
        "| | |",
        "|---|---|",
    ]
    lines += [f"| {name} | {value} |" for name, value in rows]
    lines += ["", "## How good", "", *_measured(about), "", "## What goes in, what comes out", "", *_use(about), ""]
    notes = [*map(escape, about.notes), *CAVEATS]
    return "\n".join([*lines, "## Caveats", "", *(f"- {note}" for note in notes), ""])


def _code(text: str) -> str:
    """Return text as a code span that may stand in a table cell."""
    return f"`{printable(text).replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def _measured(about: ModelDescription) -> list[str]:
    if about.accuracy is None:
        return ["Not measured: the holder has no labels, or no images for a test."]
    lines = [
        "| | accuracy | n |",
        "|---|--:|--:|",
        f"| this model | {about.accuracy:.1f} % | {about.images} |",
    ]
    if about.source_accuracy is not None:
        lines.append(f"| the source model | {about.source_accuracy:.1f} % | {about.images} |")
    domain = f" ({escape_markdown(about.domain)})" if about.domain else ""
    return [*lines, "", f"On images of the holder that were kept out of training{domain}; n is their number."]


def _use(about: ModelDescription) -> list[str]:
    classes = ", ".join(map(escape_markdown, about.classes))
    squares = (
        f"stretched to {about.side} × {about.side} (bilinear, antialiased)"
        if about.stretch
        else f"scaled until the shorter side has {about.side} pixels (bilinear, antialiased), cropped around the centre"
    )
    return [
        f"- In: RGB pixels 0 to 255 as uint8, channels first, {about.side} × {about.side}. Do not normalise: that is "
        "inside the model.",
        "- Resizing is outside. Image files: turned as their EXIF orientation says, made RGB (transparent parts "
        f"white), {squares}. Arrays: stretched to that size.",
        f"- Out: one logit for each of {len(about.classes)} classes, in this order: {classes}. Their "
        "softmax is the probabilities.",
    ]
