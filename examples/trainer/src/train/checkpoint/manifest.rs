//! The manifest: the model, the state and the settings of a run, and the digest of each file.
//!
//! It is JSON with a digest as its last field:
//!
//! ```text
//! {
//!   "format": 1,
//!   ...
//!   "digest": "<BLAKE3 of every byte before this hexadecimal number, 64 digits>"
//! }
//! ```
//!
//! The digest is of the bytes of the text, so that a change of any byte is detected, even of a
//! space.

use crate::model::config::Config;
use crate::tensor::precision::LossScale;
use crate::train::checkpoint::{CheckpointError, damaged, unreadable};
use crate::train::clip::SkippedSteps;
use crate::train::optim::Rule;
use crate::train::schedule::RateSchedule;
use crate::train::settings::RunRecord;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The name of the manifest in the folder of a checkpoint.
pub const MANIFEST: &str = "manifest.json";

/// The format of the files that this build writes, and the only one that it reads.
pub(super) const FORMAT: u32 = 1;

/// The text before the digest, and after it.
const OPEN: &str = ",\n  \"digest\": \"";
const CLOSE: &str = "\"\n}\n";

/// The most bytes of a manifest: enough for a million parts.
const MOST: u64 = 256 << 20;

/// The contents of the manifest, which is written once for all ranks.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Manifest {
    /// The number of the format of the checkpoint's files.
    pub(super) format: u32,
    /// The model.
    pub config: Config,
    /// Steps done.
    pub step: u64,
    /// Steps that the optimizer took: fewer, if some were skipped.
    pub updates: u64,
    /// The optimizer.
    pub rule: Rule,
    /// Steps that were skipped, because a gradient was not finite.
    #[serde(default)]
    pub skipped: SkippedSteps,
    /// The scale of losses, if gradients are 16-bit numbers.
    pub scale: Option<LossScale>,
    /// The learning rate of each step.
    pub schedule: RateSchedule,
    /// The most that the norm of a gradient was allowed to be.
    pub clip: Option<f64>,
    /// The settings of the run, if it has given them.
    pub settings: Option<RunRecord>,
    /// The files of the ranks, in rank order.
    pub parts: Vec<PartDigest>,
}

/// The name, length and digest of the file of one rank.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PartDigest {
    /// Its name in the folder: [`part_name`] of its rank.
    pub file: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// The digest of all its bytes.
    #[serde(with = "hexadecimal")]
    pub blake3: blake3::Hash,
}

mod hexadecimal {
    use blake3::Hash;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(hash: &Hash, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&hash.to_hex())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Hash, D::Error> {
        Hash::from_hex(String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// The name of the file of `rank`.
pub fn part_name(rank: usize) -> String {
    format!("rank-{rank:03}.safetensors")
}

impl PartDigest {
    /// The entry of `rank`, whose file has these bytes.
    pub fn new(rank: usize, bytes: &[u8]) -> Self {
        Self { file: part_name(rank), bytes: bytes.len() as u64, blake3: blake3::hash(bytes) }
    }
}

impl Manifest {
    /// The manifest of the checkpoint in `place`.
    ///
    /// # Errors
    /// [`CheckpointError::File`], or [`CheckpointError::Damaged`] if it is not as it was written.
    pub fn read(place: &Path) -> Result<Self, CheckpointError> {
        Ok(Self::read_with_digest(place)?.0)
    }

    /// The manifest, and the digest of its whole text.
    pub(super) fn read_with_digest(place: &Path) -> Result<(Self, blake3::Hash), CheckpointError> {
        let path = place.join(MANIFEST);
        let text = read_bounded(&path).map_err(unreadable(&path, None))?;
        let manifest = Self::from_bytes(&text).map_err(|why| damaged(&path, None, why))?;
        Ok((manifest, blake3::hash(&text)))
    }

    /// The text of the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = serde_json::to_string_pretty(self).expect("a manifest is JSON");
        text.truncate(text.len() - "\n}".len());
        text += OPEN;
        let digest = blake3::hash(text.as_bytes());
        text += &digest.to_hex();
        text += CLOSE;
        text.into_bytes()
    }

    /// Reads the text of the file, and compares it with its digest.
    ///
    /// # Errors
    /// A sentence that describes the damage.
    pub fn from_bytes(text: &[u8]) -> Result<Self, String> {
        let (body, digest) = split_digest(text)?;
        let found = blake3::hash(body).to_hex();
        if digest != found.as_bytes() {
            let digest = String::from_utf8_lossy(digest);
            return Err(format!(
                "it was changed after it was written: its digest is {found}, and it says {digest}"
            ));
        }
        let manifest: Self = serde_json::from_slice(text).map_err(|why| why.to_string())?;
        manifest.check()?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), String> {
        let format = self.format;
        if format != FORMAT {
            return Err(format!(
                "it is of format {format}, and this build reads format {FORMAT}: \
                 read it with the build that wrote it"
            ));
        }
        let misnamed = self.parts.iter().enumerate().find(|(rank, it)| it.file != part_name(*rank));
        if let Some((rank, part)) = misnamed {
            let name = part_name(rank);
            return Err(format!("it names {:?} where {name} belongs", part.file));
        }
        if self.parts.is_empty() {
            return Err("it names no parts".to_owned());
        }
        if let Some(settings) = &self.settings {
            settings.bpe.check()?;
            let tokens = settings.bpe.vocab();
            if !settings.bpe.is_bytes() && tokens != self.config.vocab {
                let vocab = self.config.vocab;
                return Err(format!("its merges make {tokens} tokens, and its model has {vocab}"));
            }
        }
        self.config.check()
    }
}

/// Splits the text into the part that the digest is of, and the digest.
fn split_digest(text: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let split = || {
        let text = text.strip_suffix(CLOSE.as_bytes())?;
        let (body, digest) = text.split_at_checked(text.len().checked_sub(64)?)?;
        body.ends_with(OPEN.as_bytes()).then_some((body, digest))
    };
    split().ok_or_else(|| {
        "it does not end with a digest: it was changed or cut short, or an older build wrote it, \
         whose checkpoints cannot be checked and are not read any more"
            .to_owned()
    })
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(MOST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MOST {
        let why = format!("it is longer than any manifest: {MOST} bytes is the most");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(text)
}
