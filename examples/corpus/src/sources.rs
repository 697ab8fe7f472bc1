//! The text files of a folder, and their text as one stream of bytes.
//!
//! The text of a folder is that of its files one after another, with nothing in between, in the
//! order of their paths, byte by byte. Files in folders inside it count too; names that begin with a
//! dot do not. Cutting a text into several files changes no token.

use crate::{DataError, failed};
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::slice;

/// A text file as it was when it was listed.
#[derive(Clone, Debug, Eq, PartialEq)]
struct SourceFile {
    path: PathBuf,
    bytes: u64,
    /// The time of the last change: seconds and nanoseconds.
    changed: (i64, i64),
}

impl SourceFile {
    fn new(path: PathBuf, metadata: &Metadata) -> Self {
        Self { path, bytes: metadata.len(), changed: (metadata.mtime(), metadata.mtime_nsec()) }
    }

    /// Fails if the file is not the one that was listed.
    fn same(&self, file: &File) -> Result<(), DataError> {
        let now = file.metadata().map_err(failed(&self.path))?;
        if Self::new(self.path.clone(), &now) == *self {
            Ok(())
        } else {
            Err(DataError::Changed(self.path.clone()))
        }
    }
}

/// The text files of a folder, or one text file.
#[derive(Clone, Debug)]
pub struct Sources {
    root: PathBuf,
    files: Vec<SourceFile>,
}

impl Sources {
    /// Lists the files at `root`, which is a folder or a file.
    ///
    /// # Errors
    /// [`DataError::File`] if a folder or file cannot be read, [`DataError::NoFile`] for a pipe or a
    /// device, [`DataError::Empty`] if there is no text.
    pub fn list(root: &Path) -> Result<Self, DataError> {
        let mut files = Vec::new();
        list(root, &mut files)?;
        files.sort_by(|a, b| a.path.as_os_str().as_bytes().cmp(b.path.as_os_str().as_bytes()));
        let sources = Self { root: root.to_owned(), files };
        if sources.bytes() == 0 {
            return Err(DataError::Empty(root.to_owned()));
        }
        Ok(sources)
    }

    /// The folder or file that was listed.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The number of files.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// The length of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Adds name, length and time of change of every file to `digest`. The place of the folder does
    /// not count.
    pub(super) fn add_to(&self, digest: &mut blake3::Hasher) {
        for SourceFile { path, bytes, changed: (seconds, nanoseconds) } in &self.files {
            let name = path.strip_prefix(&self.root).unwrap_or(path).as_os_str().as_bytes();
            digest.update(&(name.len() as u64).to_le_bytes()).update(name);
            digest.update(&bytes.to_le_bytes());
            digest.update(&seconds.to_le_bytes()).update(&nanoseconds.to_le_bytes());
        }
    }

    /// Reads the text from its beginning.
    pub fn read(&self) -> SourceReader<'_> {
        SourceReader { files: self.files.iter(), open: None, scratch: Vec::new() }
    }

    /// The first bytes of the text, at most `most`.
    ///
    /// # Errors
    /// As [`SourceReader::fill`].
    pub fn beginning(&self, most: usize) -> Result<Vec<u8>, DataError> {
        let mut text = vec![0; most];
        let count = self.read().fill(&mut text)?;
        text.truncate(count);
        Ok(text)
    }
}

fn list(path: &Path, files: &mut Vec<SourceFile>) -> Result<(), DataError> {
    let metadata = fs::metadata(path).map_err(failed(path))?;
    if metadata.is_file() {
        files.push(SourceFile::new(path.to_owned(), &metadata));
        return Ok(());
    }
    if !metadata.is_dir() {
        return Err(DataError::NoFile(path.to_owned()));
    }
    for entry in fs::read_dir(path).map_err(failed(path))? {
        let entry = entry.map_err(failed(path))?;
        if !entry.file_name().as_bytes().starts_with(b".") {
            list(&entry.path(), files)?;
        }
    }
    Ok(())
}

/// Reads all files one after another, and checks that each is UTF-8 and stays as it was listed.
#[derive(Debug)]
pub struct SourceReader<'a> {
    files: slice::Iter<'a, SourceFile>,
    open: Option<OpenSource<'a>>,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct OpenSource<'a> {
    source: &'a SourceFile,
    file: File,
    read: u64,
    /// A buffer for the bytes of an incomplete character.
    begun: Vec<u8>,
}

impl SourceReader<'_> {
    /// Fills `piece` with the next bytes. Returns their number, which is less than the length of `piece`
    /// only at the end of the text.
    ///
    /// # Errors
    /// [`DataError::NotUtf8`], [`DataError::Changed`], or [`DataError::File`].
    pub fn fill(&mut self, piece: &mut [u8]) -> Result<usize, DataError> {
        let mut filled = 0;
        while filled < piece.len() {
            let Some(open) = &mut self.open else {
                let Some(source) = self.files.next() else { break };
                self.open = Some(OpenSource::open(source)?);
                continue;
            };
            match open.read(&mut piece[filled..], &mut self.scratch)? {
                0 => self.open = None,
                count => filled += count,
            }
        }
        Ok(filled)
    }
}

impl<'a> OpenSource<'a> {
    fn open(source: &'a SourceFile) -> Result<Self, DataError> {
        let file = File::open(&source.path).map_err(failed(&source.path))?;
        source.same(&file)?;
        Ok(Self { source, file, read: 0, begun: Vec::new() })
    }

    /// Reads some bytes; none at the end, where the file must still be as listed.
    fn read(&mut self, to: &mut [u8], scratch: &mut Vec<u8>) -> Result<usize, DataError> {
        let path = &self.source.path;
        let count = loop {
            match self.file.read(to) {
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
                count => break count.map_err(failed(path))?,
            }
        };
        if count == 0 {
            self.source.same(&self.file)?;
        }
        let before = self.read;
        self.read += count as u64;
        let whole = self.read == self.source.bytes;
        if self.read > self.source.bytes || count == 0 && !whole {
            return Err(DataError::Changed(path.clone()));
        }
        if count == 0 && !self.begun.is_empty() {
            let at = before - self.begun.len() as u64;
            return Err(DataError::NotUtf8 { path: path.clone(), at });
        }
        self.check(&to[..count], before, scratch)?;
        Ok(count)
    }

    /// Checks bytes that begin at `before`, and buffers those of an incomplete character at their end.
    fn check(&mut self, bytes: &[u8], before: u64, text: &mut Vec<u8>) -> Result<(), DataError> {
        text.clear();
        text.append(&mut self.begun);
        let start = before - text.len() as u64;
        text.extend_from_slice(bytes);
        let Err(why) = std::str::from_utf8(text) else { return Ok(()) };
        let valid = why.valid_up_to();
        if why.error_len().is_some() {
            let path = self.source.path.clone();
            return Err(DataError::NotUtf8 { path, at: start + valid as u64 });
        }
        self.begun.extend_from_slice(&text[valid..]);
        Ok(())
    }
}
