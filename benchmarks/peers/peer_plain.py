"""The plain loop: client after client in one process."""

from __future__ import annotations

from work import Clock, adapt, arguments, fresh

given, state, clock = arguments(), fresh(), Clock()
for _ in range(given.rounds + 1):
    clock.start()
    mean = {name: x * 0 for name, x in state.items()}
    for client in range(given.clients):
        for name, x in adapt(state, client, given.images, given.epochs, given.device).items():
            mean[name] += x / given.clients
    state = mean
    clock.stop()
clock.report()
