"""Assemble a method from names of components, and label it."""

from __future__ import annotations

from fedwca.config.baselines import Baseline, baseline, baseline_names
from fedwca.config.build_component import component, partition_of
from fedwca.config.component_registries import registry_of
from fedwca.config.method_checks import check_clusterer_is_used, check_views_are_known
from fedwca.config.run_config import Components, RunConfig
from fedwca.core.aggregator import Aggregator
from fedwca.core.clusterer import Clusterer
from fedwca.federated.method import Method

USUAL_CLUSTERER = "finch"
"""The clusterer where the aggregator needs one and none is named."""


def assemble(name: str, label: str, parts: RunConfig | Baseline, fields: Components) -> Method:
    """A method from names of components and their fields; its training settings are set by `with_training`.

    Args:
        name: of the method, in records.
        label: of the method, in tables.
        parts: the names of the components.
        fields: of the components.

    Raises:
        UsageError: the parts do not fit each other.
    """
    aggregator = component("aggregator", parts.aggregator, fields)
    check_clusterer_is_used(aggregator, parts.clusterer)
    needs_clusterer = aggregator.grouping.needs_clusterer
    built_clusterer = component("clusterer", parts.clusterer or USUAL_CLUSTERER, fields) if needs_clusterer else None
    if isinstance(parts, RunConfig) and not parts.name:
        label = ", ".join([label, *_parts_unlike_the_paper(parts, aggregator, built_clusterer)])
    labeler = component("pseudo_labeler", parts.pseudo_labeler, fields)
    objectives = tuple(component("objective", objective, fields) for objective in parts.objectives)
    finish = tuple(component("objective", objective, fields) for objective in parts.finish)
    central_name = parts.central if isinstance(parts, Baseline) else None
    central = None if central_name is None else component("central", central_name, fields)
    if any(part is not None and part.oracle for part in (built_clusterer, central)):
        label = f"{label} (ORACLE)"
    adaptation = component("adaptation", parts.adaptation, fields) if parts.adaptation else None
    check_views_are_known((*objectives, *finish))
    return Method(name, label, aggregator, labeler, objectives, built_clusterer, finish, central, adaptation=adaptation)


def _parts_unlike_the_paper(config: RunConfig, aggregator: Aggregator, clusterer: Clusterer | None) -> list[str]:
    """Labels of the composed method's parts that differ from those of the baseline in the aggregator's paper."""
    partition = partition_of(config)
    baselines = [baseline(name, partition.setting) for name in baseline_names(partition.setting)]
    default = baseline(partition.default_baseline, partition.setting)
    paper = next((b for b in baselines if b.label == aggregator.label and b.aggregator == aggregator.name), default)
    labels = []
    if clusterer is not None and (clusterer.oracle or clusterer.name != (paper.clusterer or USUAL_CLUSTERER)):
        labels.append(label_part("clusterer", clusterer.name))
    if config.adaptation:  # the label names it, and it implies the objectives
        return labels
    if config.pseudo_labeler != paper.pseudo_labeler:
        labels.append(label_part("pseudo_labeler", config.pseudo_labeler))
    if set(config.objectives) != set(paper.objectives):
        labels.append(" + ".join(label_part("objective", name) for name in config.objectives))
    return labels


def label_part(kind: str, name: str) -> str:
    """A component's label; its name if it has none."""
    return registry_of(kind).get(name).label or name
