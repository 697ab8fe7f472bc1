//! Arbitrary environments, keys, and replies of a process manager.

use super::pmi::Pmi;
use super::{JobKey, VARIABLES, from_vars};
use crate::fuzz::Fuzz;
use std::collections::HashMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

/// Names of variables of all launchers.
const NAMES: &[&str] = &[
    "RANK=",
    "WORLD_SIZE=",
    "LOCAL_RANK=",
    "LOCAL_WORLD_SIZE=",
    "MASTER_ADDR=",
    "MASTER_PORT=",
    "OMPI_COMM_WORLD_RANK=",
    "OMPI_COMM_WORLD_SIZE=",
    "PMI_RANK=",
    "PMI_SIZE=",
    "PMI_FD=",
    "SLURM_PROCID=",
    "SLURM_STEP_NUM_TASKS=",
    "SLURM_STEP_NODELIST=",
    "SLURM_TASKS_PER_NODE=",
    "SLURM_LOCALID=",
    "SLURM_NODEID=",
    "SLURM_JOB_ID=",
    "JOB_COMPLETION_INDEX=",
    "\n",
];

/// The variables of an input: a line each, `NAME=VALUE`.
fn environment(input: &[u8]) -> HashMap<String, String> {
    let text = String::from_utf8_lossy(input);
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn environments() {
    let corpus = [
        "MAYPOLE_RANK=1\nMAYPOLE_WORLD=4\nMAYPOLE_ADDRESS=10.0.0.1\nMAYPOLE_PORT=20000\n",
        "RANK=0\nWORLD_SIZE=2\nLOCAL_RANK=0\nLOCAL_WORLD_SIZE=1\nMASTER_ADDR=a\nMASTER_PORT=9\n",
        "OMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=2\nOMPI_COMM_WORLD_LOCAL_RANK=1\n\
         OMPI_COMM_WORLD_LOCAL_SIZE=2\n",
        "SLURM_PROCID=3\nSLURM_STEP_NUM_TASKS=8\nSLURM_LOCALID=1\nSLURM_NODEID=1\n\
         SLURM_STEP_NODELIST=node[003-005,9],other\nSLURM_STEP_TASKS_PER_NODE=2(x3),2\n\
         SLURM_JOB_ID=77\nSLURM_STEP_ID=0\n",
        "JOB_COMPLETION_INDEX=2\nMAYPOLE_WORLD=3\nMAYPOLE_ADDRESS=svc\nMAYPOLE_TIMEOUT=1.5\n",
        "PMI_RANK=0\nPMI_SIZE=2\nPMI_FD=9\nMPI_LOCALRANKID=0\nMPI_LOCALNRANKS=2\n",
    ];
    let own: Vec<String> = VARIABLES.iter().map(|variable| format!("{}=", variable.name)).collect();
    let words: Vec<&str> = own.iter().map(String::as_str).chain(NAMES.iter().copied()).collect();
    let corpus = corpus.map(|text| text.as_bytes().to_vec());
    let fuzz = Fuzz::new("environments").corpus(corpus).words(&words).memory(256 << 10, 100);
    fuzz.run(|input| {
        let variables = environment(input);
        match from_vars(&|name| variables.get(name).cloned()) {
            Ok(said) => {
                assert!(said.launch.rank < said.launch.world, "a rank is below its world");
                assert!(!said.launch.ports.is_empty(), "there is a port");
                format!("{:?}", said.launch.launcher)
            }
            Err(error) => error.to_string(),
        }
    });
}

#[test]
fn keys() {
    let corpus = ["00112233445566778899aabbccddeeff".repeat(2), " \n".repeat(20)];
    let corpus = corpus.map(String::into_bytes);
    Fuzz::new("keys").corpus(corpus).memory(16 << 10, 8).run(|input| {
        match JobKey::parse(&String::from_utf8_lossy(input)) {
            Ok(_) => "a key".to_owned(),
            Err(error) => error.to_string(),
        }
    });
}

#[test]
fn answers_of_a_process_manager() {
    let begin = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n\
                 cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n\
                 cmd=my_kvsname kvsname=kvs_1\n";
    let rest = "cmd=barrier_out\ncmd=get_result rc=0 value=v\ncmd=finalize_ack\n";
    let corpus = [format!("{begin}{rest}"), begin.to_owned()].map(String::into_bytes);
    let words = ["cmd=", "rc=0", "rc=-1", "kvsname=", "keylen_max=", "value=", "\n", " "];
    let fuzz = Fuzz::new("pmi").corpus(corpus).words(&words).inputs(6000).memory(256 << 10, 64);
    fuzz.run(|input| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let answers = input.to_vec();
        // A long reply may not fit into the socket buffer, so a thread sends it.
        let server = thread::spawn(move || (&theirs).write_all(&answers));
        let waits = Duration::from_secs(20);
        maypole_transports::descriptor::bound_waits(&ours, waits).unwrap();
        let answer = Pmi::begin(ours, waits).and_then(|mut pmi| pmi.exchange("key", None));
        let _ = server.join().unwrap();
        answer.map_or_else(|error| error.to_string(), |_| "a value".to_owned())
    });
}
