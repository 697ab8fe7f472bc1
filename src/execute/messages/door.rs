//! How two processes of one host come to share memory for a link, without waiting for one another.
//!
//! The sender opens a nameless door and says over the link where it is, with a word that nobody can
//! guess. The receiver, whenever it comes to read that, makes a segment, brings it to the door and
//! goes on; the sender finds it there when it next looks. Who cannot do its part does nothing, and
//! the link stays what it is.

use maypole_transports::Pipe;
use maypole_transports::deadline::DeadlineSocket;
use maypole_transports::shm::{Segment, receive_segment, send_segment};
use maypole_transports::sockets::{
    connect_abstract_nonblocking, listen_abstract, random, same_user,
};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// Bytes of the word.
const WORD: usize = 16;
/// Most bytes of what a receiver is told: the word, and a name as long as the system allows.
pub(super) const LONGEST: usize = WORD + 107;
/// Callers that may stand at the door.
const BACKLOG: usize = 8;
/// How long who is let in may take; it has all that it brings in its hands.
const PATIENCE: Duration = Duration::from_millis(200);

/// A sender's open door.
#[derive(Debug)]
pub(super) struct Door {
    listener: UnixListener,
    word: [u8; WORD],
    name: Vec<u8>,
}

impl Door {
    pub(super) fn new() -> io::Result<Self> {
        let (listener, name) = listen_abstract(BACKLOG)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, word: random()?, name })
    }

    /// What the receiver has to know.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        [&self.word[..], &self.name].concat()
    }

    /// The segment that the receiver brought; `None` if it was not here yet.
    pub(super) fn collect(&self) -> Option<Segment> {
        while let Ok((caller, _)) = self.listener.accept() {
            match self.let_in(caller) {
                Ok(segment) => return Some(segment),
                Err(error) => {
                    tracing::debug!(%error, "a caller at the door of a link was turned away")
                }
            }
        }
        None
    }

    fn let_in(&self, mut caller: UnixStream) -> io::Result<Segment> {
        if !same_user(&caller)? {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let (mut word, deadline) = ([0; WORD], Instant::now() + PATIENCE);
        DeadlineSocket { socket: &mut caller, deadline }.read_exact(&mut word)?;
        if word != self.word {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        receive_segment(&caller, Pipe::BYTES)
    }
}

/// Makes a segment and brings it to where `door` says.
pub(super) fn bring(door: &[u8]) -> io::Result<Segment> {
    let (word, name) = door.split_at_checked(WORD).ok_or(io::ErrorKind::InvalidData)?;
    let mut caller = connect_abstract_nonblocking(name)?;
    if !same_user(&caller)? {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let segment = Segment::create(Pipe::BYTES)?;
    caller.write_all(word)?;
    send_segment(&caller, &segment)?;
    Ok(segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_brought_and_found() {
        let door = Door::new().unwrap();
        assert!(door.collect().is_none());
        let theirs = bring(&door.to_bytes()).unwrap();
        let ours = door.collect().expect("it was brought");
        theirs.view().slice(17, 1).fill_from(&[9]);
        assert_eq!(ours.view().slice(17, 1).as_view().to_vec(), [9]);
        assert!(door.to_bytes().len() <= LONGEST);
    }

    #[test]
    fn who_does_not_know_the_word_is_turned_away() {
        let door = Door::new().unwrap();
        let mut wrong = door.to_bytes();
        wrong[0] ^= 1;
        bring(&wrong).unwrap();
        drop(connect_abstract_nonblocking(&door.name).unwrap());
        assert!(door.collect().is_none());
        bring(&door.to_bytes()).unwrap();
        assert!(door.collect().is_some());
    }

    #[test]
    fn without_a_door_nothing_is_brought() {
        let gone = Door::new().unwrap().to_bytes();
        assert!(bring(&gone).is_err() && bring(&gone[..WORD - 1]).is_err());
    }
}
