"""This library: FedAvg with labels given, as the plain loop has them."""

from __future__ import annotations

from work import Clock, arguments
from beside import engine  # isort: skip; `work` puts its folder on the path

given, clock = arguments(), Clock()
work = engine(given.clients, given.images, given.epochs, given.workers, device=given.device)
for _ in range(given.rounds + 1):
    clock(work)
clock.report()
