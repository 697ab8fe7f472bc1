//! Every named request gives what the blocking call of its name gives, bit for bit.

use super::mixtures;
use maypole::{Communicator, Operation, ReduceOp, Request, Result};

const COUNT: usize = 301;

/// Something that differs from rank to rank and from call to call.
fn data(rank: usize, call: usize, len: usize) -> Vec<f32> {
    (0..len).map(|at| ((rank * 31 + call * 17 + at * 7) % 101) as f32 / 3.0).collect()
}

/// Compares a request with the blocking call, once all requests are under way.
type Check = Box<dyn FnOnce(&mut Communicator)>;

fn check<B: Clone + PartialEq + Send + std::fmt::Debug + 'static>(
    buffers: B,
    start: impl FnOnce(B) -> Request<B>,
    call: impl FnOnce(&mut Communicator, &mut B) -> Result<()> + 'static,
) -> Check {
    let (mut expected, request) = (buffers.clone(), start(buffers));
    Box::new(move |plain| {
        call(plain, &mut expected).unwrap();
        assert_eq!(request.wait().unwrap(), expected);
    })
}

/// `one!(comm, data(n), start_x(args) => x(&args))`: a form with one buffer; `two!` one with two.
macro_rules! one {
    ($comm:ident, $len:expr, $start:ident, $call:ident $(, $argument:expr)*) => {
        check(
            data($comm.rank(), line!() as usize, $len),
            |it| $comm.$start(it $(, $argument)*),
            move |plain, it| plain.$call(it $(, $argument)*),
        )
    };
}
macro_rules! two {
    ($comm:ident, $input:expr, $output:expr, $start:ident, $call:ident $(, $argument:expr)*) => {
        check(
            (data($comm.rank(), line!() as usize, $input), vec![-1.0; $output]),
            |(input, output)| $comm.$start(input, output $(, $argument)*),
            move |plain, (input, output)| plain.$call(input, output $(, $argument)*),
        )
    };
}

fn all(comm: &mut Communicator) -> Vec<Check> {
    let (rank, world, n, sum) = (comm.rank(), comm.world(), COUNT, ReduceOp::Sum);
    let (root, whole) = (world - 1, COUNT * world);
    let larger = || {
        Operation::new("larger", true, |a: &[f32], b: &mut [f32]| {
            b.iter_mut().zip(a).for_each(|(b, a)| *b = b.max(*a));
        })
    };
    let counts: Vec<usize> = (0..world).map(|rank| rank * 5 % 7).collect();
    let (mine, total) = (counts[rank], counts.iter().sum::<usize>());
    // What rank r has for rank s.
    let pairs = |r: usize, s: usize| (r * 3 + s * 2) % 5;
    let sends: Vec<usize> = (0..world).map(|to| pairs(rank, to)).collect();
    let receives: Vec<usize> = (0..world).map(|from| pairs(from, rank)).collect();
    let mut checks = vec![
        one!(comm, n, start_broadcast, broadcast, root),
        one!(comm, n, start_reduce, reduce, sum, root),
        two!(comm, n, n, start_reduce_into, reduce_into, sum, root),
        one!(comm, n, start_all_reduce, all_reduce, ReduceOp::Avg),
        two!(comm, n, n, start_all_reduce_into, all_reduce_into, ReduceOp::Max),
        two!(comm, n, whole, start_gather, gather, root),
        one!(
            comm,
            if rank == root { whole } else { n },
            start_gather_in_place,
            gather_in_place,
            root
        ),
        two!(comm, n, whole, start_all_gather, all_gather),
        one!(comm, whole, start_all_gather_in_place, all_gather_in_place),
        two!(comm, whole, n, start_scatter, scatter, root),
        one!(
            comm,
            if rank == root { whole } else { n },
            start_scatter_in_place,
            scatter_in_place,
            root
        ),
        two!(comm, whole, n, start_reduce_scatter, reduce_scatter, sum),
        one!(comm, whole, start_reduce_scatter_in_place, reduce_scatter_in_place, sum),
        two!(comm, whole, whole, start_all_to_all, all_to_all),
        one!(comm, whole, start_all_to_all_in_place, all_to_all_in_place),
        one!(comm, n, start_scan, scan, sum),
        one!(comm, n, start_exclusive_scan, exclusive_scan, sum),
    ];
    let ours = data(rank, 99, n);
    checks.push(check(
        ours.clone(),
        |it| comm.start_all_reduce_with(it, &larger()),
        move |plain, it| plain.all_reduce_with(it, &larger()),
    ));
    checks.push(check(
        ours,
        |it| comm.start_reduce_with(it, &larger(), root),
        move |plain, it| plain.reduce_with(it, &larger(), root),
    ));
    let blocks = (data(rank, 98, whole), vec![0.0; n]);
    checks.push(check(
        blocks,
        |(a, b)| comm.start_reduce_scatter_with(a, b, &larger()),
        move |plain, (a, b)| plain.reduce_scatter_with(a, b, &larger()),
    ));
    let uneven = |input, output| (data(rank, 97, input), vec![0.0; output]);
    let given = counts.clone();
    checks.push(check(uneven(mine, total), |(a, b)| comm.start_all_gather_v(a, b, &given), {
        let counts = given.clone();
        move |plain, (a, b)| plain.all_gather_v(a, b, &counts)
    }));
    checks.push(check(
        uneven(total, mine),
        |(a, b)| comm.start_reduce_scatter_v(a, b, &given, sum),
        {
            let counts = given.clone();
            move |plain, (a, b)| plain.reduce_scatter_v(a, b, &counts, sum)
        },
    ));
    checks.push(check(uneven(mine, total), |(a, b)| comm.start_gather_v(a, b, &given, root), {
        let counts = given.clone();
        move |plain, (a, b)| plain.gather_v(a, b, &counts, root)
    }));
    checks.push(check(uneven(total, mine), |(a, b)| comm.start_scatter_v(a, b, &given, root), {
        let counts = given.clone();
        move |plain, (a, b)| plain.scatter_v(a, &counts, b, root)
    }));
    let crossed = uneven(sends.iter().sum(), receives.iter().sum());
    checks.push(check(crossed, |(a, b)| comm.start_all_to_all_v(a, b, &sends, &receives), {
        let (sends, receives) = (sends.clone(), receives.clone());
        move |plain, (a, b)| plain.all_to_all_v(a, &sends, b, &receives)
    }));
    checks
}

#[test]
fn every_request_gives_what_its_call_gives() {
    for local in mixtures() {
        local.run(|mut comm| {
            let mut plain = comm.duplicate().unwrap();
            let checks = all(&mut comm);
            let barrier = comm.start_barrier();
            checks.into_iter().for_each(|check| check(&mut plain));
            barrier.wait().unwrap();
        });
    }
}
