"""Pictures embedded in the page: clusters, weights over rounds, and the most confident mistakes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable

from fedwca.errors import FedwcaError
from fedwca.results.pictures.catalogue import PICTURES, PictureRequest
from fedwca.results.pictures.final_models import Models
from fedwca.results.pictures.png_of_figure import png_bytes
from fedwca.results.pictures.style import NotDrawn
from fedwca.results.read_run import Run
from fedwca.results.report.html_tables import escape

SHOWN = {
    "clusters": "Images of the clients in each cluster",
    "weights": "Weights of the cluster models in each client's start, by round",
    "mistakes": "Images that the delivered models get wrong, the surest first",
}
"""Names in `fedwca.results.pictures.catalogue.PICTURES`, with their captions on the page."""
OF_CLUSTERS = ("clusters", "weights")
"""Those of them that a method without clusters cannot have."""


def embedded_pictures(run: Run, models: Callable[[], Models] | None = None) -> str:
    """The composed method's pictures of the run's first trial, and why others are missing, as HTML.

    Args:
        run: the run that is shown.
        models: rebuilds the final models; None: pictures of images are left out.
    """
    figures, missing = [], []
    one_group = run.averages_everybody(run.composed)
    for name, caption in SHOWN.items():
        if one_group and name in OF_CLUSTERS:
            continue
        try:
            figure = PICTURES[name].draw(PictureRequest(run, models or _leave_out))
        except FedwcaError as error:
            missing.append(f"<li>{escape(caption)}: not drawn ({escape(str(error))})</li>")
            continue
        image = b64encode(png_bytes(figure)).decode()
        text = escape(f"{caption}. {run.labels.get(run.composed, run.composed)}")
        figures.append(
            f'<figure><div class="wide" role="region" tabindex="0" aria-label="{text}"><img '
            f'src="data:image/png;base64,{image}" alt="{text}"></div><figcaption>{text}</figcaption></figure>'
        )
    return "".join(figures) + (f'<ul class="note">{"".join(missing)}</ul>' if missing else "")


def _leave_out() -> Models:
    raise NotDrawn("fedwca report draws it, from the checkpoint and the images of the run")
