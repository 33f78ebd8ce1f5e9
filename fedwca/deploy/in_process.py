"""Server and clients in one process, message by message: what a network does, without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedwca.deploy.client import Client
from fedwca.deploy.session import Session
from fedwca.deploy.wire_messages import Parcel

Wire = Callable[[int, Parcel], Parcel | None]
"""What becomes of a client's answer on its way; None: it does not arrive."""


def run_in_process(
    session: Session,
    clients: Sequence[Client],
    rounds: int,
    wire: Wire = lambda client, parcel: parcel,
    available: Callable[[int], Sequence[int]] | None = None,
) -> None:
    """Play rounds until ``rounds`` are done, then deliver.

    Args:
        session: the server; clients it does not know yet are seated in order.
        clients: by their number.
        rounds: R.
        wire: may change, hold back or forge answers.
        available: the clients that can be reached in a round; None: all.
    """
    while session.state.round < rounds:
        here = range(len(clients)) if available is None else available(session.state.round)
        for client in here:
            session.admit(f"client-{client}", client)
        for client, parcel in session.open(here).items():
            answer = wire(client, clients[client].handle(parcel))
            if answer is not None:
                session.receive(client, answer)
        session.close()
    for client, parcel in session.final_parcels().items():
        clients[client].handle(parcel)
