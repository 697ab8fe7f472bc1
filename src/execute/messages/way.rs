//! What carries the bytes of a link: a stream, and once it is there shared memory, each direction
//! from its own moment on.

use crate::execute::AnyStream;
use maypole_kernels::{View, ViewMut};
use maypole_transports::poll::Interest;
use maypole_transports::{Fault, HEAD, Stream};
use std::os::fd::BorrowedFd;

#[derive(Debug)]
pub(super) struct Way {
    stream: AnyStream,
    pipe: Option<AnyStream>,
    /// We send through the pipe.
    out: bool,
    /// We receive through the pipe.
    inward: bool,
}

impl Way {
    pub(super) fn new(stream: AnyStream) -> Self {
        Self { stream, pipe: None, out: false, inward: false }
    }

    /// There is a pipe; nothing goes through it yet.
    pub(super) fn add(&mut self, pipe: AnyStream) {
        self.pipe.get_or_insert(pipe);
    }

    /// What is sent from now on goes through the pipe, if there is one.
    pub(super) fn turn_out(&mut self) {
        self.out = self.pipe.is_some();
    }

    /// What comes from now on comes through the pipe; false if there is none.
    pub(super) fn turn_inward(&mut self) -> bool {
        self.inward = self.pipe.is_some();
        self.inward
    }

    pub(super) fn send(
        &mut self,
        head: &[u8; HEAD],
        body: View<'_>,
        skip: usize,
    ) -> Result<usize, Fault> {
        self.carrier(self.out).send(head, body, skip)
    }

    pub(super) fn receive(
        &mut self,
        head: &mut [u8; HEAD],
        body: ViewMut<'_>,
        skip: usize,
    ) -> Result<usize, Fault> {
        self.carrier(self.inward).receive(head, body, skip)
    }

    fn carrier(&mut self, through_pipe: bool) -> &mut AnyStream {
        match &mut self.pipe {
            Some(pipe) if through_pipe => pipe,
            _ => &mut self.stream,
        }
    }

    /// What to wake up for; nothing wakes who waits for a pipe.
    pub(super) fn interest(
        &self,
        receives: bool,
        sends: bool,
    ) -> Option<(BorrowedFd<'_>, Interest)> {
        let interest = match (receives && !self.inward, sends && !self.out) {
            (true, true) => Interest::Both,
            (true, false) => Interest::Read,
            (false, true) => Interest::Write,
            (false, false) => return None,
        };
        Some((self.stream.descriptor()?, interest))
    }

    pub(super) fn finish(&mut self) {
        self.stream.finish();
        if let Some(pipe) = &mut self.pipe {
            pipe.finish();
        }
    }

    /// Bytes that would be lost if this end were closed now.
    pub(super) fn unsent(&self) -> usize {
        self.stream.unsent()
    }
}
