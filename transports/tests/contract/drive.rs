//! Drives a stream as an executor does: sends, receives, and yields when neither moves a byte,
//! until a generous deadline.

use maypole_kernels::{View, ViewMut};
#[cfg(target_os = "linux")]
use maypole_transports::ib::{
    UnconnectedVerbs, VerbsAdapter, VerbsEndpoint, VerbsSettings, VerbsStream,
};
use maypole_transports::{Fault, HEAD, Head, Stream};
use std::time::{Duration, Instant};

/// The longest duration of one step of a test. Only a broken stream makes a step so slow.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// An end of a stream that can move to another thread.
pub(crate) trait StreamEnd: Stream + Send + 'static {}
impl<S: Stream + Send + 'static> StreamEnd for S {}

/// Both ends of a stream in shared memory, each with a mapping of its own.
#[cfg(target_os = "linux")]
pub(crate) fn pipe() -> (maypole_transports::Pipe, maypole_transports::Pipe) {
    use maypole_transports::Pipe;
    use maypole_transports::shm::Segment;
    let segment = Segment::create(Pipe::BYTES).unwrap();
    let same = Segment::from_fd(segment.fd().try_clone_to_owned().unwrap(), Pipe::BYTES).unwrap();
    (Pipe::writer(segment), Pipe::reader(same))
}

/// Both ends of a connection between two RDMA devices.
#[cfg(target_os = "linux")]
pub(crate) fn verbs_pair(near: &str, far: &str) -> (VerbsStream, VerbsStream) {
    let end = |name: &str| {
        let settings = VerbsSettings { device: Some(name.to_owned()), ..VerbsSettings::default() };
        UnconnectedVerbs::new(&VerbsAdapter::open(settings).unwrap()).unwrap()
    };
    let (near, far) = (end(near), end(far));
    let [to_near, to_far] = [&near, &far].map(|end| {
        // As a control connection carries it.
        VerbsEndpoint::from_bytes(&end.endpoint().to_bytes()).unwrap()
    });
    let (near, far) = (near.connect(&to_far).unwrap(), far.connect(&to_near).unwrap());
    (near.open(), far.open())
}

/// The channels that a handshake gives to the two ends of a connection for encrypted data.
#[cfg(target_os = "linux")]
pub(crate) fn channels() -> [maypole_transports::secure::Channel; 2] {
    use maypole_transports::secure::{Binding, JobSecret, Purpose, Responder, initiate};
    let secret = JobSecret { key: [1; 32], job: "contract".to_owned(), session: [2; 16] };
    let purpose = Purpose::EncryptedData;
    let binding = Binding { purpose, group: [0; 2], lane: 0, initiator: 0, responder: 1 };
    let (mut near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
    std::thread::scope(|threads| {
        let other = threads.spawn(|| Responder::new(&secret).advance(&mut far).unwrap().unwrap().1);
        let here = initiate(&mut near, &secret, &binding).unwrap();
        [here, other.join().unwrap()]
    })
}

/// Encrypted streams over the two ends of another stream.
#[cfg(target_os = "linux")]
pub(crate) fn encrypted<S: Stream>(
    (near, far): (S, S),
) -> (maypole_transports::EncryptedStream<S>, maypole_transports::EncryptedStream<S>) {
    use maypole_transports::EncryptedStream;
    let [here, there] = channels();
    (EncryptedStream::new(near, here), EncryptedStream::new(far, there))
}

/// A head and its body, as a rank sends them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Message {
    pub(crate) head: [u8; HEAD],
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// Makes the message at `position`, with a body that depends on `seed` and `position` alone.
    pub(crate) fn new(seed: u64, position: u64, len: usize) -> Self {
        let mut random = Random(seed ^ position.rotate_left(32));
        let head = Head { position, fingerprint: random.next() }.to_bytes();
        let body = (0..len).map(|_| random.next() as u8).collect();
        Self { head, body }
    }

    /// Returns the bytes of head and body together.
    pub(crate) fn len(&self) -> usize {
        HEAD + self.body.len()
    }

    /// Returns true if `moved` bytes are the whole message, and panics if they are more.
    fn is_whole(&self, moved: usize) -> bool {
        assert!(moved <= self.len(), "more bytes moved than the message has");
        moved == self.len()
    }

    /// Returns the bytes of the head, followed by those of the body.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        [&self.head[..], &self.body].concat()
    }

    /// Offers all bytes from byte `skip` on.
    pub(crate) fn send(&self, to: &mut impl Stream, skip: usize) -> Result<usize, Fault> {
        to.send(&self.head, View::of(&self.body), skip)
    }

    /// Makes a message with room for a body of `len` bytes, of which none has been received.
    pub(crate) fn awaited(len: usize) -> Self {
        Self { head: [0xEE; HEAD], body: vec![0xEE; len] }
    }

    /// Receives the bytes that have arrived, from byte `skip` of the message on.
    pub(crate) fn receive(&mut self, from: &mut impl Stream, skip: usize) -> Result<usize, Fault> {
        from.receive(&mut self.head, ViewMut::of(&mut self.body), skip)
    }
}

/// Pseudo-random numbers (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// Yields the core at each wait, and fails the test after [`TEST_TIMEOUT`].
pub(crate) struct TestDeadline(Instant);

impl TestDeadline {
    pub(crate) fn new() -> Self {
        Self(Instant::now() + TEST_TIMEOUT)
    }

    pub(crate) fn wait(&self, what: &str) {
        assert!(Instant::now() < self.0, "waited {TEST_TIMEOUT:?} for {what}");
        std::thread::yield_now();
    }
}

/// Sends all of `outgoing` and receives as many bytes as the messages of `expected` have.
/// Interleaves both, in one thread.
pub(crate) fn exchange(
    stream: &mut impl Stream,
    outgoing: &[Message],
    expected: &[Message],
) -> Vec<Message> {
    let deadline = TestDeadline::new();
    let mut incoming: Vec<_> =
        expected.iter().map(|message| Message::awaited(message.body.len())).collect();
    // Indices of messages, and bytes of the messages at these indices.
    let mut out = 0;
    let mut sent = 0;
    let mut into = 0;
    let mut received = 0;
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
            let n = message.receive(stream, received).expect("the peer is there");
            received += n;
            if message.is_whole(received) {
                into += 1;
                received = 0;
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
    let mut received = 0;
    loop {
        match message.receive(from, received) {
            Ok(0) => deadline.wait("the end of the stream"),
            Ok(more) => received += more,
            // An encrypted stream whose peer could not send all that it has begun is cut.
            Err(Fault::Closed | Fault::Cut) => break,
            Err(fault) => panic!("{fault}"),
        }
    }
    let mut bytes = message.bytes();
    bytes.truncate(received);
    bytes
}
