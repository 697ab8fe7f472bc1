//! The contract of a collective in numbers: each rank's contents before and after.

use maypole::schedule::collective::{Collective, HeldChunks, Symbol};

/// The most ranks whose contributions a sum of decimal numbers distinguishes.
pub const MOST_RANKS: usize = 9;

/// One line a rank: the chunks of its input before the call, and of its output after it; `.` is a
/// chunk that the rank does not hold.
///
/// Chunk `c` of rank `r` is the digit `c + 1` with `r` zeros after it. So a sum shows whose
/// contributions it holds: 101 is the first chunk of rank 0 and of rank 2. A barrier moves no
/// numbers; its digits are the ranks that have entered.
///
/// ```
/// use maypole::schedule::collective::Collective;
/// use maypole_pictures::draw::values;
/// assert_eq!(values::text(Collective::ReduceScatter, 3), "
///         before           after
/// rank 0    1    2    3    111    .    .
/// rank 1   10   20   30      .  222    .
/// rank 2  100  200  300      .    .  333
/// ".trim_start_matches('\n'));
/// ```
///
/// # Panics
/// If there is no rank, or if there are more than [`MOST_RANKS`].
pub fn text(collective: Collective, world: usize) -> String {
    assert!((1..=MOST_RANKS).contains(&world), "{world} ranks, of 1 to {MOST_RANKS}");
    let chunks = if collective == Collective::Barrier { 1 } else { world };
    let before = |rank: usize| {
        let held = collective.input(rank);
        cells(held, chunks, |chunk| number(&[Symbol { rank, chunk }]))
    };
    let after = |rank: usize| {
        let held = collective.output(rank);
        cells(held, chunks, |chunk| number(&collective.result(world, rank, chunk)))
    };
    let sides: Vec<[Vec<String>; 2]> = (0..world).map(|rank| [before(rank), after(rank)]).collect();
    let width = sides.iter().flatten().flatten().map(String::len).max().unwrap_or(0) + 2;
    let line = |side: &[String]| side.iter().map(|cell| format!("{cell:>width$}")).collect();
    // Numbers stand two places to the right of a label, so the word above them does, too.
    let half = (chunks * width).max("before".len()) + 2;
    let mut out = format!("{:8}{:<half$}after\n", "", "before");
    for (rank, sides) in sides.iter().enumerate() {
        let [before, after]: [String; 2] = sides.each_ref().map(|side| line(side));
        out += &format!("rank {rank}{before:<half$}{after}\n");
    }
    out
}

fn cells(held: HeldChunks, chunks: usize, value: impl Fn(usize) -> u64) -> Vec<String> {
    let cell = |chunk| match held.contains(chunk) {
        true => value(chunk).to_string(),
        false => ".".to_owned(),
    };
    (0..chunks).map(cell).collect()
}

/// The number that stands for contributions, combined by sum.
///
/// # Panics
/// If one is of a rank beyond [`MOST_RANKS`] whose number is too large.
pub fn number(symbols: &[Symbol]) -> u64 {
    symbols.iter().map(|symbol| (symbol.chunk as u64 + 1) * 10u64.pow(symbol.rank as u32)).sum()
}
