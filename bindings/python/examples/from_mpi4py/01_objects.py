"""Rank 0 sends a dictionary to rank 1."""

import maypole

with maypole.Communicator() as comm:
    if comm.rank == 0:
        comm.send_object({"a": 7, "b": 3.14}, 1, tag=11)
    elif comm.rank == 1:
        data = comm.recv_object(0, tag=11)
        assert data == {"a": 7, "b": 3.14}
        print(f"rank 1 received {data}")
