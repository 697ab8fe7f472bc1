//! Calls on bytes, whose element type is a value at run time. `random_cases` makes every call
//! in this form, too.

use maypole::schedule::collective::Collective;
use maypole::{AnySlice, AnySliceMut, DataType, Error, IntoBuffers, Local, ReduceOp};
use std::time::Duration;

const WORLD: usize = 3;

fn local() -> Local {
    Local::new(WORLD).timeout(Duration::from_secs(60))
}

#[test]
fn bools_are_bytes_of_which_every_one_but_zero_is_true() {
    local().run(|mut comm| {
        let mut truths = [u8::from(comm.rank() == 2) * 7, 255, 0];
        comm.all_reduce(AnySliceMut::new(DataType::Bool, &mut truths), ReduceOp::Or).unwrap();
        assert_eq!(truths, [1, 1, 0]);
        let sum = comm.all_reduce(AnySliceMut::new(DataType::Bool, &mut truths), ReduceOp::Sum);
        assert!(matches!(sum, Err(Error::Invalid { .. })), "{sum:?}");
    });
}

#[test]
fn messages_of_bytes_are_those_of_elements() {
    local().run(|mut comm| match comm.rank() {
        0 => {
            let number = 2.5f64;
            comm.send(AnySlice::new(DataType::F64, bytemuck::bytes_of(&number)), 1, 3).unwrap();
        }
        1 => {
            let mut number = [0.0];
            comm.recv(&mut number, 0, 3).unwrap();
            assert_eq!(number, [2.5]);
            comm.send(&[true, false], 2, 4).unwrap();
        }
        _ => {
            let mut truths = [9; 5];
            let room = AnySliceMut::new(DataType::Bool, &mut truths);
            let received = comm.recv_any(room, 4).unwrap();
            assert_eq!((received, truths), ((1, 2), [1, 0, 1, 1, 1]));
        }
    });
}

#[test]
fn bytes_that_are_no_elements_are_refused_on_this_rank_alone() {
    local().run(|mut comm| {
        let mut memory = [0u32; 4];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
        for (range, why) in [(1..9, "multiple of 4"), (0..7, "no whole number")] {
            let data = AnySliceMut::new(DataType::U32, &mut bytes[range]);
            let refused = comm.call(Collective::AllReduce, data, ReduceOp::Sum);
            let error = refused.unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
            assert!(error.to_string().contains(why), "{error}");
        }
        let data = AnySliceMut::new(DataType::U32, &mut bytes[..12]).into_buffers();
        let refused = comm.all_gather(data.with_counts(Some(&[1, 1, 1]), None));
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
        let (input, output) = bytes.split_at_mut(4);
        let output = AnySliceMut::new(DataType::U32, output);
        let refused = comm.all_gather((AnySlice::new(DataType::F32, input), output)).unwrap_err();
        assert!(refused.to_string().contains("elements of f32"), "{refused}");
        comm.barrier().unwrap();
    });
}
