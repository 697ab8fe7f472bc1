//! Schedules as SVG: a lifeline a rank, time downward, boxes for chunks, arrows for messages.

use super::{Cell, DrawnMessage, Picture, Ranges};
use crate::schedule::{Buffer, Schedule};
use std::fmt::Write as _;

/// Colours of chunks 0, 1, 2 ...; after the last one they start again.
const COLOURS: [&str; 12] = [
    "#1f77b4", "#d1600a", "#2a8f2a", "#c62828", "#7b52ab", "#8c564b", "#c2449c", "#5f6b73",
    "#8a8a0f", "#0f8f9c", "#3949ab", "#00695c",
];

const MARGIN: usize = 84;
const HEADER: usize = 64;
const SLOT: usize = 28;
const GAP: usize = 42;
const BOX_HEIGHT: usize = 20;
/// No column is wider in a world of more than four.
const WIDEST: usize = 124;
/// Up to so many ranks, arrows say what they carry; in larger worlds, only where the boxes do not
/// say it.
const LABELLED: usize = 8;
const LONGEST_LABEL: usize = 7;
/// Where the ranks send more than so many messages each in one round, only rank 0's are drawn in
/// full.
const CROWD: usize = 4;

/// One lifeline a rank, time downward: a box for each [cell](super), an arrow for each message,
/// coloured by chunk.
///
/// The result stands alone: no script, no font to load, white background.
///
/// ```
/// use maypole::{algorithms::Algorithm, schedule::collective::Collective, schedule::draw};
/// let picture = draw::svg(&Algorithm::Ring.schedules(Collective::AllReduce, 4).unwrap());
/// assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
/// assert_eq!(picture.matches("marker-end").count(), 4 * 2 * 3 + 1); // messages, and one in the legend
/// ```
///
/// # Panics
/// If a step names a rank outside the world.
pub fn svg(schedules: &[Schedule]) -> String {
    let picture = Picture::new(schedules);
    let page = SvgPage::new(&picture);
    let body =
        [page.bands(), page.lifelines(), page.arrows(), page.boxes(), page.legend()].concat();
    let (width, height) = (page.width(), page.height());
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"'DejaVu Sans', Verdana, sans-serif\" font-size=\"12\">\n<defs>\n{}</defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{body}</svg>\n",
        heads()
    )
}

/// An arrow head a colour.
fn heads() -> String {
    let head = |(nth, colour): (usize, &&str)| {
        format!(
            "<marker id=\"head{nth}\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" markerHeight=\"7\" \
             orient=\"auto\"><path d=\"M0,1 L10,5 L0,9 z\" fill=\"{colour}\"/></marker>\n"
        )
    };
    COLOURS.iter().enumerate().map(head).collect()
}

struct SvgPage<'a> {
    picture: &'a Picture,
    world: usize,
    column: usize,
    /// By round: whether there are too many messages to follow each.
    crowded: Vec<bool>,
    /// Where each round begins, and last where the last one ends.
    tops: Vec<usize>,
    /// By rank and cell: its slot within its round.
    slots: Vec<Vec<usize>>,
}

impl<'a> SvgPage<'a> {
    fn new(picture: &'a Picture) -> Self {
        let world = picture.cells.len();
        let rows = picture.rounds + usize::from(picture.is_stuck());
        let mut heights = vec![0; rows];
        let mut slots = Vec::new();
        for cells in &picture.cells {
            let mut used = vec![0; rows];
            let mut slot = |cell: &Cell| {
                let row = &mut used[cell.round.unwrap_or(picture.rounds)];
                *row += 1;
                *row - 1
            };
            slots.push(cells.iter().map(&mut slot).collect());
            heights.iter_mut().zip(&used).for_each(|(height, used)| *height = (*height).max(*used));
        }
        let mut sent = vec![0; rows];
        for DrawnMessage { from, .. } in &picture.messages {
            sent[picture.cells[from.0][from.1].round.unwrap_or(picture.rounds)] += 1;
        }
        let crowded: Vec<bool> = sent.into_iter().map(|sent| sent > CROWD * world).collect();
        let mut tops = vec![HEADER];
        for (height, crowded) in heights.iter().zip(&crowded) {
            tops.push(tops[tops.len() - 1] + height * SLOT + if *crowded { 3 * GAP } else { GAP });
        }
        let longest =
            picture.cells.iter().flatten().map(|cell| name(cell).len()).max().unwrap_or(0);
        let column =
            if world <= 4 { 170 } else { (1100 / world).max(72).max(longest * 8 + 26).min(WIDEST) };
        Self { picture, world, column, crowded, tops, slots }
    }

    /// Chunks of scratch have the colour of the part of the whole that they are.
    fn hue(&self, chunk: usize) -> usize {
        chunk % self.picture.chunks % COLOURS.len()
    }

    fn cell(&self, (rank, cell): (usize, usize)) -> &Cell {
        &self.picture.cells[rank][cell]
    }

    fn width(&self) -> usize {
        MARGIN + (self.world * self.column).max(560) + 16
    }

    fn height(&self) -> usize {
        self.tops[self.tops.len() - 1] + 64
    }

    fn x(&self, rank: usize) -> usize {
        MARGIN + rank * self.column + self.column / 2
    }

    /// The middle of a cell.
    fn y(&self, place: (usize, usize)) -> usize {
        self.tops[self.round(place)] + 14 + self.slots[place.0][place.1] * SLOT + BOX_HEIGHT / 2
    }

    /// The row of a cell; what is stuck is in one behind the last round.
    fn round(&self, place: (usize, usize)) -> usize {
        self.cell(place).round.unwrap_or(self.picture.rounds)
    }

    fn bands(&self) -> String {
        let mut out = String::new();
        for (round, edges) in self.tops.windows(2).enumerate() {
            let (y, height) = (edges[0], edges[1] - edges[0]);
            let fill = if round % 2 == 0 { "#f4f6f8" } else { "#ffffff" };
            let stuck = round == self.picture.rounds;
            let label = if stuck { "stuck".to_owned() } else { format!("round {round}") };
            let ink = if stuck { "#c62828" } else { "#5f6b73" };
            let _ = write!(
                out,
                "<rect x=\"0\" y=\"{y}\" width=\"100%\" height=\"{height}\" fill=\"{fill}\"/>\n\
                 <text x=\"14\" y=\"{}\" fill=\"{ink}\">{label}</text>\n",
                y + 28
            );
        }
        out
    }

    fn lifelines(&self) -> String {
        let mut out = String::new();
        let end = self.tops[self.tops.len() - 1];
        for rank in 0..self.world {
            let x = self.x(rank);
            let _ = write!(
                out,
                "<line x1=\"{x}\" y1=\"44\" x2=\"{x}\" y2=\"{end}\" stroke=\"#c3c9ce\" stroke-width=\"1.5\"/>\n\
                 <rect x=\"{}\" y=\"18\" width=\"60\" height=\"26\" rx=\"6\" fill=\"#263238\"/>\n\
                 <text x=\"{x}\" y=\"35\" text-anchor=\"middle\" fill=\"#ffffff\" font-weight=\"bold\">rank {rank}</text>\n",
                x - 30
            );
        }
        out
    }

    /// The faint ones first, so that none of them covers another.
    fn arrows(&self) -> String {
        let (faint, full): (Vec<_>, Vec<_>) =
            self.picture.messages.iter().partition(|message| self.is_faint(message));
        let mut of_cell = std::collections::HashMap::new();
        let mut nth = |message: &DrawnMessage| {
            let nth = of_cell.entry(message.from).or_insert(0_usize);
            *nth += 1;
            *nth - 1
        };
        let lines = faint.iter().chain(&full).map(|message| self.line(message)).collect::<String>();
        let labels = full.iter().filter(|message| self.has_label(message));
        lines + &labels.map(|message| self.label(message, nth(message))).collect::<String>()
    }

    fn is_faint(&self, message: &DrawnMessage) -> bool {
        self.crowded[self.round(message.from)] && message.from.0 != 0
    }

    fn has_label(&self, message: &DrawnMessage) -> bool {
        let told = [message.from, message.to]
            .iter()
            .any(|place| self.cell(*place).chunks == message.chunks);
        let crowded = self.crowded[self.round(message.from)];
        let short = Ranges(&message.chunks).to_string().len() <= LONGEST_LABEL;
        self.picture.chunks > 1 && !crowded && short && (self.world <= LABELLED || !told)
    }

    /// From the side of the sender's box to the side of the receiver's.
    fn ends(&self, DrawnMessage { from, to, .. }: &DrawnMessage) -> [f64; 4] {
        let rightward = from.0 < to.0;
        let side = |place: &(usize, usize), right: bool| {
            let half = self.half_width(self.cell(*place)) as f64;
            self.x(place.0) as f64 + if right { half } else { -half }
        };
        [side(from, rightward), self.y(*from) as f64, side(to, !rightward), self.y(*to) as f64]
    }

    fn line(&self, message: &DrawnMessage) -> String {
        let [x1, y1, x2, y2] = self.ends(message);
        let (hue, neighbours) =
            (self.hue(message.chunks[0]), message.from.0.abs_diff(message.to.0) == 1);
        // Long arrows cross other columns: thinner there.
        let weight = if neighbours { "1.8" } else { "1.1" };
        let opacity = if self.is_faint(message) { "0.13" } else { "0.85" };
        format!(
            "<line x1=\"{x1:.0}\" y1=\"{y1:.0}\" x2=\"{x2:.0}\" y2=\"{y2:.0}\" stroke=\"{}\" stroke-width=\"{weight}\" \
             opacity=\"{opacity}\" marker-end=\"url(#head{hue})\"/>\n",
            COLOURS[hue]
        )
    }

    /// Near the sender, where arrows that meet are still apart; those of one box one behind the
    /// other. Where two cross on a short way, one label is higher and the other lower.
    fn label(&self, message: &DrawnMessage, nth: usize) -> String {
        let [x1, y1, x2, y2] = self.ends(message);
        let most = if message.from.0 < message.to.0 { 0.35 } else { 0.6 };
        let along = ((26 + 26 * nth) as f64 / (x2 - x1).abs()).min(most);
        format!(
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\" font-size=\"10\" fill=\"{}\" stroke=\"#ffffff\" \
             stroke-width=\"3\" paint-order=\"stroke\">c{}</text>\n",
            x1 + along * (x2 - x1),
            y1 + along * (y2 - y1) + 3.0,
            COLOURS[self.hue(message.chunks[0])],
            Ranges(&message.chunks)
        )
    }

    fn half_width(&self, cell: &Cell) -> usize {
        (name(cell).len() * 8 + 14).min(self.column - 8) / 2
    }

    fn boxes(&self) -> String {
        let mut out = String::new();
        for (rank, cells) in self.picture.cells.iter().enumerate() {
            for (nth, cell) in cells.iter().enumerate() {
                let words = cell.lines(self.world, usize::MAX).concat();
                let title = format!(
                    "<title>rank {rank}: {}</title>",
                    words.replace('>', "&gt;").replace('<', "&lt;")
                );
                let (x, y, hue) = (self.x(rank), self.y((rank, nth)), self.hue(cell.chunks[0]));
                let shape = chunk_box(x, y, self.half_width(cell), cell.buffer, hue);
                let _ = writeln!(
                    out,
                    "<g>{title}{shape}{}</g>",
                    word(x, y, ink(cell.buffer, hue), &name(cell))
                );
            }
        }
        out
    }

    fn legend(&self) -> String {
        let y = self.tops[self.tops.len() - 1] + 32;
        let mut out = String::new();
        let mut x = 40;
        for (buffer, name, text) in [
            (Buffer::Input, "c", "chunk c of the input"),
            (Buffer::Output, "c", "of the output"),
            (Buffer::Scratch, "c", "of scratch"),
            (Buffer::Output, "+ c", "combined"),
        ] {
            out += &chunk_box(x, y, 16, buffer, 0);
            out += &word(x, y, ink(buffer, 0), name);
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{}\" fill=\"#263238\">{text}</text>",
                x + 22,
                y + 4
            );
            x += 22 + text.len() * 7 + 30;
        }
        let _ = write!(
            out,
            "<line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{}\" stroke-width=\"1.8\" marker-end=\"url(#head0)\"/>\n\
             <text x=\"{}\" y=\"{}\" fill=\"#263238\">message</text>\n",
            x + 30,
            COLOURS[0],
            x + 36,
            y + 4
        );
        let colours = (self.picture.chunks > 1)
            .then_some("one colour a chunk; of several, that of the first");
        let crowd = self
            .crowded
            .contains(&true)
            .then_some("where there are many messages, those of rank 0 are drawn in full");
        let notes: Vec<_> = colours.into_iter().chain(crowd).collect();
        let _ = writeln!(
            out,
            "<text x=\"24\" y=\"{}\" fill=\"#5f6b73\">{}</text>",
            y + 24,
            notes.join("; ")
        );
        out
    }
}

/// What a box says: its chunks, or how many if that is too long, and a plus if something was
/// combined.
fn name(cell: &Cell) -> String {
    let plus = if cell.reduces() { "+ " } else { "" };
    let list = format!("{plus}{}", Ranges(&cell.chunks));
    if list.len() * 8 + 26 <= WIDEST { list } else { format!("{plus}{} chunks", cell.chunks.len()) }
}

/// Input is hollow, output filled, scratch dashed.
fn chunk_box(x: usize, y: usize, half: usize, buffer: Buffer, hue: usize) -> String {
    let colour = COLOURS[hue];
    let (fill, dash) = match buffer {
        Buffer::Input => ("#ffffff", ""),
        Buffer::Output => (colour, ""),
        Buffer::Scratch => ("#ffffff", " stroke-dasharray=\"4 2\""),
    };
    format!(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{BOX_HEIGHT}\" rx=\"5\" fill=\"{fill}\" stroke=\"{colour}\" \
         stroke-width=\"1.8\"{dash}/>",
        x - half,
        y - BOX_HEIGHT / 2,
        2 * half
    )
}

fn ink(buffer: Buffer, hue: usize) -> &'static str {
    match buffer {
        Buffer::Output => "#ffffff",
        Buffer::Input | Buffer::Scratch => COLOURS[hue],
    }
}

fn word(x: usize, y: usize, ink: &str, text: &str) -> String {
    format!(
        "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" font-weight=\"bold\" fill=\"{ink}\">{text}</text>\n",
        y + 4
    )
}
