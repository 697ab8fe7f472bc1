//! Sets up shared memory for a link between two processes of one host, without either process
//! waiting for the other.
//!
//! The sender listens on a Unix socket whose name the kernel chooses, and sends an *offer* over the
//! link: that name, and a secret random token. When the receiver reads the offer, it makes a
//! segment, passes it to the socket together with the token, and continues. The sender takes the
//! segment at its next poll. After a failure on either end the link keeps its connection.

use maypole_transports::Pipe;
use maypole_transports::deadline::DeadlineSocket;
use maypole_transports::shm::{Segment, receive_segment, send_segment};
use maypole_transports::sockets::{connect_abstract_nonblocking, listen_abstract, same_user};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

const TOKEN: usize = 16;
/// Most bytes of an offer: the token, and the longest name that the system allows.
pub(super) const LONGEST_OFFER: usize = TOKEN + 107;
/// The length of the socket's queue of connections.
const BACKLOG: usize = 8;
/// The timeout of an accepted connection. A receiver sends all bytes in one write.
const TRANSFER: Duration = Duration::from_millis(200);

/// A sender's offer, which waits for a segment.
#[derive(Debug)]
pub(super) struct SharedMemoryOffer {
    listener: UnixListener,
    token: [u8; TOKEN],
    name: Vec<u8>,
}

impl SharedMemoryOffer {
    /// Listens for a segment.
    ///
    /// # Errors
    /// The error of the system call.
    pub(super) fn new() -> io::Result<Self> {
        let (listener, name) = listen_abstract(BACKLOG)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, token: maypole_transports::random::bytes()?, name })
    }

    /// The offer as the receiver reads it.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        [&self.token[..], &self.name].concat()
    }

    /// Takes the segment that the receiver has passed; `None` if it has not arrived yet.
    pub(super) fn take_segment(&self) -> Option<Segment> {
        while let Ok((connection, _)) = self.listener.accept() {
            match self.receive(connection) {
                Ok(segment) => return Some(segment),
                Err(error) => tracing::debug!(%error, "refused a segment for a message link"),
            }
        }
        None
    }

    /// Receives the segment, if the other end is of the same user and has sent the token.
    fn receive(&self, mut connection: UnixStream) -> io::Result<Segment> {
        if !same_user(&connection)? {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let deadline = Instant::now() + TRANSFER;
        let mut token = [0; TOKEN];
        DeadlineSocket { socket: &mut connection, deadline }.read_exact(&mut token)?;
        if token != self.token {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        receive_segment(&connection, Pipe::BYTES)
    }
}

/// Makes a segment and passes it to the sender that made `offer`.
///
/// # Errors
/// What the system reports: the sender cannot be reached, or there is no memory left.
pub(super) fn provide_segment(offer: &[u8]) -> io::Result<Segment> {
    let (token, name) = offer.split_at_checked(TOKEN).ok_or(io::ErrorKind::InvalidData)?;
    let mut connection = connect_abstract_nonblocking(name)?;
    if !same_user(&connection)? {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let segment = Segment::create(Pipe::BYTES)?;
    connection.write_all(token)?;
    send_segment(&connection, &segment)?;
    Ok(segment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use maypole_kernels::{View, ViewMut};
    use maypole_transports::{HEAD, Stream};

    #[test]
    fn both_ends_map_the_segment_that_was_provided() {
        let offer = SharedMemoryOffer::new().unwrap();
        assert!(offer.take_segment().is_none());
        let theirs = provide_segment(&offer.to_bytes()).unwrap();
        let ours = offer.take_segment().expect("it was provided");
        // The ends of a pipe are those of one segment.
        let mut sender = Pipe::writer(ours);
        let mut receiver = Pipe::reader(theirs);
        sender.send(&[9; HEAD], View::EMPTY, 0).unwrap();
        let mut head = [0; HEAD];
        assert_eq!(receiver.receive(&mut head, ViewMut::EMPTY, 0).unwrap(), HEAD);
        assert_eq!(head, [9; HEAD]);
        assert!(offer.to_bytes().len() <= LONGEST_OFFER);
    }

    #[test]
    fn a_connection_without_the_token_is_refused() {
        let offer = SharedMemoryOffer::new().unwrap();
        let mut wrong = offer.to_bytes();
        wrong[0] ^= 1;
        provide_segment(&wrong).unwrap();
        drop(connect_abstract_nonblocking(&offer.name).unwrap());
        assert!(offer.take_segment().is_none());
        provide_segment(&offer.to_bytes()).unwrap();
        assert!(offer.take_segment().is_some());
    }

    #[test]
    fn nothing_is_provided_for_an_offer_that_is_gone_or_damaged() {
        let gone = SharedMemoryOffer::new().unwrap().to_bytes();
        assert!(provide_segment(&gone).is_err());
        assert!(provide_segment(&gone[..TOKEN - 1]).is_err());
    }
}
