//! Schedules as SVG: a lifeline a rank, time downward, boxes for chunks, arrows for messages.

use crate::draw::{Cell, DrawnMessage, Picture, Ranges};
use crate::writer::SvgWriter;
use maypole::schedule::{Buffer, Schedule};
use std::collections::HashMap;

/// Colours of chunks 0, 1, 2 ...; after the last one they start again.
const COLOURS: [&str; 12] = [
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
const BOX_HEIGHT: usize = 20;
/// The greatest width of a column in a world of more than four ranks.
const WIDEST: usize = 124;
/// Up to this many ranks, all arrows are labelled with their chunks; in larger worlds, only those
/// whose boxes do not show the chunks.
const LABELLED: usize = 8;
const LONGEST_LABEL: usize = 7;
/// Where the ranks send more messages than this each in one round, only those of rank 0 are drawn
/// in full.
const CROWD: usize = 4;

/// One lifeline a rank, time downward: a box for each [cell](Cell), an arrow for each message,
/// coloured by chunk. `title` is the caption; the legend below explains boxes, arrows and colours.
///
/// The result stands alone: no script, no font to load, white background.
///
/// ```
/// use maypole::{algorithms::Algorithm, schedule::collective::Collective};
/// let ring = Algorithm::Ring.schedules(Collective::AllReduce, 4).unwrap();
/// let picture = maypole_pictures::svg(&ring, "all-reduce by ring");
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
    let mut out = SvgWriter::page(page.width(), (page.bottom() + LEGEND) as f64);
    out.arrow_heads(&COLOURS);
    page.caption(&mut out, title);
    page.bands(&mut out);
    page.lifelines(&mut out);
    page.arrows(&mut out);
    page.boxes(&mut out);
    page.legend(&mut out);
    out.finish()
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

    fn width(&self) -> f64 {
        (MARGIN + (self.world * self.column).max(660) + 16) as f64
    }

    /// Where the last round ends.
    fn bottom(&self) -> usize {
        self.tops[self.tops.len() - 1]
    }

    /// The middle of a rank's column.
    fn x(&self, rank: usize) -> f64 {
        (MARGIN + rank * self.column + self.column / 2) as f64
    }

    /// The middle of a cell.
    fn y(&self, place: (usize, usize)) -> f64 {
        let top = self.tops[self.round(place)] + 14 + self.slots[place.0][place.1] * SLOT;
        (top + BOX_HEIGHT / 2) as f64
    }

    /// The row of a cell; steps that can never be taken are in a row after the last round.
    fn round(&self, place: (usize, usize)) -> usize {
        self.cell(place).round.unwrap_or(self.picture.rounds)
    }

    /// The title, and the numbers of ranks, chunks and message latencies.
    fn caption(&self, out: &mut SvgWriter, title: &str) {
        let latencies = self.picture.rounds.saturating_sub(1);
        let counted = [
            counted(self.world, "rank", "ranks"),
            counted(self.picture.chunks, "chunk", "chunks"),
            counted(latencies, "message latency", "message latencies"),
        ]
        .join(", ");
        let text = if title.is_empty() { counted } else { format!("{title}: {counted}") };
        out.title(&text);
        out.text([14.0, 24.0], "font-size=14 font-weight=bold fill=#263238", text);
    }

    fn bands(&self, out: &mut SvgWriter) {
        for (round, edges) in self.tops.windows(2).enumerate() {
            let y = edges[0] as f64;
            let height = (edges[1] - edges[0]) as f64;
            let fill = if round % 2 == 0 { "fill=#f4f6f8" } else { "fill=#ffffff" };
            out.rect([0.0, y, self.width(), height], fill);
            if round == self.picture.rounds {
                out.text([14.0, y + 28.0], "fill=#c62828", "stuck");
            } else {
                out.text([14.0, y + 28.0], "fill=#5f6b73", format_args!("round {round}"));
            }
        }
    }

    fn lifelines(&self, out: &mut SvgWriter) {
        let top = CAPTION as f64;
        for rank in 0..self.world {
            let x = self.x(rank);
            out.line([x, top + 44.0, x, self.bottom() as f64], "stroke=#c3c9ce stroke-width=1.5");
            out.rect([x - 30.0, top + 18.0, 60.0, 26.0], "rx=6 fill=#263238");
            let style = "text-anchor=middle fill=#ffffff font-weight=bold";
            out.text([x, top + 35.0], style, format_args!("rank {rank}"));
        }
    }

    /// All arrows, the faint ones first, so that no faint arrow covers another one.
    fn arrows(&self, out: &mut SvgWriter) {
        let (faint, full): (Vec<_>, Vec<_>) =
            self.picture.messages.iter().partition(|message| self.is_faint(message));
        faint.iter().chain(&full).for_each(|message| self.line(out, message));
        let mut labels_of_cell = HashMap::new();
        for message in full.iter().filter(|message| self.has_label(message)) {
            let before = labels_of_cell.entry(message.from).or_insert(0_usize);
            self.label(out, message, *before);
            *before += 1;
        }
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
            let half = self.half_width(self.cell(*place));
            self.x(place.0) + if right { half } else { -half }
        };
        [side(from, rightward), self.y(*from), side(to, !rightward), self.y(*to)]
    }

    fn line(&self, out: &mut SvgWriter, message: &DrawnMessage) {
        let hue = self.hue(message.chunks[0]);
        let neighbours = message.from.0.abs_diff(message.to.0) == 1;
        // Long arrows cross other columns, so they are thinner.
        let weight = if neighbours { "1.8" } else { "1.1" };
        let opacity = if self.is_faint(message) { "0.13" } else { "0.85" };
        let style = format!("stroke={} stroke-width={weight} opacity={opacity}", COLOURS[hue]);
        out.line(self.ends(message), format_args!("{style} marker-end=url(#head{hue})"));
    }

    /// The label of an arrow, near its sender, because arrows to one receiver are still apart
    /// there. The labels of arrows from one box follow one another along the arrows. Where two
    /// short arrows cross, one label is higher and the other lower.
    fn label(&self, out: &mut SvgWriter, message: &DrawnMessage, nth: usize) {
        let [x1, y1, x2, y2] = self.ends(message);
        let most = if message.from.0 < message.to.0 { 0.35 } else { 0.6 };
        let along = ((26 + 26 * nth) as f64 / (x2 - x1).abs()).min(most);
        let colour = COLOURS[self.hue(message.chunks[0])];
        let halo = "stroke=#ffffff stroke-width=3 paint-order=stroke";
        out.text(
            [x1 + along * (x2 - x1), y1 + along * (y2 - y1) + 3.0],
            format_args!("text-anchor=middle font-size=10 fill={colour} {halo}"),
            format_args!("c{}", Ranges(&message.chunks)),
        );
    }

    fn half_width(&self, cell: &Cell) -> f64 {
        ((name(cell).len() * 8 + 14).min(self.column - 8) / 2) as f64
    }

    fn boxes(&self, out: &mut SvgWriter) {
        for (rank, cells) in self.picture.cells.iter().enumerate() {
            for (nth, cell) in cells.iter().enumerate() {
                out.element("g", "", |out| {
                    let words = cell.lines(self.world, usize::MAX).concat();
                    out.title(format_args!("rank {rank}: {words}"));
                    let middle = [self.x(rank), self.y((rank, nth))];
                    let hue = self.hue(cell.chunks[0]);
                    chunk_box(out, middle, self.half_width(cell), cell.buffer, hue, &name(cell));
                });
            }
        }
    }

    /// The meaning of boxes, arrows, colours and rows.
    fn legend(&self, out: &mut SvgWriter) {
        let y = (self.bottom() + 32) as f64;
        let mut x = 40.0;
        for (buffer, name, text) in [
            (Buffer::Input, "c", "input chunk c"),
            (Buffer::Output, "c", "output chunk c"),
            (Buffer::Scratch, "c", "scratch chunk c"),
            (Buffer::Output, "+ c", "result of a reduction"),
        ] {
            chunk_box(out, [x, y], 16.0, buffer, 0, name);
            out.text([x + 22.0, y + 4.0], "fill=#263238", text);
            x += (22 + text.len() * 7 + 24) as f64;
        }
        let second = y + 26.0;
        let style = format!("stroke={} stroke-width=1.8 marker-end=url(#head0)", COLOURS[0]);
        out.line([24.0, second, 54.0, second], style);
        let rows = "a message, from the round in which it leaves to a later one; a row is one \
                    message latency";
        out.text([62.0, second + 4.0], "fill=#263238", rows);
        out.text([24.0, y + 52.0], "fill=#5f6b73", self.colours());
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

/// `1 rank`, `4 ranks`.
fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The text of a box: its chunks, or their number if the list is too long, after a plus if the cell
/// combines.
fn name(cell: &Cell) -> String {
    let plus = if cell.reduces() { "+ " } else { "" };
    let list = format!("{plus}{}", Ranges(&cell.chunks));
    if list.len() * 8 + 26 <= WIDEST { list } else { format!("{plus}{} chunks", cell.chunks.len()) }
}

/// The box of a chunk and its text: hollow for input, filled for output, dashed for scratch.
fn chunk_box(
    out: &mut SvgWriter,
    [x, y]: [f64; 2],
    half: f64,
    buffer: Buffer,
    hue: usize,
    name: &str,
) {
    let colour = COLOURS[hue];
    let (fill, ink, dash) = match buffer {
        Buffer::Input => ("#ffffff", colour, ""),
        Buffer::Output => (colour, "#ffffff", ""),
        Buffer::Scratch => ("#ffffff", colour, "4,2"),
    };
    let height = BOX_HEIGHT as f64;
    let style =
        format!("rx=5 fill={fill} stroke={colour} stroke-width=1.8 stroke-dasharray={dash}");
    out.rect([x - half, y - height / 2.0, 2.0 * half, height], style);
    let style = format!("text-anchor=middle font-weight=bold fill={ink}");
    out.text([x, y + 4.0], style, name);
}
