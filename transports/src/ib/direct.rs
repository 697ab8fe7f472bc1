//! Writes past the rings of a stream. A queue pair does its requests in order, so a message in the ring
//! arrives behind the bytes that were written before.

use super::queue_pair::RemoteWrite;
use super::stream::VerbsStream;
use crate::shm::Segment;
use crate::stream::Result;
use crate::stream::direct::{DirectWrites, RemoteMemory};
use std::io;
use std::sync::Arc;

impl DirectWrites for VerbsStream {
    fn register(&mut self, memory: &Arc<Segment>) -> io::Result<RemoteMemory> {
        let memory = self.adapter.register(memory).map_err(io::Error::other)?;
        let memory = self.registered.insert(memory);
        Ok(RemoteMemory { address: memory.address(), key: memory.remote_key() })
    }

    fn port(&self) -> String {
        format!("port {} of {}", self.adapter.port.number, self.adapter.device.name)
    }

    unsafe fn write(&mut self, (at, len): (usize, usize), to: RemoteMemory) -> Result<Option<u64>> {
        if self.room()? == 0 {
            return Ok(None);
        }
        let memory = self.registered.as_ref().expect("the memory was registered");
        assert!(at + len <= memory.segment().len(), "the bytes are registered");
        let write = RemoteWrite {
            // No byte of the ring is complete by it that was not before.
            id: self.out.sent,
            from: memory.address() + at as u64,
            len: len as u32,
            local_key: memory.local_key(),
            to: to.address + at as u64,
            remote_key: to.key,
            immediate: None,
        };
        // SAFETY: the range is registered, and the caller keeps it as it is.
        unsafe { self.post(&write) };
        self.check()?;
        Ok(Some(self.out.total))
    }

    fn is_complete(&mut self, write: u64) -> Result<bool> {
        let is_complete = |stream: &Self| stream.out.total - stream.out.posted as u64 >= write;
        if is_complete(self) {
            return Ok(true);
        }
        self.pump();
        match self.check() {
            Ok(()) => Ok(is_complete(self)),
            // A connection that has failed reads nothing, and the peer's goodbye is its reason.
            Err(_) if self.out.peer_gone => Ok(true),
            Err(fault) => Err(fault),
        }
    }
}
