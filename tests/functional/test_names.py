"""The names that others import: a change here is a change of the public interface."""

import pytest

from fedwca import functional

NAMES = """
    Metric VectorError adaptive_threshold alignment amplitude_style blend_weights class_entropy cluster_means
    confident_mask connected_components distillation fill_prototypes finch finch_levels first_neighbours
    information_maximization largest_entries member_distances mixup_partners prototype_contrast prototype_labels
    prototype_similarity prototypes scatter_entries select_labels soft_cluster_weights soft_neighborhood_density
    strong_augment tempered_softmax weighted_cross_entropy
"""


def test_names_stay() -> None:
    assert sorted(functional.__all__) == NAMES.split()
    assert all(hasattr(functional, name) for name in functional.__all__)


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
