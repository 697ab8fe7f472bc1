// A rank of a program for NCCL, as `cudarc::nccl::safe` has it. It does not name the library: the
// file that includes this one imports `Comm`, `Id` and `ReduceOp` of one or the other.

/// Averages the gradients of all ranks, gives every rank the weights of rank 0, and passes a token
/// around; returns the first gradient, the first weight and the token.
fn train(stream: Arc<CudaStream>, rank: usize, world: usize, id: Id) -> [f32; 3] {
    let comm = Comm::from_rank(stream.clone(), rank, world, id).unwrap();
    let mut gradients = stream.clone_htod(&vec![rank as f32; 1000]).unwrap();
    let mut weights = stream.clone_htod(&vec![10.0 + rank as f32; 1000]).unwrap();
    let token = stream.clone_htod(&[100.0 + rank as f32]).unwrap();
    let mut passed = stream.alloc_zeros::<f32>(1).unwrap();

    comm.all_reduce_in_place(&mut gradients, &ReduceOp::Avg).unwrap();
    comm.broadcast_in_place(&mut weights, 0).unwrap();
    // Both messages start together, so neither waits for the other.
    let (right, left) = ((rank + 1) % world, (rank + world - 1) % world);
    let (from, into) = (token.as_view(), passed.as_view_mut());
    let mut group = comm.group();
    group.send(from, right as i32).unwrap();
    group.recv(into, left as i32).unwrap();
    drop(group);

    [gradients, weights, passed].map(|buffer| stream.clone_dtoh(&buffer).unwrap()[0])
}
