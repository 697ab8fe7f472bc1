//! The part of a message that is still to be moved, as a part of its head and a part of its body.

use crate::stream::HEAD;
use maypole_kernels::{View, ViewMut};

/// Returns the rest of `head` and `body` after `skip` sent bytes of the two together.
///
/// # Panics
/// If nothing is left.
#[inline]
pub fn unsent<'a>(head: &'a [u8; HEAD], body: View<'a>, skip: usize) -> [View<'a>; 2] {
    let (in_head, in_body) = places(skip, body.len());
    [View::of(&head[in_head..]), body.slice(in_body, body.len() - in_body)]
}

/// Returns the rest of `head` and `body` after `skip` received bytes of the two together.
///
/// # Panics
/// If nothing is left.
#[inline]
pub fn unfilled<'a>(head: &'a mut [u8; HEAD], body: ViewMut<'a>, skip: usize) -> [ViewMut<'a>; 2] {
    let (in_head, in_body) = places(skip, body.len());
    [ViewMut::of(&mut head[in_head..]), body.slice(in_body, body.len() - in_body)]
}

#[inline]
fn places(skip: usize, body: usize) -> (usize, usize) {
    assert!(skip < HEAD + body, "byte {skip} is beyond a message of {HEAD}+{body} bytes");
    (skip.min(HEAD), skip.saturating_sub(HEAD))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_skip_leaves_what_follows_it() {
        let whole: Vec<u8> = (0..HEAD as u8 + 5).collect();
        let mut head = *whole.first_chunk().unwrap();
        let mut body = whole[HEAD..].to_vec();
        for skip in 0..whole.len() {
            let left = unsent(&head, View::of(&body), skip).map(View::to_vec).concat();
            assert_eq!(left, whole[skip..]);
            let left = unfilled(&mut head, ViewMut::of(&mut body), skip)
                .map(|part| part.as_view().to_vec())
                .concat();
            assert_eq!(left, whole[skip..]);
        }
    }

    #[test]
    #[should_panic(expected = "byte 16 is beyond a message of 16+0 bytes")]
    fn a_message_with_nothing_left_is_refused() {
        unsent(&[0; HEAD], View::EMPTY, HEAD);
    }
}
