"""How many messages and bytes the methods of SFDA's Table 4 send, counted as the paper does and as they are sent."""

from __future__ import annotations

from fedwca.errors import UsageError

VALUE_BYTES = 4
"""Of a float32."""


def sfda_messages(epochs: int, per_epoch: float, *, centroids: bool = False) -> int:
    """Count the messages of SFDA between the server and a client.

    Source: SFDA, Table 4: models up and the mean down, 2·E·r. By the letter of sec. 3.2 the uniform mean goes down and
    centroids come up as well, before the weights are known (``centroids``): 4·E·r.

    Args:
        epochs: E, at least 1.
        per_epoch: r, aggregations in an epoch, above 0; below 1 there is one every 1/r epochs.
        centroids: whether the mean that is judged and the centroids are counted.

    Raises:
        UsageError: the last epochs would not end in an aggregation, or a number is out of its range.

    >>> sfda_messages(45, 0.2), sfda_messages(45, 0.2, centroids=True)
    (18, 36)
    """
    if epochs < 1 or not per_epoch > 0:
        raise UsageError(f"messages need epochs >= 1 and aggregations per epoch > 0, not {epochs} and {per_epoch}")
    aggregations = round(epochs * per_epoch)
    if abs(aggregations - epochs * per_epoch) > 1e-6:
        raise UsageError(
            f"{epochs} epochs with {per_epoch:g} aggregations each do not end in one; their product must be whole"
        )
    return (4 if centroids else 2) * aggregations


def fada_messages(epochs: int, smallest: int, batch: int) -> int:
    """Count the messages of FADA: three for each mini-batch of the smallest domain.

    Source: SFDA, Table 4, where the rule is not printed; this one gives its numbers, with USPS's 7,438 images and
    batches of 64.

    Args:
        epochs: at least 1.
        smallest: images of the smallest domain.
        batch: images in a batch, at least 1; what is left of an epoch is not sent.

    Raises:
        UsageError: a number is out of its range.

    >>> fada_messages(45, 7438, 64)
    15660
    """
    if epochs < 1 or batch < 1 or smallest < 0:
        raise UsageError(f"messages need epochs and batch >= 1, not {epochs} and {batch}, and images, not {smallest}")
    return 3 * (smallest // batch) * epochs


def mdmgb_bytes(parameters: int, sources: int, classes: int, features: int) -> tuple[int, int]:
    """Count the bytes of a round with MDMGB, in float32: (from the server, to the server).

    The mean that is judged goes to K sources and the target, the final one to the K sources; K models come up, and
    K + 1 sets of centroids.

    Args:
        parameters: P, values of a model that are sent.
        sources: K.
        classes: M.
        features: q, to which a 1 is appended.

    >>> mdmgb_bytes(parameters=1000, sources=4, classes=10, features=9)
    (36000, 18000)
    """
    down = parameters * (2 * sources + 1)
    up = sources * parameters + (sources + 1) * classes * (features + 1)
    return VALUE_BYTES * down, VALUE_BYTES * up


def mean_bytes(parameters: int, sources: int) -> tuple[int, int]:
    """Count the bytes of a round with a plain mean of K models, in float32: (from the server, to the server).

    Args:
        parameters: P, values of a model that are sent.
        sources: K.

    >>> mean_bytes(parameters=1000, sources=4)
    (16000, 16000)
    """
    return VALUE_BYTES * parameters * sources, VALUE_BYTES * parameters * sources
