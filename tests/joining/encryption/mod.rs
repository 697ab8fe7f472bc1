//! Encrypted links, over real sockets: the bytes that a listener sees, attacks on the way, and that
//! the numbers are the same.

mod replays;
mod tapped;

use maypole::world::bootstrap::JoinConfig;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A limit above everything that the tests take on a busy machine.
const LONG: Duration = Duration::from_secs(60);
/// The purposes of connections, as their first bytes name them.
const JOIN: u8 = 1;
const DATA: u8 = 2;
const ENCRYPTED_DATA: u8 = 4;

/// A port without a listener.
fn free_port() -> u16 {
    // The kernel does not assign it again for a while.
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A new job of `world` ranks, which take one another for ranks of different hosts. Rank 0 listens
/// at the second result.
fn job(world: usize, encrypt: bool) -> (JoinConfig, SocketAddr) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let root = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut config = JoinConfig::new(0, world, &root.to_string());
    config.job = format!("encryption {} {number}", std::process::id());
    config.key = Some([number as u8 + 1; 32]);
    config.encrypt = encrypt;
    config.join_timeout = LONG;
    config.timeout = LONG;
    (config, root)
}

/// The configuration of `rank`, which finds rank 0 at `root`.
fn rank(config: &JoinConfig, rank: usize, root: SocketAddr) -> JoinConfig {
    let host = Some(format!("host {rank}"));
    JoinConfig { rank, host, ports: vec![root.port()], ..config.clone() }
}
