//! The ranks of a job on other hosts, each of which has a launcher that starts them.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, select};

use super::connection::Connection;
use super::list::HostRanks;
use super::messages::{Answer, BEAT, Hello, JobDescription, Order, PROTOCOL};
use super::shared::lock;
use super::ssh;
use super::{HostOptions, route};
use crate::run::environment::{self, JobPorts};
use crate::run::first_failure::{FirstFailure, most_named};
use crate::run::lines;
use crate::run::ranks::{
    KILL_TIMEOUT, LaunchEvent, RestOfJob, StartError, StartedRanks, deadline_after,
};
use crate::run::signals::ENDING;
use crate::run::{Job, LaunchOptions, OutputMode};

/// The longest silence of a host after its first message.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// How long a host may take to start one process.
const START_TIME: Duration = Duration::from_secs(60);

/// The hosts, and which of them has started which process. Dropping it ends all.
pub(super) struct RemoteRanks {
    connections: Vec<Connection>,
    hosts: Vec<HostRanks>,
    /// The index of the host of each process.
    places: Vec<usize>,
    events: Sender<LaunchEvent>,
    /// How long a host may take to stop its ranks.
    end_time: Duration,
    /// What happens meanwhile, such as signals.
    received: Receiver<LaunchEvent>,
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
        this.start_launchers(job, options)?;
        let patience = ANSWER_TIME.max(options.args.lost_after);
        let hello = |host: &HostRanks, answer| match answer {
            Answer::Hello(hello) => other_version(&host.name, &hello).map_or(Ok(*hello), Err),
            other => Err(format!("{} has said {other:?} first", host.name)),
        };
        let Some(hellos) = this.await_all(options.args.lost_after, hello)? else { return Ok(this) };
        let described = this.description(options, program, &hellos)?;
        for (host, connection) in this.hosts.iter().zip(&this.connections) {
            let described = JobDescription { host: host.name.clone(), ..described.clone() };
            connection.order(&Order::Job(Box::new(described)));
        }
        let (first, JobPorts { join, .. }) = (&this.hosts[0].name, described.ports);
        this.await_all(patience, |host, answer| match answer {
            Answer::Ready => Ok(()),
            Answer::NoRoute(why) => Err(format!(
                "{} cannot reach rank 0's host {first} at {}, port {join}: {why}; name another \
                 address of {first} with --address, or let that port through its firewall (--port \
                 chooses it)",
                host.name, described.address
            )),
            other => Err(format!("{} has said {other:?}", host.name)),
        })?;
        Ok(this)
    }

    /// What is equal for all hosts.
    fn description(
        &self,
        options: &HostOptions,
        program: &[OsString],
        hellos: &[Hello],
    ) -> Result<JobDescription> {
        Ok(JobDescription {
            host: String::new(),
            address: route::root_address(options.args.address.as_deref(), &self.hosts, hellos)?,
            ports: hellos[0].ports.context("the host of rank 0 has named no ports")?,
            name: environment::random_name()?,
            key: environment::new_key()?.to_digits(),
            variables: options.variables.clone(),
            program: program.to_vec(),
            folder: std::env::current_dir().unwrap_or_default().into(),
        })
    }

    fn start_launchers(&mut self, job: &Job<'_>, options: &HostOptions) -> Result<()> {
        for host in &options.hosts {
            let ssh = ssh::command(options, &host.name, &words(job, options, host))?;
            let (events, patience) = (job.sender.clone(), options.args.lost_after);
            self.connections.push(Connection::start(&host.name, ssh, events, patience)?);
        }
        Ok(())
    }

    /// What `read` makes of the next message of each host, which may be silent for `patience`; `None` on a
    /// signal.
    ///
    /// # Errors
    /// A sentence for each host that is silent, or whose message is none that is expected.
    fn await_all<T>(
        &self,
        patience: Duration,
        read: impl Fn(&HostRanks, Answer) -> Result<T, String>,
    ) -> Result<Option<Vec<T>>> {
        let mut all = Vec::new();
        let mut sentences = Vec::new();
        for (host, connection) in self.hosts.iter().zip(&self.connections) {
            let found = match self.await_answer(connection, patience) {
                Ok(Some(Answer::Unfit(why))) => Err(format!("{}: {why}", host.name)),
                Ok(Some(answer)) => read(host, answer),
                Ok(None) => return Ok(None),
                Err(sentence) => Err(sentence),
            };
            match found {
                Ok(found) => all.push(found),
                Err(sentence) => sentences.push(sentence),
            }
        }
        ensure!(sentences.is_empty(), anyhow!(sentences.join("\nmaypole: ")));
        Ok(Some(all))
    }

    /// The next message of a host, which may show no sign of activity for `patience`; `None` on a signal,
    /// which is received again. The error is a sentence.
    fn await_answer(
        &self,
        connection: &Connection,
        patience: Duration,
    ) -> Result<Option<Answer>, String> {
        let (host, shared) = (&connection.host, &connection.shared);
        let (mut progress, mut beats) = (shared.progress(), 0);
        loop {
            select! {
                recv(connection.answers) -> answer => return answer.map(Some).map_err(|_| {
                    ssh::explain(host, *lock(&shared.end), &shared.last_words())
                }),
                recv(self.received) -> event => if let Ok(LaunchEvent::Signal(signal)) = event {
                    let _ = self.events.send(LaunchEvent::Signal(signal));
                    return Ok(None);
                },
                default(BEAT) => {
                    beats = if shared.progress() == progress { beats + 1 } else { 0 };
                    progress = shared.progress();
                    if BEAT * beats >= patience {
                        let words = shared.last_words();
                        let words = if words.is_empty() { words } else { format!(": {words}") };
                        return Err(format!(
                            "{host} does not answer within {patience:?}{words}; try `ssh {host} \
                             maypole --version`"
                        ));
                    }
                }
            }
        }
    }

    /// Starts the next process, which is `rank`, on the host of that rank.
    pub(super) fn start(&mut self, rank: usize) -> Result<()> {
        let of_rank = |host: &HostRanks| (host.first..host.first + host.count).contains(&rank);
        let nth = self.hosts.iter().position(of_rank).context("no host has this rank")?;
        let (place, connection) = (self.places.len(), &self.connections[nth]);
        connection.order(&Order::Start { place, rank });
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
                let reason = connection.shared.reason();
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

    /// Kills ssh of the hosts that have sent no message: nothing has started there.
    fn kill_ungreeted(&self) {
        let ungreeted = self.connections.iter().filter(|it| !it.shared.is_greeted());
        ungreeted.for_each(Connection::kill);
    }

    /// Stops the processes that ended ranks left running, and waits for the rest of the output and the
    /// end of every host's part. A signal ends the wait.
    pub(super) fn stop_remaining(self) -> RestOfJob {
        self.kill_ungreeted();
        self.connections.iter().for_each(|connection| connection.order(&Order::Stop));
        self.await_ends(&crossbeam_channel::never())
    }

    /// Waits for the end of every connection. A signal kills ssh of all hosts, whose launchers then read the
    /// end of their input and end their ranks.
    fn await_ends(&self, until: &Receiver<Instant>) -> RestOfJob {
        let mut rest = RestOfJob::default();
        for connection in &self.connections {
            loop {
                select! {
                    recv(connection.answers) -> answer => if answer.is_err() { break },
                    recv(self.received) -> event => {
                        let Ok(event) = event else { continue };
                        let ends = matches!(event, LaunchEvent::Signal(it) if ENDING.contains(&it));
                        rest.add(event);
                        if ends {
                            self.connections.iter().for_each(Connection::kill);
                            return rest;
                        }
                    }
                    recv(until) -> _ => return rest,
                }
            }
        }
        self.received.try_iter().for_each(|event| rest.add(event));
        rest
    }
}

impl StartedRanks for RemoteRanks {
    fn host(&self, place: usize) -> Option<Arc<str>> {
        Some(Arc::clone(&self.connections[self.places[place]].host))
    }

    fn signal(&self, place: usize, signal: i32) {
        self.connections[self.places[place]].order(&Order::Signal(place, signal));
    }

    /// Each host does so by itself.
    fn collect_orphans(&self) {}

    fn first_failure(&self) -> Option<FirstFailure> {
        most_named(self.connections.iter().filter_map(|it| *lock(&it.shared.first_failure)))
    }
}

impl Drop for RemoteRanks {
    /// Lets every host stop its ranks. One that takes too long is left to the end of its input.
    fn drop(&mut self) {
        self.connections.iter_mut().for_each(Connection::close);
        self.kill_ungreeted();
        self.await_ends(&crossbeam_channel::at(deadline_after(self.end_time)));
    }
}

/// The arguments by which `maypole` starts the part of the job that is on `host`.
fn words(job: &Job<'_>, options: &HostOptions, host: &HostRanks) -> Vec<String> {
    let LaunchOptions { output, grace, port, bind, .. } = job.options;
    let output = match output {
        OutputMode::Tagged => "--tag-output",
        OutputMode::Inherited => "--no-tag-output",
        OutputMode::RootInherited => "--plain-root",
    };
    let bind = bind.to_possible_value().expect("no value is skipped");
    let lost_after = options.args.lost_after.as_secs_f64();
    let mut line = format!(
        "run -n {} --first {} --local {} --lost-after {lost_after} --grace {} --bind {} {output}",
        job.world,
        host.first,
        host.count,
        grace.as_secs_f64(),
        bind.get_name()
    );
    line += &port.map_or_else(String::new, |port| format!(" --port {port}"));
    line.split(' ').map(str::to_owned).collect()
}

/// Why a host that has another version cannot be used.
fn other_version(host: &str, hello: &Hello) -> Option<String> {
    let mine = env!("CARGO_PKG_VERSION");
    (hello.version != mine || hello.protocol != PROTOCOL).then(|| {
        format!(
            "{host} has maypole {} at {}, and this is {mine}: install the same one there",
            hello.version, hello.file
        )
    })
}
