//! The buffers of a request, which owns them.

use crate::comm::api::arguments::buffers::{CallBuffers, IntoBuffers};
use crate::element::Element;

/// The owner of the elements of a request's buffers: `data` in place, or `(input, output)`. Where blocks
/// have unequal lengths, `(input, output, counts)` has those of the buffer that is cut, one a rank, and
/// `(input, sent, output, received)` those of an all-to-all.
///
/// `data` and `output` are arrays, `Vec`s and all else that lends elements of type `T` by
/// [`AsMut`]; `input` lends them by [`AsRef`]. `Form` distinguishes in place from apart, and follows from
/// the buffers.
///
/// ```
/// use maypole::Communicator;
/// let came = Communicator::run_local(2, |mut comm| {
///     let rank = comm.rank();
///     // Rank 0 sends one element to each rank, and rank 1 sends two.
///     let (mine, sent) = (vec![rank as u8; 2 * (rank + 1)], vec![rank + 1; 2]);
///     let request = comm.start_all_to_all((mine, sent, vec![9u8; 3], vec![1, 2]));
///     let (_mine, _sent, theirs, _received) = request.wait().unwrap();
///     theirs
/// });
/// assert_eq!(came, [[0, 1, 1]; 2]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the buffers of a request",
    label = "these are not the buffers of a request",
    note = "a request takes `data` in place, or `(input, output)`, and gives them back; with counts: \
            `(input, output, counts)`, or `(input, sent, output, received)`"
)]
pub trait OwnedBuffers<T, Form> {
    /// The buffers, for a call.
    fn buffers(&mut self) -> CallBuffers<'_, T>;
}

/// One buffer in place: see [`OwnedBuffers`].
#[derive(Clone, Copy, Debug)]
pub enum InPlace {}

/// An input and an output: see [`OwnedBuffers`].
#[derive(Clone, Copy, Debug)]
pub enum Apart {}

impl<T: Element, B: AsMut<[T]>> OwnedBuffers<T, InPlace> for B {
    fn buffers(&mut self) -> CallBuffers<'_, T> {
        self.into_buffers()
    }
}

impl<T: Element, A: AsRef<[T]>, B: AsMut<[T]>> OwnedBuffers<T, Apart> for (A, B) {
    fn buffers(&mut self) -> CallBuffers<'_, T> {
        (&self.0, &mut self.1).into_buffers()
    }
}

impl<T: Element, A: AsRef<[T]>, B: AsMut<[T]>, C: AsRef<[usize]>> OwnedBuffers<T, Apart>
    for (A, B, C)
{
    fn buffers(&mut self) -> CallBuffers<'_, T> {
        (&self.0, &mut self.1, &self.2).into_buffers()
    }
}

impl<T, A, B, C, D> OwnedBuffers<T, Apart> for (A, C, B, D)
where
    T: Element,
    A: AsRef<[T]>,
    B: AsMut<[T]>,
    C: AsRef<[usize]>,
    D: AsRef<[usize]>,
{
    fn buffers(&mut self) -> CallBuffers<'_, T> {
        (&self.0, &self.1, &mut self.2, &self.3).into_buffers()
    }
}
