//! `rocm-smi --showtopo` and `amd-smi topology`: AMD's tables of hops, weights and link types.
//!
//! ```
//! use maypole_cluster::read::printed::PrintedClass;
//! use maypole_cluster::read::rocm::RocmTables;
//!
//! let tables = RocmTables::read("
//! ====== Hops between two GPUs ======
//!        GPU0    GPU1
//! GPU0   0       1
//! GPU1   1       0
//! ==== Link Type between two GPUs ===
//!        GPU0    GPU1
//! GPU0   0       XGMI
//! GPU1   XGMI    0
//! GPU[0]  : (Topology) Numa Node: 0
//! GPU[1]  : (Topology) Numa Node: 1
//! ").unwrap();
//! assert_eq!(tables.links[0][1], PrintedClass::Xgmi(None));
//! assert_eq!(tables.hops.unwrap()[1][0], 1);
//! assert_eq!(tables.numa_nodes, [Some(0), Some(1)]);
//! ```

use crate::read::printed::PrintedClass;
use crate::read::summary::DeviceSummary;
use crate::read::text::{
    LocatedChar, LocatedWord, ReadError, check_length, error_at, lines, plain, words,
};

/// The content of the tables. They have no network cards and do not count links.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RocmTables {
    /// The labels: `GPU0`, or PCI addresses.
    pub gpus: Vec<String>,
    /// `links[i][j]`: [`PrintedClass::Xgmi`] or [`PrintedClass::Pcie`].
    pub links: Vec<Vec<PrintedClass>>,
    /// `hops[i][j]`: the number of links on the path, if the output has that table.
    pub hops: Option<Vec<Vec<u32>>>,
    /// `weights[i][j]`: the distance in the firmware's unit, if the output has that table.
    pub weights: Option<Vec<Vec<u32>>>,
    /// The NUMA node of each GPU, where the output has it.
    pub numa_nodes: Vec<Option<u32>>,
}

impl RocmTables {
    /// Reads the tables, with any text around them. The table of link types is required.
    ///
    /// # Errors
    /// [`ReadError`] with the line and column of the unparsed text.
    pub fn read(text: &str) -> Result<RocmTables, ReadError> {
        check_length(text)?;
        let lines = lines(text);
        let Some(types) = table(&lines, "link type") else {
            let end = lines.last().map_or(&[][..], |line| line);
            return Err(error_at(end, end.len(), "a table of link types"));
        };
        let (gpus, links) = types.read(link)?;
        let numbers = |title| table(&lines, title).map(|table| table.read(number)).transpose();
        let of_these = |table: Option<(Vec<String>, Vec<Vec<u32>>)>| {
            table.filter(|it| it.0 == gpus).map(|it| it.1)
        };
        let hops = of_these(numbers("hops")?);
        let weights = of_these(numbers("weight")?);
        let numa_nodes = (0..gpus.len()).map(|gpu| numa_node(&lines, gpu)).collect();
        Ok(RocmTables { gpus, links, hops, weights, numa_nodes })
    }

    /// Whether the text has a title of such a table.
    pub(crate) fn is_in(text: &str) -> bool {
        table(&lines(text), "link type").is_some()
    }

    /// Summarises the GPUs and their links.
    pub fn summary(&self) -> DeviceSummary {
        DeviceSummary {
            gpus: self.gpus.len(),
            nics: None,
            links: self.links.clone(),
            nvlinks: None,
            nearest_nics: None,
        }
    }
}

/// One table as a stream of words, so that wrapped lines read the same.
struct RocmTable {
    glyphs: Vec<LocatedChar>,
    words: Vec<LocatedWord>,
}

/// The table under the first title with `name` in it, down to the next title.
fn table(lines: &[Vec<LocatedChar>], name: &str) -> Option<RocmTable> {
    let is_named = |line: &&Vec<LocatedChar>| title(line).is_some_and(|title| title.contains(name));
    let start = lines.iter().position(|line| is_named(&line))?;
    let rest = lines[start + 1..].iter().take_while(|line| title(line).is_none());
    // A blank at the end of each line separates its last word from the first word of the next.
    let blank = |line: &Vec<LocatedChar>| {
        line.last().map(|last| LocatedChar { char: ' ', column: last.column + 1, ..*last })
    };
    let glyphs: Vec<LocatedChar> =
        rest.flat_map(|line| line.iter().copied().chain(blank(line))).collect();
    let words = words(&glyphs);
    Some(RocmTable { glyphs, words })
}

/// The title in lower case: a line with `===`, or one that ends in `TABLE:`.
fn title(line: &[LocatedChar]) -> Option<String> {
    let text = plain(line).to_lowercase();
    (text.contains("===")
        || text.trim_end().ends_with("table:")
        || text.trim_start().starts_with("legend"))
    .then_some(text)
}

impl RocmTable {
    /// The labels, and the cells row by row. The header ends where its first label is repeated.
    fn read<T>(
        &self,
        cell: impl Fn(&str, bool) -> Result<T, &'static str>,
    ) -> Result<(Vec<String>, Vec<Vec<T>>), ReadError> {
        let text = |at: usize| self.words.get(at).map(|word| word.text.as_str());
        let again = (1..self.words.len()).find(|at| text(*at) == text(0));
        let count =
            again.ok_or_else(|| self.error(self.words.len(), "a row for each of the columns"))?;
        let labels: Vec<String> =
            self.words[..count].iter().map(|word| word.text.clone()).collect();
        let row = |row: usize| {
            let start = count + row * (count + 1);
            if text(start) != Some(&labels[row]) {
                return Err(self.error(start, format!("the row of {}", labels[row])));
            }
            let cell = |column: usize| {
                let at = start + 1 + column;
                let expected =
                    |what: &str| format!("{what} for {} and {}", labels[row], labels[column]);
                cell(text(at).unwrap_or_default(), row == column)
                    .map_err(|what| self.error(at, expected(what)))
            };
            (0..count).map(cell).collect()
        };
        let rows = (0..count).map(row).collect::<Result<_, _>>()?;
        Ok((labels, rows))
    }

    fn error(&self, word: usize, expected: impl Into<String>) -> ReadError {
        error_at(
            &self.glyphs,
            self.words.get(word).map_or(self.glyphs.len(), |word| word.at),
            expected,
        )
    }
}

fn link(word: &str, is_self: bool) -> Result<PrintedClass, &'static str> {
    match word {
        "0" | "SELF" | "X" | "N/A" if is_self => Ok(PrintedClass::Same),
        "XGMI" if !is_self => Ok(PrintedClass::Xgmi(None)),
        "PCIE" | "PCIe" if !is_self => Ok(PrintedClass::Pcie),
        _ if is_self => Err("0 or SELF"),
        _ => Err("XGMI or PCIE"),
    }
}

fn number(word: &str, _: bool) -> Result<u32, &'static str> {
    match word {
        // The firmware does not report the number.
        "N/A" | "SELF" => Ok(0),
        number => number.parse().map_err(|_| "a number"),
    }
}

/// From `GPU[1] : (Topology) Numa Node: 3`, or `GPU 1 : ...`.
fn numa_node(lines: &[Vec<LocatedChar>], gpu: usize) -> Option<u32> {
    let names = [format!("GPU[{gpu}]"), format!("GPU {gpu} ")];
    let of_this = |line: &String| names.iter().any(|name| line.contains(name));
    let mut texts = lines.iter().map(|line| plain(line));
    let found = texts.find(|line| of_this(line) && line.contains("Numa Node:"))?;
    found.rsplit(':').next()?.trim().parse().ok()
}
