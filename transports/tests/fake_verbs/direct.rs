//! Writes past the rings of a stream.

use crate::direct_pair::DirectPair;
use crate::drive::{Message, TEST_TIMEOUT, receive_all, send_all};
use crate::{fake, pair_on};
use maypole_transports::shm::Segment;
use maypole_transports::stream::direct::{DirectWrites, DmaBuf};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

const LEN: usize = 400 << 10;

/// Memory of a device, and the file that stands for its dma-buf. No address of this process leads to it.
fn device(address: u64, lands_late: bool) -> (File, Arc<DmaBuf>) {
    let memory = File::from(memfd_create("device", MemfdFlags::CLOEXEC).unwrap());
    memory.set_len(LEN as u64).unwrap();
    let file = memory.try_clone().unwrap().into();
    let buffer = DmaBuf { file, address, len: LEN, lands_late, memory: Arc::new(()) };
    (memory, Arc::new(buffer))
}

fn until(mut is_done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_done() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "it never comes");
        std::thread::yield_now();
    }
}

/// Bytes go from one device to another one, few bytes too, and no processor reads them. A device that sees them late
/// does so after a flush at the latest.
#[test]
fn adapters_write_between_the_memory_of_devices() {
    for (name, is_late) in [("gpu0", true), ("gpu1", false)] {
        let (mut here, mut there) = pair_on(name);
        let (from, near) = device(0x7000_0000_0000, false);
        let (into, far) = device(0x7100_0000_0000, is_late);
        here.register_device(&near).unwrap();
        let remote = there.register_device(&far).unwrap();
        for (round, len) in [1, 64, 4096, 300_000].into_iter().enumerate() {
            let bytes = vec![round as u8 + 1; len];
            from.write_all_at(&bytes, 4096).unwrap();
            // SAFETY: the bytes stay as they are, and are read after the message.
            let write = unsafe { here.write((4096, len), remote.from(8192)) }.unwrap().unwrap();
            let message = Message::new(8, round as u64, round);
            send_all(&mut here, &message);
            assert!(receive_all(&mut there, round) == message);
            let seen = || {
                let mut seen = vec![0; len];
                into.read_exact_at(&mut seen, 8192).unwrap();
                seen
            };
            assert_eq!(seen() == bytes, !is_late, "{len} bytes");
            until(|| there.flush(8192).unwrap());
            assert!(seen() == bytes, "{len} bytes");
            until(|| here.is_complete(write).unwrap());
        }
        assert_eq!(fake().counter(name, "reads"), if is_late { 4 } else { 0 });
    }
}

/// The fake lets bytes land as late as it may.
#[test]
fn a_message_arrives_behind_the_bytes_that_were_written_before() {
    DirectPair::new(pair_on("ib0")).check_order();
    assert_eq!(fake().counter("ib0", "overwritten"), 0);
}

/// The adapter may send the bytes of a write again until the write is complete, and has room for so many.
#[test]
fn a_full_queue_takes_no_write_until_one_is_complete() {
    let mut pair = DirectPair::new(pair_on("direct0"));
    fake().set("direct0", "late", "600000");
    let last = (0..).map_while(|_| pair.write(299_992)).last().unwrap();
    assert!((64..=256).contains(&last), "{last} writes");
    assert!(pair.ends[0].is_complete(0).unwrap() && !pair.ends[0].is_complete(1).unwrap());
    fake().set("direct0", "late", "0");
    pair.complete(last).unwrap();
    assert!(pair.write(0).is_some());
}

/// Streams of a port share the registration of a segment, and the last one ends it.
#[test]
fn a_segment_is_registered_once() {
    let (mut here, mut there) = pair_on("quiet1");
    let before = fake().counter("quiet1", "regions");
    let segment = Arc::new(Segment::create(4096).unwrap());
    // Each end has opened the device for itself.
    for end in [&mut here, &mut there] {
        assert_eq!(end.register(&segment).unwrap(), end.register(&segment).unwrap());
    }
    assert_eq!(fake().counter("quiet1", "regions"), before + 2);
    drop((here, there));
    assert_eq!(fake().counter("quiet1", "regions_removed"), before + 2);
}

#[test]
fn a_refused_key_is_told_with_the_port_and_the_remedy() {
    let mut pair = DirectPair::new(pair_on("refusing0"));
    pair.there.key += 1000;
    let write = pair.write(0).unwrap();
    let why = pair.complete(write).unwrap_err().to_string();
    assert!(why.contains("refused a write by port 1 of refusing0"), "{why}");
    assert!(why.contains("MAYPOLE_CUDA_COURIERS=stream"), "{why}");
}
