//! Bytes that are nearly valid: mutations of a corpus, the same in every run.

#![allow(unreachable_pub, reason = "a module of test files")]

use maypole_trainer::tensor::random::random;

/// Numbers at which lengths and products overflow.
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "3",
    "255",
    "4096",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e999",
    "null",
    "[]",
];

/// A sequence of random draws, equal for equal seeds.
pub struct Draws {
    seed: u64,
    nth: u64,
}

impl Draws {
    pub fn new(seed: u64) -> Self {
        Self { seed, nth: 0 }
    }

    /// A number below `end`; zero, if there is none.
    pub fn below(&mut self, end: usize) -> usize {
        self.nth += 1;
        (random(self.seed, self.nth) % end.max(1) as u64) as usize
    }

    /// Some bytes, mostly few.
    pub fn bytes(&mut self) -> Vec<u8> {
        let length = [1, 4, 16, 300][self.below(4)];
        (0..self.below(length + 1)).map(|_| self.below(256) as u8).collect()
    }
}

/// Some mutations of `bytes`, one after the other; a piece of `other` may be put in.
pub fn mutated(draws: &mut Draws, bytes: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=draws.below(3) {
        mutate(draws, &mut bytes, other);
    }
    bytes
}

/// The text `bytes` with one or two of its numbers replaced.
pub fn renumbered(draws: &mut Draws, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=draws.below(2) {
        replace_number(draws, &mut bytes);
    }
    bytes
}

fn mutate(draws: &mut Draws, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = draws.below(bytes.len());
    let end = at + draws.below((bytes.len() - at).min(64) + 1);
    match draws.below(8) {
        0 => {
            let bit = 1 << draws.below(8);
            bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= bit);
        }
        1 => {
            let value = [0, 1, 0x7f, 0x80, 0xff, b'"', b'{', b'9'][draws.below(8)];
            bytes.get_mut(at).into_iter().for_each(|byte| *byte = value);
        }
        2 => drop(bytes.drain(at..end)),
        3 => bytes.truncate(at),
        4 => {
            let piece = bytes[at..end].to_vec();
            bytes.splice(at..at, piece);
        }
        5 => {
            let piece = draws.bytes();
            bytes.splice(at..end, piece);
        }
        6 => {
            let from = draws.below(other.len());
            let until = from + draws.below(other.len() - from + 1);
            bytes.splice(at..end, other[from..until].iter().copied());
        }
        _ => replace_number(draws, bytes),
    }
}

fn replace_number(draws: &mut Draws, bytes: &mut Vec<u8>) {
    let digit = |byte: &u8| byte.is_ascii_digit();
    let starts: Vec<usize> = (0..bytes.len())
        .filter(|at| digit(&bytes[*at]) && (*at == 0 || !digit(&bytes[at - 1])))
        .collect();
    let Some(start) = starts.get(draws.below(starts.len())).copied() else { return };
    let length = bytes[start..].iter().take_while(|byte| digit(byte)).count();
    let number = NUMBERS[draws.below(NUMBERS.len())];
    bytes.splice(start..start + length, number.bytes());
}
