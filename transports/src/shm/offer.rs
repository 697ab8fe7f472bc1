//! Passes a segment to another process, without either process waiting for the other.
//!
//! The receiver listens on a Unix socket whose name the kernel chooses, and sends an *offer* to take
//! a segment over any connection that others cannot read: that name, and a secret random token. The
//! process that reads the offer passes a segment to the socket together with the token, and
//! continues. The receiver takes the segment at its next poll.

use super::{Segment, invalid};
use crate::limits::{no_descriptor, with_limit};
use crate::random;
use crate::sockets::{connect_abstract_nonblocking, listen_abstract, same_user};
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};

const TOKEN: usize = 16;
/// The length of the socket's queue of connections, and the most accepted ones that may be silent.
const BACKLOG: usize = 64;

/// A receiver's offer, which waits for a segment.
///
/// ```
/// use maypole_transports::shm::{Segment, SegmentOffer};
/// let mut offer = SegmentOffer::new()?;
/// assert!(offer.take(10_000)?.is_none());
/// Segment::create(10_000)?.pass_to(&offer.to_bytes())?;
/// assert_eq!(offer.take(10_000)?.expect("it has been passed").len(), 10_000);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct SegmentOffer {
    listener: UnixListener,
    token: [u8; TOKEN],
    name: Vec<u8>,
    /// Connections from which nothing has come.
    silent: VecDeque<UnixStream>,
}

impl SegmentOffer {
    /// Most bytes of an offer: the token, and the longest name that the system allows.
    pub const LONGEST: usize = TOKEN + 107;

    /// Listens for a segment.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new() -> io::Result<Self> {
        let (listener, name) = listen_abstract(BACKLOG)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, token: random::bytes()?, name, silent: VecDeque::new() })
    }

    /// The offer as the other process reads it.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.token[..], &self.name].concat()
    }

    /// Takes the segment of `len` bytes that the other process has passed; `None` if it has not
    /// arrived yet. Does not wait.
    ///
    /// # Errors
    /// No connection can be accepted, or the segment that has arrived cannot be mapped or has
    /// another length.
    pub fn take(&mut self, len: usize) -> io::Result<Option<Segment>> {
        for _ in 0..self.silent.len() {
            let connection = self.silent.pop_front();
            if let Some(memory) = connection.map_or(Ok(None), |it| self.read(it))? {
                return Segment::from_fd(memory, len).map(Some);
            }
        }
        // Each is read before the next is accepted, for which it may lose its descriptor.
        while let Some(connection) = self.accept()? {
            // The other end may be of another user, or a stranger that has left.
            let is_ours =
                connection.set_nonblocking(true).is_ok() && same_user(&connection).unwrap_or(false);
            if is_ours && let Some(memory) = self.read(connection)? {
                return Segment::from_fd(memory, len).map(Some);
            }
        }
        Ok(None)
    }

    /// The memory that has come over `connection`, which is kept if nothing has.
    fn read(&mut self, connection: UnixStream) -> io::Result<Option<OwnedFd>> {
        match receive(&connection, &self.token) {
            Ok(Some(memory)) => return Ok(Some(memory)),
            Ok(None) => return Err(io::Error::other(no_descriptor())),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if self.silent.len() == BACKLOG {
                    self.silent.pop_front();
                }
                self.silent.push_back(connection);
            }
            Err(error) => tracing::debug!(%error, "refused a connection to an offer"),
        }
        Ok(None)
    }

    /// The next connection. Without a free descriptor, frees those of silent ones.
    fn accept(&mut self) -> io::Result<Option<UnixStream>> {
        loop {
            match self.listener.accept() {
                Ok((connection, _)) => return Ok(Some(connection)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) if self.silent.pop_front().is_some() => {}
                Err(error) => return Err(with_limit(error)),
            }
        }
    }
}

impl Segment {
    /// Passes the segment to the process that made `offer`. Does not wait.
    ///
    /// # Errors
    /// The process cannot be reached, or is of another user.
    pub fn pass_to(&self, offer: &[u8]) -> io::Result<()> {
        let (token, name) = offer.split_at_checked(TOKEN).ok_or(ErrorKind::InvalidData)?;
        let connection = connect_abstract_nonblocking(name)?;
        if !same_user(&connection)? {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [self.fd()];
        let fits = control.push(SendAncillaryMessage::ScmRights(&descriptors));
        debug_assert!(fits, "the space is for one descriptor");
        let parts = [IoSlice::new(token)];
        retry_on_intr(|| {
            rustix::net::sendmsg(&connection, &parts, &mut control, SendFlags::NOSIGNAL)
        })?;
        Ok(())
    }
}

/// Receives the descriptor that came together with `token`; `None` if this process had none free
/// for it.
///
/// # Errors
/// Errors of the socket; other bytes have come, or no descriptor.
fn receive(socket: &UnixStream, token: &[u8; TOKEN]) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut came = [0; TOKEN];
    let read = retry_on_intr(|| {
        let parts = &mut [IoSliceMut::new(&mut came)];
        rustix::net::recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    // Draining also closes surplus descriptors.
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let memory = descriptors.next().and_then(|mut first| first.next());
    match memory {
        _ if read.bytes == 0 => Err(ErrorKind::UnexpectedEof.into()),
        _ if came != *token => Err(invalid("other bytes than the token have come")),
        Some(memory) => Ok(Some(memory)),
        None if read.flags.contains(ReturnFlags::CTRUNC) => Ok(None),
        None => Err(invalid("the message carries no segment")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const BYTES: usize = 5000;

    #[test]
    fn both_ends_map_the_segment_that_was_passed() {
        let mut offer = SegmentOffer::new().unwrap();
        assert!(offer.take(BYTES).unwrap().is_none());
        let mine = Segment::create(BYTES).unwrap();
        // SAFETY: no other thread or process has the segment.
        assert_eq!(unsafe { mine.view() }.as_view().to_vec(), [0; BYTES]);
        mine.pass_to(&offer.to_bytes()).unwrap();
        let theirs = offer.take(BYTES).unwrap().expect("it was passed");
        // SAFETY: as above.
        unsafe { theirs.view() }.slice(4999, 1).fill_from(&[9]);
        // SAFETY: as above.
        assert_eq!(unsafe { mine.view() }.slice(4999, 1).as_view().to_vec(), [9]);
        assert!(offer.to_bytes().len() <= SegmentOffer::LONGEST);
    }

    #[test]
    fn a_connection_without_the_token_is_refused() {
        let mut offer = SegmentOffer::new().unwrap();
        let segment = Segment::create(BYTES).unwrap();
        let mut wrong = offer.to_bytes();
        wrong[0] ^= 1;
        segment.pass_to(&wrong).unwrap();
        drop(connect_abstract_nonblocking(&offer.name).unwrap());
        let _silent = connect_abstract_nonblocking(&offer.name).unwrap();
        let mut without = connect_abstract_nonblocking(&offer.name).unwrap();
        without.write_all(&offer.token).unwrap();
        assert!(offer.take(BYTES).unwrap().is_none());
        segment.pass_to(&offer.to_bytes()).unwrap();
        assert!(offer.take(BYTES).unwrap().is_some());
    }

    #[test]
    fn silent_connections_are_bounded_and_hide_no_segment() {
        let mut offer = SegmentOffer::new().unwrap();
        let mut silent = Vec::new();
        for _ in 0..3 {
            for _ in 0..BACKLOG / 2 {
                silent.push(connect_abstract_nonblocking(&offer.name).unwrap());
            }
            assert!(offer.take(BYTES).unwrap().is_none());
        }
        assert_eq!(offer.silent.len(), BACKLOG);
        Segment::create(BYTES).unwrap().pass_to(&offer.to_bytes()).unwrap();
        assert!(offer.take(BYTES).unwrap().is_some());
    }

    #[test]
    fn a_segment_of_another_length_is_an_error() {
        let mut offer = SegmentOffer::new().unwrap();
        Segment::create(BYTES).unwrap().pass_to(&offer.to_bytes()).unwrap();
        offer.take(BYTES - 1).unwrap_err();
    }

    #[test]
    fn nothing_is_passed_to_an_offer_that_is_gone_or_damaged() {
        let segment = Segment::create(BYTES).unwrap();
        let gone = SegmentOffer::new().unwrap().to_bytes();
        segment.pass_to(&gone).unwrap_err();
        segment.pass_to(&gone[..TOKEN - 1]).unwrap_err();
    }
}
