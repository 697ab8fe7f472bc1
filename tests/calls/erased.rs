//! What is particular about calls on bytes, whose element type is known at run time. `collectives`
//! and `random_cases` make every call in this form, too.

use maypole::schedule::collective::Collective;
use maypole::{DataType, ErasedBuffers, ErasedCall, Error, Local, ReduceOp};
use std::time::Duration;

const WORLD: usize = 3;

fn local() -> Local {
    Local::new(WORLD).timeout(Duration::from_secs(60))
}

#[test]
fn bools_are_bytes_of_which_every_one_but_zero_is_true() {
    local().run(|mut comm| {
        let mut truths = [u8::from(comm.rank() == 2) * 7, 255, 0];
        let call = |op| ErasedCall { op, ..ErasedCall::new(Collective::AllReduce, DataType::Bool) };
        let buffers = ErasedBuffers::InPlace(&mut truths);
        comm.call_erased(call(ReduceOp::Or), buffers).unwrap();
        assert_eq!(truths, [1, 1, 0]);
        let sum = comm.call_erased(call(ReduceOp::Sum), ErasedBuffers::InPlace(&mut truths));
        assert!(matches!(sum, Err(Error::Invalid { .. })), "{sum:?}");
    });
}

#[test]
fn messages_of_bytes_are_those_of_elements() {
    local().run(|mut comm| match comm.rank() {
        0 => comm.send_erased(DataType::F64, bytemuck::bytes_of(&2.5), 1, 3).unwrap(),
        1 => {
            let mut number = [0.0];
            comm.recv(&mut number, 0, 3).unwrap();
            assert_eq!(number, [2.5]);
            comm.send(&[true, false], 2, 4).unwrap();
        }
        _ => {
            let mut truths = [9; 5];
            let received = comm.recv_erased(DataType::Bool, &mut truths, None, 4).unwrap();
            assert_eq!((received, truths), ((1, 2), [1, 0, 1, 1, 1]));
        }
    });
}

#[test]
fn bytes_that_are_no_elements_are_refused_on_this_rank_alone() {
    local().run(|mut comm| {
        let mut memory = [0u32; 4];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
        let call = ErasedCall::new(Collective::AllReduce, DataType::U32);
        for (range, why) in [(1..9, "multiple of 4"), (0..7, "no whole number")] {
            let refused = comm.call_erased(call, ErasedBuffers::InPlace(&mut bytes[range]));
            let error = refused.unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
            assert!(error.to_string().contains(why), "{error}");
        }
        let counted = call.with_counts(&[1, 1, 1]);
        let refused = comm.call_erased(counted, ErasedBuffers::InPlace(&mut bytes[..4]));
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
        comm.barrier().unwrap();
    });
}
