"""Gradients in buckets: the ranks average each bucket while they compute the next one.

python -m maypole run -n 4 python bucketed_gradients.py
"""

import maypole
import numpy as np

LAYERS, WEIGHTS = 8, 50_000
# Layers in a bucket. Larger buckets take fewer calls, smaller ones start sooner.
BUCKET = 3


def backward(layer, rank):
    """Stands for the backward pass of a layer: the gradients by the rows of this rank."""
    return (100 * layer + rank + np.arange(WEIGHTS) % 7).astype(np.float32)


with maypole.Communicator() as comm:
    gradients = np.empty((LAYERS, WEIGHTS), np.float32)
    requests, end = [], LAYERS
    # The backward pass begins with the last layer. A started call works in place.
    for layer in reversed(range(LAYERS)):
        gradients[layer] = backward(layer, comm.rank)
        if end - layer == BUCKET or layer == 0:
            requests.append(comm.start("all_reduce", gradients[layer:end], "avg"))
            end = layer

    # Before the optimizer's step all averages must be there.
    for request in requests:
        request.wait()

    mean_rank = (comm.world - 1) / 2
    for layer in range(LAYERS):
        assert np.allclose(gradients[layer], backward(layer, 0) + mean_rank), layer
    print(f"rank {comm.rank}: {gradients.size} gradients in {len(requests)} buckets")
