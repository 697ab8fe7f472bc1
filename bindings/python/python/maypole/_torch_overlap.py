"""Tensors that share memory, of which some are written.

The two tensors of one call may lie in place or overlap: the native part looks after them. Nothing can be right
if several results are written to the same memory, or if one call of several writes memory that another reads.
"""

import torch


def check_distinct(tensor):
    """Refuses a result whose elements share memory, as those of `expand()` do."""
    if tensor.numel() > 1 and any(step == 0 and length > 1 for step, length in zip(tensor.stride(), tensor.shape)):
        raise RuntimeError("a result is to be written to a tensor whose elements share memory: pass tensor.clone()")


def check_apart(calls, copies):
    """Refuses `calls`, each (source, target), and the `copies` of their results, each (tensor, place), if they
    write memory twice, or a call writes memory that another reads."""
    spans = []
    for number, (source, target) in enumerate(calls):
        if target is not None:
            spans.append(_Span(target, number, True))
        if source is not None and source is not target and len(calls) > 1:
            spans.append(_Span(source, number, False))
    spans += [_Span(tensor, None, True) for tensor, _ in copies]
    spans = sorted((span for span in spans if span.end > span.start), key=lambda span: span.start)
    reaching = []
    for span in spans:
        reaching = [other for other in reaching if other.end > span.start]
        for other in reaching:
            if span.conflicts_with(other):
                raise RuntimeError(
                    "two tensors of one call overlap, and one of them is written: pass tensors that share no memory"
                )
        reaching.append(span)


class _Span:
    """The memory from the first to the last element of a tensor, which a call reads or writes."""

    def __init__(self, tensor, call, is_written):
        self._tensor, self._call, self._is_written = tensor, call, is_written
        self.start = self.end = tensor.data_ptr()
        if tensor.numel():
            steps = sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride()))
            self.end += (steps + 1) * tensor.element_size()

    def conflicts_with(self, other):
        """True if both use a byte that one of them writes. The two tensors of one call may share memory, and
        results are copied after the last call has read its input."""
        if not (self._is_written or other._is_written):
            return False
        if self._is_written != other._is_written and (self._call == other._call or None in (self._call, other._call)):
            return False
        if self._tensor.is_contiguous() and other._tensor.is_contiguous():
            return True
        # The elements of the two may lie between one another, as columns of a matrix do.
        first = min(self.start, other.start)
        marks = torch.zeros(max(self.end, other.end) - first, dtype=torch.bool)
        self._bytes_in(marks, first).fill_(True)
        return bool(other._bytes_in(marks, first).any())

    def _bytes_in(self, marks, first):
        """The bytes of the tensor, in `marks` of all bytes from the address `first` on."""
        size = self._tensor.element_size()
        strides = [step * size for step in self._tensor.stride()]
        return marks.as_strided((*self._tensor.shape, size), (*strides, 1), self.start - first)
