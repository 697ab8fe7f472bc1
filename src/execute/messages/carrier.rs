//! The stream under a link, and the shared memory that may later take its place.

use crate::execute::AnyStream;
use maypole_transports::Stream;
use maypole_transports::pipe::PipeWait;
use maypole_transports::poll::Interest;
use std::os::fd::BorrowedFd;

/// A stream, and a pipe in shared memory once there is one. Each direction switches to the pipe at
/// a moment of its own.
#[derive(Debug)]
pub(super) struct Carrier {
    stream: AnyStream,
    pipe: Option<AnyStream>,
    /// This end sends through the pipe.
    sends_through_pipe: bool,
    /// This end receives through the pipe.
    receives_through_pipe: bool,
}

impl Carrier {
    pub(super) fn new(stream: AnyStream) -> Self {
        Self { stream, pipe: None, sends_through_pipe: false, receives_through_pipe: false }
    }

    /// Adds a pipe. Neither direction uses it yet.
    pub(super) fn add_pipe(&mut self, pipe: AnyStream) {
        self.pipe.get_or_insert(pipe);
    }

    /// Sends through the pipe from now on, if there is one.
    pub(super) fn switch_outbound(&mut self) {
        self.sends_through_pipe = self.pipe.is_some();
    }

    /// Receives through the pipe from now on; false if there is none.
    pub(super) fn switch_inbound(&mut self) -> bool {
        self.receives_through_pipe = self.pipe.is_some();
        self.receives_through_pipe
    }

    /// The stream or pipe that this end sends on.
    pub(super) fn outbound(&mut self) -> &mut AnyStream {
        match &mut self.pipe {
            Some(pipe) if self.sends_through_pipe => pipe,
            _ => &mut self.stream,
        }
    }

    /// The stream or pipe that this end receives on.
    pub(super) fn inbound(&mut self) -> &mut AnyStream {
        match &mut self.pipe {
            Some(pipe) if self.receives_through_pipe => pipe,
            _ => &mut self.stream,
        }
    }

    /// Asks for the event that ends a sleep. Returns false if something has come already.
    pub(super) fn prepare_to_sleep(&mut self) -> bool {
        self.stream.prepare_to_sleep()
    }

    /// Makes closing the link not wait for what was sent.
    pub(super) fn abandon(&mut self) {
        self.stream.abandon();
    }

    /// Says that nothing more will be sent.
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

/// What one end of a link waits for: something to receive, room to send, or both.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkWait<'a> {
    pub(super) carrier: &'a Carrier,
    pub(super) receives: bool,
    pub(super) sends: bool,
}

impl<'a> LinkWait<'a> {
    /// The event that ends a sleep early; `None` for a direction through the pipe, of which the
    /// kernel knows nothing.
    pub(super) fn interest(self) -> Option<(BorrowedFd<'a>, Interest)> {
        let reads = self.receives && !self.carrier.receives_through_pipe;
        let writes = self.sends && !self.carrier.sends_through_pipe;
        self.carrier.stream.interest(reads, writes)
    }

    /// The same, if all of that goes through the pipe.
    pub(super) fn pipe_wait(self) -> Option<PipeWait<'a>> {
        let Self { carrier, receives, sends } = self;
        let is_only =
            (!receives || carrier.receives_through_pipe) && (!sends || carrier.sends_through_pipe);
        match &carrier.pipe {
            Some(AnyStream::Pipe(pipe)) if is_only => Some(PipeWait { pipe, receives, sends }),
            _ => None,
        }
    }
}
