//! Random rounds on GPUs, over the fake driver: a seed draws a plan for two to four ranks, which
//! are threads or processes, and their disturbances. Under every disturbance, a rank with `Ok` has
//! the correct bits, no rank hangs or crashes, and ranks that did nothing wrong have no error.
//!
//! A seed that fails prints its plan, and `TEST_SEED=N cargo test --test gpu_soak` runs that seed
//! alone. `TEST_SEEDS` is the number of seeds, and `TEST_FIRST_SEED` the first one. No round begins
//! after `TEST_SECONDS`. `TEST_CLASSES` lists the classes that are drawn (`plan.rs`), so other plans
//! follow from a seed. A seed always gives the same plan; how the threads of its ranks interleave
//! differs.
#![cfg(all(feature = "cuda", target_os = "linux"))]

mod buffers;
mod company;
mod disturb;
mod draw;
#[path = "../common/fake_gpu.rs"]
mod fake_gpu;
#[path = "../common/gpu_calls.rs"]
mod gpu_calls;
mod judge;
mod plan;
mod rank;
#[path = "../common/seeds.rs"]
mod seeds;
#[path = "../common/skip.rs"]
mod skip;
#[path = "../common/spawn.rs"]
mod spawn;
mod steps;

use fake_gpu::FakeDriver;
use judge::{Verdict, judge};
use maypole::Communicator;
use maypole_tests::common;
use plan::{Class, Layout, Plan};
use seeds::for_seeds_at_once;
use spawn::{Ended, World};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

const SEED: &str = "SOAK_SEED";
/// More than there are cores: many rounds wait for a rank that does not come.
const AT_ONCE: usize = 4;
/// Seeds of a run of all tests.
const SEEDS: u64 = 16;

spawn::rank_processes!(self);

fn rank_process(role: &str) {
    let seed = std::env::var(SEED).expect("the test sets it");
    let plan = draw::draw(seed.parse().expect("a seed is a number"), &classes());
    match role {
        "threads" => drop(Communicator::run_local(plan.world, |comm| rank::carry_out(&plan, comm))),
        _ => spawn::as_each_rank(|comm| rank::carry_out(&plan, comm)),
    }
}

fn classes() -> Vec<Class> {
    let Ok(names) = std::env::var("TEST_CLASSES") else { return Class::ALL.to_vec() };
    let find = |name: &str| Class::ALL.into_iter().find(|class| class.name() == name);
    let find = |name: &str| find(name).unwrap_or_else(|| panic!("TEST_CLASSES: no class {name}"));
    names.split(',').map(find).collect()
}

#[test]
fn no_round_ends_with_a_wrong_number_emulated() {
    let Some(driver) = FakeDriver::get() else { return };
    let classes = classes();
    let tally: Mutex<BTreeMap<String, [usize; 2]>> = Mutex::default();
    let rounds = for_seeds_at_once(AT_ONCE, SEEDS, |seed| {
        let plan = draw::draw(seed, &classes);
        let ended = play(&plan, driver).unwrap_or_else(|hang| panic!("{hang}\n{plan:#?}"));
        let verdict = judge(&plan, &ended);
        let verdict = verdict.unwrap_or_else(|found| {
            let lines: Vec<String> = ended.iter().map(|it| it.lines.join("\n")).collect();
            panic!("{found}\n{plan:#?}\n{}", lines.join("\n--\n"))
        });
        let mut tally = tally.lock().unwrap();
        tally.entry(plan.class.name()).or_default()[usize::from(verdict == Verdict::SomeFailed)] +=
            1;
    });
    let tally = tally.into_inner().unwrap();
    println!("{rounds} rounds; by class, without errors and with some: {tally:?}");
}

/// Starts the processes of a plan, and waits for their ends.
///
/// # Errors
/// The output of the processes, if they do not end.
fn play(plan: &Plan, driver: &FakeDriver) -> Result<Vec<Ended>, String> {
    let marks = tempfile::tempdir().expect("there is room for a folder");
    let role = match plan.layout {
        Layout::Threads => "threads",
        Layout::Processes(_) => "processes",
    };
    let processes = plan.processes();
    let processes: Vec<&[usize]> = processes.iter().map(Vec::as_slice).collect();
    let of = &plan.driver;
    let mut world = World::new(role, plan.world)
        .processes(&processes)
        .hosts(&plan.hosts)
        .within(3 * plan.patience + Duration::from_secs(60))
        .set("LD_LIBRARY_PATH", driver.library_path())
        .set("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
        .set("FAKE_CUDA_DEVICES", of.devices)
        .set("FAKE_CUDA_PROCESSORS", of.processors)
        .set("FAKE_CUDA_THREADS", of.threads)
        .set("FAKE_CUDA_DELAY", of.delay)
        .set("FAKE_CUDA_SEED", plan.seed)
        .set("MAYPOLE_CUDA_MAILBOXES", of.mailboxes)
        .set(SEED, plan.seed)
        .set(steps::MARKS, marks.path().display());
    if !of.has_peers {
        world = world.set("FAKE_CUDA_NO_PEERS", "all");
    }
    if let Some((rank, call)) = &of.fails {
        world = world.set_of(*rank, "FAKE_CUDA_FAIL", call);
    }
    world.start().ended()
}

/// Every class, layout and kind of step is drawn, and a seed draws one plan.
#[test]
fn plans_are_of_all_kinds() {
    let mut all = String::new();
    for seed in 0..3000 {
        let plan = draw::draw(seed, &Class::ALL);
        assert_eq!(format!("{plan:?}"), format!("{:?}", draw::draw(seed, &Class::ALL)));
        let Plan { steps, calls, layout, class, .. } = plan;
        all += &format!("{steps:?} {calls:?} {layout:?} of class {class:?}.");
    }
    let kinds = "Call( Batch{ Capture{ CaptureNew{ Replay{ ReplayStale( Sync{ Hold{ Pause{ World, Visit{ \
                 OneThread{ Drop( Abort, Kill, Ring{ Pair{ Threads Processes( Barrier, ExclusiveScan,";
    let kinds = kinds.split(' ').map(|kind| kind.replace('{', " {"));
    for wanted in kinds.chain(Class::ALL.map(|class| format!("of class {class:?}."))) {
        assert!(all.contains(&wanted), "no plan has {wanted}");
    }
}
