"""The work that `compare.py` times in two checkouts: ``python benchmarks/compared.py NAME`` prints its CPU seconds.

Nothing is imported before it is needed, because ``import`` measures imports.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


def timed(work: Callable[[], object], times: int = 3) -> float:
    """Mean CPU seconds of one call, after a first call that is not counted."""
    work()
    started = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - started) / times


def one_round(name: str) -> float:
    """CPU seconds of round 1 of an aggregator on four clients of 128 random images, one epoch."""
    import torch

    from fedwca import Keys, Method, SequentialEngine, Training, init_server, run_round
    from fedwca.aggregators import aggregators
    from fedwca.clusterers import clusterers
    from fedwca.data.federation import ClientImages
    from fedwca.models.lenet import LeNet
    from fedwca.objectives.shot import Shot
    from fedwca.pseudo_labelers.two_model import TwoModel

    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (4, 128, 3, 32, 32), dtype=torch.uint8, generator=generator)
    clients = [ClientImages(pixels, pixels[:0]) for pixels in images]
    engine = SequentialEngine(LeNet().build(10), clients, "cpu", workers=1)
    aggregator = aggregators.build(name)
    clusterer = clusterers.build("true") if aggregator.grouping.needs_clusterer else None
    method = Method(name, name, aggregator, TwoModel(), (Shot(),), clusterer)
    domains, training = torch.tensor([0, 0, 1, 1]), Training(epochs=1)
    server, _ = run_round(0, init_server(engine), method, engine, training, Keys(0), domains)
    return timed(lambda: run_round(1, server, method, engine, training, Keys(0), domains))


def group(clients: int = 1000) -> float:
    """CPU seconds of FINCH on random vectors."""
    import torch

    from fedwca.functional import finch

    x = torch.randn(clients, 1520, generator=torch.Generator().manual_seed(0))
    return timed(lambda: finch(x))


def mixing(values: int = 347_850) -> float:
    """CPU seconds of mixing 8 models for 256 clients."""
    import torch

    from fedwca.engine.parameter_layout import mix_rows

    rows, weights = torch.randn(8, values), torch.rand(256, 8).softmax(1)
    return timed(lambda: mix_rows(weights, rows))


def importing() -> float:
    """CPU seconds of a process from its start until it has imported the command line."""
    import fedwca.cli  # noqa: F401

    return time.process_time()


BENCHMARKS: dict[str, Callable[[], float]] = {
    "fedavg": lambda: one_round("fedavg"),
    "wca": lambda: one_round("wca"),
    "finch": group,
    "mixing": mixing,
    "import": importing,
}


if __name__ == "__main__":
    name = sys.argv[1]
    if name != "import":
        import torch

        torch.set_num_threads(1)
    print(BENCHMARKS[name]())
