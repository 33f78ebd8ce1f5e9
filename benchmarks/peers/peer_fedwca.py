"""fedwca itself: FedAvg with fixed labels, as in the plain loop."""

from __future__ import annotations

from beside import engine
from work import Clock, arguments

given, clock = arguments(), Clock()
work = engine(given.clients, given.images, given.epochs, given.workers, device=given.device)
for _ in range(given.rounds + 1):
    clock(work)
clock.report()
