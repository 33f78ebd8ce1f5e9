"""Runs server and clients in one process, message by message, without a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedwca.deploy.client import Client
from fedwca.deploy.session import Session
from fedwca.deploy.wire_messages import Parcel

Wire = Callable[[int, Parcel], Parcel | None]
"""Maps a client's number and its answer to the answer that the server receives; None: the answer is lost."""


def run_in_process(
    session: Session,
    clients: Sequence[Client],
    rounds: int,
    wire: Wire = lambda client, parcel: parcel,
    available: Callable[[int], Sequence[int]] | None = None,
) -> None:
    """Run the session until ``rounds`` rounds are done, then send each client its final model.

    Args:
        session: the server; client k is admitted as number k.
        clients: the clients, in the order of their numbers.
        rounds: R, rounds in total, including those the session has done already.
        wire: may change, drop or forge answers.
        available: maps a round to the numbers of the clients that can be reached in it; None: all.
    """
    while session.state.round < rounds:
        reachable = range(len(clients)) if available is None else available(session.state.round)
        for client in reachable:
            session.admit(f"client-{client}", client)
        for client, parcel in session.open(reachable).items():
            answer = wire(client, clients[client].handle(parcel))
            if answer is not None:
                session.receive(client, answer)
        session.close()
    for client, parcel in session.final_parcels(session.participants).items():
        clients[client].handle(parcel)
