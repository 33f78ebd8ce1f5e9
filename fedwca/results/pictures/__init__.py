"""Pictures of a run, one module each, in one style: colours safe for colour-blind readers, titles, units."""

from fedwca.results.pictures.accuracy import accuracy
from fedwca.results.pictures.bars import bars, draw_bars
from fedwca.results.pictures.clusters import clusters
from fedwca.results.pictures.confusion import confusion
from fedwca.results.pictures.cost import cost
from fedwca.results.pictures.embedding import embedding
from fedwca.results.pictures.final_models import Models
from fedwca.results.pictures.mistakes import mistakes
from fedwca.results.pictures.neighbours import neighbours
from fedwca.results.pictures.overview import overview
from fedwca.results.pictures.pseudo_labels import pseudo_labels
from fedwca.results.pictures.style import NotDrawn, save
from fedwca.results.pictures.weights import draw_weights, weights, weights_animation

__all__ = [
    "Models",
    "NotDrawn",
    "accuracy",
    "bars",
    "clusters",
    "confusion",
    "cost",
    "draw_bars",
    "draw_weights",
    "embedding",
    "mistakes",
    "neighbours",
    "overview",
    "pseudo_labels",
    "save",
    "weights",
    "weights_animation",
]
