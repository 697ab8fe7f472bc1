//! PMI-1: the text protocol by which processes under hydra (MPICH, Intel MPI) exchange a few short
//! strings.
//!
//! ```text
//! > cmd=init pmi_version=1 pmi_subversion=1
//! < cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
//! > cmd=get_maxes
//! < cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024
//! > cmd=get_my_kvsname
//! < cmd=my_kvsname kvsname=kvs_6237_0_host
//! > cmd=put kvsname=kvs_6237_0_host key=k value=v
//! < cmd=put_result rc=0
//! > cmd=barrier_in
//! < cmd=barrier_out                                      (once all are in)
//! > cmd=get kvsname=kvs_6237_0_host key=k
//! < cmd=get_result rc=0 value=v
//! > cmd=finalize
//! < cmd=finalize_ack
//! ```
//!
//! The process sends the lines after `>`, and the process manager replies with the lines after `<`.
//! Our values contain no white space, because some servers truncate a value there.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::LaunchError;
use maypole_transports::descriptor;

/// The size limit of a received line in bytes, above the limits of all servers.
const LINE: u64 = 8192;

/// A connection to the process manager. Dropping it sends `cmd=finalize`.
#[derive(Debug)]
pub struct Pmi {
    socket: BufReader<UnixStream>,
    job: String,
    longest_key: usize,
    longest_value: usize,
    waits: Duration,
    /// True until an exchange fails. After a failure nothing is sent, not even `cmd=finalize`.
    usable: bool,
}

impl Pmi {
    /// Takes the descriptor that the launcher left open under `number`, and sends `init`.
    pub(super) fn inherit(number: i32, waits: Duration) -> Result<Pmi, LaunchError> {
        let refused = |error| {
            LaunchError::new(format!(
                "PMI_FD is {number}, but that is no socket of the process manager ({error}): \
                 another library in this process may have used it; set MAYPOLE_ADDRESS and \
                 MAYPOLE_JOB, then it is not needed"
            ))
        };
        let socket = descriptor::take_inherited(number).map_err(refused)?;
        descriptor::bound_waits(&socket, waits).map_err(refused)?;
        Pmi::begin(socket.into(), waits)
    }

    /// Sends `init` on a socket whose waits are bounded.
    pub(super) fn begin(socket: UnixStream, waits: Duration) -> Result<Pmi, LaunchError> {
        let mut pmi = Pmi {
            socket: BufReader::new(socket),
            job: String::new(),
            longest_key: 0,
            longest_value: 0,
            waits,
            usable: true,
        };
        pmi.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")?;
        let maxes = pmi.ask("cmd=get_maxes", "maxes")?;
        pmi.longest_key = maxes.number("keylen_max").unwrap_or(32);
        pmi.longest_value = maxes.number("vallen_max").unwrap_or(64);
        let answer = pmi.ask("cmd=get_my_kvsname", "my_kvsname")?;
        pmi.job = match answer.field("kvsname") {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => return Err(answer.unexpected()),
        };
        Ok(pmi)
    }

    /// The process manager's name for this job; no other job under it has the same name.
    pub fn job(&self) -> &str {
        &self.job
    }

    /// Broadcasts one value: rank 0 passes `Some(value)`, all others `None`, and all receive the
    /// value of rank 0. Collective: returns once every rank has called it.
    ///
    /// # Errors
    ///
    /// [`LaunchError`]. After any error but that of a key or value that cannot be sent the
    /// connection is unusable.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # let mut launch = maypole::world::launch::from_env()?;
    /// # let mine = "10.0.0.1:20000";
    /// if let Some(pmi) = &mut launch.pmi {
    ///     let rank_0 = pmi.exchange("maypole-0", (launch.rank == 0).then_some(mine))?;
    /// }
    /// # Ok::<(), maypole::world::launch::LaunchError>(())
    /// ```
    pub fn exchange(&mut self, key: &str, value: Option<&str>) -> Result<String, LaunchError> {
        fit(key, self.longest_key)?;
        let job = self.job.clone();
        if let Some(value) = value {
            fit(value, self.longest_value)?;
            self.ask(&format!("cmd=put kvsname={job} key={key} value={value}"), "put_result")?;
        }
        self.ask("cmd=barrier_in", "barrier_out")?;
        let answer = self.ask(&format!("cmd=get kvsname={job} key={key}"), "get_result")?;
        answer.field("value").map(str::to_owned).ok_or_else(|| answer.unexpected())
    }

    /// Sends one line and reads the reply, which must be of the kind `expected` and no refusal.
    fn ask(&mut self, request: &str, expected: &str) -> Result<PmiAnswer, LaunchError> {
        // Usable again after a valid reply: before, the next line could belong to this request.
        self.usable = false;
        let lost = |error: io::Error| self.failed(request, &error);
        self.socket.get_ref().write_all(format!("{request}\n").as_bytes()).map_err(lost)?;
        let line = self.read_line().map_err(|error| self.failed(request, &error))?;
        let answer = PmiAnswer { request: request.to_owned(), line };
        let refused = answer.field("rc").is_some_and(|code| code != "0");
        if answer.field("cmd") != Some(expected) || refused {
            return Err(answer.unexpected());
        }
        self.usable = true;
        Ok(answer)
    }

    fn failed(&self, request: &str, error: &io::Error) -> LaunchError {
        let waits = self.waits;
        LaunchError::new(match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                let missing =
                    if request == "cmd=barrier_in" { ": a rank has not come yet" } else { "" };
                format!(
                    "the process manager (PMI_FD) did not answer `{request}` within \
                     {waits:?}{missing}; MAYPOLE_TIMEOUT sets how long to wait"
                )
            }
            _ => format!("the process manager (PMI_FD) went away at `{request}`: {error}"),
        })
    }

    fn read_line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        (&mut self.socket).take(LINE).read_until(b'\n', &mut line)?;
        match line.pop() {
            Some(b'\n') => Ok(String::from_utf8_lossy(&line).into_owned()),
            Some(_) if line.len() as u64 + 1 == LINE => {
                Err(io::Error::new(ErrorKind::InvalidData, "it sent a line that is too long"))
            }
            _ => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Sends `cmd=finalize`. Otherwise hydra reports that the process has crashed.
impl Drop for Pmi {
    fn drop(&mut self) {
        if self.usable {
            let _ = self.ask("cmd=finalize", "finalize_ack");
        }
    }
}

fn fit(text: &str, longest: usize) -> Result<(), LaunchError> {
    let fits = !text.is_empty()
        && text.len() < longest
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'=');
    if fits {
        Ok(())
    } else {
        let most = longest.saturating_sub(1);
        Err(LaunchError::new(format!(
            "{text:?} cannot be sent over PMI: at most {most} characters, without white space or `=`"
        )))
    }
}

/// One reply: a line of `name=value` fields, with its request.
struct PmiAnswer {
    request: String,
    line: String,
}

impl PmiAnswer {
    fn field(&self, name: &str) -> Option<&str> {
        self.line
            .split_ascii_whitespace()
            .find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.field(name)?.parse().ok()
    }

    fn unexpected(&self) -> LaunchError {
        let answer: String = self.line.chars().take(200).flat_map(char::escape_debug).collect();
        LaunchError::new(format!(
            "the process manager (PMI_FD) answered `{answer}` to `{}`: set MAYPOLE_ADDRESS, then it \
             is not needed",
            self.request
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{BufRead, BufReader};
    use std::sync::mpsc;
    use std::thread;

    /// The words of a server's lines.
    const WORD: &str = "cmd=(response_to_init|maxes|my_kvsname|put_result|barrier_out|get_result)|\
                        rc=-?[0-9]{0,30}|[a-z_]{0,9}=.{0,9}|\n";

    const SOON: Duration = Duration::from_secs(20);

    fn pair() -> (UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        for socket in [&ours, &theirs] {
            descriptor::bound_waits(socket, SOON).unwrap();
        }
        (ours, theirs)
    }

    /// A server for one process, which replies to `get` with the value of `put`, or with `stored`.
    /// Returns the lines that the process sent.
    fn serve(
        mut socket: UnixStream,
        stored: Option<&'static str>,
    ) -> thread::JoinHandle<Vec<String>> {
        thread::spawn(move || {
            let mut value = stored.map(str::to_owned);
            let lines = BufReader::new(socket.try_clone().unwrap()).lines().map_while(Result::ok);
            lines
                .inspect(|line| {
                    if let Some((_, put)) = line.split_once(" value=") {
                        value = Some(put.to_owned());
                    }
                    let answer = match line.split(' ').next().unwrap() {
                        "cmd=init" => {
                            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".to_owned()
                        }
                        "cmd=get_maxes" => {
                            "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024".to_owned()
                        }
                        "cmd=get_my_kvsname" => "cmd=my_kvsname kvsname=kvs_1_0_host".to_owned(),
                        "cmd=put" => "cmd=put_result rc=0 msg=success".to_owned(),
                        "cmd=barrier_in" => "cmd=barrier_out".to_owned(),
                        "cmd=get" => match &value {
                            Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                            None => {
                                "cmd=get_result rc=-1 msg=key_not_found value=unknown".to_owned()
                            }
                        },
                        "cmd=finalize" => "cmd=finalize_ack".to_owned(),
                        other => panic!("{other}"),
                    };
                    writeln!(socket, "{answer}").unwrap();
                })
                .collect()
        })
    }

    #[test]
    fn rank_0_puts_and_all_get() {
        let (ours, theirs) = pair();
        let server = serve(theirs, None);
        let mut pmi = Pmi::begin(ours, SOON).unwrap();
        assert_eq!(pmi.job(), "kvs_1_0_host");
        assert_eq!(pmi.exchange("maypole", Some("10.0.0.1:20000")).unwrap(), "10.0.0.1:20000");
        drop(pmi);
        let sent = server.join().unwrap();
        assert_eq!(sent[3], "cmd=put kvsname=kvs_1_0_host key=maypole value=10.0.0.1:20000");
        assert_eq!(sent.last().unwrap(), "cmd=finalize");

        let (ours, theirs) = pair();
        let server = serve(theirs, Some("[fe80::1]:7"));
        assert_eq!(
            Pmi::begin(ours, SOON).unwrap().exchange("maypole", None).unwrap(),
            "[fe80::1]:7"
        );
        assert!(!server.join().unwrap().iter().any(|line| line.starts_with("cmd=put")));
    }

    #[test]
    fn a_missing_key_is_a_refusal_with_both_lines() {
        let (ours, theirs) = pair();
        let server = serve(theirs, None);
        let error =
            Pmi::begin(ours, SOON).unwrap().exchange("maypole", None).unwrap_err().to_string();
        assert!(error.contains("key_not_found") && error.contains("key=maypole"), "{error}");
        server.join().unwrap();
    }

    #[test]
    fn values_that_the_protocol_cannot_carry_are_refused_unsent() {
        let (ours, theirs) = pair();
        let server = serve(theirs, None);
        let mut pmi = Pmi::begin(ours, SOON).unwrap();
        for unfit in ["", "a b", "a\nb", "a=b", "é", &"x".repeat(1024)] {
            let error = pmi.exchange("maypole", Some(unfit)).unwrap_err().to_string();
            assert!(error.contains("cannot be sent over PMI"), "{unfit}: {error}");
        }
        assert_eq!(pmi.exchange("maypole", Some("still-sound")).unwrap(), "still-sound");
        drop(pmi);
        server.join().unwrap();
    }

    #[test]
    fn silence_and_closing_are_told_apart() {
        let (ours, _theirs) = pair();
        descriptor::bound_waits(&ours, Duration::from_millis(20)).unwrap();
        let error = Pmi::begin(ours, SOON).unwrap_err().to_string();
        assert!(error.contains("did not answer `cmd=init"), "{error}");
        let (ours, theirs) = pair();
        drop(theirs);
        let error = Pmi::begin(ours, SOON).unwrap_err().to_string();
        assert!(error.contains("went away at `cmd=init"), "{error}");
    }

    /// Runs an exchange with a server that sends these bytes and closes the connection.
    fn run_against(bytes: Vec<u8>) {
        let (ours, mut theirs) = pair();
        let (done, ended) = mpsc::channel();
        thread::spawn(move || {
            if let Ok(mut pmi) = Pmi::begin(ours, SOON) {
                let _ = pmi.exchange("key", Some("value"));
            }
            done.send(()).unwrap();
        });
        let _ = theirs.write_all(&bytes);
        let _ = theirs.shutdown(std::net::Shutdown::Write);
        // A panic in the thread drops the sender, which is an error here too.
        ended.recv_timeout(SOON).expect("the exchange ends without a panic");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            run_against(bytes);
        }

        #[test]
        fn no_lines_make_it_panic(words in proptest::collection::vec(WORD, 0..40)) {
            run_against(words.join(" ").into_bytes());
        }
    }

    #[test]
    fn lines_that_do_not_end_are_no_answers() {
        let answer = "cmd=response_to_init rc=0 ";
        for (line, why) in [
            (answer.to_owned(), "unexpected end of file"),
            (answer.to_owned() + &"x".repeat(3 * LINE as usize), "a line that is too long"),
        ] {
            let (ours, mut theirs) = pair();
            theirs.write_all(line.as_bytes()).unwrap();
            theirs.shutdown(std::net::Shutdown::Write).unwrap();
            let error = Pmi::begin(ours, SOON).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
