//! `maypole run --first K --local M`: the ranks of one host, for a launcher on another one, which starts
//! this over ssh.
//!
//! That launcher decides when ranks start and which of them end. This one stops all of them, with
//! SIGTERM and after the grace period with SIGKILL, when its input ends, when its input is silent for
//! a time, when its output cannot be written, and on a signal.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use crate::process::{self, ProcessEnd};
use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, select, unbounded};
use maypole::world::launch::JobKey;

use super::messages::{
    Answer, BEAT, Hello, JobDescription, MESSAGE, OUTPUT, Order, PROTOCOL, line,
};
use super::route;
use crate::run::environment::{JobEnvironment, JobPorts};
use crate::run::hang::HangReports;
use crate::run::lines::OutputStream;
use crate::run::ranks::{LaunchEvent, RankProcesses, StartError, StartedRanks};
use crate::run::signals::ENDING;
use crate::run::{Job, capacity, start_thread};

/// The ranks that are started here, where a launcher on another host has started this one.
#[derive(Clone, Copy, clap::Args)]
pub(in crate::run) struct PartArgs {
    /// The first of the ranks that are started here.
    #[arg(long, hide = true, requires = "local", conflicts_with_all = ["hosts", "hostfile"])]
    first: Option<usize>,
    /// How many ranks are started here.
    #[arg(long, hide = true, requires = "first")]
    local: Option<usize>,
}

impl PartArgs {
    /// True if another launcher has started this one.
    pub(in crate::run) fn is_given(self) -> bool {
        self.first.is_some()
    }
}

/// The exit code of a launcher that has lost the one that has started it.
const LAUNCHER_LOST: u8 = 1;

/// Starts and ends ranks as the launcher orders that has started this one, until that is lost for
/// `lost_after`.
pub(in crate::run) fn main(
    job: &Job<'_>,
    part: PartArgs,
    lost_after: Duration,
) -> Result<ExitCode> {
    let answers = write_answers(job.sender.clone())?;
    let orders = read_orders()?;
    match JobPart::prepare(job, part, (&orders, lost_after), &answers) {
        Ok(Some(part)) => Ok(part.serve(&orders, lost_after)),
        Ok(None) => Ok(LAUNCHER_LOST.into()),
        Err(error) => {
            let _ = answers.send(Answer::Unfit(crate::output::sentence(&error)));
            // Until the launcher has received the reason.
            while orders.recv_timeout(lost_after).is_ok() {}
            Ok(LAUNCHER_LOST.into())
        }
    }
}

/// Free ports of any address of this host.
fn choose_ports(job: &Job<'_>) -> Result<(JobPorts, Vec<TcpListener>)> {
    let at = |address: IpAddr| JobPorts::choose(address, job.options.port);
    // Of both versions, unless this host has no IPv6.
    at(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| at(Ipv4Addr::UNSPECIFIED.into()))
}

fn first_order(orders: &Receiver<Order>, lost_after: Duration) -> Option<JobDescription> {
    loop {
        match orders.recv_timeout(lost_after).ok()? {
            Order::Job(job) => return Some(*job),
            Order::Beat => {}
            _ => return None,
        }
    }
}

/// The ranks of this host.
struct JobPart<'a> {
    job: &'a Job<'a>,
    described: JobDescription,
    environment: JobEnvironment,
    ranks: RankProcesses,
    reports: HangReports,
    answers: &'a Sender<Answer>,
    /// Keeps the ports of rank 0 free until the first rank starts.
    held: Option<Vec<TcpListener>>,
    /// The launcher's number of each process.
    places: Vec<usize>,
}

impl<'a> JobPart<'a> {
    /// Gets ready to start ranks, and reports to the launcher that it is, or that rank 0's host is
    /// unreachable. `None` if the launcher is lost meanwhile.
    fn prepare(
        job: &'a Job<'a>,
        part: PartArgs,
        (orders, lost_after): (&Receiver<Order>, Duration),
        answers: &'a Sender<Answer>,
    ) -> Result<Option<Self>> {
        let (first, local) = (part.first.unwrap_or(0), part.local.unwrap_or(job.world));
        let (ports, held) = (first == 0).then(|| choose_ports(job)).transpose()?.unzip();
        let _ = answers.send(Answer::Hello(Box::new(Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            file: process::this_file()?.to_string_lossy().into_owned(),
            ports,
            connection: std::env::var("SSH_CONNECTION").ok(),
        })));
        let Some(described) = first_order(orders, lost_after) else { return Ok(None) };
        // Another host may not have the folder; then ranks start where ssh has started this.
        let _ = std::env::set_current_dir(&described.folder);
        let key = JobKey::parse(&described.key).context("the launcher has sent no job key")?;
        let (address, ports) = (described.address.clone(), described.ports);
        let named = (described.name.clone(), &key);
        let environment =
            JobEnvironment::of_host((job.world, first, local), address, ports, named)?;
        let descriptors = capacity::check(local, true)?;
        let (reports, ranks) = job.ready(first..first + local, descriptors, false)?;
        let is_reached = held.is_some() || local == job.world;
        let route = match is_reached {
            true => Ok(()),
            false => route::try_route(&described.address, ports.join),
        };
        let _ = answers.send(
            route.map_or_else(|error| Answer::NoRoute(error.to_string()), |()| Answer::Ready),
        );
        Ok(Some(Self {
            job,
            described,
            environment,
            ranks,
            reports,
            answers,
            held,
            places: Vec::new(),
        }))
    }

    /// Executes orders until the job ends or the launcher is lost: its input has ended, or nothing
    /// has come for `lost_after`.
    fn serve(mut self, orders: &Receiver<Order>, lost_after: Duration) -> ExitCode {
        let ticks = crossbeam_channel::tick(BEAT);
        // Counted in beats, so that a stop of this process is no silence of the launcher.
        let mut silent = 0;
        while BEAT * silent < lost_after {
            select! {
                recv(ticks) -> _ => silent += 1,
                recv(orders) -> order => match order.inspect(|_| silent = 0) {
                    Ok(Order::Start { place, rank }) => self.start(place, rank),
                    Ok(Order::Signal(place, signal)) => self.signal(place, signal),
                    Ok(Order::Stop) => {
                        self.ranks.stop_remaining(&self.job.events, self.job.options.grace);
                        return ExitCode::SUCCESS;
                    }
                    Ok(Order::Beat | Order::Job(_)) => {}
                    Err(_) => return self.end(LAUNCHER_LOST),
                },
                recv(self.job.events) -> event => match event {
                    Ok(LaunchEvent::Signal(signal)) if ENDING.contains(&signal) => {
                        return self.end(128 + signal as u8);
                    }
                    Ok(LaunchEvent::OutputFailed(_)) | Err(_) => return self.end(LAUNCHER_LOST),
                    Ok(event) => self.tell(event),
                },
            }
        }
        self.end(LAUNCHER_LOST)
    }

    /// Stops all ranks. Their remaining output is lost: it may have no reader.
    fn end(mut self, code: u8) -> ExitCode {
        self.ranks.end(self.job.options.grace);
        code.into()
    }

    fn start(&mut self, place: usize, rank: usize) {
        self.held = None;
        let (host, output) = (&self.described.host, char::from(OUTPUT));
        let tag = match self.job.options.output.is_tagged(rank) {
            true => format!("{output}[rank {rank}, {host}] "),
            false => output.to_string(),
        };
        let mut command = self.command();
        self.environment.set_variables(&mut command, rank);
        self.reports.set_variable(&mut command);
        let answer = match self.ranks.start(command, rank, Some(tag)) {
            Ok(()) => {
                self.places.push(place);
                Answer::Started(place)
            }
            Err(error) => match error.downcast::<StartError>() {
                Ok(error) => Answer::Refused(error.program, error.source.raw_os_error()),
                Err(error) => Answer::Unfit(crate::output::sentence(&error)),
            },
        };
        let _ = self.answers.send(answer);
    }

    /// The program with its arguments and the variables of the job.
    fn command(&self) -> Command {
        let given = Path::new(&self.described.program[0]);
        // This program may lie outside of the search path.
        let own = process::this_file().ok().filter(|_| given == Path::new("maypole"));
        let mut command = Command::new(own.as_deref().unwrap_or(given));
        command.arg0(given).args(&self.described.program[1..]);
        command.envs(self.described.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn signal(&self, place: usize, signal: i32) {
        if let Some(nth) = self.places.iter().position(|known| *known == place) {
            self.ranks.signal(nth, signal);
        }
    }

    fn tell(&self, event: LaunchEvent) {
        let answer = match event {
            LaunchEvent::Ended(nth, end) => {
                if end != ProcessEnd::Exited(0)
                    && let Some(first) = self.ranks.first_failure()
                {
                    let _ = self.answers.send(Answer::FirstFailure(first));
                }
                Answer::Ended(self.places[nth], end)
            }
            LaunchEvent::ChildEnded => return self.ranks.collect_orphans(),
            _ => return,
        };
        let _ = self.answers.send(answer);
    }
}

/// Starts the thread that writes to the launcher, so that this one never waits for a launcher that
/// reads nothing.
fn write_answers(events: Sender<LaunchEvent>) -> Result<Sender<Answer>> {
    let (answers, to_write) = unbounded::<Answer>();
    let work = move || {
        loop {
            // A heartbeat, also while the other threads are busy.
            let answer = match to_write.recv_timeout(BEAT) {
                Ok(answer) => answer,
                Err(RecvTimeoutError::Timeout) => Answer::Beat,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let text = format!("{}{}", char::from(MESSAGE), line(&answer));
            if let Err(error) = OutputStream::Out.write(text.as_bytes()) {
                let _ = events.send(LaunchEvent::OutputFailed(error));
                return;
            }
        }
    };
    start_thread("answers", work).context("cannot start the thread that answers the launcher")?;
    Ok(answers)
}

/// Starts the thread that reads orders. It closes the channel when the input ends.
fn read_orders() -> Result<Receiver<Order>> {
    let (orders, received) = unbounded();
    let work = move || {
        for line in io::stdin().lines() {
            let order = line.ok().and_then(|line| serde_json::from_str(&line).ok());
            if order.is_none_or(|order| orders.send(order).is_err()) {
                return;
            }
        }
    };
    start_thread("orders", work).context("cannot start the thread that reads orders")?;
    Ok(received)
}
