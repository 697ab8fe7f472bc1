//! A leader's connection to a member that has not arrived: it shows whether the member is alive,
//! and carries the member's reply if it has decided or left. A thread of its own connects, so that
//! the leader does not wait for unresponsive hosts.

use super::agreement::LeaderMessage;
use super::calls::PROBE;
use super::follow::Followed;
use super::{Member, UnreachableSince};
use crate::wire::decode;
use crate::world::service::message::MAX_MESSAGE;
use crate::world::service::{ControlConnection, DialedLink, SILENCE_LIMIT};
use maypole_transports::secure::SecureError;
use maypole_transports::watch::{Waker, Watch};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The timeout of one attempt to connect.
const ATTEMPT: Duration = Duration::from_secs(1);
/// First pause between two connections. The pause doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(320);

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
    /// A thread connects.
    Dialing(Receiver<Result<DialedLink, SecureError>>),
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

    /// Begins to connect. `waker` wakes the leader when the attempt has ended.
    pub(super) fn connect(&mut self, member: &Member<'_>, waker: &Arc<Waker>) {
        let shared = &member.service.shared;
        let (address, secret) = (shared.peers[self.rank].listen, shared.settings.secret.clone());
        let (binding, waker) = (member.binding(self.rank, PROBE), Arc::clone(waker));
        let (ended, stage) = channel();
        let until = Instant::now() + ATTEMPT;
        let dial = move || {
            // The leader may have decided meanwhile.
            let _ =
                ended.send(DialedLink::dial(address, SILENCE_LIMIT, (&secret, &binding), until));
            waker.wake();
        };
        match Builder::new().name("maypole-probe".to_owned()).spawn(dial) {
            Ok(_) => self.stage = ProbeStage::Dialing(stage),
            Err(_) => self.again_later(),
        }
    }

    fn again_later(&mut self) {
        self.stage = ProbeStage::Idle;
        self.due = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Takes the connection, or the member's reply on it: it has left, it has decided, or it is in
    /// another session.
    pub(super) fn ready(&mut self, watch: &Watch) -> Option<Followed> {
        let error = match self.advance(watch) {
            Ok(finding) => return finding,
            Err(error) => error,
        };
        if let ProbeStage::Open(control) = &self.stage {
            watch.remove(&control.stream);
        }
        self.again_later();
        match error {
            SecureError::WrongKey => Some(Followed::LeftBehind),
            error => self.unreachable.is_gone(&error).then_some(Followed::Gone),
        }
    }

    fn advance(&mut self, watch: &Watch) -> Result<Option<Followed>, SecureError> {
        if let ProbeStage::Dialing(ended) = &self.stage {
            let Ok(dialed) = ended.try_recv() else { return Ok(None) };
            let control = dialed?.into_control()?;
            watch.add(&control.stream, self.number, false)?;
            self.unreachable.reached();
            self.pause = FIRST_PAUSE;
            self.stage = ProbeStage::Open(Box::new(control));
        }
        // A reply may have arrived together with the handshake.
        let ProbeStage::Open(control) = &mut self.stage else { return Ok(None) };
        let (messages, ended) = control.read(MAX_MESSAGE);
        match messages.first().and_then(|bytes| decode(bytes).ok()) {
            Some(LeaderMessage::Decided(proposal)) => Ok(Some(Followed::Decided(proposal))),
            Some(LeaderMessage::Gone) => Ok(Some(Followed::Gone)),
            Some(_) => Ok(None),
            None if ended.is_some() => Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
            None => Ok(None),
        }
    }
}
