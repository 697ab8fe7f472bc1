//! The job key: the secret that a process needs to join, and the three places that may hold it.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;

use maypole_transports::{descriptor, lock, random};
use zeroize::Zeroizing;

use super::variables::VariableReader;
use super::{KeySource, LaunchError};

/// Most bytes that are read from a key file or descriptor: the digits, and room for white space.
const LIMIT: usize = 256;

/// Keys that were read from a descriptor, by its number. A descriptor can be read only once, and
/// the environment may be read again.
static INHERITED: Mutex<Vec<(i32, JobKey)>> = Mutex::new(Vec::new());

/// The secret of a job: 32 bytes that all its ranks share.
///
/// It is never printed, by `Debug` or in an error, and its memory is overwritten when it is
/// dropped.
///
/// # Examples
///
/// ```
/// use maypole::world::launch::JobKey;
/// let key = JobKey::parse("00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff")?;
/// assert_eq!(key.bytes()[..3], [0x00, 0x11, 0x22]);
/// assert_eq!(format!("{key:?}"), "JobKey(..)");
/// assert!(JobKey::parse("correct horse battery staple").is_err());
/// # Ok::<(), maypole::world::launch::LaunchError>(())
/// ```
#[derive(Clone)]
pub struct JobKey(Zeroizing<[u8; 32]>);

impl JobKey {
    /// Makes a new key from the operating system's random source.
    ///
    /// # Errors
    ///
    /// If the system has no such source.
    pub fn generate() -> io::Result<JobKey> {
        random::bytes().map(|bytes| JobKey(Zeroizing::new(bytes)))
    }

    /// Reads 64 hexadecimal digits; white space around them is ignored.
    ///
    /// # Errors
    ///
    /// [`LaunchError`] for any other text. Passphrases are refused, because they are guessed
    /// far faster than 32 random bytes.
    pub fn parse(text: &str) -> Result<JobKey, LaunchError> {
        let digits = text.trim();
        let mut key = JobKey(Zeroizing::default());
        let decoded = hex::decode_to_slice(digits, &mut *key.0);
        decoded.map(|()| key).map_err(|_| not_a_key(digits.len()))
    }

    /// The bytes of the key.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 digits that [`parse`](JobKey::parse) reads, with a final newline. Only for a file or
    /// a descriptor; a key must never be in a message.
    pub fn to_digits(&self) -> String {
        hex::encode(self.bytes()) + "\n"
    }

    /// Writes the key to a new file that only this user can read. An existing file is not changed.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` for an existing file, and those of making and writing one.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(self.to_digits().as_bytes())?;
        file.sync_all()
    }
}

maypole_transports::opaque!(JobKey, "JobKey");

/// The variables that may name the place of the key, the most private place first.
const PLACES: [&str; 3] = ["MAYPOLE_JOB_KEY_FD", "MAYPOLE_JOB_KEY_FILE", "MAYPOLE_JOB_KEY"];

/// The place of the key by the variables. Two places are an error: the ranks of one job might take
/// different ones.
pub(super) fn source(vars: VariableReader) -> Result<KeySource, LaunchError> {
    let set: Vec<&'static str> =
        PLACES.into_iter().filter(|place| vars.text(place).is_some()).collect();
    if let [first, second, ..] = set[..] {
        return Err(LaunchError::new(format!(
            "{first} and {second} are both set, and either may name the job key: unset the one \
             that is not meant"
        )));
    }
    if let Some(number) = vars.descriptor("MAYPOLE_JOB_KEY_FD")? {
        return Ok(KeySource::Descriptor(number));
    }
    if let Some(path) = vars.text("MAYPOLE_JOB_KEY_FILE") {
        return Ok(KeySource::File(path.into()));
    }
    match vars.text("MAYPOLE_JOB_KEY") {
        Some(digits) => {
            Ok(KeySource::Value(JobKey::parse(&digits).map_err(|bad| bad.at("MAYPOLE_JOB_KEY"))?))
        }
        None => Ok(KeySource::None),
    }
}

impl KeySource {
    /// Reads the key.
    ///
    /// # Errors
    ///
    /// [`LaunchError`], with the failure at that place and the remedy.
    pub fn open(self) -> Result<Option<JobKey>, LaunchError> {
        match self {
            KeySource::None => Ok(None),
            KeySource::Value(key) => Ok(Some(key)),
            KeySource::Descriptor(number) => inherit(number).map(Some),
            KeySource::File(path) => load(&path).map(Some),
        }
    }
}

/// The error of a text that is no key. It is not shown, because it may be a secret with a typing
/// error.
fn not_a_key(length: usize) -> LaunchError {
    let flaw = if length == 64 { " that are not all such digits" } else { "" };
    LaunchError::new(format!(
        "the job key must be 64 hexadecimal digits, and this is {length} characters{flaw}; \
         passphrases are refused: make a key with `maypole key new FILE`"
    ))
}

fn inherit(number: i32) -> Result<JobKey, LaunchError> {
    let mut known = lock(&INHERITED);
    if let Some((_, key)) = known.iter().find(|(of, _)| *of == number) {
        return Ok(key.clone());
    }
    let bytes = descriptor::read_inherited(number, LIMIT).map(Zeroizing::new);
    let bytes = bytes.map_err(|error| unreadable(number, &error))?;
    let key = parse_bytes(&bytes).map_err(|bad| bad.at(format!("MAYPOLE_JOB_KEY_FD={number}")))?;
    known.push((number, key.clone()));
    Ok(key)
}

fn unreadable(number: i32, error: &io::Error) -> LaunchError {
    LaunchError::new(format!(
        "MAYPOLE_JOB_KEY_FD is {number}, but nothing can be read there ({error}): a program between \
         the launcher and this one closes descriptors, so pass the key with MAYPOLE_JOB_KEY_FILE \
         instead"
    ))
}

fn load(path: &Path) -> Result<JobKey, LaunchError> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(LIMIT));
    let opened = descriptor::open_private(path);
    opened.and_then(|file| file.take(LIMIT as u64).read_to_end(&mut bytes)).map_err(|error| {
        LaunchError::new(format!("MAYPOLE_JOB_KEY_FILE is {}, but {error}", path.display()))
    })?;
    parse_bytes(&bytes).map_err(|bad| bad.at(format!("MAYPOLE_JOB_KEY_FILE={}", path.display())))
}

fn parse_bytes(bytes: &[u8]) -> Result<JobKey, LaunchError> {
    str::from_utf8(bytes).map_or_else(|_| Err(not_a_key(bytes.len())), JobKey::parse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn message(path: &Path) -> String {
        load(path).unwrap_err().to_string()
    }

    #[test]
    fn a_saved_key_is_read_again_and_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key = JobKey::generate().unwrap();
        key.save(&path).unwrap();
        assert_eq!(load(&path).unwrap().bytes(), key.bytes());
        assert_eq!(key.save(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_file_that_others_can_use_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        JobKey::generate().unwrap().save(&path).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(
            message(&path).contains("0640")
                && message(&path).contains(&format!("chmod 600 {}", path.display()))
        );

        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(message(&link).contains("symbolic link"));
        assert!(message(folder.path()).contains("not a regular file"));
        assert!(message(&folder.path().join("none")).contains("No such file"));
    }

    #[test]
    fn text_that_is_no_key_is_refused_and_not_shown() {
        for text in ["", "hunter2", &"g".repeat(64), &"é".repeat(32), &"0".repeat(63)] {
            let shown = JobKey::parse(text).unwrap_err().to_string();
            assert!(shown.contains("64 hexadecimal digits"), "{shown}");
            assert!(text.is_empty() || !shown.contains(text), "{shown}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.unwrap().write_all(&[0xff; 1000]).unwrap();
        assert!(message(&path).contains("64 hexadecimal digits"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse_bytes(&bytes);
        }

        #[test]
        fn a_written_key_is_read_again(bytes: [u8; 32]) {
            let again = JobKey::parse(&JobKey(Zeroizing::new(bytes)).to_digits()).unwrap();
            prop_assert_eq!(again.bytes(), &bytes);
        }
    }
}
