//! Cells: consecutive steps of a rank that belong together, and how they are written.

use maypole::schedule::{Buffer, Step};
use std::fmt;

/// At least this many consecutive cells that differ only in their chunks are drawn as one.
const MANY: usize = 4;

/// Consecutive steps of a rank on one chunk, or on several chunks with the same steps.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The buffer that the steps are about.
    pub buffer: Buffer,
    /// The chunks of it, of which there is at least one.
    pub chunks: Vec<usize>,
    verbs: Vec<Verb>,
    /// The round of its last step; `None` if that step can never be taken.
    pub round: Option<usize>,
}

/// An action on the chunk of a cell, and the ranks or chunks that it involves.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Verb {
    action: Action,
    operand: Operand,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Action {
    Sends,
    Takes,
    Adds,
    Copies,
    AddsOwn,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Operand {
    Ranks(Vec<usize>),
    /// For each chunk of the cell, the rank that has its number.
    Owners,
    Chunks(Buffer, Vec<usize>),
}

/// The cells of a rank's steps in the order of their rounds, and for each step the cell it is in.
pub(super) fn cells(steps: &[Step], rounds: &[Option<usize>]) -> (Vec<Cell>, Vec<usize>) {
    let mut cells = Vec::new();
    let mut cell_of = Vec::new();
    for (step, round) in steps.iter().zip(rounds) {
        add(&mut cells, *step, *round);
        cell_of.push(cells.len() - 1);
    }
    // Steps that are never taken come last; cells of one round keep the order of the list.
    let mut order: Vec<usize> = (0..cells.len()).collect();
    order.sort_by_key(|&cell| cells[cell].round.unwrap_or(usize::MAX));
    let mut place = vec![0; cells.len()];
    for (nth, &cell) in order.iter().enumerate() {
        place[cell] = nth;
    }
    cells.sort_by_key(|cell| cell.round.unwrap_or(usize::MAX));
    let (cells, merged) = merge(cells);
    let places = cell_of.into_iter().map(|cell| merged[place[cell]]).collect();
    (cells, places)
}

/// Puts a step into the last cell if the step continues that cell, else into a new cell.
fn add(cells: &mut Vec<Cell>, step: Step, round: Option<usize>) {
    let (span, action, operand) = match step {
        Step::Send { from, to } => (from, Action::Sends, Operand::Ranks(vec![to])),
        Step::Recv { into, from } => (into, Action::Takes, Operand::Ranks(vec![from])),
        Step::RecvReduce { into, from } => (into, Action::Adds, Operand::Ranks(vec![from])),
        Step::Copy { from, into } => {
            (into, Action::Copies, Operand::Chunks(from.buffer, vec![from.chunk]))
        }
        Step::Reduce { from, into } => {
            (into, Action::AddsOwn, Operand::Chunks(from.buffer, vec![from.chunk]))
        }
    };
    let verb = Verb { action, operand };
    if let Some(last) = cells.last_mut()
        && last.may_take(action, round)
        && last.buffer == span.buffer
        && last.joins(span.chunk, &verb)
    {
        last.round = round;
        return;
    }
    cells.push(Cell { buffer: span.buffer, chunks: vec![span.chunk], verbs: vec![verb], round });
}

/// Merges runs of cells that differ only in their chunks. Also gives the new place of each cell.
fn merge(mut rest: Vec<Cell>) -> (Vec<Cell>, Vec<usize>) {
    let mut merged = Vec::new();
    let mut places = Vec::new();
    while !rest.is_empty() {
        let longer = (MANY..=rest.len()).map_while(|len| Some((len, Cell::of_all(&rest[..len])?)));
        let (len, whole) = longer.last().map_or((1, None), |(len, whole)| (len, Some(whole)));
        let first = rest.drain(..len).next();
        merged.extend(whole.or(first));
        places.extend(std::iter::repeat_n(merged.len() - 1, len));
    }
    (merged, places)
}

impl Cell {
    /// True if a step of `round` may stand in this cell: a step of the same round, or a combination
    /// that comes later. Sends and receives are always drawn in their own round.
    fn may_take(&self, action: Action, round: Option<usize>) -> bool {
        let combines = matches!(action, Action::Adds | Action::AddsOwn);
        self.round == round || combines && self.round.is_some() && self.round < round
    }

    /// Adds one more step if it continues the cell; false if it does not.
    fn joins(&mut self, chunk: usize, verb: &Verb) -> bool {
        let travels = matches!(verb.action, Action::Sends | Action::Takes);
        if self.chunks == [chunk] && self.goes_on_with(verb.action) {
            self.push(verb.clone());
            true
        } else if travels && self.verbs == [verb.clone()] {
            self.chunks.push(chunk);
            true
        } else {
            false
        }
    }

    /// True if `action` may come next in the cell: a chunk is filled, then combined, then sent.
    fn goes_on_with(&self, action: Action) -> bool {
        let sends = self.verbs.last().is_some_and(|verb| verb.action == Action::Sends);
        match action {
            Action::Sends => true,
            Action::Adds | Action::AddsOwn => !sends,
            Action::Takes | Action::Copies => false,
        }
    }

    fn push(&mut self, verb: Verb) {
        match (self.verbs.last_mut(), verb) {
            (
                Some(Verb { action: Action::Sends, operand: Operand::Ranks(peers) }),
                Verb { action: Action::Sends, operand: Operand::Ranks(more) },
            ) => {
                peers.extend(more);
            }
            (_, verb) => self.verbs.push(verb),
        }
    }

    /// One cell in place of all of `cells`, if each is about a single chunk and they differ in
    /// nothing else.
    fn of_all(cells: &[Self]) -> Option<Self> {
        let Self { buffer, round, ref verbs, .. } = cells[0];
        let shape = |cell: &Self| (cell.buffer, cell.round, cell.verbs.len(), cell.chunks.len());
        if cells.iter().any(|cell| shape(cell) != (buffer, round, verbs.len(), 1)) {
            return None;
        }
        let nth = |nth: usize| {
            cells.iter().map(|cell| (cell.chunks[0], &cell.verbs[nth])).collect::<Vec<_>>()
        };
        let verbs = (0..verbs.len()).map(|verb| Verb::of_all(&nth(verb))).collect::<Option<_>>()?;
        Some(Self {
            buffer,
            chunks: cells.iter().map(|cell| cell.chunks[0]).collect(),
            verbs,
            round,
        })
    }

    /// True if a message or another chunk is combined with the chunks of the cell.
    pub fn reduces(&self) -> bool {
        self.verbs.iter().any(|verb| matches!(verb.action, Action::Adds | Action::AddsOwn))
    }

    /// The cell in [words](super), in lines of at most `limit` characters where words and lists allow it.
    /// In a `world` of more than two ranks, a send to all others is `->all`.
    pub fn lines(&self, world: usize, limit: usize) -> Vec<String> {
        let mut lines = vec![String::new()];
        put(&mut lines, &format!("{}{}", name(self.buffer), Ranges(&self.chunks)), limit);
        for verbs in
            self.verbs.chunk_by(|a, b| a.action == Action::Adds && b.action == Action::Adds)
        {
            let one = Verb::one_after_another(verbs);
            one.as_ref()
                .map_or(verbs, std::slice::from_ref)
                .iter()
                .for_each(|verb| put(&mut lines, &verb.word(world), limit));
        }
        lines
    }
}

/// Writes one more word: after the last word if it fits, else on a line of its own, else on as many
/// lines as it needs.
fn put(lines: &mut Vec<String>, word: &str, limit: usize) {
    let mut glue = if lines == &[""] { "" } else { " " };
    let fits = |line: &str, glue: &str, part: &str| line.len() + glue.len() + part.len() <= limit;
    let room = |lines: &Vec<String>| lines[lines.len() - 1].clone();
    let whole = fits(&room(lines), glue, word) || fits("", "  ", word);
    let parts: Vec<&str> = if whole { vec![word] } else { word.split_inclusive(',').collect() };
    for part in parts {
        let line = lines.last_mut().expect("there is a first line");
        if line.is_empty() || fits(line, glue, part) {
            *line += glue;
            *line += part;
        } else {
            lines.push(format!("  {part}"));
        }
        glue = "";
    }
}

impl Verb {
    /// One verb for all of these chunks, if their verbs are alike.
    fn of_all(each: &[(usize, &Self)]) -> Option<Self> {
        let first = each[0].1;
        if each.iter().all(|(_, verb)| verb.action == first.action) {
            let operand = Operand::of_all(
                &each.iter().map(|(chunk, verb)| (*chunk, &verb.operand)).collect::<Vec<_>>(),
            )?;
            return Some(Self { action: first.action, operand });
        }
        None
    }

    /// A run of combinations as one verb with a list of ranks.
    fn one_after_another(verbs: &[Self]) -> Option<Self> {
        let ranks = |verb: &Self| {
            if let Operand::Ranks(ranks) = &verb.operand { Some(ranks.clone()) } else { None }
        };
        let all = verbs.iter().map(ranks).collect::<Option<Vec<_>>>()?;
        (verbs.len() >= MANY)
            .then(|| Self { action: verbs[0].action, operand: Operand::Ranks(all.concat()) })
    }

    fn word(&self, world: usize) -> String {
        let sign = match self.action {
            Action::Sends => "->",
            Action::Takes => "<-",
            Action::Adds | Action::AddsOwn => "+=",
            Action::Copies => "=",
        };
        match &self.operand {
            Operand::Ranks(peers)
                if self.action == Action::Sends && world > 2 && peers.len() == world - 1 =>
            {
                "->all".to_owned()
            }
            Operand::Ranks(peers) => format!("{sign}{}", Ranges(peers)),
            Operand::Owners => format!("{sign}own"),
            Operand::Chunks(buffer, chunks) => format!("{sign}{}{}", name(*buffer), Ranges(chunks)),
        }
    }
}

impl Operand {
    fn of_all(each: &[(usize, &Self)]) -> Option<Self> {
        let first = each[0].1;
        let chunks = |with: &Self| match (with, first) {
            (Self::Chunks(buffer, chunks), Self::Chunks(same, _)) if buffer == same => {
                Some(chunks.clone())
            }
            _ => None,
        };
        if let (Self::Chunks(buffer, _), Some(all)) =
            (first, each.iter().map(|(_, with)| chunks(with)).collect::<Option<Vec<_>>>())
        {
            return Some(Self::Chunks(*buffer, all.concat()));
        }
        if each.iter().all(|(chunk, with)| **with == Self::Ranks(vec![*chunk])) {
            return Some(Self::Owners);
        }
        each.iter().all(|(_, with)| *with == first).then(|| first.clone())
    }
}

fn name(buffer: Buffer) -> &'static str {
    match buffer {
        Buffer::Input => "in",
        Buffer::Output => "out",
        Buffer::Scratch => "tmp",
    }
}

/// Numbers in few words: `4..7,0` for 4, 5, 6, 7, 0; `3..1` for 3, 2, 1; `1..7/2` for 1, 3, 5, 7.
#[derive(Clone, Copy, Debug)]
pub struct Ranges<'a>(pub &'a [usize]);

impl fmt::Display for Ranges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let [first, others @ ..] = rest {
            let step = others.first().map_or(0, |second| second.abs_diff(*first));
            let run =
                1 + rest.windows(2).take_while(|pair| step_of(pair) == step_of(&rest[..2])).count();
            let comma = if rest.len() == self.0.len() { "" } else { "," };
            write!(f, "{comma}{first}")?;
            let len = if step > 0 && run >= 3 + usize::from(step > 1) { run } else { 1 };
            if len > 1 {
                write!(f, "..{}", rest[len - 1])?;
            }
            if len > 1 && step > 1 {
                write!(f, "/{step}")?;
            }
            rest = &rest[len..];
        }
        Ok(())
    }
}

fn step_of(pair: &[usize]) -> isize {
    pair[1] as isize - pair[0] as isize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_written_as_ranges() {
        let lists: [(&[usize], &str); 9] = [
            (&[], ""),
            (&[5], "5"),
            (&[1, 2], "1,2"),
            (&[4, 5, 6, 7, 0], "4..7,0"),
            (&[12, 11, 10, 9], "12..9"),
            (&[1, 3, 5], "1,3,5"),
            (&[1, 3, 5, 7, 9], "1..9/2"),
            (&[13, 15, 1, 3, 5, 7], "13,15,1..7/2"),
            (&[0, 1, 3, 4, 5], "0,1,3..5"),
        ];
        for (list, text) in lists {
            assert_eq!(Ranges(list).to_string(), text);
        }
    }

    #[test]
    fn words_that_are_too_long_are_cut_at_their_commas() {
        let mut lines = vec![String::new()];
        put(&mut lines, "tmp3,6,10,14", 10);
        put(&mut lines, "<-12", 10);
        assert_eq!(lines, ["tmp3,6,10,", "  14 <-12"]);
    }
}
