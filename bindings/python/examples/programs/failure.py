"""A rank dies in the middle of the job. The others are told which one, and go on without it.

python -m maypole run -n 4 --failure-grace 30 python failure.py

Without `--failure-grace` the launcher ends the others 5 seconds after a rank has failed.
"""

import os

import maypole
import numpy as np

STEPS = 6
DEATH = (2, 3)  # the rank that dies, before which step

comm = maypole.Communicator()
first_rank, step = comm.rank, 0
while step < STEPS:
    if (first_rank, step) == DEATH:
        os._exit(7)  # without a word to the others
    total = np.array([1, step])
    try:
        comm.all_reduce(total)
    except maypole.PeerLost as error:
        # On every rank the class and the culprit are the same, whichever detected the death.
        print(f"rank {first_rank} goes on without rank {error.culprit}: {error}")
        comm = comm.shrink()
        # Some may have completed the step that failed on others: all repeat it.
        step = comm.all_reduce(step, "min")
    else:
        assert total.tolist() == [comm.world, comm.world * step]
        step += 1
print(f"rank {first_rank} is rank {comm.rank} of {comm.world} at the end")
comm.close()
