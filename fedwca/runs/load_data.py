"""The images of a run, at the size that its architecture takes."""

from __future__ import annotations

from fedwca.config.component_registries import registry_of
from fedwca.config.run_config import RunConfig
from fedwca.core.network import Architecture
from fedwca.data.dataset import FederatedDataset
from fedwca.datasets import find_dataset


def load(config: RunConfig) -> tuple[FederatedDataset, str]:
    """The data set at the model's image size, and the source domain's name.

    Raises:
        DatasetMissing, DataError: see `fedwca.data`.
        CheckpointError: the model's pre-trained weights are not there or do not fit.
        UsageError: the source is not a domain of it.
    """
    component = find_dataset(config.dataset, config.data, config.components.get("dataset", {}).get(config.dataset))
    model = architecture(config)
    # Weights that are not there or do not fit are better known before minutes of decoding.
    model.build(1, pretrained=config.checkpoint is None)
    reader = component.load_published if config.split == "published" else component.load
    dataset = reader(model.stored).resized(model.stored)
    name = config.source or component.default_source or next(iter(dataset.domains))
    return dataset, dataset.domain(name).name


def architecture(config: RunConfig) -> Architecture:
    """The architecture with the fields given for it."""
    fields = config.components.get("model", {}).get(config.model, {})
    built: Architecture = registry_of("model").build({"name": config.model, **fields})
    return built
