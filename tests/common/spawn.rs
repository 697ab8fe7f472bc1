//! Ranks that are processes: a test binary executes itself once for each process, and reads the
//! output of each. The functions of the processes are roles. The file that starts a world has its
//! roles in a function `rank_process`, and `rank_processes!` in `main.rs` lists these files.
#![allow(dead_code, unused_imports, unused_macros, reason = "not every test uses all of it")]

use maypole::world::bootstrap::JoinConfig;
use maypole::{Communicator, Local, Transport};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::panic::Location;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime};

/// A limit above everything that the tests take on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);
/// The variables of a rank process: its role, the file of the role, and its ranks.
const ROLE: &str = "TEST_ROLE";
const PART: &str = "TEST_PART";
const RANKS: &str = "TEST_RANKS";
/// The name of the ignored test that rank processes run, in every test program.
const ENTRY: &str = "a_rank_of_another_test";

/// Declares the test that rank processes run. Each module named here has a function
/// `rank_process`, which does the roles of the worlds that the file of this name starts. If there
/// is one module, it has the roles of all files.
macro_rules! rank_processes {
    ($($part:ident),+ $(,)?) => {
        #[test]
        #[ignore = "a rank process of another test"]
        fn a_rank_of_another_test() {
            crate::spawn::play(&[$((stringify!($part), $part::rank_process)),+]);
        }
    };
}
pub(crate) use rank_processes;

/// The function of a file that does a role.
type RankProcess = fn(&str);

/// In a rank process: does its role.
pub(crate) fn play(parts: &[(&str, RankProcess)]) {
    let Some(role) = role() else { return };
    let part = std::env::var(PART).expect("the test names its file");
    let found = match parts {
        [only] => Some(only),
        _ => parts.iter().find(|(name, _)| *name == part),
    };
    found.unwrap_or_else(|| panic!("rank_processes! does not list {part}")).1(&role);
}

/// A world of processes that is to be started.
pub(crate) struct World {
    role: String,
    part: String,
    ranks: usize,
    processes: Vec<Vec<usize>>,
    hosts: Vec<usize>,
    /// Variables of all ranks (`None`), or of one.
    variables: Vec<(Option<usize>, String, String)>,
    /// The command that starts the process of a rank.
    starters: Vec<(usize, Vec<String>)>,
    limit: Duration,
}

impl World {
    /// `ranks` processes that do `role`, which is a role of the calling file.
    #[track_caller]
    pub(crate) fn new(role: &str, ranks: usize) -> Self {
        let processes = (0..ranks).map(|rank| vec![rank]).collect();
        let file = Path::new(Location::caller().file());
        let part = file.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        Self {
            role: role.to_owned(),
            part,
            ranks,
            processes,
            hosts: Vec::new(),
            variables: Vec::new(),
            starters: Vec::new(),
            limit: LIMIT,
        }
    }

    /// Pretends that ranks with different numbers are on different hosts.
    pub(crate) fn hosts(mut self, hosts: &[usize]) -> Self {
        self.hosts = hosts.to_vec();
        self
    }

    /// One process for each of `processes`, its ranks being threads of it.
    pub(crate) fn processes(mut self, processes: &[&[usize]]) -> Self {
        self.processes = processes.iter().map(|ranks| ranks.to_vec()).collect();
        self
    }

    /// Sets a variable of all processes.
    pub(crate) fn set(mut self, name: &str, value: impl ToString) -> Self {
        self.variables.push((None, name.to_owned(), value.to_string()));
        self
    }

    /// Sets a variable of the process of `rank`.
    pub(crate) fn set_of(mut self, rank: usize, name: &str, value: impl ToString) -> Self {
        self.variables.push((Some(rank), name.to_owned(), value.to_string()));
        self
    }

    /// Starts the process of `rank` by this command, which takes the program and its arguments.
    pub(crate) fn by(mut self, rank: usize, command: &[&str]) -> Self {
        self.starters.push((rank, command.iter().map(|word| (*word).to_owned()).collect()));
        self
    }

    /// The processes take less time than this.
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Starts the processes; `self.processes` may name fewer ranks than there are.
    pub(crate) fn start(self) -> Running {
        let (sender, said) = mpsc::channel();
        let job = fresh_job();
        let key = fresh_key();
        let start = |(number, ranks): (usize, &Vec<usize>)| {
            let mut command = self.command(ranks, &job, &key);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            listen(number, child.stdout.take().unwrap(), &sender);
            listen(number, child.stderr.take().unwrap(), &sender);
            child
        };
        let children: Vec<_> = self.processes.iter().enumerate().map(start).collect();
        let heard = vec![Vec::new(); children.len()];
        Running { children, said, heard, deadline: Instant::now() + self.limit }
    }

    fn command(&self, ranks: &[usize], job: &str, key: &str) -> Command {
        let starter = self.starters.iter().find(|(rank, _)| ranks.contains(rank));
        let starter = starter.map_or(&[][..], |(_, starter)| starter);
        let mut command = process(&self.part, &self.role, starter);
        let list: Vec<_> = ranks.iter().map(usize::to_string).collect();
        command.env(RANKS, list.join(","));
        command.env("MAYPOLE_RANK", &list[0]).env("MAYPOLE_WORLD", self.ranks.to_string());
        command
            .env("MAYPOLE_ADDRESS", "127.0.0.1")
            .env("MAYPOLE_JOB", job)
            .env("MAYPOLE_JOB_KEY", key);
        command.env("MAYPOLE_TIMEOUT", "60").env("RUST_BACKTRACE", "0");
        if let Some(host) = self.hosts.get(ranks[0]) {
            command.env("MAYPOLE_HOST", format!("host-{host}"));
        }
        for (rank, name, value) in &self.variables {
            if rank.is_none_or(|rank| ranks.contains(&rank)) {
                command.env(name, value);
            }
        }
        command
    }
}

/// A process that does `role`, which is a role of the file `part`, and has no variables of
/// maypole's. The command `starter` starts it, if that is not empty.
pub(crate) fn process(part: &str, role: &str, starter: &[String]) -> Command {
    let mut words = starter.iter().map(OsString::from).collect::<Vec<_>>();
    words.push(std::env::current_exe().unwrap().into());
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .args([ENTRY, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .stdin(Stdio::null());
    // The variables of a launcher that runs the tests are not for the rank processes.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("MAYPOLE_")) {
            command.env_remove(name);
        }
    }
    command.env(ROLE, role).env(PART, part);
    command
}

/// Sends every line of `stream` to `sender`, and `None` at its end.
fn listen(
    process: usize,
    stream: impl Read + Send + 'static,
    sender: &Sender<(usize, Option<String>)>,
) {
    let sender = sender.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            // If the receiver is gone, the test has failed already.
            let _ = sender.send((process, Some(line)));
        }
        let _ = sender.send((process, None));
    });
}

/// A name that no other job has. The ports follow from it, and ranks of other jobs are refused.
fn fresh_job() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    format!("test-{}-{}-{now}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn fresh_key() -> String {
    let mut key = [0u8; 32];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut key).unwrap();
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Rank processes that run. Dropping this kills them.
pub(crate) struct Running {
    children: Vec<Child>,
    said: Receiver<(usize, Option<String>)>,
    heard: Vec<Vec<String>>,
    deadline: Instant,
}

/// The end of one process.
#[derive(Debug)]
pub(crate) struct Ended {
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// All lines that the process printed, on both streams.
    pub(crate) lines: Vec<String>,
}

impl Ended {
    /// The messages to the test with this tag: the rest of the lines that begin with `@tag `.
    pub(crate) fn said(&self, tag: &str) -> Vec<&str> {
        self.lines.iter().filter_map(|line| told(line, tag)).collect()
    }

    /// The message with this tag, which must be the only one.
    #[track_caller]
    pub(crate) fn only(&self, tag: &str) -> &str {
        match self.said(tag)[..] {
            [it] => it,
            _ => panic!("it did not say {tag} once: {self:#?}"),
        }
    }
}

/// The rest of a line that has `@tag ` in it; libtest may have begun the line.
fn told<'a>(line: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once('@')?;
    rest.strip_prefix(tag)?.strip_prefix(' ')
}

impl Running {
    /// Waits until each of `processes` has sent a message with this tag.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, tag: &str, processes: &[usize]) {
        let has = |lines: &Vec<String>| lines.iter().any(|line| told(line, tag).is_some());
        while !processes.iter().all(|process| has(&self.heard[*process])) {
            assert!(
                self.hear().is_some(),
                "not all of {processes:?} said {tag}:\n{}",
                self.transcript()
            );
        }
    }

    /// The first message with this tag that the test has received from this process.
    pub(crate) fn said(&self, process: usize, tag: &str) -> String {
        let told = self.heard[process].iter().find_map(|line| told(line, tag));
        told.unwrap_or_else(|| panic!("process {process} has not said {tag}")).to_owned()
    }

    /// True if this process has printed a line with `text` in it, as far as the test has listened.
    pub(crate) fn heard_line(&self, process: usize, text: &str) -> bool {
        self.heard[process].iter().any(|line| line.contains(text))
    }

    /// Waits until this process has printed a line with `text` in it.
    #[track_caller]
    pub(crate) fn wait_for_line(&mut self, process: usize, text: &str) {
        while !self.heard_line(process, text) {
            assert!(
                self.hear().is_some(),
                "process {process} does not print {text:?}:\n{}",
                self.transcript()
            );
        }
    }

    /// Listens to all processes for this long.
    pub(crate) fn listen_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            match self.said.recv_timeout(left) {
                Ok((process, line)) => self.heard[process].extend(line),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Takes one more line, if one arrives in time.
    fn hear(&mut self) -> Option<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match self.said.recv_timeout(left) {
            Ok((process, line)) => self.heard[process].extend(line),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
        }
        Some(())
    }

    /// Sends a signal to one process.
    pub(crate) fn signal(&self, process: usize, name: &str) {
        let pid = self.children[process].id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// The output of all processes, for people to read.
    fn transcript(&self) -> String {
        let said = |(process, lines): (usize, &Vec<String>)| {
            format!("-- process {process}\n{}", lines.join("\n"))
        };
        self.heard.iter().enumerate().map(said).collect::<Vec<_>>().join("\n")
    }

    /// Waits until all processes have ended.
    #[track_caller]
    pub(crate) fn end(self) -> Vec<Ended> {
        self.ended().unwrap_or_else(|hang| panic!("{hang}"))
    }

    /// Waits until all processes have ended.
    ///
    /// # Errors
    /// Their output, if they do not end.
    pub(crate) fn ended(mut self) -> Result<Vec<Ended>, String> {
        while self.hear().is_some() {}
        if Instant::now() >= self.deadline {
            return Err(format!("they do not end:\n{}", self.transcript()));
        }
        let codes: Vec<_> =
            self.children.iter_mut().map(|child| child.wait().unwrap().code()).collect();
        let lines = std::mem::take(&mut self.heard);
        Ok(codes.into_iter().zip(lines).map(|(code, lines)| Ended { code, lines }).collect())
    }

    /// Waits until all processes have ended, and asserts that all have succeeded.
    #[track_caller]
    pub(crate) fn succeed(self) -> Vec<Ended> {
        let ended = self.end();
        let bad: Vec<_> =
            ended.iter().enumerate().filter(|(_, ended)| ended.code != Some(0)).collect();
        let told = |(process, ended): &(usize, &Ended)| {
            format!("-- process {process}: {:?}\n{}", ended.code, ended.lines.join("\n"))
        };
        assert!(bad.is_empty(), "{}", bad.iter().map(told).collect::<Vec<_>>().join("\n"));
        ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.children {
            // A process that has ended cannot be killed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The role of a rank process; `None` in the test itself.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// The ranks of a rank process.
pub(crate) fn ranks() -> Vec<usize> {
    std::env::var(RANKS).unwrap().split(',').map(|rank| rank.parse().unwrap()).collect()
}

/// Sends a message with this tag from a rank process to the test.
pub(crate) fn say(tag: &str, what: impl std::fmt::Display) {
    println!("@{tag} {what}");
}

/// Waits until the file exists that this variable names.
pub(crate) fn await_file(variable: &str) {
    let file = std::env::var_os(variable).unwrap();
    let start = Instant::now();
    while !Path::new(&file).exists() {
        assert!(start.elapsed() < LIMIT, "the test has made no file");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The configuration by which `rank` joins the world that this process was started for.
pub(crate) fn configuration(rank: usize) -> JoinConfig {
    let launch = maypole::world::launch::from_env().unwrap();
    JoinConfig {
        address: launch.address,
        ports: launch.ports,
        job: launch.job,
        key: launch.key.map(|key| *key.bytes()),
        host: std::env::var("MAYPOLE_HOST").ok(),
        encrypt: std::env::var("MAYPOLE_ENCRYPT").is_ok_and(|value| value == "1"),
        join_timeout: launch.timeout,
        timeout: launch.timeout,
        ..JoinConfig::new(rank, launch.world, "")
    }
}

/// Runs `body` as each rank of this process, on a thread of its own.
pub(crate) fn as_each_rank(body: impl Fn(Communicator) + Sync) {
    std::thread::scope(|threads| {
        for rank in ranks() {
            let body = &body;
            threads.spawn(move || {
                body(Communicator::join(configuration(rank), Transport::Auto).unwrap())
            });
        }
    });
}

/// Runs `body` as each rank of this process, over TCP if that is its role.
pub(crate) fn as_told(role: &str, body: impl Fn(Communicator) + Sync) {
    match role {
        "tcp" => as_each_rank(|mut comm| body(comm.over(Transport::Tcp).unwrap())),
        _ => as_each_rank(body),
    }
}

/// Runs `body` as every rank of worlds of threads and of processes, over every kind of link. Processes have
/// the roles of [`as_told`], in the calling file.
#[track_caller]
pub(crate) fn everywhere(body: impl Fn(Communicator) + Sync) {
    for hosts in [&[0][..], &[0; 2], &[0, 1], &[0; 5], &[0, 1, 0, 1, 2]] {
        Local::new(hosts.len()).hosts(hosts).timeout(Duration::from_secs(120)).run(&body);
    }
    for world in [
        World::new("shm", 3),
        World::new("tcp", 3),
        World::new("mixed", 4).hosts(&[0, 1, 1, 0]),
        World::new("mixed", 4).processes(&[&[0, 2], &[1], &[3]]),
    ] {
        world.start().succeed();
    }
}

/// Runs `role` in so many processes that share memory, and in others that are joined by TCP.
#[track_caller]
pub(crate) fn over_shm_and_tcp(role: &str, ranks: usize) {
    for transport in ["shm", "tcp"] {
        World::new(role, ranks).set("MAYPOLE_TRANSPORT", transport).start().succeed();
    }
}
