use super::*;
use proptest::prelude::*;

/// Reads `NAME=value` words.
fn read(words: &str) -> Result<LaunchDescription, LaunchError> {
    let vars =
        words.split_whitespace().map(|word| word.split_once('=').unwrap()).collect::<Vec<_>>();
    from_vars(&|name| vars.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned()))
}

fn launch(words: &str) -> Launch {
    read(words).unwrap_or_else(|error| panic!("{words}: {error}")).launch
}

/// Asserts the launcher, rank, world, local rank and world, and address.
#[track_caller]
fn check(
    words: &str,
    expected: (Launcher, usize, usize, Option<usize>, Option<usize>, Option<&str>),
) {
    let l = launch(words);
    let found = (l.launcher, l.rank, l.world, l.local_rank, l.local_world, l.address.as_deref());
    assert_eq!(found, expected, "{words}");
}

/// Asserts that the error contains all of `says`.
#[track_caller]
fn refused(words: &str, says: &[&str]) {
    let error = read(words).map(|described| described.launch).expect_err(words).to_string();
    for part in says {
        assert!(error.contains(part), "{words}: {error:?} does not say {part:?}");
    }
}

const HERE: Option<&str> = Some("127.0.0.1");

#[test]
fn every_launcher_is_understood() {
    check("", (Launcher::Alone, 0, 1, Some(0), Some(1), HERE));
    let own = "MAYPOLE_RANK=1 MAYPOLE_WORLD=4 MAYPOLE_LOCAL_RANK=1 MAYPOLE_LOCAL_WORLD=4";
    check(own, (Launcher::Maypole, 1, 4, Some(1), Some(4), HERE));
    let torchrun =
        "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=head MASTER_PORT=29500";
    check(torchrun, (Launcher::Torchrun, 5, 8, Some(1), Some(4), Some("head")));
    let open_mpi = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 \
                    OMPI_COMM_WORLD_LOCAL_SIZE=2";
    check(open_mpi, (Launcher::OpenMpi, 1, 2, Some(1), Some(2), HERE));
    let hydra = "PMI_RANK=0 PMI_SIZE=2 PMI_FD=6 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2";
    check(hydra, (Launcher::Mpich, 0, 2, Some(0), Some(2), None));
    assert_eq!(read(hydra).unwrap().pmi, Some(6));
    let srun = "SLURM_PROCID=3 SLURM_NTASKS=99 SLURM_STEP_NUM_TASKS=7 SLURM_LOCALID=1 \
                SLURM_NODEID=1 \
                SLURM_STEP_TASKS_PER_NODE=2(x3),1 SLURM_STEP_NODELIST=n[03-06] \
                SLURM_JOB_NODELIST=n[01-06]";
    check(srun, (Launcher::Slurm, 3, 7, Some(1), Some(2), Some("n03")));
    let pod = "JOB_COMPLETION_INDEX=2 MAYPOLE_WORLD=4 MAYPOLE_ADDRESS=train-0.train";
    check(pod, (Launcher::Kubernetes, 2, 4, None, None, Some("train-0.train")));
}

/// Of torchrun itself, rank 2 of 3 on a host of three.
const ELASTIC: &str = "RANK=2 WORLD_SIZE=3 LOCAL_RANK=2 LOCAL_WORLD_SIZE=3 TORCHELASTIC_RUN_ID=a \
                       MASTER_ADDR=head";
/// Of a pod, which has several processes or one.
const POD_OF_ONE: &str = "RANK=0 WORLD_SIZE=1 MASTER_ADDR=pod-0 MASTER_PORT=29500";
const POD_OF_FOUR: &str = "RANK=3 WORLD_SIZE=4 MASTER_ADDR=pod-0";
const MPIRUN: &str = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 \
                      OMPI_COMM_WORLD_LOCAL_SIZE=2";
const MPIRUN_OF_ONE: &str = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1";
const HYDRA: &str = "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2";
const SRUN: &str = "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=1 SLURM_NODEID=0 \
                    SLURM_STEP_TASKS_PER_NODE=2 SLURM_STEP_NODELIST=n1";
const SRUN_OF_ONE: &str = "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NODELIST=n1";

/// Asserts the chosen launcher with rank and world, whether a text names an ignored set, and the
/// address.
#[track_caller]
fn nested(sets: &[&str], expected: (Launcher, usize, usize), is_said: bool, address: Option<&str>) {
    let launch = launch(&sets.join(" "));
    assert_eq!((launch.launcher, launch.rank, launch.world), expected, "{sets:?}");
    assert_eq!(launch.overruled.is_some(), is_said, "{sets:?}: {:?}", launch.overruled);
    assert_eq!(launch.address.as_deref(), address, "{sets:?}");
}

#[test]
fn the_launcher_of_the_process_overrules_those_around_it() {
    use Launcher::{Maypole, Mpich, OpenMpi, Slurm, Torchrun};
    // A pod, and a launcher in it.
    nested(&[POD_OF_ONE, MPIRUN], (OpenMpi, 1, 2), true, HERE);
    nested(&[POD_OF_ONE, HYDRA], (Mpich, 1, 2), true, HERE);
    nested(&[POD_OF_ONE, SRUN], (Slurm, 1, 2), true, Some("n1"));
    let said = launch(&format!("{POD_OF_ONE} {MPIRUN}")).overruled.unwrap();
    for part in ["RANK is 0 and WORLD_SIZE is 1", "OMPI_COMM_WORLD_RANK is 1", "counts instead"] {
        assert!(said.contains(part), "{said}");
    }
    // Launchers that start others on each host.
    for outer in [MPIRUN, HYDRA, SRUN, SRUN_OF_ONE] {
        nested(&[ELASTIC, outer], (Torchrun, 2, 3), false, Some("head"));
    }
    nested(&[HYDRA, SRUN_OF_ONE], (Mpich, 1, 2), false, HERE);
    let daemons = SRUN.replace("PROCID=1", "PROCID=0");
    nested(&[MPIRUN, &daemons], (OpenMpi, 1, 2), false, HERE);
    // One process of an outer launcher shows nothing about the ranks that another one starts.
    nested(&[SRUN_OF_ONE, POD_OF_FOUR], (Torchrun, 3, 4), true, Some("pod-0"));
    nested(&[MPIRUN_OF_ONE, SRUN], (Slurm, 1, 2), true, Some("n1"));
    // Variables set by hand take precedence.
    let own = "MAYPOLE_RANK=3 MAYPOLE_WORLD=4 MAYPOLE_ADDRESS=other";
    for others in [POD_OF_ONE, ELASTIC, MPIRUN, SRUN, "WORLD_SIZE=9", "PMIX_RANK=1"] {
        nested(&[own, others], (Maypole, 3, 4), false, Some("other"));
    }
}

#[test]
fn variables_that_agree_are_one_set() {
    use Launcher::{OpenMpi, Slurm};
    nested(&["RANK=1 WORLD_SIZE=2", MPIRUN], (OpenMpi, 1, 2), false, HERE);
    // A batch script exports the variables of a step.
    nested(&["WORLD_SIZE=2 MASTER_ADDR=head", SRUN], (Slurm, 1, 2), false, Some("head"));
    nested(&["RANK=1", SRUN], (Slurm, 1, 2), false, Some("n1"));
    nested(&["LOCAL_RANK=1", MPIRUN], (OpenMpi, 1, 2), false, HERE);
    nested(&["JOB_COMPLETION_INDEX=7", MPIRUN], (OpenMpi, 1, 2), false, HERE);
    nested(&["PMIX_RANK=1", MPIRUN], (OpenMpi, 1, 2), false, HERE);
    // A step has an address for the other launcher's variables, too.
    let across = "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=n[1-2]";
    nested(&["PMI_RANK=1 PMI_SIZE=2", across], (Launcher::Mpich, 1, 2), false, Some("n1"));
    let torch = "RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1";
    nested(&[torch, across], (Launcher::Torchrun, 1, 2), false, Some("n1"));
    let pods = "JOB_COMPLETION_INDEX=1 MAYPOLE_WORLD=2";
    nested(&[pods, MPIRUN], (OpenMpi, 1, 2), false, HERE);
}

#[test]
fn sets_that_contradict_one_another_are_refused() {
    let both = |one: &str, other: &str, parts: &[&str]| refused(&format!("{one} {other}"), parts);
    let torch = "RANK is 3 and WORLD_SIZE is 4";
    let remedy = "set MAYPOLE_RANK and MAYPOLE_WORLD";
    both(POD_OF_FOUR, MPIRUN, &[torch, "OMPI_COMM_WORLD_RANK is 1", remedy]);
    both(POD_OF_FOUR, HYDRA, &[torch, "PMI_SIZE is 2", remedy]);
    both(POD_OF_FOUR, SRUN, &[torch, "SLURM_PROCID is 1", remedy]);
    let other = "PMI_RANK=2 PMI_SIZE=3";
    both(MPIRUN, other, &["OMPI_COMM_WORLD_SIZE is 2", "PMI_SIZE is 3"]);
    // Variables that are exported alone.
    both("WORLD_SIZE=16", SRUN, &["WORLD_SIZE is 16", "SLURM_STEP_NUM_TASKS is 2"]);
    both("RANK=0", SRUN, &["RANK is 0", "SLURM_PROCID is 1"]);
    both("MAYPOLE_WORLD=3", SRUN, &["MAYPOLE_WORLD is 3", "SLURM_STEP_NUM_TASKS is 2"]);
}

/// Reads `words` below processes that were started with the variables `above`, the parent first.
fn below(words: &str, above: &[&str]) -> Result<Launch, LaunchError> {
    let pairs = |words: &str| -> Vec<(String, String)> {
        let pair = |word: &str| word.split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned()));
        words.split_whitespace().filter_map(pair).collect()
    };
    let own = pairs(words);
    let above: Vec<_> = above.iter().map(|words| pairs(words)).collect();
    let distance = |values: &[(&str, String)]| {
        let has = |environment: &Vec<(String, String)>| {
            let is_there = |(name, value): &(&str, String)| {
                environment.iter().any(|(known, found)| known == name && found == value)
            };
            values.iter().all(is_there)
        };
        above.iter().take_while(|environment| has(environment)).count()
    };
    let vars = |name: &str| own.iter().find(|(of, _)| of == name).map(|(_, value)| value.clone());
    describe(&vars, &distance).map(|described| described.launch)
}

#[test]
fn the_processes_above_show_which_launcher_is_the_closest() {
    let check = |sets: [&str; 2], above: &[&str], launcher| {
        let found = below(&sets.join(" "), above).unwrap();
        assert_eq!(found.launcher, launcher, "{sets:?} below {above:?}");
    };
    // mpirun, started by a rank of torchrun or by a pod, has the variables of its own parent.
    check([ELASTIC, MPIRUN], &[ELASTIC], Launcher::OpenMpi);
    check([POD_OF_FOUR, MPIRUN], &[POD_OF_FOUR, POD_OF_FOUR], Launcher::OpenMpi);
    check([POD_OF_FOUR, MPIRUN], &[MPIRUN, ""], Launcher::Torchrun);
    let three = "SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3 SLURM_STEP_NODELIST=n1";
    check([MPIRUN, three], &[MPIRUN], Launcher::Slurm);
    check([MPIRUN, three], &[three], Launcher::OpenMpi);
    // A wrapper is another process with the same variables.
    let both = format!("{POD_OF_FOUR} {MPIRUN}");
    check([POD_OF_FOUR, MPIRUN], &[&both, POD_OF_FOUR], Launcher::OpenMpi);
    // The closest one is chosen though it has started one process, and a text reports it.
    let alone = below(&format!("{POD_OF_FOUR} {MPIRUN_OF_ONE}"), &[POD_OF_FOUR]).unwrap();
    assert_eq!((alone.world, alone.overruled.is_some()), (1, true));
    // `maypole run -n 1 mpirun -n 2 ...` would be two worlds of one.
    let own = "MAYPOLE_RANK=0 MAYPOLE_WORLD=1";
    let error = below(&format!("{own} {MPIRUN}"), &[own]).unwrap_err().to_string();
    assert!(error.contains("MAYPOLE_RANK is 0") && error.contains("OMPI_COMM_WORLD"), "{error}");
    check([own, MPIRUN], &[MPIRUN], Launcher::Maypole);
    check([own, MPIRUN], &[""], Launcher::Maypole);
}

#[test]
fn a_hint_of_another_launcher_is_no_world_of_one() {
    for hint in [
        "PMIX_RANK=0",
        "PMI_ID=1",
        "PALS_RANKID=0",
        "ALPS_APP_PE=3",
        "FLUX_TASK_RANK=0 FLUX_JOB_SIZE=2",
        "JSM_NAMESPACE_RANK=1 JSM_NAMESPACE_SIZE=2",
        "MV2_COMM_WORLD_RANK=0 MV2_COMM_WORLD_SIZE=2",
        "MPI_RANKID=0",
        "LSF_PM_TASKID=1",
        "PBS_TASKNUM=2",
        "PBS_NODENUM=1 PBS_TASKNUM=1",
        "HOROVOD_RANK=0",
        "PET_NODE_RANK=0 PET_NNODES=2",
    ] {
        let (name, _) = hint.split_once('=').unwrap();
        refused(hint, &[name, "MAYPOLE_RANK", "MAYPOLE_WORLD", "world of one"]);
    }
    refused("LOCAL_RANK=0", &["LOCAL_RANK", "RANK is not set"]);
    refused("OMPI_COMM_WORLD_LOCAL_RANK=0", &["OMPI_COMM_WORLD_RANK is not set"]);
    refused("MPI_LOCALRANKID=1", &["MPI_LOCALRANKID", "PMI_RANK is not set"]);
    refused("PMI_RANK=0", &["PMI_SIZE is not set"]);
    for numbers in ["SLURM_PROCID=1", "SLURM_PROCID=0 SLURM_NODEID=2", "SLURM_LOCALID=3"] {
        refused(numbers, &["SLURM_", "is not set", "srun"]);
    }
    // One process, and batch scripts, whose variables are no hints.
    for alone in [
        "FLUX_TASK_RANK=0 FLUX_JOB_SIZE=1",
        "PET_NODE_RANK=0 PET_NNODES=1",
        "PBS_TASKNUM=1 PBS_NODENUM=0 PBS_VNODENUM=0 PBS_NODEFILE=/x PBS_JOBID=1",
        "LSB_JOBID=7 LSB_DJOB_NUMPROC=8",
        "JOB_ID=7 NSLOTS=8 PE_HOSTFILE=/x",
    ] {
        check(alone, (Launcher::Alone, 0, 1, Some(0), Some(1), HERE));
    }
}

#[test]
fn a_batch_script_is_alone() {
    check(
        "SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=16",
        (Launcher::Alone, 0, 1, Some(0), Some(1), HERE),
    );
}

#[test]
fn an_empty_variable_is_not_set() {
    check("RANK= WORLD_SIZE=", (Launcher::Alone, 0, 1, Some(0), Some(1), HERE));
}

#[test]
fn contradictions_name_the_variable_its_value_and_the_remedy() {
    refused("RANK=3", &["RANK", "\"3\"", "WORLD_SIZE", "set both"]);
    refused("WORLD_SIZE=3", &["WORLD_SIZE", "RANK is not set"]);
    refused("MAYPOLE_RANK=1", &["MAYPOLE_WORLD is not set", "maypole run"]);
    refused("MAYPOLE_WORLD=2", &["MAYPOLE_RANK is not set"]);
    refused("RANK=4 WORLD_SIZE=4", &["RANK is 4", "WORLD_SIZE is 4"]);
    refused("RANK=one WORLD_SIZE=4", &["RANK", "\"one\"", "whole number"]);
    refused("RANK=-1 WORLD_SIZE=4", &["RANK", "\"-1\""]);
    refused("RANK=0 WORLD_SIZE=0", &["WORLD_SIZE", "\"0\"", "at least 1"]);
    refused(
        "RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2",
        &["LOCAL_RANK is 2", "LOCAL_WORLD_SIZE is 2"],
    );
    refused(
        "RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=3",
        &["LOCAL_WORLD_SIZE is 3", "WORLD_SIZE is 2"],
    );
    refused("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=0", &["LOCAL_WORLD_SIZE", "\"0\""]);
    refused("MAYPOLE_WORLD=3 RANK=0 WORLD_SIZE=2", &["MAYPOLE_WORLD is 3", "WORLD_SIZE is 2"]);
    refused("JOB_COMPLETION_INDEX=0", &["MAYPOLE_WORLD is not set", "completions"]);
    refused("SLURM_STEP_NUM_TASKS=2", &["SLURM_PROCID is not set", "srun"]);
    refused(
        "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 SLURM_STEP_NODELIST=n[",
        &["SLURM_STEP_NODELIST", "\"n[\""],
    );
    refused("MAYPOLE_PORT=0", &["MAYPOLE_PORT", "65535"]);
    refused("MASTER_PORT=70000", &["MASTER_PORT", "\"70000\""]);
    refused("MAYPOLE_TIMEOUT=NaN", &["MAYPOLE_TIMEOUT", "seconds"]);
    refused("MAYPOLE_JOB_KEY_FD=2", &["MAYPOLE_JOB_KEY_FD", "inherited"]);
    refused(
        "MAYPOLE_JOB_KEY=hunter2",
        &["MAYPOLE_JOB_KEY", "64 hexadecimal digits", "maypole key new"],
    );
    refused("RANK=1 WORLD_SIZE=2", &["rank 1 of 2", "MAYPOLE_ADDRESS"]);
    refused("RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1", &["MAYPOLE_ADDRESS"]);
}

#[test]
fn ports_are_given_or_follow_the_store_or_the_job() {
    assert_eq!(launch("MAYPOLE_PORT=7 MASTER_PORT=9").ports, [7]);
    assert_eq!(
        launch("MASTER_PORT=29500").ports,
        [29501, 29502, 29503, 29504, 29505, 29506, 29507, 29508]
    );
    assert_eq!(launch("MASTER_PORT=65533").ports, [65534, 65535]);
    assert_eq!(launch("MASTER_PORT=65535").ports.len(), 16);
    let ports = launch("MAYPOLE_JOB=training").ports;
    assert_eq!(ports, launch("MAYPOLE_JOB=training").ports);
    assert_ne!(ports, launch("MAYPOLE_JOB=another").ports);
    assert_eq!(launch("MAYPOLE_ADDRESS=[fd00::7]:21000").ports, [21_000]);
    assert_eq!(launch("MAYPOLE_ADDRESS=[fd00::7]:21000").address.as_deref(), Some("fd00::7"));
    assert_eq!(launch("MAYPOLE_ADDRESS=[fe80::7%eth0]").address.as_deref(), Some("fe80::7%eth0"));
    assert_eq!(launch("MAYPOLE_ADDRESS=node7:21000 MAYPOLE_PORT=21000").ports, [21_000]);
    refused(
        "MAYPOLE_ADDRESS=node7:21000 MAYPOLE_PORT=7",
        &["MAYPOLE_ADDRESS", "node7:21000", "MAYPOLE_PORT"],
    );
    assert!(ports.len() == 16 && ports.iter().all(|port| (20_000..32_015).contains(port)));
}

#[test]
fn the_job_is_named_as_the_launcher_names_it() {
    let srun = "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_JOB_ID=70 SLURM_STEP_ID=2";
    assert_eq!(launch(srun).job, "slurm-70-2");
    assert_eq!(launch(&format!("{srun} MAYPOLE_JOB=mine")).job, "mine");
    assert_ne!(
        launch("RANK=0 WORLD_SIZE=1 TORCHELASTIC_RUN_ID=a TORCHELASTIC_RESTART_COUNT=0").job,
        launch("RANK=0 WORLD_SIZE=1 TORCHELASTIC_RUN_ID=a TORCHELASTIC_RESTART_COUNT=1").job,
    );
}

#[test]
fn a_key_has_one_place() {
    let digits = "ab".repeat(32);
    let in_value = format!("MAYPOLE_JOB_KEY={digits}");
    assert!(matches!(read("").unwrap().key, KeySource::None));
    assert_eq!(read(&in_value).unwrap().open().unwrap().key.unwrap().bytes(), &[0xab; 32]);
    let in_file = "MAYPOLE_JOB_KEY_FILE=/etc/key";
    assert!(matches!(read(in_file).unwrap().key, KeySource::File(_)));
    let descriptor = "MAYPOLE_JOB_KEY_FD=9";
    assert!(matches!(read(descriptor).unwrap().key, KeySource::Descriptor(9)));
    refused(&format!("{in_value} {in_file}"), &["MAYPOLE_JOB_KEY_FILE and MAYPOLE_JOB_KEY are"]);
    refused(
        &format!("{descriptor} {in_file}"),
        &["_FD and MAYPOLE_JOB_KEY_FILE are both", "unset"],
    );
}

#[test]
fn a_closed_descriptor_names_its_variable() {
    let error = read("MAYPOLE_JOB_KEY_FD=987654").unwrap().open().unwrap_err().to_string();
    assert!(
        error.contains("MAYPOLE_JOB_KEY_FD is 987654") && error.contains("MAYPOLE_JOB_KEY_FILE"),
        "{error}"
    );
    let error =
        read("PMI_RANK=0 PMI_SIZE=2 PMI_FD=987654").unwrap().open().unwrap_err().to_string();
    assert!(error.contains("PMI_FD is 987654") && error.contains("MAYPOLE_ADDRESS"), "{error}");
}

#[test]
fn the_table_lists_each_variable_once() {
    let mut names = VARIABLES.iter().map(|variable| variable.name).collect::<Vec<_>>();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), VARIABLES.len());
    assert_eq!(VARIABLES_AS_MARKDOWN.lines().count(), VARIABLES.len() + 2);
}

/// Every variable of maypole's own that the code reads is in the table.
#[test]
fn nothing_is_read_that_the_table_does_not_list() {
    let listed = |name: &str| VARIABLES.iter().any(|variable| variable.name == name);
    for launcher in [
        "",
        "RANK=0 WORLD_SIZE=1",
        "PMI_RANK=0 PMI_SIZE=1",
        "JOB_COMPLETION_INDEX=0 MAYPOLE_WORLD=1",
    ] {
        let vars = launcher
            .split_whitespace()
            .map(|word| word.split_once('=').unwrap())
            .collect::<Vec<_>>();
        from_vars(&|name: &str| {
            assert!(!name.starts_with("MAYPOLE_") || listed(name), "{name} is not in VARIABLES");
            vars.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned())
        })
        .unwrap();
    }
}

/// What a variable may hold: a number, anything, a list of hosts.
const VALUE: &str = "[0-9]{0,3}|.{0,12}|n\\[[0-9,-]{0,5}\\]?";

proptest! {
    /// Every variable has an arbitrary value or none: no panic, and an accepted result is
    /// consistent.
    #[test]
    fn no_environment_makes_it_panic(seed: u64, values in proptest::collection::vec(VALUE, 1..8)) {
        let value = |name: &str| {
            let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            let hash = name.bytes().fold(seed, mix);
            values.get((hash >> 32) as usize % (values.len() * 2)).cloned()
        };
        if let Ok(LaunchDescription { launch, pmi, .. }) = from_vars(&value) {
            prop_assert!(launch.rank < launch.world);
            prop_assert!(launch.local_world.is_none_or(|local| local <= launch.world));
            prop_assert!(!launch.ports.is_empty());
            prop_assert!(launch.address.is_some() || pmi.is_some());
        }
    }
}
