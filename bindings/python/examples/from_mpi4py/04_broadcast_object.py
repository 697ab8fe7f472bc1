"""Every rank gets the dictionary of rank 0."""

import maypole

with maypole.Communicator() as comm:
    settings = {"key1": [7, 2.72, 2 + 3j], "key2": ("abc", "xyz")} if comm.rank == 0 else None
    settings = comm.broadcast_object(settings, root=0)
    assert settings["key1"][2] == 2 + 3j
    print(f"rank {comm.rank} has {sorted(settings)}")
