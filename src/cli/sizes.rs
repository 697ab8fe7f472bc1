//! Sizes on the command line: `8`, `4K`, `64MiB`, `1G`.

/// Reads a size in bytes. `K`, `M`, `G` and `T` are powers of 1024, with or without a following `B`
/// or `iB`.
pub(crate) fn parse(text: &str) -> Result<usize, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let no_size = || format!("{text:?} is not a size; write a number of bytes, or 4K, 64M, 1G");
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err(no_size()),
    };
    let number: usize = number.parse().map_err(|_| no_size())?;
    match number.checked_mul(1 << shift) {
        Some(0) => Err("a size is at least one byte".to_owned()),
        Some(bytes) if bytes <= LARGEST => Ok(bytes),
        _ => Err(format!("{text:?} is more than {}, the largest size", name(LARGEST))),
    }
}

/// The largest size: 1 PiB, more than any vector has. The arithmetic on sizes of all ranks together
/// has room above it.
const LARGEST: usize = 1 << 50;

/// One size, or a range of sizes, each twice the one before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Sweep {
    pub(crate) first: usize,
    last: usize,
}

impl Sweep {
    /// The sizes, ascending.
    pub(crate) fn sizes(self) -> Vec<usize> {
        let next = |size: &usize| size.checked_mul(2).filter(|next| *next <= self.last);
        std::iter::successors(Some(self.first), next).collect()
    }
}

/// Reads `64M`, or `1M..1G`.
pub(crate) fn sweep(text: &str) -> Result<Sweep, String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let sweep = Sweep { first: parse(first)?, last: parse(last)? };
    if sweep.last < sweep.first {
        Err(format!("{text:?} goes down; write the smaller size first, as in 1M..1G"))
    } else {
        Ok(sweep)
    }
}

/// Writes a size in the largest unit that divides it: `4K`, `1000`.
pub(crate) fn name(bytes: usize) -> String {
    let unit = [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')];
    let fits = |(shift, _): &(u32, char)| bytes > 0 && bytes.trailing_zeros() >= *shift;
    match unit.into_iter().find(fits) {
        Some((shift, letter)) => format!("{}{letter}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// Writes a number of bytes with one digit after the point, in the largest unit that it has one of:
/// `12.3G`.
pub(crate) fn rounded(bytes: u128) -> String {
    let units = [(60, "E"), (50, "P"), (40, "T"), (30, "G"), (20, "M"), (10, "K")];
    match units.into_iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, letter)) => format!("{:.1}{letter}", bytes as f64 / (1_u128 << shift) as f64),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        for (text, bytes) in
            [("8", 8), ("8B", 8), ("4K", 4096), ("4k", 4096), ("64MiB", 64 << 20), ("1gb", 1 << 30)]
        {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "K",
            "-8",
            "8 K",
            "4KK",
            "0",
            "1.5M",
            "0x10",
            "99999999999999999999",
            "18446744073709551615T",
            "18446744073709551615",
            "1025T",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sweeps_double() {
        let sizes = |text: &str| sweep(text).map(Sweep::sizes);
        assert_eq!(sizes("1K"), Ok(vec![1024]));
        assert_eq!(sizes("1K..4K"), Ok(vec![1024, 2048, 4096]));
        assert_eq!(sizes("3..8"), Ok(vec![3, 6]));
        assert!(sizes("4K..1K").is_err() && sizes("1..").is_err() && sizes("..").is_err());
        assert_eq!(sizes("1..1024T").map(|sizes| sizes.len()), Ok(51));
    }

    #[test]
    fn names_are_read_back() {
        for bytes in [1, 8, 1000, 1024, 4096, 4097, 256 << 10, 64 << 20, 3 << 30] {
            assert_eq!(parse(&name(bytes)), Ok(bytes));
        }
        assert_eq!(name(256 << 10), "256K");
        assert_eq!([1000, 1024, 12_884_901_888].map(rounded), ["1000B", "1.0K", "12.0G"]);
        assert_eq!(rounded(u128::from(u64::MAX) * 4), "64.0E");
    }
}
