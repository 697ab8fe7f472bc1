//! Every collective as a request, named or queued with `start`, gives the result of its blocking
//! call, bit for bit.

use super::mixtures;
use maypole::{Communicator, Operation, ReduceOp, Request, Result};

const COUNT: usize = 301;

/// Numbers that differ from rank to rank and from call to call.
fn data(rank: usize, call: usize, len: usize) -> Vec<f32> {
    (0..len).map(|at| ((rank * 31 + call * 17 + at * 7) % 101) as f32 / 3.0).collect()
}

/// Compares a request with the blocking call, once all requests have been started.
type Check = Box<dyn FnOnce(&mut Communicator)>;

fn check<B: Clone + PartialEq + Send + std::fmt::Debug + 'static>(
    buffers: B,
    start: impl FnOnce(B) -> Request<B>,
    call: impl FnOnce(&mut Communicator, &mut B) -> Result<()> + 'static,
) -> Check {
    let mut expected = buffers.clone();
    let request = start(buffers);
    Box::new(move |plain| {
        call(plain, &mut expected).unwrap();
        assert_eq!(request.wait().unwrap(), expected);
    })
}

/// The named form and the blocking call of the same name, on one buffer (`one`) or two (`two`).
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

/// The generic form and the blocking call: `started!(comm, buffers, |comm, buffers| call)`.
macro_rules! started {
    ($comm:ident, $buffers:expr, $call:expr) => {{
        let call = $call;
        let again = call.clone();
        check($buffers, |it| $comm.start(it, call), again)
    }};
}

fn named(comm: &mut Communicator) -> Vec<Check> {
    let n = COUNT;
    let world = comm.world();
    let whole = n * world;
    let root = world - 1;
    vec![
        one!(comm, n, start_broadcast, broadcast, root),
        one!(comm, n, start_all_reduce, all_reduce, ReduceOp::Avg),
        two!(comm, n, whole, start_all_gather, all_gather),
        two!(comm, whole, n, start_reduce_scatter, reduce_scatter, ReduceOp::Sum),
        two!(comm, whole, whole, start_all_to_all, all_to_all),
    ]
}

type Buffer = Vec<f32>;
type Buffers = (Vec<f32>, Vec<f32>);

/// An input of `input` elements and an output of `output`.
fn two(comm: &Communicator, input: usize, output: usize) -> Buffers {
    (data(comm.rank(), input + 3 * output, input), vec![-1.0; output])
}

fn in_place(comm: &mut Communicator) -> Vec<Check> {
    let n = COUNT;
    let rank = comm.rank();
    let world = comm.world();
    let whole = n * world;
    let root = world - 1;
    let at_root = if rank == root { whole } else { n };
    let sum = ReduceOp::Sum;
    let one = |call: usize, len: usize| data(rank, call, len);
    vec![
        started!(comm, one(1, n), move |comm: &mut Communicator, it: &mut Buffer| {
            comm.reduce(it, sum, root)
        }),
        started!(comm, one(2, at_root), move |comm: &mut Communicator, it: &mut Buffer| {
            comm.gather_in_place(it, root)
        }),
        started!(comm, one(3, whole), |comm: &mut Communicator, it: &mut Buffer| {
            comm.all_gather_in_place(it)
        }),
        started!(comm, one(4, at_root), move |comm: &mut Communicator, it: &mut Buffer| {
            comm.scatter_in_place(it, root)
        }),
        started!(comm, one(5, whole), move |comm: &mut Communicator, it: &mut Buffer| {
            comm.reduce_scatter_in_place(it, sum)
        }),
        started!(comm, one(6, whole), |comm: &mut Communicator, it: &mut Buffer| {
            comm.all_to_all_in_place(it)
        }),
        started!(comm, one(7, n), move |comm: &mut Communicator, it: &mut Buffer| {
            comm.scan(it, sum)
        }),
        started!(comm, one(8, n), move |comm: &mut Communicator, it: &mut Buffer| {
            comm.exclusive_scan(it, sum)
        }),
    ]
}

fn apart(comm: &mut Communicator) -> Vec<Check> {
    let n = COUNT;
    let world = comm.world();
    let whole = n * world;
    let root = world - 1;
    vec![
        started!(comm, two(comm, n, n), move |comm: &mut Communicator, it: &mut Buffers| {
            comm.reduce_into(&it.0, &mut it.1, ReduceOp::Sum, root)
        }),
        started!(comm, two(comm, n, n), |comm: &mut Communicator, it: &mut Buffers| {
            comm.all_reduce_into(&it.0, &mut it.1, ReduceOp::Max)
        }),
        started!(comm, two(comm, n, whole), move |comm: &mut Communicator, it: &mut Buffers| {
            comm.gather(&it.0, &mut it.1, root)
        }),
        started!(comm, two(comm, whole, n), move |comm: &mut Communicator, it: &mut Buffers| {
            comm.scatter(&it.0, &mut it.1, root)
        }),
    ]
}

fn with_operation(comm: &mut Communicator) -> Vec<Check> {
    let n = COUNT;
    let rank = comm.rank();
    let world = comm.world();
    let root = world - 1;
    let larger = Operation::new("larger", true, |a: &[f32], b: &mut [f32]| {
        b.iter_mut().zip(a).for_each(|(b, a)| *b = b.max(*a));
    });
    let all_reduce = {
        let larger = larger.clone();
        move |comm: &mut Communicator, it: &mut Buffer| comm.all_reduce_with(it, &larger)
    };
    let reduce = {
        let larger = larger.clone();
        move |comm: &mut Communicator, it: &mut Buffer| comm.reduce_with(it, &larger, root)
    };
    let reduce_scatter = move |comm: &mut Communicator, it: &mut Buffers| {
        comm.reduce_scatter_with(&it.0, &mut it.1, &larger)
    };
    vec![
        started!(comm, data(rank, 99, n), all_reduce),
        started!(comm, data(rank, 99, n), reduce),
        started!(comm, two(comm, n * world, n), reduce_scatter),
    ]
}

fn with_counts(comm: &mut Communicator) -> Vec<Check> {
    let rank = comm.rank();
    let world = comm.world();
    let root = world - 1;
    let counts: Vec<usize> = (0..world).map(|rank| rank * 5 % 7).collect();
    let mine = counts[rank];
    let total = counts.iter().sum::<usize>();
    // The number of elements that rank `from` sends to rank `to`.
    let sent = |from: usize, to: usize| (from * 3 + to * 2) % 5;
    let sends: Vec<usize> = (0..world).map(|to| sent(rank, to)).collect();
    let receives: Vec<usize> = (0..world).map(|from| sent(from, rank)).collect();
    let crossed = two(comm, sends.iter().sum(), receives.iter().sum());
    let given = || counts.clone();
    let all_gather = {
        let counts = given();
        move |comm: &mut Communicator, it: &mut Buffers| {
            comm.all_gather_v(&it.0, &mut it.1, &counts)
        }
    };
    let reduce_scatter = {
        let counts = given();
        move |comm: &mut Communicator, it: &mut Buffers| {
            comm.reduce_scatter_v(&it.0, &mut it.1, &counts, ReduceOp::Sum)
        }
    };
    let gather = {
        let counts = given();
        move |comm: &mut Communicator, it: &mut Buffers| {
            comm.gather_v(&it.0, &mut it.1, &counts, root)
        }
    };
    let scatter = {
        let counts = given();
        move |comm: &mut Communicator, it: &mut Buffers| {
            comm.scatter_v(&it.0, &counts, &mut it.1, root)
        }
    };
    let all_to_all = move |comm: &mut Communicator, it: &mut Buffers| {
        comm.all_to_all_v(&it.0, &sends, &mut it.1, &receives)
    };
    vec![
        started!(comm, two(comm, mine, total), all_gather),
        started!(comm, two(comm, total, mine), reduce_scatter),
        started!(comm, two(comm, mine, total), gather),
        started!(comm, two(comm, total, mine), scatter),
        started!(comm, crossed, all_to_all),
    ]
}

#[test]
fn every_request_gives_the_result_of_its_blocking_call() {
    for local in mixtures() {
        local.run(|mut comm| {
            let mut plain = comm.duplicate().unwrap();
            let forms = [named, in_place, apart, with_operation, with_counts];
            let checks: Vec<Check> = forms.into_iter().flat_map(|form| form(&mut comm)).collect();
            let barrier = comm.start((), |comm, ()| comm.barrier());
            checks.into_iter().for_each(|check| check(&mut plain));
            barrier.wait().unwrap();
        });
    }
}
