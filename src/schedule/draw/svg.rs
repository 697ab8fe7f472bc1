//! Schedules as SVG: a lifeline a rank, time downward, boxes for chunks, arrows for messages.

use super::shapes::{chunk_box, counted, escaped, ink, name, note, word};
use super::{Cell, DrawnMessage, Picture, Ranges};
use crate::schedule::{Buffer, Schedule};
use std::fmt::Write as _;

/// Colours of chunks 0, 1, 2 ...; after the last one they start again.
pub(super) const COLOURS: [&str; 12] = [
    "#1f77b4", "#d1600a", "#2a8f2a", "#c62828", "#7b52ab", "#8c564b", "#c2449c", "#5f6b73",
    "#8a8a0f", "#0f8f9c", "#3949ab", "#00695c",
];

const MARGIN: usize = 84;
/// Height of the caption above the names of the ranks.
const CAPTION: usize = 32;
/// Where the first round begins.
const HEADER: usize = CAPTION + 64;
/// Height of the legend below the last round.
const LEGEND: usize = 104;
const SLOT: usize = 28;
const GAP: usize = 42;
pub(super) const BOX_HEIGHT: usize = 20;
/// The greatest width of a column in a world of more than four ranks.
pub(super) const WIDEST: usize = 124;
/// Up to this many ranks, all arrows are labelled with their chunks; in larger worlds, only those
/// whose boxes do not show the chunks.
const LABELLED: usize = 8;
const LONGEST_LABEL: usize = 7;
/// Where the ranks send more messages than this each in one round, only those of rank 0 are drawn
/// in full.
const CROWD: usize = 4;

/// One lifeline a rank, time downward: a box for each [cell](super), an arrow for each message,
/// coloured by chunk. `title` says what the picture shows and stands in its caption; the legend
/// below says what boxes, arrows and colours mean.
///
/// The result stands alone: no script, no font to load, white background.
///
/// ```
/// use maypole::{algorithms::Algorithm, schedule::collective::Collective, schedule::draw};
/// let ring = Algorithm::Ring.schedules(Collective::AllReduce, 4).unwrap();
/// let picture = draw::svg(&ring, "all-reduce by ring");
/// assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
/// assert!(picture.contains("all-reduce by ring: 4 ranks, 4 chunks, 6 message latencies"));
/// // An arrow for each message, and one in the legend.
/// assert_eq!(picture.matches("marker-end").count(), 4 * 2 * 3 + 1);
/// ```
///
/// # Panics
/// If a step names a rank outside the world.
pub fn svg(schedules: &[Schedule], title: &str) -> String {
    let picture = Picture::new(schedules);
    let page = SvgPage::new(&picture);
    let body = [
        page.caption(title),
        page.bands(),
        page.lifelines(),
        page.arrows(),
        page.boxes(),
        page.legend(),
    ]
    .concat();
    let width = page.width();
    let height = page.height();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" \
         font-family=\"'DejaVu Sans', Verdana, sans-serif\" font-size=\"12\">\n<defs>\n{}</defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{body}</svg>\n",
        heads()
    )
}

/// An arrow head a colour.
fn heads() -> String {
    let head = |(nth, colour): (usize, &&str)| {
        format!(
            "<marker id=\"head{nth}\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" \
             markerWidth=\"7\" markerHeight=\"7\" \
             orient=\"auto\"><path d=\"M0,1 L10,5 L0,9 z\" fill=\"{colour}\"/></marker>\n"
        )
    };
    COLOURS.iter().enumerate().map(head).collect()
}

struct SvgPage<'a> {
    picture: &'a Picture,
    world: usize,
    column: usize,
    /// By round: whether there are too many messages to draw all of them in full.
    crowded: Vec<bool>,
    /// Where each round begins, and at the end of the list where the last round ends.
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

    /// The colour of a chunk. A scratch chunk has the colour of the chunk of the whole that it
    /// stands for.
    fn hue(&self, chunk: usize) -> usize {
        chunk % self.picture.chunks % COLOURS.len()
    }

    fn cell(&self, (rank, cell): (usize, usize)) -> &Cell {
        &self.picture.cells[rank][cell]
    }

    fn width(&self) -> usize {
        MARGIN + (self.world * self.column).max(660) + 16
    }

    fn height(&self) -> usize {
        self.bottom() + LEGEND
    }

    /// Where the last round ends.
    fn bottom(&self) -> usize {
        self.tops[self.tops.len() - 1]
    }

    fn x(&self, rank: usize) -> usize {
        MARGIN + rank * self.column + self.column / 2
    }

    /// The middle of a cell.
    fn y(&self, place: (usize, usize)) -> usize {
        self.tops[self.round(place)] + 14 + self.slots[place.0][place.1] * SLOT + BOX_HEIGHT / 2
    }

    /// The row of a cell; steps that can never be taken are in a row after the last round.
    fn round(&self, place: (usize, usize)) -> usize {
        self.cell(place).round.unwrap_or(self.picture.rounds)
    }

    /// The title, and the numbers of ranks, chunks and message latencies.
    fn caption(&self, title: &str) -> String {
        let latencies = self.picture.rounds.saturating_sub(1);
        let counted = [
            counted(self.world, "rank", "ranks"),
            counted(self.picture.chunks, "chunk", "chunks"),
            counted(latencies, "message latency", "message latencies"),
        ]
        .join(", ");
        let text = escaped(&if title.is_empty() { counted } else { format!("{title}: {counted}") });
        format!(
            "<title>{text}</title>\n<text x=\"14\" y=\"24\" font-size=\"14\" font-weight=\"bold\" \
             fill=\"#263238\">{text}</text>\n"
        )
    }

    fn bands(&self) -> String {
        let mut out = String::new();
        for (round, edges) in self.tops.windows(2).enumerate() {
            let y = edges[0];
            let height = edges[1] - edges[0];
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
        let line_top = CAPTION + 44;
        let box_top = CAPTION + 18;
        let name_y = CAPTION + 35;
        let end = self.bottom();
        for rank in 0..self.world {
            let x = self.x(rank);
            let _ = write!(
                out,
                "<line x1=\"{x}\" y1=\"{line_top}\" x2=\"{x}\" y2=\"{end}\" \
                 stroke=\"#c3c9ce\" stroke-width=\"1.5\"/>\n\
                 <rect x=\"{}\" y=\"{box_top}\" width=\"60\" height=\"26\" rx=\"6\" \
                 fill=\"#263238\"/>\n\
                 <text x=\"{x}\" y=\"{name_y}\" text-anchor=\"middle\" \
                 fill=\"#ffffff\" font-weight=\"bold\">rank {rank}</text>\n",
                x - 30
            );
        }
        out
    }

    /// All arrows, the faint ones first, so that no faint arrow covers another one.
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
        let shown = [message.from, message.to]
            .iter()
            .any(|place| self.cell(*place).chunks == message.chunks);
        let crowded = self.crowded[self.round(message.from)];
        let short = Ranges(&message.chunks).to_string().len() <= LONGEST_LABEL;
        self.picture.chunks > 1 && !crowded && short && (self.world <= LABELLED || !shown)
    }

    /// The ends of an arrow, which leads from the side of the sender's box to the side of the
    /// receiver's box.
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
        let hue = self.hue(message.chunks[0]);
        let neighbours = message.from.0.abs_diff(message.to.0) == 1;
        // Long arrows cross other columns, so they are thinner.
        let weight = if neighbours { "1.8" } else { "1.1" };
        let opacity = if self.is_faint(message) { "0.13" } else { "0.85" };
        format!(
            "<line x1=\"{x1:.0}\" y1=\"{y1:.0}\" x2=\"{x2:.0}\" y2=\"{y2:.0}\" \
             stroke=\"{}\" stroke-width=\"{weight}\" opacity=\"{opacity}\" \
             marker-end=\"url(#head{hue})\"/>\n",
            COLOURS[hue]
        )
    }

    /// The label of an arrow, near its sender, because arrows to one receiver are still apart
    /// there. The labels of arrows from one box follow one another along the arrows. Where two
    /// short arrows cross, one label is higher and the other lower.
    fn label(&self, message: &DrawnMessage, nth: usize) -> String {
        let [x1, y1, x2, y2] = self.ends(message);
        let most = if message.from.0 < message.to.0 { 0.35 } else { 0.6 };
        let along = ((26 + 26 * nth) as f64 / (x2 - x1).abs()).min(most);
        format!(
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\" font-size=\"10\" \
             fill=\"{}\" stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\">c{}</text>\n",
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
                let title = format!("<title>rank {rank}: {}</title>", escaped(&words));
                let x = self.x(rank);
                let y = self.y((rank, nth));
                let hue = self.hue(cell.chunks[0]);
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

    /// The meaning of boxes, arrows, colours and rows.
    fn legend(&self) -> String {
        let y = self.bottom() + 32;
        let mut out = String::new();
        let mut x = 40;
        for (buffer, name, text) in [
            (Buffer::Input, "c", "input chunk c"),
            (Buffer::Output, "c", "output chunk c"),
            (Buffer::Scratch, "c", "scratch chunk c"),
            (Buffer::Output, "+ c", "result of a reduction"),
        ] {
            out += &chunk_box(x, y, 16, buffer, 0);
            out += &word(x, y, ink(buffer, 0), name);
            out += &note(x + 22, y + 4, "#263238", text);
            x += 22 + text.len() * 7 + 24;
        }
        let second = y + 26;
        let _ = writeln!(
            out,
            "<line x1=\"24\" y1=\"{second}\" x2=\"54\" y2=\"{second}\" stroke=\"{}\" \
             stroke-width=\"1.8\" marker-end=\"url(#head0)\"/>",
            COLOURS[0]
        );
        let rows = "a message, from the round in which it leaves to a later one; a row is one \
                    message latency";
        out += &note(62, second + 4, "#263238", rows);
        out + &note(24, y + 52, "#5f6b73", &self.colours())
    }

    /// The meaning of the colours, and which arrows are drawn in full.
    fn colours(&self) -> String {
        let colours = (self.picture.chunks > 1).then_some(
            "A colour stands for a chunk; an arrow of several chunks has the first one's",
        );
        let crowd = self
            .crowded
            .contains(&true)
            .then_some("Where a round has many messages, only those of rank 0 are drawn in full");
        let notes: Vec<_> = colours.into_iter().chain(crowd).collect();
        notes.join(". ")
    }
}
