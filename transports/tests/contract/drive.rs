//! Drives a stream as an executor does: sends, receives, and yields when neither moves a byte,
//! until a generous deadline.

use maypole_kernels::{View, ViewMut};
use maypole_transports::{Fault, HEAD, Head, Stream};
use std::time::{Duration, Instant};

/// How long any step may take. Only a broken stream comes near it.
pub(crate) const GENEROUS: Duration = Duration::from_secs(60);

/// An end of a stream that can move to another thread.
pub(crate) trait StreamEnd: Stream + Send + 'static {}
impl<S: Stream + Send + 'static> StreamEnd for S {}

/// The two ends of a loopback connection, with buffers of about `buffers` bytes.
#[cfg(target_os = "linux")]
pub(crate) fn tcp(buffers: Option<usize>) -> (maypole_transports::Tcp, maypole_transports::Tcp) {
    use maypole_transports::Tcp;
    use socket2::{Domain, SockAddr, Socket, Type};
    let socket = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        if let Some(bytes) = buffers {
            socket.set_send_buffer_size(bytes).unwrap();
            socket.set_recv_buffer_size(bytes).unwrap();
        }
        socket
    };
    let listener = socket();
    let near = socket();
    listener.bind(&SockAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
    listener.listen(1).unwrap();
    near.connect(&listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    (Tcp::new(near.into()).unwrap(), Tcp::new(far.into()).unwrap())
}

/// Both ends of a stream in shared memory, each with a mapping of its own.
#[cfg(target_os = "linux")]
pub(crate) fn pipe() -> (maypole_transports::Pipe, maypole_transports::Pipe) {
    use maypole_transports::Pipe;
    use maypole_transports::shm::Segment;
    let segment = Segment::create(Pipe::BYTES).unwrap();
    let same = Segment::from_fd(segment.fd().try_clone_to_owned().unwrap(), Pipe::BYTES).unwrap();
    (Pipe::writer(segment), Pipe::reader(same))
}

/// A head and its body, as a rank sends them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Message {
    pub(crate) head: [u8; HEAD],
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// The message at `position`, with a body that depends on `seed` and `position` alone.
    pub(crate) fn new(seed: u64, position: u64, len: usize) -> Self {
        let mut dice = Dice(seed ^ position.rotate_left(32));
        let head = Head { position, fingerprint: dice.roll() }.to_bytes();
        let body = (0..len).map(|_| dice.roll() as u8).collect();
        Self { head, body }
    }

    /// Head and body together.
    pub(crate) fn len(&self) -> usize {
        HEAD + self.body.len()
    }

    /// True once `moved` bytes of it, which must not be more than it has, are all of it.
    fn is_whole(&self, moved: usize) -> bool {
        assert!(moved <= self.len(), "more bytes moved than the message has");
        moved == self.len()
    }

    /// All of its bytes in order.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        [&self.head[..], &self.body].concat()
    }

    /// Offers all from byte `skip` on.
    pub(crate) fn send(&self, to: &mut impl Stream, skip: usize) -> Result<usize, Fault> {
        to.send(&self.head, View::of(&self.body), skip)
    }

    /// A message with room for `len` bytes of body, none of which came yet.
    pub(crate) fn awaited(len: usize) -> Self {
        Self { head: [0xEE; HEAD], body: vec![0xEE; len] }
    }

    /// Takes what is there from byte `skip` on.
    pub(crate) fn receive(&mut self, from: &mut impl Stream, skip: usize) -> Result<usize, Fault> {
        from.receive(&mut self.head, ViewMut::of(&mut self.body), skip)
    }
}

/// Pseudo-random numbers (splitmix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// Fails the test once it has taken far too long. Until then it yields the core.
pub(crate) struct TestDeadline(Instant);

impl TestDeadline {
    pub(crate) fn new() -> Self {
        Self(Instant::now() + GENEROUS)
    }

    pub(crate) fn wait(&self, what: &str) {
        assert!(Instant::now() < self.0, "waited {GENEROUS:?} for {what}");
        std::thread::yield_now();
    }
}

/// Sends all of `outgoing` and receives as many bytes as the messages of `like` have, both at once
/// in one thread.
pub(crate) fn exchange(
    stream: &mut impl Stream,
    outgoing: &[Message],
    like: &[Message],
) -> Vec<Message> {
    let deadline = TestDeadline::new();
    let mut incoming: Vec<_> =
        like.iter().map(|message| Message::awaited(message.body.len())).collect();
    // Indices of messages, and bytes of the messages at these indices.
    let mut out = 0;
    let mut sent = 0;
    let mut into = 0;
    let mut come = 0;
    while out < outgoing.len() || into < incoming.len() {
        let mut moved = 0;
        if let Some(message) = outgoing.get(out) {
            let n = message.send(stream, sent).expect("the peer is there");
            sent += n;
            if message.is_whole(sent) {
                out += 1;
                sent = 0;
            }
            moved += n;
        }
        if let Some(message) = incoming.get_mut(into) {
            let n = message.receive(stream, come).expect("the peer is there");
            come += n;
            if message.is_whole(come) {
                into += 1;
                come = 0;
            }
            moved += n;
        }
        if moved == 0 {
            deadline.wait("messages both ways");
        }
    }
    incoming
}

/// Sends all of `message`, or fails.
pub(crate) fn send_all(to: &mut impl Stream, message: &Message) {
    exchange(to, std::slice::from_ref(message), &[]);
}

/// Receives a message with a body of `len` bytes, or fails.
pub(crate) fn receive_all(from: &mut impl Stream, len: usize) -> Message {
    exchange(from, &[], &[Message::awaited(len)]).remove(0)
}

/// Receives at most `most` bytes until the peer has ended the stream, and returns them.
pub(crate) fn drain(from: &mut impl Stream, most: usize) -> Vec<u8> {
    let deadline = TestDeadline::new();
    let mut message = Message::awaited(most);
    let mut come = 0;
    loop {
        match message.receive(from, come) {
            Ok(0) => deadline.wait("the end of the stream"),
            Ok(more) => come += more,
            Err(Fault::Closed) => break,
            Err(fault) => panic!("{fault}"),
        }
    }
    let mut bytes = message.bytes();
    bytes.truncate(come);
    bytes
}
