"""Features of the test images in a plane, before and after training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from fedwca.results.pictures import style
from fedwca.results.pictures.final_models import Models

MOST = 1200
"""Maximum number of images in the picture; of more, every n-th is drawn."""


def embedding(models: Models, projection: Literal["pca", "tsne"] = "tsne", first: str = "source model") -> Any:
    """Four panels: features of the first model and of the delivered models, by true class and by true domain.

    Args:
        models: their features are drawn.
        projection: principal components, or t-SNE with a fixed seed, which shows neighbourhoods but not distances.
        first: what clients start from, in words.

    Raises:
        NotDrawn: fewer than five images.
    """
    import numpy as np

    classes, pairs = models.classes, zip(models.domains, models.truth, strict=True)
    image_domains = [domain for domain, labels in pairs for _ in range(len(labels))]
    step = max(1, -(-len(image_domains) // MOST))
    if len(image_domains) < 5:
        raise style.NotDrawn(f"{len(image_domains)} {models.image_kind}s are too few for a plane")
    sampled_domains = np.array(image_domains)[::step]
    sampled_classes = np.concatenate([np.asarray(t) for t in models.truth])[::step]
    fig = style.figure(
        10.5,
        9.2,
        f"Features of {len(sampled_domains)} {models.image_kind}s "
        f"({projection.replace('tsne', 't-SNE').replace('pca', 'PCA')})\n{models.title}",
    )
    axes = fig.subplots(2, 2)
    size = 16 if len(sampled_domains) > 300 else 30
    panels = {f"{first}, before": models.before, "delivered models, after": models.after}
    for column, (model_name, features) in enumerate(panels.items()):
        points = project_to_plane(np.concatenate([np.asarray(f) for f in features])[::step], projection)
        _by_class(axes[0, column], points, sampled_classes, classes, size)
        for domain, look in style.domain_looks(models.domains).items():
            x, y = points[sampled_domains == domain].T
            axes[1, column].scatter(x, y, s=size, alpha=0.75, linewidths=0, label=style.legend_label(domain), **look)
        axes[0, column].set_title(f"{model_name}, by true class", fontsize=10)
        axes[1, column].set_title(f"{model_name}, by true domain", fontsize=10)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
    for axis, has_legend in ((axes[0, 1], len(classes) <= 10), (axes[1, 1], True)):
        if has_legend:
            axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9, frameon=False, markerscale=1.4)
    return fig


def _by_class(axis: Any, points: Any, true_classes: Any, classes: Sequence[str], size: int) -> None:
    """Draw up to ten classes with a colour and marker each; more classes by a colour map, where some look alike."""
    if len(classes) > 10:
        axis.scatter(*points.T, s=size, c=true_classes, cmap="viridis", linewidths=0)
        return
    palette = (style.OWN, *style.COLOURS, "#8C6D1F", "#5B2A86")
    for number, name in enumerate(classes):
        x, y = points[true_classes == number].T
        marker = f"${name}$" if len(name) == 1 and name.isascii() and name.isalnum() else style.MARKERS[number]
        axis.scatter(
            x, y, s=size * 1.3, color=palette[number], marker=marker, linewidths=0, label=style.legend_label(name)
        )


def project_to_plane(features: Any, projection: Literal["pca", "tsne"]) -> Any:
    """Features ``[N, q]`` projected to two dimensions ``[N, 2]``, deterministically."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    if projection == "pca":
        return PCA(2, svd_solver="full").fit_transform(features)
    perplexity = min(30.0, (len(features) - 1) / 3)
    return TSNE(2, init="pca", perplexity=perplexity, random_state=0, n_jobs=1).fit_transform(features)
