//! Lesson 9: blocks of different lengths.
//!
//! An all-gather takes the length of every rank's block, on all ranks. An all-to-all
//! takes only the lengths of the blocks that this rank sends to and receives from each rank. Here
//! the ranks sort words together: each rank ends with one part of the alphabet.

use maypole::Communicator;

const WORDS: [&str; 3] = ["ribbon pole dance may", "tree ring", "bow fiddle apron garland lark"];

fn main() {
    let lines = Communicator::run_local(WORDS.len(), |mut comm| {
        let rank = comm.rank();
        let world = comm.world();
        let mut words: Vec<&str> = WORDS[rank].split(' ').collect();
        words.sort_unstable();

        // The lengths are gathered first, in blocks of equal length.
        let mut lengths = vec![0; world];
        comm.all_gather((&[WORDS[rank].len() as u64], &mut lengths))
            .expect("all ranks call the same");
        let lengths: Vec<usize> = lengths.iter().map(|length| *length as usize).collect();
        let mut everything = vec![0; lengths.iter().sum()];
        comm.all_gather((WORDS[rank].as_bytes(), &mut everything, &lengths))
            .expect("all ranks call the same");
        assert_eq!(String::from_utf8(everything).expect("words"), WORDS.concat());

        // Each rank gets a third of the alphabet: the words for each rank, and their lengths.
        let third = |word: &str| usize::from(word.as_bytes()[0] - b'a') * world / 26;
        let mut parts = vec![String::new(); world];
        words.iter().for_each(|word| parts[third(word)] += &format!("{word} "));
        let sent: Vec<usize> = parts.iter().map(String::len).collect();

        // The length that I receive from a rank is the length that it sends to me.
        let mine: Vec<u64> = sent.iter().map(|len| *len as u64).collect();
        let mut theirs = vec![0; world];
        comm.all_to_all((&mine, &mut theirs)).expect("all ranks call the same");
        let received: Vec<usize> = theirs.iter().map(|len| *len as usize).collect();
        let mut part = vec![0; received.iter().sum()];
        comm.all_to_all((parts.concat().as_bytes(), &sent, &mut part, &received))
            .expect("the counts fit");

        let part = String::from_utf8(part).expect("words");
        let mut sorted: Vec<&str> = part.split_whitespace().collect();
        sorted.sort_unstable();
        format!("rank {rank} sent {sent:?} bytes, got {received:?}: {}", sorted.join(" "))
    });
    lines.iter().for_each(|line| println!("{line}"));
}
