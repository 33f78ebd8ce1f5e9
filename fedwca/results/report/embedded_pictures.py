"""Pictures inside the page: who was grouped with whom, weights over rounds, and what models are surest of and wrong."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable

from fedwca.errors import FedwcaError
from fedwca.results.pictures.catalogue import PICTURES, PictureRequest
from fedwca.results.pictures.final_models import Models
from fedwca.results.pictures.style import NotDrawn, png_bytes
from fedwca.results.read_run import Run
from fedwca.results.report.html_tables import escape

SHOWN = {
    "clusters": "Images of the clients in each cluster",
    "weights": "Weights of the cluster models in each client's start, by round; a frame is around its own cluster",
    "mistakes": "Test images that the delivered models get wrong, the surest first",
}
"""Names in `fedwca.results.pictures.catalogue.PICTURES`, with what the page says of them."""


def embedded_pictures(run: Run, models: Callable[[], Models] | None = None) -> str:
    """The composed method's pictures in the run's first trial, and why others are not there; as HTML.

    Args:
        run: what is shown.
        models: builds the final models again; None: pictures of images are left out.
    """
    shown, missing = [], []
    for name, about in SHOWN.items():
        try:
            made = PICTURES[name].draw(PictureRequest(run, models or _leave_out))
        except FedwcaError as error:
            missing.append(f"<li>{escape(about)}: not drawn ({escape(str(error))})</li>")
            continue
        image = b64encode(png_bytes(made)).decode()
        text = escape(f"{about}. {run.labels.get(run.own, run.own)}")
        shown.append(
            f'<figure><div class="wide" role="region" tabindex="0" aria-label="{text}"><img '
            f'src="data:image/png;base64,{image}" alt="{text}"></div><figcaption>{text}</figcaption></figure>'
        )
    return "".join(shown) + (f'<ul class="note">{"".join(missing)}</ul>' if missing else "")


def _leave_out() -> Models:
    raise NotDrawn("fedwca report draws it, from the checkpoint and the images of the run")
