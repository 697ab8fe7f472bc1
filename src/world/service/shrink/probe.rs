//! A leader's connection to a missing member: it shows whether the member still exists, and carries
//! the member's reply if it has decided or left. Nothing here blocks for long.

use super::agreement::LeaderMessage;
use super::calls::PROBE;
use super::{Member, UnreachableSince, follow};
use crate::wire::decode;
use crate::world::service::ControlConnection;
use crate::world::service::message::MAX_MESSAGE;
use maypole_transports::secure::{Initiator, SecureError, UnacceptedChannel};
use maypole_transports::sockets::set_tcp_options;
use maypole_transports::watch::Watch;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long the kernel of a member may take to accept a connection.
const CONNECT_TIME: Duration = Duration::from_millis(200);
/// First pause between two connections. The pause doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(320);

/// What a probe has found out.
#[derive(Debug)]
pub(super) enum ProbeResult {
    /// The member does not exist any more.
    Gone,
    /// The member is in another session: it went on without this rank.
    LeftBehind,
    /// The member answers so.
    Answer(LeaderMessage),
}

/// The probe of one member.
#[derive(Debug)]
pub(super) struct Probe {
    rank: usize,
    /// The number in the leader's watch.
    number: u64,
    stage: ProbeStage,
    unreachable: UnreachableSince,
    pause: Duration,
    /// When the next connection is made.
    pub(super) due: Instant,
}

#[derive(Debug)]
enum ProbeStage {
    /// There is no connection.
    Idle,
    /// The first message was sent. The bytes of the answer so far.
    Greeted(TcpStream, Box<Initiator>, Vec<u8>),
    /// The third message was sent. The bytes of the last answer so far.
    Proved(TcpStream, Box<UnacceptedChannel>, Vec<u8>),
    /// The member's service holds the connection.
    Open(Box<ControlConnection>),
}

impl Probe {
    pub(super) fn new(rank: usize, number: u64, due: Instant) -> Self {
        let unreachable = UnreachableSince::default();
        Self { rank, number, stage: ProbeStage::Idle, unreachable, pause: FIRST_PAUSE, due }
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.stage, ProbeStage::Idle)
    }

    /// Connects, if there is no connection.
    pub(super) fn connect(&mut self, member: &Member<'_>, watch: &Watch) -> Option<ProbeResult> {
        match self.greet(member, watch) {
            Ok(()) => {
                self.unreachable.reached();
                None
            }
            Err(error) => {
                self.again_later();
                self.unreachable.is_gone(&error, Instant::now()).then_some(ProbeResult::Gone)
            }
        }
    }

    fn greet(&mut self, member: &Member<'_>, watch: &Watch) -> io::Result<()> {
        let shared = &member.service.shared;
        let address = &shared.peers[self.rank].listen;
        let mut stream = TcpStream::connect_timeout(address, CONNECT_TIME)?;
        set_tcp_options(&stream, crate::world::service::SILENCE_LIMIT)?;
        let binding = member.binding(self.rank, PROBE);
        let (initiator, hello) = Initiator::start(&shared.settings.secret, &binding);
        // A handshake's few bytes always fit into a fresh socket's buffer.
        stream.write_all(&hello)?;
        stream.set_nonblocking(true)?;
        watch.add(&stream, self.number, false)?;
        self.stage = ProbeStage::Greeted(stream, Box::new(initiator), Vec::new());
        Ok(())
    }

    fn again_later(&mut self) {
        self.stage = ProbeStage::Idle;
        self.due = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Reads what has come.
    pub(super) fn ready(&mut self, watch: &Watch) -> Option<ProbeResult> {
        match self.advance() {
            Ok(finding) => finding,
            Err(error) => {
                match &self.stage {
                    ProbeStage::Idle => {}
                    ProbeStage::Greeted(stream, ..) | ProbeStage::Proved(stream, ..) => {
                        watch.remove(stream)
                    }
                    ProbeStage::Open(control) => watch.remove(&control.stream),
                }
                self.again_later();
                if matches!(error, SecureError::WrongKey) {
                    return Some(ProbeResult::LeftBehind);
                }
                follow::is_gone(&error, &mut self.unreachable).then_some(ProbeResult::Gone)
            }
        }
    }

    fn advance(&mut self) -> Result<Option<ProbeResult>, SecureError> {
        loop {
            match &mut self.stage {
                ProbeStage::Idle => return Ok(None),
                ProbeStage::Greeted(stream, _, bytes) => {
                    let Some(answer) = read_frame(stream, bytes)? else { return Ok(None) };
                    self.prove(&answer)?;
                }
                ProbeStage::Proved(stream, _, bytes) => {
                    let Some(accepted) = read_frame(stream, bytes)? else { return Ok(None) };
                    self.open(&accepted)?;
                }
                ProbeStage::Open(control) => {
                    let (messages, ended) = control.read(MAX_MESSAGE);
                    let answer = messages.first().and_then(|bytes| decode(bytes).ok());
                    if let Some(answer) = answer {
                        return Ok(Some(ProbeResult::Answer(answer)));
                    }
                    return match ended {
                        Some(_) => Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                        None => Ok(None),
                    };
                }
            }
        }
    }

    /// Takes the answer to the first message, and sends the third one.
    fn prove(&mut self, answer: &[u8]) -> Result<(), SecureError> {
        let stage = std::mem::replace(&mut self.stage, ProbeStage::Idle);
        let ProbeStage::Greeted(mut stream, initiator, _) = stage else { return Ok(()) };
        let (channel, third) = initiator.finish(answer)?;
        stream.write_all(&third)?;
        self.stage = ProbeStage::Proved(stream, Box::new(channel), Vec::new());
        Ok(())
    }

    /// Takes the last answer of the handshake.
    fn open(&mut self, accepted: &[u8]) -> Result<(), SecureError> {
        let stage = std::mem::replace(&mut self.stage, ProbeStage::Idle);
        let ProbeStage::Proved(stream, unaccepted, _) = stage else { return Ok(()) };
        let channel = unaccepted.accepted(accepted)?;
        self.pause = FIRST_PAUSE;
        self.stage = ProbeStage::Open(Box::new(ControlConnection::new(stream, channel)?));
        Ok(())
    }
}

/// Reads on to the end of a frame, and returns its body once that has come.
fn read_frame(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    loop {
        let wants = match bytes[..] {
            [low, high, ..] => 2 + usize::from(u16::from_le_bytes([low, high])),
            _ => 2,
        };
        if bytes.len() == wants && wants > 2 {
            return Ok(Some(bytes.split_off(2)));
        }
        let mut more = [0; 128];
        let len = (wants - bytes.len()).min(more.len());
        match stream.read(&mut more[..len]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => bytes.extend_from_slice(&more[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
