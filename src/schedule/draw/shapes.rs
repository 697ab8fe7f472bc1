//! The words and boxes of a picture, as SVG.

use super::cell::{Cell, Ranges};
use super::svg::{BOX_HEIGHT, COLOURS, WIDEST};
use crate::schedule::Buffer;

/// `1 rank`, `4 ranks`.
pub(super) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A line of text in the legend.
pub(super) fn note(x: usize, y: usize, ink: &str, text: &str) -> String {
    format!("<text x=\"{x}\" y=\"{y}\" fill=\"{ink}\">{text}</text>\n")
}

/// The text of a box: its chunks, or their number if the list is too long, after a plus if the cell
/// combines.
pub(super) fn name(cell: &Cell) -> String {
    let plus = if cell.reduces() { "+ " } else { "" };
    let list = format!("{plus}{}", Ranges(&cell.chunks));
    if list.len() * 8 + 26 <= WIDEST { list } else { format!("{plus}{} chunks", cell.chunks.len()) }
}

/// The box of a chunk: hollow for input, filled for output, dashed for scratch.
pub(super) fn chunk_box(x: usize, y: usize, half: usize, buffer: Buffer, hue: usize) -> String {
    let colour = COLOURS[hue];
    let (fill, dash) = match buffer {
        Buffer::Input => ("#ffffff", ""),
        Buffer::Output => (colour, ""),
        Buffer::Scratch => ("#ffffff", " stroke-dasharray=\"4 2\""),
    };
    format!(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{BOX_HEIGHT}\" rx=\"5\" \
         fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"1.8\"{dash}/>",
        x - half,
        y - BOX_HEIGHT / 2,
        2 * half
    )
}

pub(super) fn ink(buffer: Buffer, hue: usize) -> &'static str {
    match buffer {
        Buffer::Output => "#ffffff",
        Buffer::Input | Buffer::Scratch => COLOURS[hue],
    }
}

pub(super) fn word(x: usize, y: usize, ink: &str, text: &str) -> String {
    format!(
        "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" font-weight=\"bold\" \
         fill=\"{ink}\">{text}</text>\n",
        y + 4
    )
}
