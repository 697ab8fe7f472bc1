//! Writes past the rings of a stream. A queue pair does its requests in order, so a message in the ring
//! arrives behind the bytes that were written before.

use super::adapter::RegisteredKind;
use super::flush::FlushPair;
use super::queue_pair::RemoteWrite;
use super::stream::VerbsStream;
use crate::shm::Segment;
use crate::stream::Result;
use crate::stream::direct::{DirectWrites, DmaBuf, RemoteMemory};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

impl VerbsStream {
    fn register_kind(&mut self, memory: RegisteredKind) -> io::Result<RemoteMemory> {
        let memory = self.adapter.register(memory).map_err(io::Error::other)?;
        let memory = self.registered.insert(memory);
        Ok(RemoteMemory { address: memory.kind.address(), key: memory.remote_key() })
    }
}

impl DirectWrites for VerbsStream {
    fn register(&mut self, memory: &Arc<Segment>) -> io::Result<RemoteMemory> {
        self.register_kind(RegisteredKind::Host(Arc::clone(memory)))
    }

    fn register_device(&mut self, memory: &Arc<DmaBuf>) -> io::Result<RemoteMemory> {
        let registered = self.register_kind(RegisteredKind::Device(Arc::clone(memory)))?;
        if memory.lands_late {
            self.flush = Some(FlushPair::new(&self.adapter).map_err(io::Error::other)?);
        }
        Ok(registered)
    }

    fn port(&self) -> String {
        format!("port {} of {}", self.adapter.port.number, self.adapter.device.name)
    }

    unsafe fn write(&mut self, (at, len): (usize, usize), to: RemoteMemory) -> Result<Option<u64>> {
        if self.room()? == 0 {
            return Ok(None);
        }
        let memory = self.registered.as_ref().expect("the memory was registered");
        assert!(at + len <= memory.kind.len(), "the bytes are registered");
        let write = RemoteWrite {
            // No byte of the ring is complete by it that was not before.
            id: self.out.sent,
            from: memory.kind.address() + at as u64,
            len: len as u32,
            may_inline: matches!(memory.kind, RegisteredKind::Host(_)),
            local_key: memory.local_key(),
            to: to.address,
            remote_key: to.key,
            immediate: None,
        };
        // SAFETY: the range is registered, and the caller keeps it as it is.
        unsafe { self.post(&write) };
        self.check()?;
        Ok(Some(self.out.total))
    }

    fn flush(&mut self, at: usize) -> Result<bool> {
        let (Some(flush), Some(memory)) = (&mut self.flush, &self.registered) else {
            return Ok(true);
        };
        match flush.read(memory, at) {
            Ok(is_done) => {
                fence(Ordering::Acquire);
                Ok(is_done)
            }
            Err(fault) => {
                self.fault.get_or_insert(fault);
                self.check().map(|()| false)
            }
        }
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
