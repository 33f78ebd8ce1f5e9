"""The papers' equations as pure functions on tensors.

Axes: K clients, C clusters, M classes, N samples, q features, P parameters. Functions of samples take a ``mask [N]``
(1 for a sample, 0 for padding; padding changes nothing) and, like those of weights, run under `torch.func.vmap`,
in float32 and float64, on any device. Only the clustering and the strong views branch on values.
"""

from typing import TYPE_CHECKING

from fedwca._deprecated import forward_names
from fedwca.functional._nearest import Metric
from fedwca.functional.augment import strong_augment
from fedwca.functional.evidence import alignment, class_entropy, soft_neighborhood_density
from fedwca.functional.finch import finch, finch_levels
from fedwca.functional.label_selection import adaptive_threshold, confident_mask, select_labels
from fedwca.functional.losses import (
    distillation,
    information_maximization,
    prototype_contrast,
    weighted_cross_entropy,
)
from fedwca.functional.mixup import mixup_partners
from fedwca.functional.nearest_member import member_distances
from fedwca.functional.neighbours import VectorError, connected_components, first_neighbours
from fedwca.functional.prototypes import fill_prototypes, prototype_labels, prototype_similarity, prototypes
from fedwca.functional.styles import amplitude_style
from fedwca.functional.top_k import largest_entries, scatter_entries
from fedwca.functional.weights import blend_weights, cluster_means, soft_cluster_weights, tempered_softmax

__all__ = [
    "Metric",
    "VectorError",
    "adaptive_threshold",
    "alignment",
    "amplitude_style",
    "blend_weights",
    "class_entropy",
    "cluster_means",
    "confident_mask",
    "connected_components",
    "distillation",
    "fill_prototypes",
    "finch",
    "finch_levels",
    "first_neighbours",
    "information_maximization",
    "largest_entries",
    "member_distances",
    "mixup_partners",
    "prototype_contrast",
    "prototype_labels",
    "prototype_similarity",
    "prototypes",
    "scatter_entries",
    "select_labels",
    "soft_cluster_weights",
    "soft_neighborhood_density",
    "strong_augment",
    "tempered_softmax",
    "weighted_cross_entropy",
]

_RENAMED = {
    "confident": "fedwca.functional.confident_mask",
    "scattered": "fedwca.functional.scatter_entries",
    "strong": "fedwca.functional.strong_augment",
}

# Not for a type checker, which would then take any name for one that is there.
if not TYPE_CHECKING:
    __getattr__ = forward_names(__name__, _RENAMED)
