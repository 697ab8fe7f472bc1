//! Pictures of schedules, made from the steps themselves.
//!
//! A [`Picture`] has the cells and messages. [`text`] draws it as text, and [`svg`](crate::svg) as
//! a figure. Both show one column a rank and one row a [*round*](StepRounds), which is one message
//! latency. So the number of the last row is the number of message latencies that
//! [`simulate`](crate::clocks::simulate) counts where bytes cost nothing, the *alphas* of the
//! literature.
//!
//! Consecutive steps about one chunk are drawn as one cell, which reads from left to right. A cell
//! stands in the round of its last step.
//!
//! | in a cell | means |
//! |---|---|
//! | `in3 ->1` | input chunk 3 is sent to rank 1 (`->all`: to every other rank) |
//! | `out2 <-3` | output chunk 2 is received from rank 3 |
//! | `out2 =in2 +=3 ->1` | output chunk 2 starts as input chunk 2, rank 3's message is combined with it, and it is sent to rank 1 |
//! | `tmp4..7 <-0` | scratch chunks 4 to 7 are received from rank 0 |
//! | `in1..15 ->own` | input chunk 1 is sent to rank 1, chunk 2 to rank 2, ... each to the rank that has its number |
//! | `out5 <-0 +=1..4` | output chunk 5 is received from rank 0, and the messages of ranks 1 to 4 are combined with it in this order |
//! | `tmp1..7/2 =in9..15/2` | scratch chunks 1, 3, 5 and 7 start as input chunks 9, 11, 13 and 15 |
//!
//! ```
//! use maypole::{algorithms::Algorithm, schedule::collective::Collective};
//! use maypole_pictures::draw;
//! let ring = Algorithm::Ring.schedules(Collective::ReduceScatter, 3).unwrap();
//! assert_eq!(draw::text(&ring), "
//!      rank 0             rank 1             rank 2
//! 0    in2 ->1            in0 ->2            in1 ->0
//! 1    tmp1 =in1 +=2 ->1  tmp2 =in2 +=0 ->2  tmp0 =in0 +=1 ->0
//! 2    out0 =in0 +=2      out1 =in1 +=0      out2 =in2 +=1
//! ".trim_start_matches('\n'));
//! ```

mod cell;
pub mod values;

pub use cell::{Cell, Ranges};

use crate::rounds::StepRounds;
use cell::cells;
use maypole::schedule::{Schedule, Step};
use std::collections::HashMap;

/// A picture is cut into tables so that no line is longer, if that is possible.
const WIDTH: usize = 200;

/// One column a rank, one row a round; see [the notation](self).
///
/// Meant for up to sixteen ranks. A cell that is too wide for its column is continued on the next
/// line, and steps that are alike for four or more chunks are written once. If all ranks side by
/// side still need more than 200 columns, the picture is cut into tables one below the other.
///
/// Steps that can never be taken are drawn in a last row, marked `stuck`.
///
/// # Panics
/// If a step names a rank outside the world.
pub fn text(schedules: &[Schedule]) -> String {
    let picture = Picture::new(schedules);
    let world = schedules.len();
    let ranks: Vec<usize> = (0..world).collect();
    let fits = |table: &String| table.lines().all(|line| line.len() <= WIDTH);
    // The tables of a way are made one by one, and no more after one that is too wide.
    let beside = |bands: usize| {
        let tables = ranks.chunks(world.div_ceil(bands).max(1));
        let tables = tables.map(|ranks| Some(picture.table(ranks)).filter(fits));
        tables.collect::<Option<Vec<String>>>()
    };
    if world == 0 {
        return "\n".to_owned();
    }
    let narrow = (1..=world).find_map(beside).map(|tables| tables.join("\n"));
    narrow.unwrap_or_else(|| picture.table(&ranks))
}

/// Rows of cells of lines, each column as wide as its widest line.
fn table(rows: &[(String, Vec<Vec<String>>)]) -> String {
    let columns = rows.first().map_or(0, |(_, cells)| cells.len());
    let width = |column: usize| {
        rows.iter().flat_map(|(_, cells)| &cells[column]).map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut out = String::new();
    for (label, cells) in rows {
        for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0).max(1) {
            let mut row = format!("{:<5}", if line == 0 { label } else { "" });
            for (cell, width) in cells.iter().zip(&widths) {
                row += &format!("{:<width$}  ", cell.get(line).map_or("", String::as_str));
            }
            out += row.trim_end();
            out.push('\n');
        }
    }
    out
}

/// All cells of all ranks, and the messages between them.
///
/// ```
/// use maypole::algorithms::Algorithm;
/// use maypole::schedule::collective::Collective;
/// use maypole_pictures::draw::{Picture, Ranges};
/// let ring = Algorithm::Ring.schedules(Collective::ReduceScatter, 3).unwrap();
/// let picture = Picture::new(&ring);
/// let first = &picture.messages[0];
/// let (rank, cell) = first.from;
/// assert_eq!(picture.cells[rank][cell].round, Some(0));
/// assert_eq!((rank, first.to.0, Ranges(&first.chunks).to_string()), (0, 1, "2".to_owned()));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Picture {
    /// By rank: its cells, in the order of their rounds. Those that are never reached come last.
    pub cells: Vec<Vec<Cell>>,
    /// One arrow for each pair of cells between which chunks travel.
    pub messages: Vec<DrawnMessage>,
    /// How many rounds there are.
    pub rounds: usize,
    /// The number of chunks of the whole.
    pub chunks: usize,
}

/// An arrow, from a cell of a rank to a cell of another.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DrawnMessage {
    /// The rank that sends, and the number of its cell.
    pub from: (usize, usize),
    /// The rank that receives, and the number of its cell.
    pub to: (usize, usize),
    /// The chunks that travel, as their sender numbers them.
    pub chunks: Vec<usize>,
}

impl Picture {
    /// The cells and rounds of the schedules of all ranks.
    ///
    /// # Panics
    /// If a step names a rank outside the world.
    pub fn new(schedules: &[Schedule]) -> Self {
        // Schedules that deadlock are drawn too: the steps that can never be taken have no round.
        let rounds = StepRounds::new(schedules);
        let chunks = schedules.first().map_or(1, |schedule| schedule.chunks.max(1));
        let mut picture = Self { cells: Vec::new(), messages: Vec::new(), rounds: 0, chunks };
        let mut cell_of = Vec::new();
        for (schedule, rounds) in schedules.iter().zip(&rounds.of) {
            let (cells, places) = cells(&schedule.steps, rounds);
            picture.cells.push(cells);
            cell_of.push(places);
        }
        picture.rounds = rounds.last().map_or(0, |last| last + 1);
        let mut arrows = HashMap::new();
        for (rank, schedule) in schedules.iter().enumerate() {
            for (nth, step) in schedule.steps.iter().enumerate() {
                let Step::Send { from: span, .. } = *step else { continue };
                let Some((peer, receive)) = rounds.received_by[rank][nth] else { continue };
                let from = (rank, cell_of[rank][nth]);
                let to = (peer, cell_of[peer][receive]);
                // Chunks that travel from cell to cell share an arrow.
                let arrow = *arrows.entry((from, to)).or_insert_with(|| {
                    picture.messages.push(DrawnMessage { from, to, chunks: Vec::new() });
                    picture.messages.len() - 1
                });
                picture.messages[arrow].chunks.push(span.chunk);
            }
        }
        picture
    }

    /// The table of `ranks`, side by side.
    fn table(&self, ranks: &[usize]) -> String {
        let limit = (150 / ranks.len()).max(10);
        let lines = |rank: usize, round| {
            self.cells(rank, round)
                .flat_map(|cell| cell.lines(self.cells.len(), limit))
                .collect::<Vec<_>>()
        };
        let row =
            |label: String, round| (label, ranks.iter().map(|rank| lines(*rank, round)).collect());
        let head = (String::new(), ranks.iter().map(|rank| vec![format!("rank {rank}")]).collect());
        let rounds = (0..self.rounds).map(|round| row(round.to_string(), Some(round)));
        let stuck = self.is_stuck().then(|| row("stuck".to_owned(), None));
        table(&std::iter::once(head).chain(rounds).chain(stuck).collect::<Vec<_>>())
    }

    fn cells(&self, rank: usize, round: Option<usize>) -> impl Iterator<Item = &Cell> {
        // Cells are in the order of their rounds, and those without one come last.
        let key = |round: Option<usize>| round.unwrap_or(usize::MAX);
        let cells = &self.cells[rank];
        let first = cells.partition_point(|cell| key(cell.round) < key(round));
        cells[first..].iter().take_while(move |cell| cell.round == round)
    }

    /// True if there are steps that can never be taken. Their cells have no round.
    pub fn is_stuck(&self) -> bool {
        self.cells.iter().flatten().any(|cell| cell.round.is_none())
    }
}
