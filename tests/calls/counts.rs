//! Blocks whose lengths contradict one another. `random_cases` makes every call with
//! blocks of any lengths, also of length zero, by every algorithm.

use crate::common::world::TIMEOUT;
use maypole::{Communicator, Error, Local};

#[test]
fn lengths_that_contradict_one_another_are_refused_everywhere_and_harmless() {
    let check = |mut comm: Communicator| {
        let mine = vec![1u32; comm.rank() + usize::from(comm.rank() == 1)];
        let counts: Vec<usize> = (0..comm.world()).collect();
        let mut all = vec![0; counts.iter().sum()];
        let error = comm.gather((&mine, &mut all, &counts), 0).unwrap_err();
        assert!(
            matches!(&error, Error::Invalid { why, .. } if why.contains("rank 1 has 2 elements")),
            "{error}"
        );
        comm.barrier().unwrap();
        let (sends, receives) =
            (vec![1; comm.world()], vec![usize::from(comm.rank() != 0); comm.world()]);
        let mut output = vec![0u32; receives.iter().sum()];
        let error =
            comm.all_to_all((&vec![7; comm.world()], &sends, &mut output, &receives)).unwrap_err();
        assert!(error.to_string().contains("which expects 0"), "{error}");
        comm.barrier().unwrap();
    };
    for world in 2..=5 {
        let apart: Vec<usize> = (0..world).collect();
        let halves: Vec<usize> = (0..world).map(|rank| rank / 2).collect();
        for hosts in [vec![0; world], apart, halves] {
            Local::new(world).hosts(&hosts).timeout(TIMEOUT).run(check);
        }
    }
}
