//! Pictures of schedules, as text and as SVG, made from the steps themselves.
//!
//! Both show one column a rank and one row a *round*: what a rank can do without waiting for another message belongs to
//! one round, and a message of one round is received in a later one. Consecutive steps about one chunk are drawn as one
//! cell, which reads from left to right:
//!
//! | in a cell | means |
//! |---|---|
//! | `in3 ->1` | input chunk 3 is sent to rank 1 (`->all`: to every other rank) |
//! | `out2 <-3` | output chunk 2 is received from rank 3 |
//! | `out2 =in2 +=3 ->1` | output chunk 2 starts as input chunk 2, what rank 3 sends is combined with it, and it goes to rank 1 |
//! | `tmp4..7 <-0` | scratch chunks 4 to 7 are received from rank 0 |
//!
//! ```
//! use maypole::{algorithms::Algorithm, collective::Collective, draw};
//! let ring = Algorithm::Ring.schedules(Collective::ReduceScatter, 3).unwrap();
//! assert_eq!(draw::text(&ring), "
//!      rank 0             rank 1             rank 2
//! 0    in2 ->1            in0 ->2            in1 ->0
//! 1    tmp1 =in1 +=2 ->1  tmp2 =in2 +=0 ->2  tmp0 =in0 +=1 ->0
//! 2    out0 =in0 +=2      out1 =in1 +=0      out2 =in2 +=1
//! ".trim_start_matches('\n'));
//! ```

mod svg;

pub use svg::svg;

use crate::schedule::{Buffer, Placement, Schedule, Span, Step};
use crate::walk::{Meaning, walk};
use std::fmt;

/// One column a rank, one row a round; see [the notation](self). Legible up to about sixteen ranks: what is too wide for
/// its column is continued below.
///
/// Steps that can never be taken are drawn in a last row, marked `stuck`.
///
/// # Panics
/// If a step names a rank outside the world.
pub fn text(schedules: &[Schedule]) -> String {
    let picture = Picture::new(schedules);
    let limit = (150 / schedules.len().max(1)).max(12);
    let mut rows = vec![("".to_owned(), (0..schedules.len()).map(|rank| vec![format!("rank {rank}")]).collect())];
    for round in 0..picture.rounds {
        let cells =
            |rank| picture.cells(rank, Some(round)).flat_map(|cell| cell.lines(schedules.len(), limit)).collect();
        rows.push((round.to_string(), (0..schedules.len()).map(cells).collect::<Vec<Vec<String>>>()));
    }
    if picture.is_stuck() {
        let cells = |rank| picture.cells(rank, None).flat_map(|cell| cell.lines(schedules.len(), limit)).collect();
        rows.push(("stuck".to_owned(), (0..schedules.len()).map(cells).collect()));
    }
    table(&rows)
}

/// Rows of cells of lines, each column as wide as its widest line.
fn table(rows: &[(String, Vec<Vec<String>>)]) -> String {
    let columns = rows.first().map_or(0, |(_, cells)| cells.len());
    let width = |column: usize| rows.iter().flat_map(|(_, cells)| &cells[column]).map(String::len).max().unwrap_or(0);
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
struct Picture {
    cells: Vec<Vec<Cell>>,
    messages: Vec<Message>,
    rounds: usize,
}

/// Consecutive steps of a rank about one chunk, or about several that travel together.
struct Cell {
    buffer: Buffer,
    chunks: Vec<usize>,
    verbs: Vec<Verb>,
    /// When the last of its steps was taken; `None` if that never happens.
    round: Option<usize>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Verb {
    Sends(Vec<usize>),
    Takes(usize),
    Adds(usize),
    Copies(Span),
    AddsOwn(Span),
}

/// An arrow, from a cell of a rank to a cell of another.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Message {
    from: (usize, usize),
    to: (usize, usize),
    chunks: Vec<usize>,
}

impl Picture {
    fn new(schedules: &[Schedule]) -> Self {
        let mut rounds = Rounds::new(schedules);
        // A picture of schedules that get stuck is what one wants to see then.
        let _ = walk(schedules, Placement::Apart, &mut rounds);
        let mut picture = Self { cells: Vec::new(), messages: Vec::new(), rounds: 0 };
        let mut cell_of = Vec::new();
        for (schedule, rounds) in schedules.iter().zip(&rounds.taken) {
            let mut cells: Vec<Cell> = Vec::new();
            let mut places = Vec::new();
            for (step, round) in schedule.steps.iter().zip(rounds) {
                add(&mut cells, *step, *round);
                places.push(cells.len() - 1);
            }
            picture.cells.push(cells);
            cell_of.push(places);
        }
        picture.rounds = picture.cells.iter().flatten().filter_map(|cell| cell.round).max().map_or(0, |last| last + 1);
        for Arrow { from, to, chunk } in rounds.arrows {
            picture.arrow((from.0, cell_of[from.0][from.1]), (to.0, cell_of[to.0][to.1]), chunk);
        }
        picture
    }

    /// Chunks that travel from cell to cell share an arrow.
    fn arrow(&mut self, from: (usize, usize), to: (usize, usize), chunk: usize) {
        match self.messages.iter_mut().find(|message| message.from == from && message.to == to) {
            Some(message) => message.chunks.push(chunk),
            None => self.messages.push(Message { from, to, chunks: vec![chunk] }),
        }
    }

    fn cells(&self, rank: usize, round: Option<usize>) -> impl Iterator<Item = &Cell> {
        self.cells[rank].iter().filter(move |cell| cell.round == round)
    }

    fn is_stuck(&self) -> bool {
        self.cells.iter().flatten().any(|cell| cell.round.is_none())
    }
}

/// Puts a step into the last cell if it goes on with it, else into a new one.
fn add(cells: &mut Vec<Cell>, step: Step, round: Option<usize>) {
    let (span, verb) = match step {
        Step::Send { from, to } => (from, Verb::Sends(vec![to])),
        Step::Recv { into, from } => (into, Verb::Takes(from)),
        Step::RecvReduce { into, from } => (into, Verb::Adds(from)),
        Step::Copy { from, into } => (into, Verb::Copies(from)),
        Step::Reduce { from, into } => (into, Verb::AddsOwn(from)),
    };
    let same = |last: &&mut Cell| last.round.is_some() == round.is_some() && last.buffer == span.buffer;
    if let Some(last) = cells.last_mut().filter(same)
        && last.joins(span.chunk, &verb)
    {
        last.round = last.round.max(round);
        return;
    }
    cells.push(Cell { buffer: span.buffer, chunks: vec![span.chunk], verbs: vec![verb], round });
}

impl Cell {
    /// Takes in one more step if the cell goes on with it.
    fn joins(&mut self, chunk: usize, verb: &Verb) -> bool {
        let travels = matches!(verb, Verb::Sends(_) | Verb::Takes(_));
        if self.chunks == [chunk] && self.goes_on_with(verb) {
            self.push(verb.clone());
            true
        } else if travels && self.verbs == [verb.clone()] {
            self.chunks.push(chunk);
            true
        } else {
            false
        }
    }

    /// A chunk is filled, then combined, then sent.
    fn goes_on_with(&self, verb: &Verb) -> bool {
        let sends = matches!(self.verbs.last(), Some(Verb::Sends(_)));
        match verb {
            Verb::Sends(_) => true,
            Verb::Adds(_) | Verb::AddsOwn(_) => !sends,
            Verb::Takes(_) | Verb::Copies(_) => false,
        }
    }

    fn push(&mut self, verb: Verb) {
        match (self.verbs.last_mut(), verb) {
            (Some(Verb::Sends(peers)), Verb::Sends(more)) => peers.extend(more),
            (_, verb) => self.verbs.push(verb),
        }
    }

    fn reduces(&self) -> bool {
        self.verbs.iter().any(|verb| matches!(verb, Verb::Adds(_) | Verb::AddsOwn(_)))
    }

    /// The cell in words, in lines of at most `limit` characters where words allow it.
    fn lines(&self, world: usize, limit: usize) -> Vec<String> {
        let name = match self.buffer {
            Buffer::Input => "in",
            Buffer::Output => "out",
            Buffer::Scratch => "tmp",
        };
        let mut lines = vec![format!("{name}{}", Ranges(&self.chunks))];
        for word in self.verbs.iter().map(|verb| verb.word(world)) {
            let line = lines.last_mut().expect("there is a first line");
            if line.len() + 1 + word.len() <= limit {
                *line += " ";
                *line += &word;
            } else {
                lines.push(format!("  {word}"));
            }
        }
        lines
    }
}

impl Verb {
    fn word(&self, world: usize) -> String {
        match self {
            Self::Sends(peers) if world > 2 && peers.len() == world - 1 => "->all".to_owned(),
            Self::Sends(peers) => format!("->{}", Ranges(peers)),
            Self::Takes(peer) => format!("<-{peer}"),
            Self::Adds(peer) => format!("+={peer}"),
            Self::Copies(span) => format!("={span}"),
            Self::AddsOwn(span) => format!("+={span}"),
        }
    }
}

/// `4..7,0` for 4, 5, 6, 7, 0.
struct Ranges<'a>(&'a [usize]);

impl fmt::Display for Ranges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, run) in self.0.chunk_by(|a, b| a + 1 == *b).enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            match run {
                [one] => write!(f, "{comma}{one}")?,
                [one, two] => write!(f, "{comma}{one},{two}")?,
                [first, .., last] => write!(f, "{comma}{first}..{last}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

/// In which round each step is taken, if a message takes a round and nothing else takes time.
struct Rounds {
    now: Vec<usize>,
    taken: Vec<Vec<Option<usize>>>,
    arrows: Vec<Arrow>,
}

/// A message, from the step of a rank to the step of another.
struct Arrow {
    from: (usize, usize),
    to: (usize, usize),
    chunk: usize,
}

impl Rounds {
    fn new(schedules: &[Schedule]) -> Self {
        let taken = schedules.iter().map(|schedule| vec![None; schedule.steps.len()]).collect();
        Self { now: vec![0; schedules.len()], taken, arrows: Vec::new() }
    }
}

impl Meaning for Rounds {
    /// Round, step and chunk of the send.
    type Message = (usize, usize, usize);

    fn send(&mut self, rank: usize, step: usize, from: Span, _: usize) -> Self::Message {
        self.taken[rank][step] = Some(self.now[rank]);
        (self.now[rank], step, from.chunk)
    }

    fn receive(&mut self, rank: usize, step: usize, _: Span, from: usize, message: Self::Message, _: bool) {
        let (sent, send, chunk) = message;
        self.now[rank] = self.now[rank].max(sent + 1);
        self.taken[rank][step] = Some(self.now[rank]);
        self.arrows.push(Arrow { from: (from, send), to: (rank, step), chunk });
    }

    fn local(&mut self, rank: usize, step: usize, _: Span, _: Span, _: bool) {
        self.taken[rank][step] = Some(self.now[rank]);
    }
}
