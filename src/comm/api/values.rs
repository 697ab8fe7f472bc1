//! Bytes and values of a length that some ranks lack beforehand.
//!
//! Values are serialized by [postcard](https://docs.rs/postcard): compact, little-endian, without
//! names of types or fields. So all ranks must use the same type.

use crate::comm::Communicator;
use crate::error::{Error, Result};
use crate::wire;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of the header: a length, and the first bytes of the value, which travel with it.
const HEADER: usize = 48;
const LENGTH: usize = 8;
/// Stands for the length of a value that its rank could not serialize.
const NONE: u64 = u64::MAX;

impl Communicator {
    /// Copies the root's `bytes` to all ranks. Other ranks need no length, and their `bytes` are
    /// not used.
    ///
    /// ```
    /// use maypole::Communicator;
    /// let heard = Communicator::run_local(3, |mut comm| {
    ///     let mine = if comm.rank() == 1 { b"spring".to_vec() } else { Vec::new() };
    ///     comm.broadcast_bytes(mine, 1).unwrap()
    /// });
    /// assert_eq!(heard, [b"spring"; 3]);
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such root; else as every call.
    pub fn broadcast_bytes(&mut self, bytes: Vec<u8>, root: usize) -> Result<Vec<u8>> {
        self.check_root("broadcast_bytes", root)?;
        let bytes = self.broadcast_some(Some(bytes).filter(|_| self.rank() == root), root)?;
        bytes.ok_or_else(|| self.unserialized("broadcast_bytes", root))
    }

    /// Copies the root's `value` to all ranks. Other ranks' `value` is not used and may be `None`.
    ///
    /// ```
    /// use maypole::Communicator;
    /// let settings = Communicator::run_local(2, |mut comm| {
    ///     let mine = (comm.rank() == 0).then(|| (String::from("warm up"), vec![0.5f32, 1.0]));
    ///     comm.broadcast_value(mine, 0).unwrap()
    /// });
    /// assert_eq!(settings[1], (String::from("warm up"), vec![0.5, 1.0]));
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such root, or it passes no value; [`Error::Value`] if the
    /// root's value cannot be serialized, or the received bytes are not a value of type `T`; else
    /// as every call.
    #[doc(alias = "broadcast_object_list")]
    pub fn broadcast_value<T: Serialize + DeserializeOwned>(
        &mut self,
        value: Option<T>,
        root: usize,
    ) -> Result<T> {
        let operation = "broadcast_value";
        self.check_root(operation, root)?;
        let mine = value.as_ref().filter(|_| self.rank() == root);
        let written = mine.map(|value| self.write_value(operation, value)).transpose();
        // The root broadcasts also after a failure, because the other ranks wait for it.
        let (bytes, written) = match written {
            Ok(bytes) => (bytes, Ok(())),
            Err(error) => (None, Err(error)),
        };
        let came = self.broadcast_some(bytes, root)?;
        written?;
        if self.rank() == root {
            let none = || self.invalid(operation, "the root brings no value".to_owned());
            return value.ok_or_else(none);
        }
        let bytes = came.ok_or_else(|| self.unserialized(operation, root))?;
        self.read_value(operation, root, &bytes)
    }

    /// Returns the values of all ranks, by rank, on every rank.
    ///
    /// ```
    /// use maypole::Communicator;
    /// let names = Communicator::run_local(3, |mut comm| {
    ///     comm.all_gather_values(&format!("rank {}", comm.rank())).unwrap()
    /// });
    /// assert_eq!(names, [["rank 0", "rank 1", "rank 2"]; 3]);
    /// ```
    ///
    /// # Errors
    /// [`Error::Value`] on every rank if some value cannot be serialized, or if the received bytes
    /// are not a value of type `T`; else as every call.
    #[doc(alias = "all_gather_object")]
    pub fn all_gather_values<T: Serialize + DeserializeOwned>(
        &mut self,
        value: &T,
    ) -> Result<Vec<T>> {
        let operation = "all_gather_values";
        let written = self.write_value(operation, value);
        let mut lengths = vec![0; self.world()];
        let length = written.as_ref().map_or(NONE, |bytes| bytes.len() as u64);
        self.all_gather((&[length], &mut lengths))?;
        let mut mine = written?;
        if let Some(rank) = lengths.iter().position(|length| *length == NONE) {
            return Err(self.unserialized(operation, rank));
        }
        let counts: Vec<usize> = lengths.iter().map(|length| padded(*length as usize)).collect();
        let mut all = Vec::new();
        self.grow(operation, &mut all, counts.iter().fold(0, |sum, it| it.saturating_add(sum)))?;
        mine.resize(counts[self.rank()], 0);
        self.all_gather((&mine, &mut all, &counts))?;
        let mut rest = &all[..];
        let blocks = lengths.iter().zip(&counts).enumerate();
        let values = blocks.map(|(peer, (length, count))| {
            let (block, behind) = rest.split_at(*count);
            rest = behind;
            self.read_value(operation, peer, &block[..*length as usize])
        });
        values.collect()
    }

    /// Copies the root's bytes to all ranks, or that the root has none.
    fn broadcast_some(&mut self, bytes: Option<Vec<u8>>, root: usize) -> Result<Option<Vec<u8>>> {
        let mut header = [0; HEADER];
        if self.rank() == root {
            let length = bytes.as_ref().map_or(NONE, |bytes| bytes.len() as u64);
            header[..LENGTH].copy_from_slice(&length.to_le_bytes());
            let short = bytes.as_ref().filter(|bytes| bytes.len() <= HEADER - LENGTH);
            short.inspect(|bytes| header[LENGTH..LENGTH + bytes.len()].copy_from_slice(bytes));
        }
        self.broadcast(&mut header, root)?;
        let length = u64::from_le_bytes(header[..LENGTH].try_into().expect("8 of 48 bytes"));
        if length == NONE {
            return Ok(None);
        }
        let length = length as usize;
        if length <= HEADER - LENGTH {
            return Ok(Some(header[LENGTH..LENGTH + length].to_vec()));
        }
        // The length is that of the root's message. If the root has called something else, any
        // number may stand there.
        let mut bytes = bytes.unwrap_or_default();
        self.grow("broadcast_bytes", &mut bytes, padded(length))?;
        self.broadcast(&mut bytes, root)?;
        bytes.truncate(length);
        Ok(Some(bytes))
    }

    /// Appends zeros to `room` until it has `bytes` bytes.
    ///
    /// # Errors
    /// [`Error::Aborted`] on every rank if this rank has not so much memory.
    fn grow(&mut self, operation: &'static str, room: &mut Vec<u8>, bytes: usize) -> Result<()> {
        if room.try_reserve_exact(bytes.saturating_sub(room.len())).is_err() {
            return Err(self.engine.get_mut().health.no_memory(operation, bytes));
        }
        room.resize(bytes, 0);
        Ok(())
    }

    fn write_value<T: Serialize>(&self, operation: &'static str, value: &T) -> Result<Vec<u8>> {
        postcard::to_stdvec(value).map_err(|error| {
            let why = format!("brings a value that cannot be serialized: {error}");
            self.wrong_value(operation, self.rank(), why)
        })
    }

    fn read_value<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        peer: usize,
        bytes: &[u8],
    ) -> Result<T> {
        wire::decode(bytes).map_err(|why| {
            let why = format!("brings bytes that are not a value of the type asked for: {why}");
            self.wrong_value(operation, peer, why)
        })
    }

    fn unserialized(&self, operation: &'static str, peer: usize) -> Error {
        self.wrong_value(operation, peer, "brings a value that it could not serialize".to_owned())
    }

    fn wrong_value(&self, operation: &'static str, peer: usize, why: String) -> Error {
        Error::Value { rank: self.rank(), operation, peer, why }
    }
}

/// How many bytes are sent for a value of `length` bytes: at most a quarter more, and 63 bytes. So
/// many lengths share few programs. A length whose padding would overflow becomes the largest
/// number, for which there is no memory.
fn padded(length: usize) -> usize {
    let step = (length / 8 + 1).next_power_of_two().max(64);
    length.checked_next_multiple_of(step).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::padded;
    use std::collections::BTreeSet;

    #[test]
    fn few_lengths_are_sent_and_none_is_much_longer() {
        let lengths: BTreeSet<usize> = (0..1 << 20).map(padded).collect();
        assert!(lengths.len() < 150, "{}", lengths.len());
        assert!(
            (0..1 << 20)
                .all(|length| (length..=length + 63 + length / 4).contains(&padded(length)))
        );
        assert_eq!(padded(0), 0);
        assert_eq!(padded(usize::MAX), usize::MAX, "there is no such memory");
    }
}
