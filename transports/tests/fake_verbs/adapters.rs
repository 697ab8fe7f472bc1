//! Adapters with other limits than the common ones, and the requests of connections to them.

use crate::drive::{Message, exchange, receive_all, send_all};
use crate::{fake, pair_between, pair_on};
use maypole_transports::Stream;
use std::thread;

/// An adapter holds as many bytes in a request as it has room for, and none if it has none.
#[test]
fn any_limit_of_inline_bytes_will_do() {
    for (device, limit) in [("inline0", 0), ("inline32", 32), ("inline64", 64)] {
        let (mut here, mut there) = pair_on(device);
        let lengths = [0, 15, 16, 17, 47, 48, 49, 111, 112, 113, 5000];
        let messages = (0..).zip(lengths);
        let sent: Vec<_> = messages.map(|(at, length)| Message::new(1, at, length)).collect();
        thread::scope(|threads| {
            threads.spawn(|| exchange(&mut here, &sent, &[]));
            assert!(exchange(&mut there, &[], &sent) == sent, "{device}");
        });
        let bytes = |message: &Message| message.len() as u64;
        let held: u64 = sent.iter().map(bytes).filter(|bytes| *bytes <= limit).sum();
        assert_eq!(fake().counter(device, "inline_bytes"), held, "{device}");
    }
}

/// A switch that fails over, or a subnet manager that looks at all ports, is silent for seconds.
#[test]
fn packets_are_repeated_for_seconds() {
    let _ends = pair_on("roce0");
    let timeout = fake().counter("roce0", "timeout");
    let retries = fake().counter("roce0", "retries");
    let longest = 4.096e-6 * f64::from(1 << timeout) * (retries + 1) as f64;
    assert!(longest > 8.0, "given up after {longest} s");
    assert!(timeout <= 20, "one lost packet costs {} s", longest / (retries + 1) as f64);
}

/// A global header is 40 bytes of every packet.
#[test]
fn global_headers_are_used_where_packets_need_them() {
    let kinds = |near: &str, far: &str| {
        let count = |device: &str, kind: &str| fake().counter(device, kind);
        let before = ["local_paths", "global_paths"].map(|kind| count(near, kind));
        let (mut here, mut there) = pair_between(near, far);
        let message = Message::new(2, 0, 100);
        send_all(&mut here, &message);
        assert!(receive_all(&mut there, 100) == message);
        let after = ["local_paths", "global_paths"].map(|kind| count(near, kind));
        [after[0] - before[0], after[1] - before[1]]
    };
    assert_eq!(kinds("near0", "near0"), [2, 0], "within a subnet");
    assert_eq!(kinds("near0", "far0"), [0, 1], "between subnets");
    assert_eq!(kinds("ether0", "ether0"), [0, 2], "over Ethernet");
}

/// The bytes of a piece are the adapter's until the piece is complete, even if the peer has taken them
/// long before.
#[test]
fn late_completions_keep_what_was_posted() {
    let (mut here, mut there) = pair_on("late0");
    let message = Message::new(3, 0, 4 << 20);
    let mut into = Message::awaited(4 << 20);
    let (mut sent, mut received, mut refusals) = (0, 0, 0);
    fake().set("late0", "late", "600000");
    while refusals < 1000 {
        let is_over = sent == message.len();
        let more = if is_over { 0 } else { message.send(&mut here, sent).unwrap() };
        sent += more;
        received += into.receive(&mut there, received).unwrap();
        let is_idle = more == 0 && received == sent;
        refusals = if is_idle { refusals + 1 } else { 0 };
        if is_idle {
            thread::yield_now();
        }
    }
    assert!(sent <= 512 << 10, "{sent} bytes were posted, and none of them is complete");
    fake().set("late0", "late", "0");
    while received < message.len() {
        if sent < message.len() {
            sent += message.send(&mut here, sent).unwrap();
        }
        received += into.receive(&mut there, received).unwrap();
    }
    assert!(into == message);
    here.finish();
    while !here.is_delivered().unwrap() {
        thread::yield_now();
    }
    assert_eq!(fake().counter("late0", "overwritten"), 0);
    assert_eq!(fake().counter("late0", "receiver_not_ready"), 0);
}
