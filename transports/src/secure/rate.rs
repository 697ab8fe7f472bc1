//! How fast this processor encrypts.

use super::cipher::{CipherSuite, KEY};
use super::records::{RECORD, RECORDS_PER_KEY, RecordFound, RecordReader, RecordWriter};
use maypole_kernels::{View, ViewMut};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Records of one attempt. The fastest attempt counts, because other work may interrupt one.
const RECORDS: usize = 16;
const ATTEMPTS: usize = 20;

/// The throughput of encryption on one core: bytes a second into records, and out of them. Copying
/// them from and to the memory of a caller is included, sending is not.
#[derive(Clone, Copy, Debug)]
pub struct EncryptionRate {
    /// The cipher that two processors like this one use.
    pub suite: CipherSuite,
    /// Bytes a second that are sealed.
    pub sealing: f64,
    /// Bytes a second that are verified and opened.
    pub opening: f64,
}

impl EncryptionRate {
    /// Measures the rate of the calling thread's core, with records of the largest size. Takes a
    /// few milliseconds.
    ///
    /// ```
    /// use maypole_transports::secure::EncryptionRate;
    /// let rate = EncryptionRate::measure();
    /// assert!(rate.sealing > 1e6 && rate.opening > 1e6, "{rate:?}");
    /// ```
    pub fn measure() -> Self {
        let suite = CipherSuite::of_this_processor();
        let mut writer = RecordWriter::new(suite, &[0; KEY], RECORDS_PER_KEY);
        let mut reader = RecordReader::new(suite, &[0; KEY], RECORDS_PER_KEY);
        let mut bytes = vec![1; RECORD];
        let mut shortest = [Duration::MAX; 2];
        for _ in 0..ATTEMPTS {
            let mut times = [Duration::ZERO; 2];
            for _ in 0..RECORDS {
                times[0] += timed(|| seal(&mut writer, &bytes));
                pass(&mut writer, &mut reader);
                times[1] += timed(|| open(&mut reader, &mut bytes));
            }
            shortest = [0, 1].map(|at| shortest[at].min(times[at]));
        }
        let [sealing, opening] =
            shortest.map(|time| (RECORDS * RECORD) as f64 / time.as_secs_f64());
        Self { suite, sealing, opening }
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn seal(writer: &mut RecordWriter, bytes: &[u8]) {
    writer.seal([View::of(bytes), View::EMPTY]);
    black_box(writer.unsent());
}

/// Moves the record as a link would.
fn pass(writer: &mut RecordWriter, reader: &mut RecordReader) {
    let sealed = writer.unsent();
    let len = sealed.len();
    reader.room()[..len].copy_from_slice(sealed);
    reader.received(len);
    writer.sent(len);
}

fn open(reader: &mut RecordReader, bytes: &mut [u8]) {
    let found = reader.open().expect("nothing alters the record");
    debug_assert_eq!(found, RecordFound::Bytes);
    reader.take([ViewMut::of(bytes), ViewMut::EMPTY]);
    let rest = reader.open().expect("nothing alters the record");
    debug_assert_eq!(rest, RecordFound::Nothing);
}
