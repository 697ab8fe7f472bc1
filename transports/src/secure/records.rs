//! The records of an encrypted connection: a bounded number of bytes, sealed together.
//!
//! ```text
//! record:   length (4 bytes, encrypted)   tag (16)   bytes (encrypted)   tag (16)
//! goodbye:  length 0 (encrypted)          tag (16)
//! ```
//!
//! A length has a tag of its own, so that no receiver waits for the bytes of an altered length: an
//! altered byte anywhere is detected as soon as its tag is complete. The parts of all records of a
//! direction are numbered, and the number is the nonce. So a part that is repeated, dropped or
//! moved does not open. The last record is a goodbye; an end without one was not made by the peer.
//!
//! A writer and a reader each hold one record. After 2^20 records, which hold about 32 GiB at most,
//! both switch to the next key. AES-GCM is safe far beyond that, and no nonce is ever used twice.

use super::TAG;
use super::cipher::{CipherSuite, KEY, RecordCipher};
use crate::stream::{Fault, HEAD, Result};
use maypole_kernels::{View, ViewMut};
use std::ops::Range;

/// Most bytes of a record, before they are sealed: a head and 32 KiB of its body.
pub(super) const RECORD: usize = HEAD + (32 << 10);
/// Records that are sealed with one key.
pub(super) const RECORDS_PER_KEY: u64 = 1 << 20;

/// Bytes of a sealed length.
const LENGTH: usize = size_of::<u32>() + TAG;
/// Bytes of the longest record on the wire.
const LONGEST: usize = LENGTH + RECORD + TAG;

/// The ciphers of one direction, one after another, and the number of the next nonce.
#[derive(Debug)]
struct CipherChain {
    cipher: RecordCipher,
    nonces: u64,
    records: u64,
    records_per_key: u64,
}

impl CipherChain {
    fn new(suite: CipherSuite, key: &[u8; KEY], records_per_key: u64) -> Self {
        let cipher = RecordCipher::new(suite, key);
        Self { cipher, nonces: 0, records: 0, records_per_key }
    }

    fn seal(&mut self, bytes: &mut [u8]) -> [u8; TAG] {
        let tag = self.cipher.seal(self.nonces, bytes);
        self.nonces += 1;
        tag
    }

    /// Opens `sealed`, which ends with its tag. Returns the bytes before the tag.
    fn open<'a>(&mut self, sealed: &'a mut [u8]) -> Result<&'a mut [u8]> {
        let (bytes, tag) = sealed.split_last_chunk_mut().expect("a tag is behind what it seals");
        self.cipher.open(self.nonces, bytes, tag)?;
        self.nonces += 1;
        Ok(bytes)
    }

    /// Counts a record. Switches to the next key once this one has sealed enough.
    fn end_record(&mut self) {
        self.records += 1;
        if self.records == self.records_per_key {
            self.cipher = self.cipher.next();
            self.nonces = 0;
            self.records = 0;
        }
    }
}

/// Makes the records of one direction. Holds one record, and a goodbye after it.
#[derive(Debug)]
pub(super) struct RecordWriter {
    chain: CipherChain,
    wire: Box<[u8]>,
    /// The part of `wire` that has not been sent.
    unsent: Range<usize>,
}

impl RecordWriter {
    pub(super) fn new(suite: CipherSuite, key: &[u8; KEY], records_per_key: u64) -> Self {
        Self {
            chain: CipherChain::new(suite, key, records_per_key),
            wire: vec![0; LONGEST + LENGTH].into_boxed_slice(),
            unsent: 0..0,
        }
    }

    /// Seals the first bytes of `parts` as a record. Returns their number.
    ///
    /// # Panics
    /// If the last record has not been sent as a whole, or there are no bytes.
    pub(super) fn seal(&mut self, parts: [View<'_>; 2]) -> usize {
        assert!(self.unsent.is_empty(), "one record leaves after another");
        let [first, second] = parts;
        let first = first.slice(0, first.len().min(RECORD));
        let second = second.slice(0, second.len().min(RECORD - first.len()));
        let len = first.len() + second.len();
        assert!(len > 0, "a record without bytes would be a goodbye");
        let (length, rest) = self.wire.split_at_mut(LENGTH);
        first.copy_to(&mut rest[..first.len()]);
        second.copy_to(&mut rest[first.len()..len]);
        seal_length(&mut self.chain, len, length);
        let tag = self.chain.seal(&mut rest[..len]);
        rest[len..len + TAG].copy_from_slice(&tag);
        self.chain.end_record();
        self.unsent = 0..LENGTH + len + TAG;
        len
    }

    /// Adds the goodbye, which is the last record.
    pub(super) fn seal_goodbye(&mut self) {
        let start = self.unsent.end;
        seal_length(&mut self.chain, 0, &mut self.wire[start..start + LENGTH]);
        self.unsent.end += LENGTH;
    }

    /// The bytes to send next.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.wire[self.unsent.clone()]
    }

    /// Removes the first `bytes` bytes of [`unsent`](Self::unsent), which were sent.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.unsent.start += bytes;
        if self.unsent.is_empty() {
            self.unsent = 0..0;
        }
    }
}

fn seal_length(chain: &mut CipherChain, len: usize, into: &mut [u8]) {
    let (length, tag) = into.split_at_mut(size_of::<u32>());
    length.copy_from_slice(&(len as u32).to_le_bytes());
    tag.copy_from_slice(&chain.seal(length));
}

/// Opens the records of one direction. Holds the bytes of the longest record.
#[derive(Debug)]
pub(super) struct RecordReader {
    chain: CipherChain,
    wire: Box<[u8]>,
    /// The part of `wire` that was received and not opened.
    sealed: Range<usize>,
    /// The part of `wire` that was opened and not taken. It lies before `sealed`.
    opened: Range<usize>,
    /// Bytes of the record whose length was opened: 0 for a goodbye.
    record: Option<usize>,
}

impl RecordReader {
    pub(super) fn new(suite: CipherSuite, key: &[u8; KEY], records_per_key: u64) -> Self {
        Self {
            chain: CipherChain::new(suite, key, records_per_key),
            wire: vec![0; LONGEST].into_boxed_slice(),
            sealed: 0..0,
            opened: 0..0,
            record: None,
        }
    }

    /// Opens the next record, if it was received as a whole and all bytes of the last one were
    /// taken. Returns true if there are bytes to take.
    ///
    /// # Errors
    /// [`Fault::Closed`] after a goodbye; [`Fault::Altered`] if the bytes are not those that the peer sent next.
    /// No later call succeeds.
    pub(super) fn open(&mut self) -> Result<bool> {
        if !self.opened.is_empty() {
            return Ok(true);
        }
        if self.record.is_none() && self.sealed.len() >= LENGTH {
            self.open_length()?;
        }
        match self.record {
            Some(0) => Err(Fault::Closed),
            Some(len) if self.sealed.len() >= len + TAG => {
                self.open_bytes(len)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn open_length(&mut self) -> Result<()> {
        let start = self.sealed.start;
        let length = self.chain.open(&mut self.wire[start..start + LENGTH])?;
        let length = u32::from_le_bytes(*length.first_chunk().ok_or(Fault::Altered)?) as usize;
        self.sealed.start += LENGTH;
        if length > RECORD {
            return Err(Fault::Altered);
        }
        self.record = Some(length);
        Ok(())
    }

    fn open_bytes(&mut self, len: usize) -> Result<()> {
        let start = self.sealed.start;
        self.chain.open(&mut self.wire[start..start + len + TAG])?;
        self.chain.end_record();
        self.record = None;
        self.sealed.start += len + TAG;
        self.opened = start..start + len;
        Ok(())
    }

    /// Moves bytes that were opened to `parts`. Returns their number.
    pub(super) fn take(&mut self, parts: [ViewMut<'_>; 2]) -> usize {
        let before = self.opened.len();
        for part in parts {
            let len = part.len().min(self.opened.len());
            let from = self.opened.start;
            part.slice(0, len).fill_from(&self.wire[from..from + len]);
            self.opened.start += len;
        }
        before - self.opened.len()
    }

    /// Room for bytes that are received next, at least for the rest of the next record. Only while there is
    /// nothing to take.
    pub(super) fn room(&mut self) -> &mut [u8] {
        let start = self.sealed.start;
        let next = start + self.record.map_or(LENGTH, |len| len + TAG);
        if self.sealed.is_empty() || next > self.wire.len() {
            self.wire.copy_within(self.sealed.clone(), 0);
            self.sealed = 0..self.sealed.len();
        }
        &mut self.wire[self.sealed.end..]
    }

    /// Accepts the first `bytes` bytes of [`room`](Self::room), which were received.
    pub(super) fn received(&mut self, bytes: usize) {
        self.sealed.end += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const KEY_OF_TESTS: [u8; KEY] = [9; KEY];
    const SUITE: CipherSuite = CipherSuite::ChaCha20Poly1305;

    fn both(records_per_key: u64) -> (RecordWriter, RecordReader) {
        let writer = RecordWriter::new(SUITE, &KEY_OF_TESTS, records_per_key);
        (writer, RecordReader::new(SUITE, &KEY_OF_TESTS, records_per_key))
    }

    fn seal(writer: &mut RecordWriter, bytes: &[u8]) -> Vec<u8> {
        let (first, second) = bytes.split_at(bytes.len().min(16));
        assert_eq!(writer.seal([View::of(first), View::of(second)]), bytes.len().min(RECORD));
        sent(writer)
    }

    fn goodbye(writer: &mut RecordWriter) -> Vec<u8> {
        writer.seal_goodbye();
        sent(writer)
    }

    fn sent(writer: &mut RecordWriter) -> Vec<u8> {
        let wire = writer.unsent().to_vec();
        writer.sent(wire.len());
        wire
    }

    /// Gives `wire` to `reader`, at most `most` bytes at a time. Returns the bytes of all records,
    /// and whether a goodbye followed them.
    fn read(reader: &mut RecordReader, mut wire: &[u8], most: usize) -> Result<(Vec<u8>, bool)> {
        let mut bytes = Vec::new();
        loop {
            match reader.open() {
                Err(Fault::Closed) => return Ok((bytes, true)),
                Err(fault) => return Err(fault),
                Ok(true) => {
                    let mut some = [0; 100];
                    let (first, second) = some.split_at_mut(7);
                    let taken = reader.take([ViewMut::of(first), ViewMut::of(second)]);
                    bytes.extend(&some[..taken]);
                }
                Ok(false) if wire.is_empty() => return Ok((bytes, false)),
                Ok(false) => {
                    let room = reader.room();
                    assert!(!room.is_empty(), "there is room for the rest of a record");
                    let now = wire.len().min(room.len()).min(most);
                    room[..now].copy_from_slice(&wire[..now]);
                    reader.received(now);
                    wire = &wire[now..];
                }
            }
        }
    }

    fn numbers(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7) as u8).collect()
    }

    #[test]
    fn a_record_is_a_sealed_length_and_sealed_bytes() {
        let (mut writer, _) = both(RECORDS_PER_KEY);
        assert_eq!(seal(&mut writer, &numbers(100)).len(), 4 + 16 + 100 + 16);
        assert_eq!(goodbye(&mut writer).len(), 4 + 16);
        let (mut writer, _) = both(RECORDS_PER_KEY);
        assert_eq!(seal(&mut writer, &numbers(1 << 20)).len(), LONGEST);
    }

    #[test]
    fn keys_change_without_a_word_and_both_ends_go_on() {
        let (mut writer, mut reader) = both(3);
        for record in 0..20 {
            let nonces = writer.chain.nonces;
            assert_eq!(nonces, record % 3 * 2, "a nonce belongs to one part under one key");
            let wire = seal(&mut writer, &numbers(50));
            assert_eq!(read(&mut reader, &wire, 1000).unwrap(), (numbers(50), false));
        }
        // An end that keeps its key longer cannot decrypt the other end's records any more.
        let (mut writer, _) = both(3);
        let (_, mut reader) = both(4);
        let wire: Vec<_> = (0..4).flat_map(|_| seal(&mut writer, &numbers(50))).collect();
        read(&mut reader, &wire, 1000).unwrap_err();
    }

    /// Nonces begin anew with each key. A key that stayed would reuse nonces, which can reveal
    /// plain text.
    #[test]
    fn equal_records_under_successive_keys_look_different() {
        for suite in [SUITE, CipherSuite::of_this_processor()] {
            let mut writer = RecordWriter::new(suite, &KEY_OF_TESTS, 1);
            let wires: BTreeSet<_> = (0..20).map(|_| seal(&mut writer, &numbers(50))).collect();
            assert_eq!(wires.len(), 20, "{suite}");
        }
    }

    #[test]
    fn a_goodbye_follows_a_record_that_has_not_left() {
        let (mut writer, mut reader) = both(RECORDS_PER_KEY);
        writer.seal([View::of(&numbers(RECORD)), View::EMPTY]);
        writer.sent(10);
        let mut wire = numbers(0);
        writer.seal_goodbye();
        wire.extend(sent(&mut writer));
        assert_eq!(wire.len(), LONGEST - 10 + LENGTH);
        // The first ten bytes have left before.
        let (mut again, _) = both(RECORDS_PER_KEY);
        let whole = [&seal(&mut again, &numbers(RECORD))[..10], &wire].concat();
        assert_eq!(read(&mut reader, &whole, 1 << 20).unwrap(), (numbers(RECORD), true));
    }

    #[test]
    fn records_that_are_dropped_repeated_or_moved_do_not_open() {
        let (mut writer, _) = both(RECORDS_PER_KEY);
        let records: Vec<_> = (1..6).map(|len| seal(&mut writer, &numbers(len * 11))).collect();
        let opens = |order: &[usize]| {
            let (_, mut reader) = both(RECORDS_PER_KEY);
            let wire: Vec<_> = order.iter().flat_map(|at| records[*at].clone()).collect();
            read(&mut reader, &wire, 1000).is_ok()
        };
        assert!(opens(&[0, 1, 2, 3, 4]));
        assert!(!opens(&[1]) && !opens(&[0, 2]) && !opens(&[0, 0]) && !opens(&[0, 1, 0]));
        assert!(!opens(&[1, 0]) && !opens(&[0, 1, 2, 4, 3]));
    }

    /// Each part is replaced by the part of another record that has its length.
    #[test]
    fn parts_of_records_are_not_exchanged() {
        let (mut writer, _) = both(RECORDS_PER_KEY);
        let [first, second] = [(); 2].map(|()| seal(&mut writer, &numbers(40)));
        let opens = |wire: Vec<u8>| read(&mut both(RECORDS_PER_KEY).1, &wire, 1000).is_ok();
        assert!(opens([&first[..], &second].concat()));
        assert!(!opens([&first[..LENGTH], &second[LENGTH..]].concat()));
        assert!(!opens([&second[..LENGTH], &first[LENGTH..]].concat()));
    }

    #[test]
    fn every_altered_byte_is_noticed_without_a_byte_more() {
        let (mut writer, _) = both(RECORDS_PER_KEY);
        let wire = [seal(&mut writer, &numbers(30)), goodbye(&mut writer)].concat();
        for at in 0..wire.len() {
            for bit in [1, 0x80] {
                let mut altered = wire.clone();
                altered[at] ^= bit;
                read(&mut both(RECORDS_PER_KEY).1, &altered, 1000).unwrap_err();
            }
        }
    }

    /// Every end but that after the goodbye is visible as one.
    #[test]
    fn a_stream_that_is_cut_has_no_goodbye() {
        let (mut writer, _) = both(RECORDS_PER_KEY);
        let wire = [seal(&mut writer, &numbers(30)), goodbye(&mut writer)].concat();
        for end in 0..=wire.len() {
            let (bytes, said) = read(&mut both(RECORDS_PER_KEY).1, &wire[..end], 1000).unwrap();
            assert_eq!(said, end == wire.len());
            let whole = end >= LENGTH + 30 + TAG;
            assert_eq!(
                bytes,
                if whole { numbers(30) } else { Vec::new() },
                "none before their tag"
            );
        }
    }

    proptest! {
        #[test]
        fn any_records_in_any_pieces_come_back(
            lens in prop::collection::vec(1..3 * RECORD / 2, 1..8),
            most in 1..3 * RECORD,
        ) {
            let (mut writer, mut reader) = both(2);
            let mut wire = Vec::new();
            let mut plain = Vec::new();
            for len in lens {
                wire.extend(seal(&mut writer, &numbers(len)));
                plain.extend(&numbers(len)[..len.min(RECORD)]);
            }
            wire.extend(goodbye(&mut writer));
            prop_assert_eq!(read(&mut reader, &wire, most).unwrap(), (plain, true));
        }

        #[test]
        fn any_bytes_are_refused_or_awaited(
            wire in prop::collection::vec(any::<u8>(), 0..200),
            most in 1..200usize,
        ) {
            let outcome = read(&mut both(RECORDS_PER_KEY).1, &wire, most);
            prop_assert_eq!(outcome.is_ok(), wire.len() < LENGTH);
        }
    }
}
