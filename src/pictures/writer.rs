//! Writes SVG: shapes, and text that is escaped here and nowhere else.
//!
//! The place of a shape is numbers. Its other attributes are words without double quotes, as in
//! `fill=#fff stroke-width=2`. A value with blanks stands between single quotes, and an attribute
//! without a value is left out.
//!
//! ```
//! use maypole_pictures::writer::SvgWriter;
//! let mut picture = SvgWriter::page(20.0, 10.0);
//! picture.rect([1.0, 2.0, 3.0, 4.5], "fill=#c62828 rx=");
//! picture.text([1.0, 9.0], "text-anchor=middle", "1 < 2");
//! let text = picture.finish();
//! assert!(text.contains("<rect x=\"1\" y=\"2\" width=\"3\" height=\"4.5\" fill=\"#c62828\"/>\n"));
//! assert!(text.ends_with("text-anchor=\"middle\">1 &lt; 2</text>\n</svg>\n"));
//! ```

use std::fmt::{self, Display, Write as _};

/// A picture that is being written.
pub struct SvgWriter {
    text: String,
    /// How many elements are open within the picture. The elements at depth 0 have a line each.
    depth: usize,
}

/// `text` as SVG and HTML hold it, in an element or in an attribute.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A coordinate or a length, to a hundredth.
struct Number(f64);

impl Display for Number {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        // Adding zero turns -0 into 0.
        write!(out, "{}", (self.0 * 100.0).round() / 100.0 + 0.0)
    }
}

impl SvgWriter {
    /// Begins a picture that stands alone: no script, no font to load, white background.
    pub fn page(width: f64, height: f64) -> Self {
        let size = format!("width={} height={}", Number(width), Number(height));
        let font = "font-family='DejaVu Sans, Verdana, sans-serif' font-size=12";
        let space = "xmlns=http://www.w3.org/2000/svg";
        let mut page = Self::inline([width, height], format_args!("{space} {size} {font}"));
        page.rect([0.0, 0.0, width, height], "fill=#ffffff");
        page
    }

    /// Begins a picture within a page of HTML, which gives it its size and its background.
    pub fn inline([width, height]: [f64; 2], style: impl Display) -> Self {
        let mut picture = Self { text: String::new(), depth: 0 };
        let (width, height) = (Number(width), Number(height));
        picture.open("svg", &[], format_args!("viewBox='0 0 {width} {height}' {style}"));
        picture.text += ">\n";
        picture
    }

    /// Ends the picture.
    pub fn finish(self) -> String {
        self.text + "</svg>\n"
    }

    /// Writes an element `name` around what `content` writes.
    pub fn element(&mut self, name: &str, style: impl Display, content: impl FnOnce(&mut Self)) {
        self.open(name, &[], style);
        self.text.push('>');
        self.depth += 1;
        content(self);
        self.depth -= 1;
        self.close(format_args!("</{name}>"));
    }

    /// Writes the markers `head0`, `head1` ...: heads of arrows, one for each colour.
    pub fn arrow_heads(&mut self, colours: &[&str]) {
        self.element("defs", "", |defs| {
            for (nth, colour) in colours.iter().enumerate() {
                let style = "viewBox='0 0 10 10' refX=9 refY=5 markerWidth=7 markerHeight=7";
                let marker = format!("id=head{nth} {style} orient=auto");
                defs.element("marker", marker, |marker| {
                    marker.path("M0,1 L10,5 L0,9 z", format_args!("fill={colour}"));
                });
            }
        });
    }

    /// Writes the name of the picture or of the element that is open, which a reader sees next to
    /// the pointer.
    pub fn title(&mut self, title: impl Display) {
        let _ = write!(self.text, "<title>{}", escaped(&title.to_string()));
        self.close("</title>");
    }

    /// Writes `text` from the point on, or around it with `text-anchor=middle`.
    pub fn text(&mut self, [x, y]: [f64; 2], style: impl Display, text: impl Display) {
        self.open("text", &[("x", x), ("y", y)], style);
        let _ = write!(self.text, ">{}", escaped(&text.to_string()));
        self.close("</text>");
    }

    /// Writes `text` upwards, with its middle at the point: the name of a vertical axis.
    pub fn upright_text(&mut self, [x, y]: [f64; 2], style: impl Display, text: impl Display) {
        let turned = format!("transform='rotate(-90 {} {})'", Number(x), Number(y));
        self.text([x, y], format_args!("{turned} text-anchor=middle {style}"), text);
    }

    /// Draws a rectangle: left edge, upper edge, width, height.
    pub fn rect(&mut self, [x, y, width, height]: [f64; 4], style: impl Display) {
        self.shape("rect", &[("x", x), ("y", y), ("width", width), ("height", height)], style);
    }

    /// Draws a line between two points.
    pub fn line(&mut self, [x1, y1, x2, y2]: [f64; 4], style: impl Display) {
        self.shape("line", &[("x1", x1), ("y1", y1), ("x2", x2), ("y2", y2)], style);
    }

    /// Draws a circle around a point.
    pub fn circle(&mut self, [x, y]: [f64; 2], radius: f64, style: impl Display) {
        self.shape("circle", &[("cx", x), ("cy", y), ("r", radius)], style);
    }

    /// Draws a path, in SVG's language of paths.
    pub fn path(&mut self, path: impl Display, style: impl Display) {
        self.shape("path", &[], format_args!("d='{path}' {style}"));
    }

    /// Draws a line through all points.
    pub fn polyline(&mut self, points: impl IntoIterator<Item = [f64; 2]>, style: impl Display) {
        let point = |[x, y]: [f64; 2]| format!("{},{}", Number(x), Number(y));
        let points: Vec<String> = points.into_iter().map(point).collect();
        let points = points.join(" ");
        self.shape("polyline", &[], format_args!("points='{points}' fill=none {style}"));
    }

    fn shape(&mut self, name: &str, place: &[(&str, f64)], style: impl Display) {
        self.open(name, place, style);
        self.close("/>");
    }

    /// Writes the beginning of a tag, up to its last attribute.
    fn open(&mut self, name: &str, place: &[(&str, f64)], style: impl Display) {
        self.text.push('<');
        self.text += name;
        for (attribute, value) in place {
            let _ = write!(self.text, " {attribute}=\"{}\"", Number(*value));
        }
        let style = style.to_string();
        let mut rest = style.as_str();
        while let Some((attribute, after)) = rest.split_once('=') {
            let (value, after) = match after.strip_prefix('\'') {
                Some(quoted) => quoted.split_once('\'').unwrap_or((quoted, "")),
                None => after.split_once(' ').unwrap_or((after, "")),
            };
            if !value.is_empty() {
                let _ = write!(self.text, " {}=\"{}\"", attribute.trim(), escaped(value));
            }
            rest = after;
        }
    }

    fn close(&mut self, end: impl Display) {
        let line = if self.depth == 0 { "\n" } else { "" };
        let _ = write!(self.text, "{end}{line}");
    }
}
