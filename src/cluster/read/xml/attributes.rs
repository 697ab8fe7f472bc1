//! Elements and their attributes, with errors that name the line and column.

use crate::read::text::ReadError;
use roxmltree::{Attribute, Error, Node};

/// The text that was parsed, and the number of lines before it.
#[derive(Clone, Copy)]
pub(super) struct XmlSource<'a> {
    pub(super) text: &'a str,
    pub(super) skipped: usize,
}

pub(super) struct XmlElement<'a> {
    pub(super) node: Node<'a, 'a>,
    pub(super) source: XmlSource<'a>,
}

impl XmlSource<'_> {
    /// The error of the XML parser, with its line and column.
    pub(super) fn malformed(&self, error: &Error) -> ReadError {
        let row = error.pos().row as usize;
        let column = error.pos().col as usize;
        let found = self.text.lines().nth(row.saturating_sub(1)).unwrap_or_default();
        let found = found.chars().skip(column.saturating_sub(1)).take(40).collect();
        let expected = match error {
            Error::NodesLimitReached => "fewer elements: no machine has so many".to_owned(),
            error => format!("well-formed XML ({error})"),
        };
        ReadError { line: row + self.skipped, column, found, expected }
    }
}

impl<'a> XmlElement<'a> {
    pub(super) fn name(&self) -> &'a str {
        self.node.tag_name().name()
    }

    pub(super) fn children(&self) -> impl Iterator<Item = XmlElement<'a>> {
        let source = self.source;
        self.node.children().filter(Node::is_element).map(move |node| XmlElement { node, source })
    }

    /// Line and column of a byte.
    fn place(&self, byte: usize) -> (usize, usize) {
        let place = self.node.document().text_pos_at(byte);
        (place.row as usize + self.source.skipped, place.col as usize)
    }

    /// An error at the element itself.
    pub(super) fn error(&self, expected: impl Into<String>) -> ReadError {
        self.at(self.node.range().start, format!("<{}>", self.name()), expected)
    }

    fn at(&self, byte: usize, found: String, expected: impl Into<String>) -> ReadError {
        let (line, column) = self.place(byte);
        ReadError { line, column, found, expected: expected.into() }
    }

    /// The note that this element was left out.
    pub(super) fn unknown(&self) -> String {
        self.left_out("is unknown and left out")
    }

    /// The note that this element was left out, and why.
    pub(super) fn left_out(&self, why: &str) -> String {
        let (line, _) = self.place(self.node.range().start);
        format!("line {line}: <{}> {why}", self.name())
    }

    fn attribute(&self, name: &str) -> Option<Attribute<'a, 'a>> {
        self.node.attribute_node(name).filter(|attribute| !attribute.value().trim().is_empty())
    }

    /// A value that `parse` must accept, if there is one.
    fn parsed<T>(
        &self,
        name: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, ReadError> {
        let Some(attribute) = self.attribute(name) else { return Ok(None) };
        match parse(attribute.value().trim()) {
            Some(value) => Ok(Some(value)),
            None => Err(self.at(
                attribute.range().start,
                self.source.text[attribute.range()].to_owned(),
                expected,
            )),
        }
    }

    pub(super) fn word(&self, name: &str) -> Option<String> {
        self.attribute(name).map(|attribute| attribute.value().trim().to_owned())
    }

    pub(super) fn required(&self, name: &str) -> Result<String, ReadError> {
        self.word(name).ok_or_else(|| self.error(format!("<{}> with {name}=\"...\"", self.name())))
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<i64>, ReadError> {
        self.parsed(name, "a number", |text| match text.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        })
    }

    /// A number of links: at least one, and not more than any GPU can have.
    pub(super) fn count(&self, name: &str) -> Result<u32, ReadError> {
        let count = self.parsed(name, "a number of links", |text| {
            text.parse().ok().filter(|it| (1..=1024).contains(it))
        });
        count?.ok_or_else(|| self.error(format!("<{}> with {name}=\"...\"", self.name())))
    }

    /// A PCI class in 24 bits; some files give only the upper 16.
    pub(super) fn class(&self, name: &str) -> Result<Option<u32>, ReadError> {
        self.parsed(name, "a PCI class such as 0x030200", |text| {
            let digits =
                text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
            let class = u32::from_str_radix(digits, 16).ok()?;
            match digits.len() {
                6 => Some(class),
                4 => Some(class << 8),
                _ => None,
            }
        })
    }

    /// `16 GT/s`, `16.0 GT/s PCIe`; the kernel also writes `Unknown`.
    pub(super) fn gigatransfers(&self, name: &str) -> Result<Option<f64>, ReadError> {
        let rate = self.parsed(name, "a rate such as 16 GT/s", |text| {
            let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
            match (number, unit.starts_with("GT/s")) {
                ("Unknown", _) => Some(None),
                (number, true) => number
                    .parse()
                    .ok()
                    .filter(|rate: &f64| rate.is_finite() && *rate > 0.0)
                    .map(Some),
                _ => None,
            }
        })?;
        Ok(rate.flatten())
    }
}
