//! Writes past the rings of a stream.

use crate::direct_pair::DirectPair;
use crate::{fake, pair_on};
use maypole_transports::shm::Segment;
use maypole_transports::stream::direct::DirectWrites;
use std::sync::Arc;

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
