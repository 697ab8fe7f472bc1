//! Rotary positions: queries and keys are turned by angles that grow with the position.
//!
//! The numbers `i` and `i + size/2` of a head's vector are a point in a plane. It is turned by
//! `position * 10000^(-2i / size)`. The product of a query and a key then depends on the distance
//! of their positions alone (Su et al. 2021). Which numbers make a plane is a convention; this is
//! the one of published Llama checkpoints in the format of Hugging Face.
//!
//! A token is turned by its own position, on any rank: an axis that divides positions only has to
//! provide the positions of a rank. The backward pass turns gradients back.

use crate::tensor::math::{Real, vectorized};

/// The base of the angles.
pub const BASE: f64 = 10_000.0;

/// The direction in which vectors are turned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Turn {
    /// By the angles: the forward pass.
    Forth,
    /// By the negative angles: the backward pass.
    Back,
}

/// The angles of some tokens.
#[derive(Clone, Debug)]
pub struct Rotation<'a, T> {
    /// The position of each token in its row.
    positions: &'a [u32],
    planes: usize,
    /// For each position from 0 on, and each plane, the cosine and the sine of the angle.
    angles: Vec<[T; 2]>,
}

impl<'a, T: Real> Rotation<'a, T> {
    /// The angles of tokens at `positions`, for heads of `size` numbers.
    pub fn new(positions: &'a [u32], size: usize) -> Self {
        let planes = size / 2;
        let last = positions.iter().max().copied().unwrap_or(0);
        let angle = |position: u32, plane: usize| {
            let angle = f64::from(position) * BASE.powf(-2.0 * plane as f64 / size as f64);
            [T::of(angle.cos()), T::of(angle.sin())]
        };
        let of_position = |position| (0..planes).map(move |plane| angle(position, plane));
        Self { positions, planes, angles: (0..=last).flat_map(of_position).collect() }
    }

    /// The position of each token in its row.
    pub fn positions(&self) -> &'a [u32] {
        self.positions
    }

    /// Planes of a head: half of its numbers.
    pub fn planes(&self) -> usize {
        self.planes
    }

    /// For each position from 0 on, and each plane, the cosine and the sine of the angle.
    pub fn angles(&self) -> &[[T; 2]] {
        &self.angles
    }

    /// Turns every head of every token. `x` has as many numbers a token as its heads have.
    pub fn turn(&self, x: &mut [T], turn: Turn) {
        let width = x.len() / self.positions.len();
        let planes = self.planes;
        vectorized(|| {
            for (token, position) in x.chunks_exact_mut(width).zip(self.positions) {
                let angles = &self.angles[*position as usize * planes..][..planes];
                for head in token.chunks_exact_mut(2 * planes) {
                    let (left, right) = head.split_at_mut(planes);
                    for ((x, y), [cosine, sine]) in left.iter_mut().zip(right).zip(angles) {
                        let sine = if turn == Turn::Forth { *sine } else { -*sine };
                        let before = [*x, *y];
                        *x = before[0] * *cosine - before[1] * sine;
                        *y = before[1] * *cosine + before[0] * sine;
                    }
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_turned_vectors_depend_on_the_distance_alone() {
        let product = |[of_query, of_key]: [u32; 2]| {
            let mut x = [0.3, -1.2, 0.7, 2.0, 1.1, 0.4, -0.6, 0.9];
            let positions = [of_query, of_key];
            Rotation::<f64>::new(&positions, 4).turn(&mut x, Turn::Forth);
            let (query, key) = x.split_at(4);
            query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>()
        };
        assert!((product([5, 3]) - product([12, 10])).abs() < 1e-12);
        assert!((product([5, 3]) - product([5, 4])).abs() > 1e-3);
    }

    #[test]
    fn a_plane_has_a_number_of_each_half_of_a_head() {
        let mut x = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0];
        Rotation::<f64>::new(&[3], 4).turn(&mut x, Turn::Forth);
        let slow = 3.0 / 100.0_f64;
        let expected = [3f64.cos(), 0.0, 3f64.sin(), 0.0, 0.0, slow.cos(), 0.0, slow.sin()];
        assert!(x.iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-15), "{x:?}");
    }

    #[test]
    fn turning_back_undoes_a_turn() {
        let before = [0.3, -1.2, 0.7, 2.0];
        let mut x = before;
        let rotation = Rotation::<f64>::new(&[7], 4);
        rotation.turn(&mut x, Turn::Forth);
        assert!((x[0] - before[0]).abs() > 0.1);
        rotation.turn(&mut x, Turn::Back);
        assert!(x.iter().zip(before).all(|(x, y)| (x - y).abs() < 1e-15));
    }
}
