"""Features of the test images in a plane, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from fedwca.results.pictures import style

MOST = 1200
"""Images in the picture; of more, every n-th is drawn."""


def embedding(
    before: Sequence[Any],
    after: Sequence[Any],
    truth: Sequence[Any],
    classes: Sequence[str],
    domains: Sequence[str],
    title: str,
    how: Literal["pca", "tsne"] = "tsne",
    first: str = "source model",
) -> Any:
    """Four panels: the model that clients begin with and delivered models, by true class and by true domain.

    Args:
        before: features ``[N, q]`` by the model that clients begin with, K arrays.
        after: the same by the model each client ends with.
        truth: class of each image ``[N]``, K arrays.
        classes: their names.
        domains: true domain of each client.
        title: what was run.
        how: principal components, or t-SNE with a fixed seed, which shows neighbourhoods and no distances.
        first: what clients begin with, in words.

    Raises:
        NotDrawn: fewer than five images.
    """
    import numpy as np

    where = [domain for domain, true in zip(domains, truth, strict=True) for _ in range(len(true))]
    step = max(1, -(-len(where) // MOST))
    if len(where) < 5:
        raise style.NotDrawn(f"{len(where)} test images are too few for a plane")
    names, true = np.array(where)[::step], np.concatenate([np.asarray(t) for t in truth])[::step]
    made = style.figure(
        10.5,
        9.2,
        f"Features of {len(names)} test images ({how.replace('tsne', 't-SNE').replace('pca', 'PCA')})\n{title}",
    )
    axes = made.subplots(2, 2)
    size = 16 if len(names) > 300 else 30
    for column, (which, features) in enumerate(((f"{first}, before", before), ("delivered models, after", after))):
        flat = project_to_plane(np.concatenate([np.asarray(f) for f in features])[::step], how)
        _by_class(axes[0, column], flat, true, classes, size)
        for domain, look in style.domain_looks(domains).items():
            x, y = flat[names == domain].T
            axes[1, column].scatter(x, y, s=size, alpha=0.75, linewidths=0, label=style.legend_label(domain), **look)
        axes[0, column].set_title(f"{which}, by true class", fontsize=10)
        axes[1, column].set_title(f"{which}, by true domain", fontsize=10)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
    for axis, shown in ((axes[0, 1], len(classes) <= 10), (axes[1, 1], True)):
        if shown:
            axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9, frameon=False, markerscale=1.4)
    return made


def _by_class(axis: Any, flat: Any, true: Any, classes: Sequence[str], size: int) -> None:
    """Up to ten classes have their own colour and mark; of more only the colour tells, and not every one apart."""
    if len(classes) > 10:
        axis.scatter(*flat.T, s=size, c=true, cmap="viridis", linewidths=0)
        return
    palette = (style.OWN, *style.COLOURS, "#8C6D1F", "#5B2A86")
    for number, name in enumerate(classes):
        x, y = flat[true == number].T
        mark = f"${name}$" if len(name) == 1 and name.isascii() and name.isalnum() else style.MARKERS[number]
        axis.scatter(
            x, y, s=size * 1.3, color=palette[number], marker=mark, linewidths=0, label=style.legend_label(name)
        )


def project_to_plane(features: Any, how: Literal["pca", "tsne"]) -> Any:
    """Features ``[N, q]`` in two dimensions ``[N, 2]``; the same every time."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    if how == "pca":
        return PCA(2, svd_solver="full").fit_transform(features)
    perplexity = min(30.0, (len(features) - 1) / 3)
    return TSNE(2, init="pca", perplexity=perplexity, random_state=0, n_jobs=1).fit_transform(features)
