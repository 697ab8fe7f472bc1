"""Arrays of JAX, which nobody can write: they are inputs, and the result goes to another array."""

import maypole
import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")
jax.config.update("jax_platforms", "cpu")
jnp = jax.numpy


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "int32", "uint8"])
def test_an_array_is_an_input(dtype):
    def rank(comm):
        mine = jnp.arange(100, dtype=dtype) % 7 + comm.rank
        out = np.zeros(100, dtype)
        comm.all_reduce(mine, out=out)
        assert (out == 2 * (np.arange(100) % 7) + 1).all()
        assert (mine == jnp.arange(100) % 7 + comm.rank).all(), "the input is as it was"
        whole = np.zeros(200, dtype)
        comm.all_gather(mine, out=whole)
        assert (whole[100 * comm.rank:][:100] == np.asarray(mine)).all()

    maypole.run_threads(2, rank)


def test_bfloat16_comes_by_dlpack_alone():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed, and NumPy has no bfloat16")

    def rank(comm):
        out = torch.zeros(5, dtype=torch.bfloat16)
        comm.all_reduce(jnp.full(5, 1.5 + comm.rank, "bfloat16"), out=out)
        assert (out == 4).all()

    maypole.run_threads(2, rank)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_array_is_never_written(dtype):
    def rank(comm):
        fixed = jnp.ones(5, dtype)
        for call in (lambda: comm.all_reduce(fixed), lambda: comm.all_reduce(np.ones(5, "float32"), out=fixed)):
            with pytest.raises(maypole.MaypoleError, match="cannot be written"):
                call()
        assert (fixed == 1).all()
        comm.barrier()

    maypole.run_threads(2, rank)
