//! The ranks of a job on other hosts, each of which an agent starts.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, select};

use super::connection::{Connection, Outgoing};
use super::list::HostRanks;
use super::messages::{Answer, BEAT, Hello, JobDescription, Order, PROTOCOL, StartOrder};
use super::ssh::{self, CopiedPrograms};
use super::{HostOptions, route};
use crate::run::Job;
use crate::run::environment::{self, JobPorts};
use crate::run::first_failure::{FirstFailure, most_named};
use crate::run::lines;
use crate::run::ranks::{
    KILL_TIMEOUT, LaunchEvent, RestOfJob, StartError, StartedRanks, deadline_after,
};
use crate::run::signals::ENDING;

/// The longest silence of a host after its first message, or while it takes a program first.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// The longest silence of ssh where it may prompt for a password.
const PROMPT_TIME: Duration = Duration::from_secs(120);
/// A host may print for so many times as long before its agent's first message.
const NOISE_TIMES: u32 = 4;
/// How long an agent may take to start one process.
const START_TIME: Duration = Duration::from_secs(60);

/// The agents of all hosts, and which of them has started which process. Dropping it ends all.
pub(super) struct RemoteRanks {
    connections: Vec<Connection>,
    hosts: Vec<HostRanks>,
    /// The index of the host of each process.
    places: Vec<usize>,
    events: Sender<LaunchEvent>,
    /// How long an agent may take to stop its ranks.
    end_time: Duration,
    /// What happens meanwhile, such as signals.
    received: Receiver<LaunchEvent>,
}

/// The reason for a missing message.
enum NoAnswer {
    /// Why the host cannot be used, as a sentence.
    Because(String),
    /// A signal ends the launcher.
    Interrupted,
}

impl RemoteRanks {
    /// Reaches all hosts, and sends each its job: `program` with its arguments. A signal ends this
    /// early; it is sent to `job` again, whose supervisor then starts nothing.
    pub(super) fn connect(
        job: &Job<'_>,
        options: &HostOptions,
        program: &[OsString],
    ) -> Result<Self> {
        let mut this = Self {
            connections: Vec::new(),
            hosts: options.hosts.clone(),
            places: Vec::new(),
            events: job.sender.clone(),
            end_time: job.options.grace.saturating_add(KILL_TIMEOUT),
            received: job.events.clone(),
        };
        this.start_agents(job, options, Path::new(&program[0]))?;
        let greeting = match (options.args.copy, ssh::may_prompt(options)) {
            (_, true) => PROMPT_TIME.max(options.args.lost_after),
            (true, false) => ANSWER_TIME.max(options.args.lost_after),
            (false, false) => options.args.lost_after,
        };
        let Some(answers) = this.await_all(job, greeting)? else { return Ok(this) };
        let hellos = this.check_hellos(answers)?;
        let description = this.description(job, options, program, &hellos)?;
        this.describe(&description);
        let patience = ANSWER_TIME.max(options.args.lost_after);
        if let Some(answers) = this.await_all(job, patience)? {
            this.check_routes(answers, &description)?;
        }
        Ok(this)
    }

    /// What is equal for all hosts.
    fn description(
        &self,
        job: &Job<'_>,
        options: &HostOptions,
        program: &[OsString],
        hellos: &[Hello],
    ) -> Result<JobDescription> {
        let key = environment::new_key()?;
        Ok(JobDescription {
            host: String::new(),
            world: job.world,
            first: 0,
            local_world: 0,
            address: route::root_address(options.args.address.as_deref(), &self.hosts, hellos)?,
            ports: hellos[0].ports.context("the agent of rank 0 has named no ports")?,
            name: environment::random_name()?,
            key: key.to_digits(),
            variables: options.variables.clone(),
            program: program[0].clone(),
            arguments: program[1..].to_vec(),
            folder: std::env::current_dir().unwrap_or_default().into(),
            output: job.options.output,
            bind: job.options.bind,
            grace: job.options.grace,
            hang_report: job.options.hang_report,
        })
    }

    fn start_agents(&mut self, job: &Job<'_>, options: &HostOptions, program: &Path) -> Result<()> {
        let copied = options.args.copy.then(|| CopiedPrograms::read(program)).transpose()?;
        for (nth, host) in options.hosts.iter().enumerate() {
            let mut arguments =
                vec!["--lost-after".to_owned(), options.args.lost_after.as_secs_f64().to_string()];
            if nth == 0 {
                arguments.push("--root".to_owned());
                arguments.extend(job.options.replace.map(|_| "--replaces".to_owned()));
                arguments.extend(job.options.port.map(|port| format!("--port={port}")));
            }
            let ssh = ssh::command(options, &host.name, copied.as_ref(), &arguments)?;
            let connection =
                Connection::start(&host.name, ssh, job.sender.clone(), options.args.lost_after)?;
            if let Some(copied) = copied.as_ref().filter(|_| !ssh::is_this_host(&host.name)) {
                connection.send(Outgoing::Program(Arc::clone(&copied.maypole)));
                connection.send(Outgoing::Program(Arc::clone(&copied.program)));
            }
            self.connections.push(connection);
        }
        Ok(())
    }

    /// The next message of each host, which may be silent for `patience`; `None` on a signal.
    ///
    /// # Errors
    /// A sentence for each silent host.
    fn await_all(&self, job: &Job<'_>, patience: Duration) -> Result<Option<Vec<Answer>>> {
        let mut answers = Vec::new();
        let mut sentences = Vec::new();
        for connection in &self.connections {
            match await_answer(connection, &job.events, &job.sender, patience) {
                Ok(answer) => answers.push(answer),
                Err(NoAnswer::Because(sentence)) => sentences.push(sentence),
                Err(NoAnswer::Interrupted) => return Ok(None),
            }
        }
        all_well(sentences)?;
        Ok(Some(answers))
    }

    fn check_hellos(&self, answers: Vec<Answer>) -> Result<Vec<Hello>> {
        let mut hellos = Vec::new();
        let mut sentences = Vec::new();
        for (host, answer) in self.hosts.iter().zip(answers) {
            match answer {
                Answer::Hello(hello) => {
                    sentences.extend(other_version(&host.name, &hello));
                    hellos.push(*hello);
                }
                Answer::Unfit(why) => sentences.push(format!("{}: {why}", host.name)),
                other => sentences.push(format!("{} has said {other:?} first", host.name)),
            }
        }
        all_well(sentences)?;
        Ok(hellos)
    }

    /// Tells each agent its part of the job.
    fn describe(&self, job: &JobDescription) {
        for (host, connection) in self.hosts.iter().zip(&self.connections) {
            connection.order(&Order::Job(Box::new(JobDescription {
                host: host.name.clone(),
                first: host.first,
                local_world: host.count,
                ..job.clone()
            })));
        }
    }

    fn check_routes(&self, answers: Vec<Answer>, job: &JobDescription) -> Result<()> {
        let (first, JobPorts { join, .. }) = (&self.hosts[0].name, job.ports);
        let sentence = |(host, answer): (&HostRanks, Answer)| match answer {
            Answer::Ready => None,
            Answer::Unfit(why) => Some(format!("{}: {why}", host.name)),
            Answer::NoRoute(why) => Some(format!(
                "{} cannot reach rank 0's host {first} at {}, port {join}: {why}; name another \
                 address of {first} with --address, or let that port through its firewall (--port \
                 chooses it)",
                host.name, job.address
            )),
            other => Some(format!("{} has said {other:?}", host.name)),
        };
        all_well(self.hosts.iter().zip(answers).filter_map(sentence).collect())
    }

    /// Starts the next process, which is `rank`, on the host of that rank.
    pub(super) fn start(&mut self, rank: usize, is_newcomer: bool) -> Result<()> {
        let of_rank = |host: &HostRanks| (host.first..host.first + host.count).contains(&rank);
        let nth = self.hosts.iter().position(of_rank).context("no host has this rank")?;
        let (place, connection) = (self.places.len(), &self.connections[nth]);
        connection.order(&Order::Start(StartOrder { place, rank, is_newcomer }));
        let host = &connection.host;
        match connection.answers.recv_timeout(START_TIME) {
            Ok(Answer::Started(_)) => {
                self.places.push(nth);
                Ok(())
            }
            Ok(Answer::Refused(program, error)) => {
                let host = Some(Arc::clone(host));
                let source =
                    error.map_or(io::ErrorKind::Other.into(), io::Error::from_raw_os_error);
                Err(StartError { rank, host, program, source }.into())
            }
            Ok(other) => bail!("cannot start rank {rank} on {host}: it has said {other:?}"),
            // Its other ranks, if it has any, are lost as well.
            Err(RecvTimeoutError::Disconnected) => {
                let reason = connection.reason();
                lines::say(&format!(
                    "the connection to {host} was lost before rank {rank} started{reason}"
                ));
                self.places.push(nth);
                let _ = self.events.send(LaunchEvent::Lost(place));
                Ok(())
            }
            Err(RecvTimeoutError::Timeout) => {
                bail!("cannot start rank {rank} on {host}: no answer came for {START_TIME:?}")
            }
        }
    }

    /// Kills ssh of the hosts whose agents have sent no message: nothing has started there.
    fn kill_ungreeted(&self) {
        let ungreeted = self.connections.iter().filter(|connection| !connection.is_greeted());
        ungreeted.for_each(Connection::kill);
    }

    /// Kills ssh of all hosts. The agents then read the end of their input, and end their ranks.
    fn kill_all(&self) {
        self.connections.iter().for_each(Connection::kill);
    }

    /// Stops the processes that ended ranks left running, and waits for the rest of the output and the
    /// end of every agent. A signal ends the wait.
    pub(super) fn stop_remaining(self, events: &Receiver<LaunchEvent>) -> RestOfJob {
        let mut rest = RestOfJob::default();
        self.kill_ungreeted();
        self.connections.iter().for_each(|connection| connection.order(&Order::Stop));
        'all: for connection in &self.connections {
            loop {
                select! {
                    recv(connection.answers) -> answer => if answer.is_err() { break },
                    recv(events) -> event => {
                        let Ok(event) = event else { break };
                        let ends = matches!(
                            event,
                            LaunchEvent::Signal(signal) if ENDING.contains(&signal)
                        );
                        rest.add(event);
                        if ends {
                            self.kill_all();
                            break 'all;
                        }
                    }
                }
            }
        }
        events.try_iter().for_each(|event| rest.add(event));
        rest
    }
}

impl StartedRanks for RemoteRanks {
    /// No group, but the place, which is unique among all hosts.
    fn last_group(&self) -> Option<u32> {
        self.places.len().checked_sub(1).map(|place| place as u32)
    }

    fn host(&self, place: usize) -> Option<Arc<str>> {
        Some(Arc::clone(&self.connections[self.places[place]].host))
    }

    fn signal(&self, place: usize, signal: i32) {
        self.connections[self.places[place]].order(&Order::Signal(place, signal));
    }

    /// Agents do so by themselves.
    fn collect_orphans(&self) {}

    fn first_failure(&self) -> Option<FirstFailure> {
        most_named(self.connections.iter().filter_map(Connection::first_failure))
    }
}

impl Drop for RemoteRanks {
    /// Lets every agent stop its ranks. An agent that takes too long is left to the end of its input.
    fn drop(&mut self) {
        self.connections.iter_mut().for_each(Connection::close);
        self.kill_ungreeted();
        let until = crossbeam_channel::at(deadline_after(self.end_time));
        for connection in &self.connections {
            loop {
                select! {
                    recv(connection.answers) -> answer => if answer.is_err() { break },
                    recv(self.received) -> event => {
                        if matches!(event, Ok(LaunchEvent::Signal(it)) if ENDING.contains(&it)) {
                            self.kill_all();
                        }
                    }
                    recv(until) -> _ => return,
                }
            }
        }
    }
}

/// Waits for the next message of a host, as long as it shows activity: for `patience` without a
/// sign of it, and for a few times as long while its shell prints.
fn await_answer(
    connection: &Connection,
    events: &Receiver<LaunchEvent>,
    again: &Sender<LaunchEvent>,
    patience: Duration,
) -> Result<Answer, NoAnswer> {
    let (mut progress, mut beats) = (connection.progress(), 0);
    let (mut noise, mut silent) = (connection.noise(), 0);
    let host = &connection.host;
    loop {
        select! {
            recv(connection.answers) -> answer => return answer.map_err(|_| {
                if connection.is_noisy() {
                    let words = Some(connection.last_words()).filter(|words| !words.is_empty());
                    let words = words.map(|words| format!(": {words}")).unwrap_or_default();
                    return NoAnswer::Because(format!(
                        "{host} prints without end, and does not answer{words}; see what its shell \
                         prints, by `ssh {host} true`"
                    ));
                }
                let sentence = ssh::explain(host, connection.end(), &connection.last_words());
                NoAnswer::Because(sentence)
            }),
            recv(events) -> event => if let Ok(LaunchEvent::Signal(signal)) = event {
                let _ = again.send(LaunchEvent::Signal(signal));
                return Err(NoAnswer::Interrupted);
            },
            default(BEAT) => {
                beats = if connection.progress() == progress { beats + 1 } else { 0 };
                silent = if connection.noise() == noise { silent + 1 } else { 0 };
                (progress, noise) = (connection.progress(), connection.noise());
                let is_over = |beats: u32, patience| BEAT * beats >= patience;
                if is_over(beats.min(silent), patience) || is_over(beats, patience * NOISE_TIMES) {
                    return Err(NoAnswer::Because(format!(
                        "{host} does not answer within {patience:?}: try `ssh {host} maypole \
                         --version`"
                    )));
                }
            }
        }
    }
}

/// Why the agent of a host cannot be used.
fn other_version(host: &str, hello: &Hello) -> Option<String> {
    let mine = env!("CARGO_PKG_VERSION");
    (hello.version != mine || hello.protocol != PROTOCOL).then(|| {
        format!(
            "{host} has maypole {} at {}, and this is {mine}: install the same one there, or add \
             --copy",
            hello.version, hello.file
        )
    })
}

fn all_well(sentences: Vec<String>) -> Result<()> {
    ensure!(sentences.is_empty(), anyhow!(sentences.join("\nmaypole: ")));
    Ok(())
}
