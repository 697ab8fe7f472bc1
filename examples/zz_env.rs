//! tmp
use maypole::{Communicator, ReduceOp, Transport};
fn main() {
    let mut comm = Communicator::from_env().unwrap();
    for t in [Transport::Auto, Transport::Tcp] {
        let mut c = comm.over(t).unwrap();
        let mut x = vec![c.rank() as f32 + 1.0; 100_000];
        for _ in 0..10 { x.fill(c.rank() as f32 + 1.0); c.all_reduce(&mut x, ReduceOp::Sum).unwrap(); }
        println!("rank {} of {} {:?} {} hosts {:?}", c.rank(), c.world(), t, x[99_999], c.hosts());
    }
    comm.barrier().unwrap();
}
