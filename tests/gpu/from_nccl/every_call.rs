// Every call of `cudarc::nccl::safe`, with the types of its arguments written out. Results have other
// types, so each is unwrapped and dropped.

fn memberships(streams: Vec<Arc<CudaStream>>, bytes: [std::ffi::c_char; 128]) {
    let id: Id = Id::new().unwrap();
    let copy: Id = Id::uninit(*id.internal());
    let _: &[std::ffi::c_char; 128] = copy.internal();
    let _: Id = Id::uninit(bytes);
    let comm: Comm = Comm::from_rank(Arc::clone(&streams[0]), 0usize, 1usize, copy).unwrap();
    let _: Arc<CudaStream> = comm.stream();
    let _: &Arc<cudarc::driver::CudaContext> = comm.context();
    let _: [usize; 3] = [comm.ordinal(), comm.rank(), comm.world_size()];
    let _: Vec<Comm> = Comm::from_devices(streams).unwrap();
}

macro_rules! calls {
    ($($name:ident: $type:ty;)*) => {$(
        fn $name(comm: &Comm, from: &CudaSlice<$type>, into: &mut CudaSlice<$type>) {
            let op: &ReduceOp = &ReduceOp::Sum;
            let (peer, root): (i32, i32) = (1, 0);
            let _ = comm.send(from, peer).unwrap();
            let _ = comm.recv(into, peer).unwrap();
            let _ = comm.broadcast(Some(from), into, root).unwrap();
            let _ = comm.broadcast(None::<&CudaSlice<$type>>, into, root).unwrap();
            let _ = comm.broadcast_in_place(into, root).unwrap();
            let _ = comm.all_gather(from, into).unwrap();
            let _ = comm.all_reduce(from, into, op).unwrap();
            let _ = comm.all_reduce_in_place(into, op).unwrap();
            let _ = comm.reduce(from, Some(into), op, root).unwrap();
            let _ = comm.reduce(from, None::<&mut CudaSlice<$type>>, op, root).unwrap();
            let _ = comm.reduce_in_place(into, op, root).unwrap();
            let _ = comm.reduce_scatter(from, into, op).unwrap();
            // Parts of buffers.
            let _ = comm.all_reduce(&from.slice(..1), &mut into.slice_mut(..1), op).unwrap();
        }
    )*};
}
calls! {
    of_f32: f32; of_f64: f64; of_i8: i8; of_i32: i32; of_i64: i64; of_u8: u8; of_u32: u32; of_u64: u64;
    of_f16: maypole::f16; of_bf16: maypole::bf16;
}

fn operations() -> [ReduceOp; 4] {
    [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min, ReduceOp::Avg]
}

fn grouped(comm: &Comm, from: &CudaSlice<f32>, into: &mut CudaSlice<f32>) {
    let op: &ReduceOp = &ReduceOp::Sum;
    let view = || from.as_view();
    let (a, mut rest) = into.split_at_mut(1);
    let (b, c) = rest.split_at_mut(1);
    let mut group: Group<'_> = comm.group();
    let _: &Comm = group.comm();
    let _ = group.send(view(), 1i32).unwrap();
    let _ = group.recv(a, 1i32).unwrap();
    let _ = group.broadcast(Some(view()), b, 0i32).unwrap();
    let _ = group.reduce_scatter(view(), c, op).unwrap();
    drop(group);
    let mut group = comm.group();
    let _ = group.broadcast_in_place(into.as_view_mut(), 0i32).unwrap();
    drop(group);
    let mut group = comm.group();
    let _ = group.all_gather(view(), into.as_view_mut()).unwrap();
    drop(group);
    let mut group = comm.group();
    let _ = group.all_reduce(view(), into.as_view_mut(), op).unwrap();
    drop(group);
    let mut group = comm.group();
    let _ = group.all_reduce_in_place(into.as_view_mut(), op).unwrap();
    drop(group);
    let mut group = comm.group();
    let _ = group.reduce(view(), Some(into.as_view_mut()), op, 0i32).unwrap();
    drop(group);
    let mut group = comm.group();
    let _ = group.reduce_in_place(into.as_view_mut(), op, 0i32).unwrap();
}
