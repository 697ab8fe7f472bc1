from collections.abc import Buffer, Callable, Sequence
from typing import Any, Literal, Protocol, Self, TypeVar

__version__: str
_T = TypeVar("_T")
_Op = Literal["sum", "product", "min", "max", "avg", "and", "or", "xor"]
_Collective = Literal[
    "broadcast",
    "reduce",
    "all_reduce",
    "gather",
    "all_gather",
    "scatter",
    "reduce_scatter",
    "all_to_all",
    "scan",
    "exclusive_scan",
    "barrier",
]

class _DLPack(Protocol):
    def __dlpack__(self) -> Any: ...

# An array on the CPU: of NumPy, PyTorch, JAX, or of anything else with one of the two protocols.
_Array = Buffer | _DLPack

class MaypoleError(RuntimeError):
    kind: str
    culprit: int | None
    retryable: bool

class Memory(Buffer):
    @property
    def is_registered(self) -> bool: ...
    def __len__(self) -> int: ...

class Request:
    def wait(self) -> None: ...
    def test(self) -> bool: ...

class Communicator:
    def __init__(self) -> None: ...
    @staticmethod
    def join_at(
        rank: int,
        world: int,
        address: str,
        *,
        job: str,
        key: bytes | None = None,
        timeout: float = 300.0,
        join_timeout: float | None = None,
    ) -> Communicator: ...
    @staticmethod
    def threads(world: int) -> list[Communicator]: ...
    @property
    def rank(self) -> int: ...
    @property
    def world(self) -> int: ...
    def all_reduce(self, data: _Array, op: _Op = "sum", *, out: _Array | None = None) -> None: ...
    def broadcast(self, data: _Array, root: int = 0) -> None: ...
    def reduce(
        self, data: _Array, op: _Op = "sum", root: int = 0, *, out: _Array | None = None
    ) -> None: ...
    def all_gather(
        self, data: _Array, *, out: _Array | None = None, counts: Sequence[int] | None = None
    ) -> None: ...
    def reduce_scatter(
        self,
        data: _Array,
        op: _Op = "sum",
        *,
        out: _Array | None = None,
        counts: Sequence[int] | None = None,
    ) -> None: ...
    def all_to_all(
        self,
        data: _Array,
        *,
        out: _Array | None = None,
        counts: Sequence[int] | None = None,
        receive_counts: Sequence[int] | None = None,
    ) -> None: ...
    def gather(
        self,
        data: _Array,
        root: int = 0,
        *,
        out: _Array | None = None,
        counts: Sequence[int] | None = None,
    ) -> None: ...
    def scatter(
        self,
        data: _Array | None,
        root: int = 0,
        *,
        out: _Array,
        counts: Sequence[int] | None = None,
    ) -> None: ...
    def scan(self, data: _Array, op: _Op = "sum", *, out: _Array | None = None) -> None: ...
    def exclusive_scan(self, data: _Array, op: _Op = "sum", *, out: _Array | None = None) -> None: ...
    def barrier(self) -> None: ...
    def send(self, data: _Array, to: int, tag: int = 0) -> None: ...
    def recv(self, data: _Array, source: int | None = None, tag: int = 0) -> tuple[int, int]: ...
    def start(
        self,
        name: _Collective,
        data: _Array,
        op: _Op = "sum",
        *,
        out: _Array | None = None,
        root: int = 0,
        counts: Sequence[int] | None = None,
    ) -> Request: ...
    def split(self, color: int | None, key: int = 0) -> Communicator | None: ...
    def duplicate(self) -> Communicator: ...
    def shrink(self) -> Communicator: ...
    def explain(self, name: _Collective, nbytes: int, root: int = 0) -> str: ...
    def alloc(self, nbytes: int) -> Memory: ...
    def set_timeout(self, value: float) -> None: ...
    def set_deterministic(self, on: bool = True) -> None: ...
    def abort(self, why: str = "abort() was called") -> None: ...
    def close(self) -> None: ...
    def broadcast_object(self, value: Any = None, root: int = 0) -> Any: ...
    def gather_object(self, value: _T) -> list[_T]: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

def run_threads(world: int, rank: Callable[[Communicator], _T]) -> list[_T]: ...
