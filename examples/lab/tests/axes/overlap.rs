//! Sums run during the backward pass. The tests look at the order of events, not at how long they
//! take.

use maypole::Result;
use maypole_lab::compare::Recipe;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::store::{Store, StorePass, forward_store};
use maypole_trainer::ranks::timeline::{RankActivity, TimeSpan, Timeline};
use maypole_trainer::train::trainer::Trainer;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longer than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A store whose backward pass waits, within each unit, until the sums of all later ones are over.
struct Patient {
    inner: Box<dyn Store<f32>>,
    timeline: Timeline,
    spans: Vec<TimeSpan>,
    began: Duration,
    waits: bool,
}

impl Patient {
    /// The number of sums that are over.
    fn sums(&mut self) -> usize {
        self.spans.extend(self.timeline.take());
        self.spans.iter().filter(|span| span.kind == RankActivity::Communication).count()
    }
}

impl Store<f32> for Patient {
    forward_store!(f32: layout, weights, local_shards, all_gather_params, publish, bytes);

    fn pass_begins(&mut self, pass: StorePass) {
        self.began = self.timeline.now();
        self.inner.pass_begins(pass);
    }

    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[f32], &mut [f32])> {
        let later = self.layout().units.len() - 1 - unit;
        let start = Instant::now();
        while self.waits && self.sums() < later {
            assert!(
                start.elapsed() < LIMIT,
                "the sums of units after {unit} do not end before its backward pass"
            );
            sleep(Duration::from_millis(1));
        }
        self.inner.weights_and_gradients(unit)
    }

    fn backward_done(&mut self, unit: usize) -> Result<()> {
        if unit == 0 {
            let start = self.began;
            let end = self.timeline.now();
            self.spans.push(TimeSpan { kind: RankActivity::Backward, start, end });
        }
        self.inner.backward_done(unit)
    }

    fn finish_grad_sync(&mut self) -> Result<()> {
        self.inner.finish_grad_sync()?;
        self.spans.drain(..).for_each(|span| self.timeline.note(span));
        Ok(())
    }
}

/// The spans of one step on two ranks, every unit of the model a bucket; `waits` is of [`Patient`].
fn spans(overlap: bool, waits: bool) -> Vec<Vec<TimeSpan>> {
    let recipe = Recipe { steps: 1, ..Recipe::default() };
    let sharding = Sharding::Replicated { bucket: Some(0), overlap };
    let prepare = |trainer: &mut Trainer<f32>| {
        let layout = trainer.parts.store.layout().clone();
        let group = trainer.groups.copies.clone();
        let timeline = group.timeline().clone();
        let inner = sharding.store(layout.clone(), layout.initial(recipe.seed), group).unwrap();
        let spans = Vec::new();
        let began = Duration::ZERO;
        trainer.parts.store = Box::new(Patient { inner, timeline, spans, began, waits });
    };
    recipe.each_rank((2, 1), sharding, prepare, |trainer| trainer.watch.timeline.take()).1
}

fn of(spans: &[TimeSpan], kind: RankActivity) -> Vec<TimeSpan> {
    spans.iter().copied().filter(|span| span.kind == kind).collect()
}

#[test]
fn the_sum_of_a_bucket_can_be_over_before_the_unit_before_it_is_at_work() {
    for spans in spans(true, true) {
        let sums = of(&spans, RankActivity::Communication);
        let backward = of(&spans, RankActivity::Backward)[0];
        let update = of(&spans, RankActivity::Update)[0];
        let units = Recipe::default().config.layers + 2;
        assert_eq!(sums.len(), units);
        let within = |span: &&TimeSpan| backward.start <= span.start && span.end <= backward.end;
        assert_eq!(
            sums.iter().filter(within).count(),
            units - 1,
            "all but the first unit's, whose pass is the last"
        );
        assert!(sums.iter().all(|sum| sum.end <= update.start), "the optimizer needs all of them");
    }
}

#[test]
fn without_overlap_no_sum_begins_before_the_backward_pass_is_over() {
    for spans in spans(false, false) {
        let sums = of(&spans, RankActivity::Communication);
        let backward = of(&spans, RankActivity::Backward)[0];
        assert!(!sums.is_empty() && sums.iter().all(|sum| sum.start >= backward.end));
    }
}
