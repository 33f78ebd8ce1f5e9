"""The images of a run, at the size that its architecture takes, and networks for them."""

from __future__ import annotations

from fedwca.config.component_registries import registry_of
from fedwca.config.compose_methods import partition_of
from fedwca.config.resolve_config import domain_of
from fedwca.config.run_config import RunConfig
from fedwca.core.network import Architecture, Network
from fedwca.data.dataset import FederatedDataset
from fedwca.datasets import find_dataset


def load(config: RunConfig) -> tuple[FederatedDataset, str]:
    """The data set at the model's image size, and the name of the one domain that is unlike the others.

    Raises:
        DatasetMissing, DataError: see `fedwca.data`.
        CheckpointError: the model's pre-trained weights are not there or do not fit.
        UsageError: the source, or the target, is not a domain of it.
    """
    component = find_dataset(config.dataset, config.data, config.components.get("dataset", {}).get(config.dataset))
    model = architecture(config)
    # Weights that are not there or do not fit are better known before minutes of decoding.
    model.build(1, pretrained=config.checkpoint is None)
    dataset = component.load(model.stored).resized(model.stored)
    name = domain_of(config) or component.default_source or next(iter(dataset.domains))
    return dataset, dataset.domain(name).name


def architecture(config: RunConfig) -> Architecture:
    """The architecture with the fields given for it."""
    fields = config.components.get("model", {}).get(config.model, {})
    built: Architecture = registry_of("model").build({"name": config.model, **fields})
    return built


def build_network(config: RunConfig, classes: int, *, seed: int = 0, pretrained: bool = True) -> Network:
    """A fresh network of a run, whole where its partition lets clients train all of it.

    Args:
        config: names the architecture.
        classes: M.
        seed: of what is not pre-trained.
        pretrained: as of `Architecture.build`.
    """
    return architecture(config).build(classes, seed, pretrained, whole=partition_of(config).whole)
