"""Tokens travel to their experts and back: an all-to-all of blocks whose lengths no rank knows before.

python -m maypole run -n 4 python token_exchange.py
"""

import maypole
import numpy as np


def expert_of(tokens, world):
    """Stands for a router: the ranks that have the experts of these tokens. Most go to rank 0."""
    return np.maximum(tokens % 10 - 4, 0) % world


with maypole.Communicator() as comm:
    # The tokens of this rank, in the order of the ranks that they go to.
    tokens = 1000 * comm.rank + np.arange(20 + comm.rank)
    tokens = tokens[np.argsort(expert_of(tokens, comm.world), kind="stable")]
    sent = np.bincount(expert_of(tokens, comm.world), minlength=comm.world)

    # Counts travel first: what I receive from a rank is what it sends to me.
    received = np.empty_like(sent)
    comm.all_to_all(sent, out=received)

    mine = np.empty(received.sum(), tokens.dtype)
    comm.all_to_all(tokens, out=mine, counts=sent.tolist(), receive_counts=received.tolist())
    assert (expert_of(mine, comm.world) == comm.rank).all()

    # Results go back by the same counts, the other way round, and arrive in the order of the tokens.
    results, back = mine**2, np.empty_like(tokens)
    comm.all_to_all(results, out=back, counts=received.tolist(), receive_counts=sent.tolist())
    assert (back == tokens**2).all()

    print(f"rank {comm.rank} sent {sent.tolist()} tokens to the ranks, and its expert computed {mine.size}")
