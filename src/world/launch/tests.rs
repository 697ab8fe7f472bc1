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

/// Asserts that the error says all of `says`.
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

#[test]
fn earlier_launchers_overrule_later_ones() {
    let nested = "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 OMPI_COMM_WORLD_RANK=1 \
                  OMPI_COMM_WORLD_SIZE=2 \
                  RANK=2 WORLD_SIZE=3 MASTER_ADDR=head";
    check(nested, (Launcher::Torchrun, 2, 3, None, None, Some("head")));
    let own = format!("{nested} MAYPOLE_RANK=3 MAYPOLE_WORLD=4 MAYPOLE_ADDRESS=other");
    check(&own, (Launcher::Maypole, 3, 4, None, None, Some("other")));
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
    assert_eq!(variables_as_markdown().lines().count(), VARIABLES.len() + 2);
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
    /// Every variable holds something arbitrary or nothing: no panic, and what is accepted is
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
