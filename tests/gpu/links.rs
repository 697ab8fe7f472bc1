//! Rings follow what joins the GPUs, and calls that start together.

use crate::calls::Both;
use crate::ranks;
use maypole::algorithms::Algorithm;
use maypole::cuda::Comm;
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::Boards;
use maypole::topology::DeviceLinks;
use maypole::tuner::schedules;
use maypole::{Communicator, DataType, Error, ReduceOp};

/// Numbers whose sum depends on the order of the ranks.
fn numbers(rank: usize, len: usize) -> Vec<f32> {
    let scale = [1e8, 1.0, -1e8, 1.5][rank % 4];
    (0..len).map(|at| scale + (at % 97) as f32 / 3.0).collect()
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

/// The sum by the ring of `links`, on the GPU and by the executor, and by the ring in rank order.
fn sums(comm: &mut Communicator, gpu: &Comm, links: &DeviceLinks) -> [Vec<u32>; 3] {
    let (ring, sum) = (Algorithm::Ring, Collective::AllReduce);
    let boards = Boards::new(&vec![0; comm.world()]);
    let of_order = schedules(ring, sum, &boards, Some(links)).unwrap();
    let mine = numbers(comm.rank(), 10_001);
    let mut expected = mine.clone();
    comm.run(|rank| of_order[rank].clone(), sum, &mut expected, ReduceOp::Sum).unwrap();
    let mut plain = mine.clone();
    comm.set_algorithm(Some(ring));
    comm.all_reduce(&mut plain, ReduceOp::Sum).unwrap();
    comm.set_algorithm(None);
    gpu.set_algorithm(Some(ring));
    let mut data = gpu.stream().clone_htod(&mine).unwrap();
    comm.barrier().unwrap();
    gpu.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
    gpu.synchronize().unwrap();
    let found = gpu.stream().clone_dtoh(&data).unwrap();
    [found, expected, plain].map(|numbers| bits(&numbers))
}

#[test]
fn a_ring_goes_from_rank_to_rank_in_the_order_of_the_links() {
    ranks(4, 1, |comm, gpu| {
        assert_eq!(gpu.links(), DeviceLinks::unknown(&[0; 4]), "all are on one GPU");
        let [found, expected, plain] = sums(comm, gpu, &gpu.links());
        assert!(found == expected && found == plain, "one GPU keeps the order of the ranks");
        let links = DeviceLinks::unknown(&[0, 1, 0, 1]);
        gpu.set_links(&links).unwrap();
        let [found, expected, plain] = sums(comm, gpu, &links);
        assert!(expected != plain, "the numbers tell the orders apart");
        assert!(found == expected, "rank {}: the sum of another order", gpu.rank());
    });
}

#[test]
fn ranks_that_share_gpus_are_found_and_explained() {
    ranks(4, 2, |comm, gpu| {
        let links = gpu.links();
        assert_eq!((links.gpus(), links.order()), (&[0, 1, 0, 1][..], &[0, 1, 3, 2][..]));
        let told = gpu.explain(Collective::AllReduce, 4096).to_string();
        assert!(told.contains("order of ranks in a ring: 0 1 3 2"), "{told}");
        let [found, expected, _] = sums(comm, gpu, &links);
        assert!(found == expected, "rank {}: the sum of another order", gpu.rank());
        let wrong = gpu.set_links(&DeviceLinks::apart(3)).unwrap_err();
        assert!(matches!(wrong, Error::Invalid { .. }), "{wrong}");
    });
}

/// Every collective that has a ring gives its results in any order of the ranks, at any root.
#[test]
fn every_ring_is_right_in_any_order() {
    ranks(4, 1, |comm, gpu| {
        gpu.set_links(&DeviceLinks::unknown(&[0, 1, 0, 1])).unwrap();
        gpu.set_algorithm(Some(Algorithm::Ring));
        let (stream, mut meeting) = (gpu.stream(), comm.duplicate().unwrap());
        let mut both = Both { comm, meeting: &mut meeting, gpu, stream: &stream };
        for collective in Algorithm::Ring.collectives() {
            for root in 0..collective.root().map_or(1, |_| 4) {
                let collective = collective.with_root(root);
                both.check::<u64>(collective, ReduceOp::Sum, 4000, collective.name());
            }
        }
    });
}

/// A ring in another order than that of the ranks combines them in another order, too.
#[test]
fn deterministic_calls_keep_the_order_of_the_ranks() {
    ranks(4, 1, |comm, gpu| {
        gpu.set_links(&DeviceLinks::unknown(&[0, 1, 0, 1])).unwrap();
        gpu.set_deterministic(true);
        comm.set_deterministic(true);
        let reduce = Collective::Reduce { root: 0 };
        for count in [100, 1 << 20] {
            let chosen = gpu.algorithm(reduce, count, DataType::F32).unwrap();
            assert_ne!(chosen, Algorithm::Ring, "{count} numbers");
            let mut expected = numbers(gpu.rank(), count);
            let mut data = gpu.stream().clone_htod(&expected).unwrap();
            comm.reduce(&mut expected, ReduceOp::Sum, 0).unwrap();
            comm.barrier().unwrap();
            gpu.reduce_in_place(&mut data, &ReduceOp::Sum, 0).unwrap();
            gpu.synchronize().unwrap();
            let found = gpu.stream().clone_dtoh(&data).unwrap();
            assert!(gpu.rank() > 0 || bits(&found) == bits(&expected), "{count} numbers");
        }
    });
}

/// Collectives and messages in one group, and groups that follow one another.
#[test]
fn calls_of_a_group_give_their_results() {
    ranks(3, 1, |comm, gpu| {
        let (me, stream) = (gpu.rank(), gpu.stream());
        let (right, left) = ((me as i32 + 1) % 3, (me as i32 + 2) % 3);
        let mine = stream.clone_htod(&vec![me as i64 + 1; 600]).unwrap();
        let mut parts = stream.alloc_zeros::<i64>(200).unwrap();
        let mut whole = stream.alloc_zeros::<i64>(600).unwrap();
        let mut passed = stream.alloc_zeros::<i64>(600).unwrap();
        let mut last = stream.clone_htod(&vec![me as i64 * 100; 5]).unwrap();
        comm.barrier().unwrap();
        let mut group = gpu.group();
        let short = group.all_gather(mine.slice(..10), whole.slice_mut(..10)).unwrap_err();
        assert!(short.is_harmless(), "{short}");
        let refused = group.end().unwrap_err();
        assert!(refused.is_harmless(), "{refused}");
        let (from, into) = (mine.as_view(), passed.as_view_mut());
        let mut group = gpu.group();
        group.send(from, right).unwrap();
        group.recv(into, left).unwrap();
        group.reduce_scatter(mine.as_view(), parts.as_view_mut(), &ReduceOp::Sum).unwrap();
        group.broadcast_in_place(last.as_view_mut(), 2).unwrap();
        group.end().unwrap();
        let (part, from) = (parts.as_view(), mine.as_view());
        let mut group = gpu.group();
        group.all_gather(part, whole.as_view_mut()).unwrap();
        drop(group);
        let mut group = gpu.group();
        group.all_reduce_in_place(whole.as_view_mut(), &ReduceOp::Max).unwrap();
        group.reduce_in_place(last.as_view_mut(), &ReduceOp::Sum, 1).unwrap();
        drop(group);
        let mut copied = stream.alloc_zeros::<i64>(600).unwrap();
        let mut summed = stream.alloc_zeros::<i64>(600).unwrap();
        let mut rooted = stream.alloc_zeros::<i64>(600).unwrap();
        comm.barrier().unwrap();
        let mut group = gpu.group();
        let root = (me == 0).then_some(from);
        group.broadcast(root, copied.as_view_mut(), 0).unwrap();
        group.all_reduce(mine.as_view(), summed.as_view_mut(), &ReduceOp::Sum).unwrap();
        let into = (me == 1).then(|| rooted.as_view_mut());
        group.reduce(mine.as_view(), into, &ReduceOp::Product, 1).unwrap();
        group.end().unwrap();
        gpu.synchronize().unwrap();
        let got = |slice| stream.clone_dtoh(slice).unwrap();
        assert_eq!((got(&passed), got(&whole)), (vec![i64::from(left) + 1; 600], vec![6; 600]));
        assert_eq!(got(&last), vec![if me == 1 { 600 } else { 200 }; 5]);
        assert_eq!((got(&copied), got(&summed)), (vec![1; 600], vec![6; 600]));
        assert_eq!(got(&rooted), vec![if me == 1 { 6 } else { 0 }; 600]);
    });
}
