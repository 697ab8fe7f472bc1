//! Memory does not grow with the text.

use crate::support;
use maypole::Communicator;
use maypole_corpus::prepare::prepare;
use maypole_corpus::sources::Sources;
use maypole_trainer::model::config::Config;
use maypole_trainer::ranks::mesh::Mesh;
use maypole_trainer::train::bpe::Bpe;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::text::Text;
use maypole_trainer::train::trainer::Trainer;
use maypole_trainer_kernels::counting;
use std::fs;

const MIB: i64 = 1 << 20;

#[test]
fn sixty_four_mebibytes_are_tokenised_and_trained_on_in_less_than_sixteen() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let line = "The quality of mercy is not strained. It droppeth as the gentle rain.\n";
    let file = line.repeat((8 << 20) / line.len());
    (0..8).for_each(|nth| fs::write(data.join(format!("{nth}.txt")), &file).unwrap());
    drop(file);
    let cache = folder.path().join("cache");
    let small = support::small();
    let config = Config { vocab: 256, ..small.config };
    let grown = Communicator::run_local(2, |mut comm| {
        // Owners that no other test of this program has.
        let owner = 40 + comm.rank();
        counting::count_for(owner);
        let sources = Sources::list(&data).unwrap();
        assert!(sources.bytes() > 63 << 20);
        let bpe = Bpe::default();
        let shards =
            prepare((&sources, &cache), &bpe, 1 << 22, Some(&mut comm), &mut |_| ()).unwrap();
        assert_eq!(shards.tokens() as u64, sources.bytes());
        let (text, held) = Text::of(shards, config.context, 1).divided().unwrap();
        let setup = Parallelism::of(Mesh::parse("dp=2").unwrap());
        let optimizer = (small.rule, RateSchedule::constant(0.1));
        let mut trainer = Trainer::<f32>::new(comm, &config, setup, 7, optimizer).unwrap();
        for _ in 0..20 {
            assert!(trainer.step(&text, 8).unwrap().report.loss.is_finite());
        }
        assert_eq!(held.spread(100, 10).unwrap().len(), 10);
        counting::of_owner(owner).peak
    });
    assert!(grown.iter().all(|peak| (1..16 * MIB).contains(peak)), "{grown:?} bytes");
    println!("peaks of both ranks: {grown:?} bytes for 64 MiB of text");
}
