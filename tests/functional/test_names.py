"""The names that users import from `fedwca.functional`; a change here changes the public interface."""

import pytest

from fedwca import functional

NAMES = """
    Metric VectorError adaptive_threshold agreement_mask alignment amplitude_style blend_weights centroid_similarity
    centroid_weights class_centroids class_entropy cluster_means confident_mask connected_components control_update
    dirichlet_partition distillation diversity_loss domain_loss expected_calibration_error fill_prototypes finch
    finch_levels first_neighbours gaussian_divergence gradient_reversal information_maximization inner_step
    largest_entries learned_loss least_entropy long_tail member_distances mixture_ascent mixup_partners
    moment_distance moment_shift multi_kernel_mmd mutual_information pad_to_shape paired_distillation
    prediction_divergence prediction_entropy project_simplex prototype_contrast prototype_labels prototype_similarity
    prototypes representation_norm reversal_scale rotate_images scaffold_weights scatter_entries select_labels
    shard_partition smoothed_cross_entropy soft_cluster_weights soft_neighborhood_density strong_augment
    tempered_softmax unit_partition weighted_cross_entropy
"""


def test_names_stay() -> None:
    assert sorted(functional.__all__) == NAMES.split()
    assert all(hasattr(functional, name) for name in functional.__all__)
    assert dir(functional) == sorted(functional.__all__)


@pytest.mark.parametrize(
    ("old", "new"),
    [("confident", "confident_mask"), ("scattered", "scatter_entries"), ("strong", "strong_augment")],
)
def test_old_names_work_and_say_what_they_are_called_now(old: str, new: str) -> None:
    with pytest.warns(FutureWarning, match=rf"fedwca\.functional\.{old} is now fedwca\.functional\.{new}"):
        assert getattr(functional, old) is getattr(functional, new)


def test_a_name_that_never_was() -> None:
    with pytest.raises(AttributeError, match="no attribute 'views'"):
        functional.views  # noqa: B018
