"""The papers' equations as pure functions on tensors, and partitions of images over clients as functions on arrays.

Axes: K clients, C clusters, M classes, N samples, q features, P parameters. Functions of samples take a ``mask [N]``
(1 for a sample, 0 for padding; padding changes nothing; domain distances and losses, calibration, styles and strong
views have none) and, like functions of weights, run under `torch.func.vmap`, in float32 and float64, on any device that
has float64, which Apple's ``mps`` has not; clustering takes tensors of that one, too. Only the clustering and the
strong views branch on values.
"""

from typing import TYPE_CHECKING

from fedwca._deprecated import forward_names
from fedwca.functional._nearest import Metric
from fedwca.functional.adaptation_steps import inner_step, learned_loss, least_entropy
from fedwca.functional.agreement import agreement_mask
from fedwca.functional.augment import strong_augment
from fedwca.functional.calibration import expected_calibration_error
from fedwca.functional.centroids import centroid_similarity, centroid_weights, class_centroids
from fedwca.functional.cluster_weights import blend_weights, cluster_means, soft_cluster_weights, tempered_softmax
from fedwca.functional.control_variates import control_update, scaffold_weights
from fedwca.functional.density_and_alignment import alignment, class_entropy, soft_neighborhood_density
from fedwca.functional.dirichlet_partition import dirichlet_partition
from fedwca.functional.domain_distances import moment_distance, multi_kernel_mmd
from fedwca.functional.finch import finch, finch_levels
from fedwca.functional.label_selection import adaptive_threshold, confident_mask, select_labels
from fedwca.functional.long_tail import long_tail
from fedwca.functional.losses import (
    distillation,
    prototype_contrast,
    smoothed_cross_entropy,
    weighted_cross_entropy,
)
from fedwca.functional.mixup import mixup_partners
from fedwca.functional.moment_shift import moment_shift
from fedwca.functional.nearest_member import member_distances
from fedwca.functional.neighbours import VectorError, connected_components, first_neighbours
from fedwca.functional.output_divergence import paired_distillation, prediction_divergence
from fedwca.functional.output_entropy import (
    diversity_loss,
    information_maximization,
    mutual_information,
    prediction_entropy,
)
from fedwca.functional.parameter_padding import pad_to_shape
from fedwca.functional.prototypes import fill_prototypes, prototype_labels, prototype_similarity, prototypes
from fedwca.functional.representations import gaussian_divergence, representation_norm
from fedwca.functional.reversed_gradient import domain_loss, gradient_reversal, reversal_scale
from fedwca.functional.rotation import rotate_images
from fedwca.functional.shard_partition import shard_partition, unit_partition
from fedwca.functional.simplex import mixture_ascent, project_simplex
from fedwca.functional.styles import amplitude_style
from fedwca.functional.top_k import largest_entries, scatter_entries

__all__ = [
    "Metric",
    "VectorError",
    "adaptive_threshold",
    "agreement_mask",
    "alignment",
    "amplitude_style",
    "blend_weights",
    "centroid_similarity",
    "centroid_weights",
    "class_centroids",
    "class_entropy",
    "cluster_means",
    "confident_mask",
    "connected_components",
    "control_update",
    "dirichlet_partition",
    "distillation",
    "diversity_loss",
    "domain_loss",
    "expected_calibration_error",
    "fill_prototypes",
    "finch",
    "finch_levels",
    "first_neighbours",
    "gaussian_divergence",
    "gradient_reversal",
    "information_maximization",
    "inner_step",
    "largest_entries",
    "learned_loss",
    "least_entropy",
    "long_tail",
    "member_distances",
    "mixture_ascent",
    "mixup_partners",
    "moment_distance",
    "moment_shift",
    "multi_kernel_mmd",
    "mutual_information",
    "pad_to_shape",
    "paired_distillation",
    "prediction_divergence",
    "prediction_entropy",
    "project_simplex",
    "prototype_contrast",
    "prototype_labels",
    "prototype_similarity",
    "prototypes",
    "representation_norm",
    "reversal_scale",
    "rotate_images",
    "scaffold_weights",
    "scatter_entries",
    "select_labels",
    "shard_partition",
    "smoothed_cross_entropy",
    "soft_cluster_weights",
    "soft_neighborhood_density",
    "strong_augment",
    "tempered_softmax",
    "unit_partition",
    "weighted_cross_entropy",
]

_RENAMED = {
    "confident": "fedwca.functional.confident_mask",
    "scattered": "fedwca.functional.scatter_entries",
    "strong": "fedwca.functional.strong_augment",
}


def __dir__() -> list[str]:
    """The public names only, for tab completion."""
    return __all__


# Hidden from type checkers, which would otherwise accept any name.
if not TYPE_CHECKING:
    __getattr__ = forward_names(__name__, _RENAMED)
