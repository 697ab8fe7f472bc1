//! Schedules as a file holds them: [text](crate::text) for each step, and the collective that they
//! claim to implement.
//!
//! So a schedule of a paper, of homework or of another program needs no Rust. [`ScheduleFile`] has the
//! traits of serde, for TOML, JSON or another form.

use crate::text::StepText;
use maypole::schedule::collective::Collective;
use maypole::schedule::{Buffer, Schedule, Span, Step};
use serde::{Deserialize, Serialize};

/// The schedules of all ranks, and the collective that they claim to do.
///
/// The ranks and chunks of the result exist. [`verify`](maypole::schedule::verify) checks the
/// claim.
///
/// ```
/// use maypole::schedule::{Placement, verify::verify};
/// use maypole_pictures::file::ScheduleFile;
/// let text = r#"{ "collective": "broadcast", "root": 0, "chunks": 1,
///     "ranks": [["copy in0 to out0", "send in0 to 1"], ["recv out0 from 0"]] }"#;
/// let file: ScheduleFile = serde_json::from_str(text).unwrap();
/// assert!(verify(file.collective(), file.schedules(), Placement::Apart).is_ok());
///
/// let wrong = text.replace("to 1", "to 7");
/// let error = serde_json::from_str::<ScheduleFile>(&wrong).unwrap_err();
/// assert!(error.to_string().contains("rank 0, step 1: there is no rank 7 among 2"));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "FileFields", into = "FileFields")]
pub struct ScheduleFile {
    collective: Collective,
    schedules: Vec<Schedule>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileFields {
    collective: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    root: Option<usize>,
    chunks: usize,
    ranks: Vec<Vec<StepText>>,
}

impl ScheduleFile {
    /// `schedules`, one a rank, which claim to do `collective`.
    pub fn new(collective: Collective, schedules: Vec<Schedule>) -> Self {
        Self { collective, schedules }
    }

    /// The claimed collective of the schedules.
    pub fn collective(&self) -> Collective {
        self.collective
    }

    /// The schedules, one a rank.
    pub fn schedules(&self) -> &[Schedule] {
        &self.schedules
    }
}

impl From<ScheduleFile> for FileFields {
    fn from(file: ScheduleFile) -> Self {
        let lines = |schedule: Schedule| schedule.steps.into_iter().map(StepText).collect();
        Self {
            collective: file.collective.option_name(),
            root: file.collective.root(),
            chunks: file.schedules.first().map_or(0, |schedule| schedule.chunks),
            ranks: file.schedules.into_iter().map(lines).collect(),
        }
    }
}

impl TryFrom<FileFields> for ScheduleFile {
    type Error = String;

    fn try_from(fields: FileFields) -> Result<Self, String> {
        let FileFields { collective, root, chunks, ranks } = fields;
        let collective: Collective = collective.parse().map_err(|unknown| format!("{unknown}"))?;
        let world = ranks.len();
        if world == 0 || chunks == 0 {
            return Err(
                "there is no rank or no chunk; a schedule has one of each or more".to_owned()
            );
        }
        if chunks > MOST_CHUNKS {
            return Err(format!("chunks: {chunks} are too many; there are at most {MOST_CHUNKS}"));
        }
        let root = root.unwrap_or(0);
        if root >= world {
            return Err(format!("root: there is no rank {root} among {world}"));
        }
        for (rank, steps) in ranks.iter().enumerate() {
            for (nth, step) in steps.iter().enumerate() {
                check(step.0, world, chunks)
                    .map_err(|why| format!("rank {rank}, step {nth}: {why}"))?;
            }
        }
        let schedule = |lines: Vec<StepText>| {
            Schedule::new(chunks, lines.into_iter().map(|line| line.0).collect())
        };
        let schedules: Vec<Schedule> = ranks.into_iter().map(schedule).collect();
        let all: usize = schedules.iter().map(|it| it.chunks + it.scratch).sum();
        if all > MOST_CHUNKS_OF_ALL {
            return Err(format!(
                "{world} ranks have {all} chunks with those of scratch; all together have at most \
                 {MOST_CHUNKS_OF_ALL}"
            ));
        }
        Ok(Self { collective: collective.with_root(root), schedules })
    }
}

/// The most chunks of a buffer, and of all ranks with their scratch, to bound the memory of a proof.
const MOST_CHUNKS: usize = 1 << 16;
const MOST_CHUNKS_OF_ALL: usize = 1 << 22;

/// Describes the absent rank or chunk that a step names.
fn check(step: Step, world: usize, chunks: usize) -> Result<(), String> {
    if let Some(peer) = step.peer().filter(|peer| *peer >= world) {
        return Err(format!("there is no rank {peer} among {world}"));
    }
    let is_there = |span: &Span| span.chunk < chunks || span.buffer == Buffer::Scratch;
    match step.reads().chain(step.writes()).find(|span| !is_there(span)) {
        Some(span) => Err(format!("there is no {span}: the whole is cut into {chunks} chunks")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_only_what_is_there() {
        let read =
            |text: &str| serde_json::from_str::<ScheduleFile>(text).map_err(|e| e.to_string());
        let right = r#"{"collective":"all_reduce","chunks":1,"ranks":[["copy in0 to out0"]]}"#;
        let file = read(right).unwrap();
        assert_eq!(file.collective(), Collective::AllReduce);
        assert_eq!(read(&serde_json::to_string(&file).unwrap()).unwrap(), file);
        for (from, to, said) in [
            ("all_reduce", "sum", "no collective is called"),
            ("in0", "in7", "rank 0, step 0: there is no in7"),
            ("\"chunks\":1", "\"chunks\":0", "no chunk"),
            ("\"chunks\":1", "\"chunks\":65537", "at most 65536"),
            ("\"chunks\":1", "\"chunks\":18446744073709551615", "at most 65536"),
            ("copy in0 to out0", "copy", "is no step"),
            ("\"chunks\"", "\"root\":4,\"chunks\"", "root: there is no rank 4"),
            ("\"chunks\"", "\"colour\":4,\"chunks\"", "unknown field"),
        ] {
            let error = read(&right.replace(from, to)).unwrap_err();
            assert!(error.contains(said), "{to}: {error}");
        }
        // Each rank is modest, and all together are not.
        let rank = r#"["copy in0 to tmp1048575"]"#;
        let many = right.replace(r#"["copy in0 to out0"]"#, &[rank; 5].join(","));
        let error = read(&many).unwrap_err();
        assert!(error.contains("5 ranks have 5242885 chunks"), "{error}");
    }
}
