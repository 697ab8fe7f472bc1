//! A proxy between two ranks: it forwards every connection, records its bytes, and may change them.
#![allow(dead_code, reason = "not every user of a proxy uses all of it")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// The index of the byte of a connection that names its purpose.
const PURPOSE: usize = 16;

/// A direction of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Way {
    /// From the end that connected.
    There,
    /// To the end that connected.
    Back,
}

/// The bytes of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    /// Bytes that the connecting end has sent.
    pub(crate) there: Vec<u8>,
    /// Bytes that the connecting end has received.
    pub(crate) back: Vec<u8>,
}

impl Recorded {
    /// The number of the purpose that the connection's first bytes name.
    pub(crate) fn purpose(&self) -> Option<u8> {
        self.there.get(PURPOSE).copied()
    }

    /// Bytes that went in one direction.
    pub(crate) fn of(&self, way: Way) -> &[u8] {
        match way {
            Way::There => &self.there,
            Way::Back => &self.back,
        }
    }

    fn of_mut(&mut self, way: Way) -> &mut Vec<u8> {
        match way {
            Way::There => &mut self.there,
            Way::Back => &mut self.back,
        }
    }
}

/// Bytes that are about to be forwarded.
pub(crate) struct Passing<'a> {
    pub(crate) way: Way,
    /// The earlier bytes of this connection.
    pub(crate) before: &'a Recorded,
    /// The bytes to forward. A test may change them.
    pub(crate) bytes: &'a mut Vec<u8>,
}

impl Passing<'_> {
    /// The number of the purpose of the connection.
    pub(crate) fn purpose(&self) -> Option<u8> {
        let before = self.before.there.len();
        match self.way {
            Way::There if before <= PURPOSE => self.bytes.get(PURPOSE - before).copied(),
            _ => self.before.purpose(),
        }
    }

    /// Flips `bits` of byte `at` of this direction, if it is among these bytes.
    pub(crate) fn flip(&mut self, at: usize, bits: u8) {
        let before = self.before.of(self.way).len();
        if let Some(byte) = at.checked_sub(before).and_then(|at| self.bytes.get_mut(at)) {
            *byte ^= bits;
        }
    }
}

/// Changes bytes that are forwarded.
pub(crate) type Tamper = dyn Fn(Passing<'_>) + Send + Sync;

/// A listening proxy. Dropping it ends the listening. Connections that it forwards live on.
pub(crate) struct Proxy {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    connections: Arc<Mutex<Vec<Arc<Mutex<Recorded>>>>>,
    over: Arc<AtomicBool>,
}

impl Proxy {
    /// Forwards connections to `target`. Their bytes pass through `tamper`.
    pub(crate) fn new(
        target: SocketAddr,
        tamper: impl Fn(Passing<'_>) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            over: Arc::default(),
        };
        let connections = Arc::clone(&proxy.connections);
        let over = Arc::clone(&proxy.over);
        let tamper: Arc<Tamper> = Arc::new(tamper);
        thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                // The target may not listen yet. Then the connection is closed.
                let Ok(far) = TcpStream::connect(target) else { continue };
                let recorded = Arc::<Mutex<Recorded>>::default();
                connections.lock().unwrap().push(Arc::clone(&recorded));
                forward(near, far, &recorded, &tamper);
            }
        });
        proxy
    }

    /// The bytes of each connection so far.
    pub(crate) fn recorded(&self) -> Vec<Recorded> {
        let connections = self.connections.lock().unwrap();
        connections.iter().map(|connection| connection.lock().unwrap().clone()).collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Ends the `accept` of the proxy.
        drop(TcpStream::connect(self.address));
    }
}

fn forward(near: TcpStream, far: TcpStream, recorded: &Arc<Mutex<Recorded>>, tamper: &Arc<Tamper>) {
    for socket in [&near, &far] {
        socket.set_nodelay(true).unwrap();
    }
    let [near_too, far_too] = [&near, &far].map(|socket| socket.try_clone().unwrap());
    let ways = [(Way::There, near, far), (Way::Back, far_too, near_too)];
    for (way, from, to) in ways {
        let recorded = Arc::clone(recorded);
        let tamper = Arc::clone(tamper);
        thread::spawn(move || pump(way, from, to, &recorded, &*tamper));
    }
}

/// Forwards one direction until it ends.
fn pump(
    way: Way,
    mut from: TcpStream,
    mut to: TcpStream,
    recorded: &Mutex<Recorded>,
    tamper: &Tamper,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let original = &buffer[..read];
        let mut bytes = original.to_vec();
        {
            let mut recorded = recorded.lock().unwrap();
            tamper(Passing { way, before: &recorded, bytes: &mut bytes });
            recorded.of_mut(way).extend(original);
        }
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
