"""From tensors of PyTorch to calls on addresses."""

import torch
from torch._C._distributed_c10d import ReduceOp

from ._torch_overlap import check_distinct

_TYPES = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.uint8: "uint8",
    torch.uint16: "uint16",
    torch.uint32: "uint32",
    torch.uint64: "uint64",
    torch.bool: "bool",
}
# The parts of complex numbers.
_PARTS = {torch.complex32: "float16", torch.complex64: "float32", torch.complex128: "float64"}
_OPERATIONS = {
    "SUM": "sum",
    "AVG": "avg",
    "PRODUCT": "product",
    "MIN": "min",
    "MAX": "max",
    "BAND": "and",
    "BOR": "or",
    "BXOR": "xor",
}
# PyTorch adds and multiplies truth values as "or" and "and".
_OF_BOOL = {"sum": "or", "max": "or", "product": "and", "min": "and", "and": "and", "or": "or", "xor": "xor"}
NOTHING = (None, None)


def operation(op):
    """The name of a reduction, and the factor of a pre-multiplied sum."""
    for theirs, ours in _OPERATIONS.items():
        if op == getattr(ReduceOp, theirs):
            return ours, None
    if op == ReduceOp.PREMUL_SUM:
        factor = op.__getstate__()[1]
        return "sum", float(factor)
    raise RuntimeError(f"maypole has no reduction {op}")


def place_of(tensor):
    """Address and bytes of a contiguous tensor."""
    return tensor.data_ptr(), tensor.numel() * tensor.element_size()


EMPTY = (0, 0)


def dense(tensor):
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise RuntimeError(f"maypole moves dense tensors only, and this one is {tensor.layout}: pass tensor.to_dense()")
    if tensor.is_quantized:
        raise RuntimeError("maypole moves no quantized tensors, whose scale it would lose: pass tensor.int_repr()")
    if tensor.device.type != "cpu":
        raise RuntimeError(f"maypole moves tensors on the CPU, and this one is on {tensor.device}")
    return tensor.detach()


def _is_plain(tensor):
    """True if the memory has the values themselves, one behind the other, each at a multiple of its size."""
    is_lazy = tensor.is_conj() or tensor.is_neg()
    return not is_lazy and tensor.is_contiguous() and tensor.data_ptr() % tensor.element_size() == 0


def flat(tensor):
    """The values one behind the other: the tensor itself, or a copy."""
    tensor = dense(tensor)
    if _is_plain(tensor):
        return tensor
    return tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def into(tensor):
    """A contiguous place for the result `tensor`, and the copies that move it there afterwards."""
    tensor = dense(tensor)
    if _is_plain(tensor):
        return tensor, ()
    check_distinct(tensor)
    place = torch.empty(tensor.shape, dtype=tensor.dtype)
    return place, ((tensor, place),)


def in_place(tensor):
    """As `into`, and the place has the values of `tensor`."""
    place, copies = into(tensor)
    if copies:
        place.copy_(tensor)
    return place, copies


def in_parts(tensors, name, like):
    """A contiguous place for results in all of `tensors`, which have the type of `like`, and the copies
    that move its parts there."""
    tensors = [dense(tensor) for tensor in tensors]
    check_types(name, like, *tensors)
    for tensor in tensors:
        check_distinct(tensor)
    lengths = [tensor.numel() for tensor in tensors]
    place = torch.empty(sum(lengths), dtype=like.dtype)
    return place, list(zip(tensors, place.split(lengths)))


def joined(tensors, name):
    """A copy of the values of all of `tensors`, which have one type."""
    check_types(name, *tensors)
    return torch.cat([flat(tensor).view(-1) for tensor in tensors])


def check_types(name, first, *others):
    """Refuses elements of two types: a call moves values, and never converts them."""
    for other in others:
        if other.dtype != first.dtype:
            raise RuntimeError(
                f"{name}: one tensor has elements of {first.dtype}, and another of {other.dtype}: pass tensors of "
                f"one type, such as tensor.to({first.dtype})"
            )


def elements_of(dtype, moves):
    """The library's type for elements of `dtype`, and how many of them one element is."""
    if dtype in _TYPES:
        return _TYPES[dtype], 1
    if dtype.is_complex:
        return _PARTS[dtype], 2
    if moves:
        return "uint8", dtype.itemsize
    raise RuntimeError(f"maypole moves {dtype}, but does not combine it")


class Call:
    """A collective on addresses, and the tensors that keep them."""

    def __init__(self, name, source, target, root=0, op="sum", factor=None, counts=NOTHING, moves=True):
        tensor = source if source is not None else target
        if source is not None and target is not None:
            check_types(name, source, target)
        type_name, scale = elements_of(tensor.dtype, moves)
        if tensor.dtype.is_complex and op not in ("sum", "avg"):
            raise RuntimeError(f"maypole has no {op} of complex numbers")
        if type_name == "bool":
            if op not in _OF_BOOL:
                raise RuntimeError(f"maypole has no {op} of bool")
            op = _OF_BOOL[op]
        if tensor.dtype not in _TYPES:
            type_name += f" of {str(tensor.dtype).removeprefix('torch.')}"
        counts = tuple(of and [count * scale for count in of] for of in counts)
        places = (EMPTY if source is None else place_of(source), EMPTY if target is None else place_of(target))
        self.name = name
        self.raw = ((name, root, type_name, op, factor), places, counts)
        self.kept = (source, target)
