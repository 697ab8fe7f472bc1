//! Which transport two ranks use, from what both of them offer, and why no better one.
//!
//! Best first: the GPUs read each other's memory, shared memory, InfiniBand, TCP. Every refusal has
//! a reason that says at which end it lies and what would lift it, so that the choice can be
//! explained and argued with.

use std::collections::BTreeMap;
use std::fmt;

/// What may carry bytes between two ranks; the better one is the lesser one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Way {
    /// One GPU reads and writes the memory of the other.
    CudaPeer,
    /// Memory of the host that both have mapped.
    SharedMemory,
    /// Verbs: InfiniBand or RoCE.
    InfiniBand,
    /// Sockets.
    Tcp,
}

impl Way {
    /// Every way, best first.
    pub const ALL: [Self; 4] = [Self::CudaPeer, Self::SharedMemory, Self::InfiniBand, Self::Tcp];

    /// A name for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CudaPeer => "cuda",
            Self::SharedMemory => "shm",
            Self::InfiniBand => "ib",
            Self::Tcp => "tcp",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.pad(self.name())
    }
}

/// Why a way is not taken.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// This build or this machine has no library for it.
    NoLibrary {
        /// Which one would be needed.
        library: &'static str,
    },
    /// The rank has nothing to do it with: no GPU, no card.
    NoDevice {
        /// What there is none of.
        device: &'static str,
    },
    /// The two are not on one host.
    OtherHost,
    /// The GPUs must not read each other's memory.
    NoPeerAccess {
        /// What their driver says.
        why: String,
    },
    /// Whoever started the job has forbidden it.
    Forbidden,
    /// Something else, in words.
    Other(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::NoLibrary { library } => write!(out, "no library: {library}"),
            Self::NoDevice { device } => write!(out, "no {device}"),
            Self::OtherHost => out.write_str("on another host"),
            Self::NoPeerAccess { why } => write!(out, "no access from GPU to GPU: {why}"),
            Self::Forbidden => out.write_str("forbidden by the job"),
            Self::Other(why) => out.write_str(why),
        }
    }
}

/// One end's answer to whether it can go a way.
pub trait Capability {
    /// Which way.
    fn way(&self) -> Way;

    /// Whether this end can.
    ///
    /// # Errors
    /// Why not.
    fn answer(&self) -> Result<(), Reason>;
}

/// GPUs of NVIDIA. This build cannot use them: no library has been opened.
#[derive(Clone, Copy, Debug)]
pub struct Cuda;

impl Capability for Cuda {
    fn way(&self) -> Way {
        Way::CudaPeer
    }

    fn answer(&self) -> Result<(), Reason> {
        Err(Reason::NoLibrary { library: "libcuda.so.1 is not used yet" })
    }
}

/// InfiniBand and RoCE. This build cannot use them: no library has been opened.
#[derive(Clone, Copy, Debug)]
pub struct InfiniBand;

impl Capability for InfiniBand {
    fn way(&self) -> Way {
        Way::InfiniBand
    }

    fn answer(&self) -> Result<(), Reason> {
        Err(Reason::NoLibrary { library: "libibverbs.so.1 is not used yet" })
    }
}

/// What one end offers. Who has not been asked about a way offers it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Offer {
    /// Which host: two ends with the same text are on the same one.
    pub host: String,
    /// Its GPU, by a name that no other one has; `None` if its buffers are in the host's memory.
    pub gpu: Option<String>,
    /// By another GPU's name: why its memory must not be read. Who is not in it may be read.
    pub no_peers: BTreeMap<String, String>,
    /// Ways that this end cannot go, with the reasons.
    pub cannot: BTreeMap<Way, Reason>,
}

impl Offer {
    /// An end on `host` that can whatever `capabilities` do not deny.
    pub fn new(host: impl Into<String>, capabilities: &[&dyn Capability]) -> Self {
        let denied = |one: &&dyn Capability| Some((one.way(), one.answer().err()?));
        let cannot = capabilities.iter().filter_map(denied).collect();
        Self { host: host.into(), cannot, ..Self::default() }
    }
}

/// A way and why no better one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Choice {
    /// What is used.
    pub way: Way,
    /// The better ones, best first, and what speaks against each.
    pub refused: Vec<(Way, Reason)>,
}

/// No way, or not the one that was asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Impossible {
    /// What was tried, and what speaks against it.
    pub refused: Vec<(Way, Reason)>,
}

/// `no cuda (on another host), no shm (on another host)`.
impl fmt::Display for Impossible {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let refusals: Vec<String> =
            self.refused.iter().map(|(way, why)| format!("no {way} ({why})")).collect();
        out.write_str(&refusals.join(", "))
    }
}

impl std::error::Error for Impossible {}

/// The best way that both ends can go.
///
/// ```
/// use maypole::topology::transport::{Cuda, InfiniBand, Offer, Way, choose};
/// let [here, there] = ["a", "b"].map(|host| Offer::new(host, &[&Cuda, &InfiniBand]));
/// assert_eq!(choose(&here, &here).unwrap().way, Way::SharedMemory);
/// let choice = choose(&here, &there).unwrap();
/// assert_eq!((choice.way, choice.refused.len()), (Way::Tcp, 3));
/// assert_eq!(choice.refused[1].1.to_string(), "on another host");
/// ```
///
/// # Errors
/// If each way is refused, even TCP.
pub fn choose(a: &Offer, b: &Offer) -> Result<Choice, Impossible> {
    let mut refused = Vec::new();
    for way in Way::ALL {
        match against(way, a, b) {
            None => return Ok(Choice { way, refused }),
            Some(reason) => refused.push((way, reason)),
        }
    }
    Err(Impossible { refused })
}

/// `way` and no other, because somebody asked for it.
///
/// # Errors
/// What speaks against it.
pub fn demand(way: Way, a: &Offer, b: &Offer) -> Result<Choice, Impossible> {
    match against(way, a, b) {
        None => Ok(Choice { way, refused: Vec::new() }),
        Some(reason) => Err(Impossible { refused: vec![(way, reason)] }),
    }
}

/// The first thing that speaks against a way: what an end lacks, then where the two are.
fn against(way: Way, a: &Offer, b: &Offer) -> Option<Reason> {
    let lacking = [a, b].into_iter().find_map(|end| end.cannot.get(&way).cloned());
    let apart = || (a.host != b.host).then_some(Reason::OtherHost);
    lacking.or_else(|| match way {
        Way::CudaPeer => apart().or_else(|| peers(a, b)),
        Way::SharedMemory => apart(),
        _ => None,
    })
}

fn peers(a: &Offer, b: &Offer) -> Option<Reason> {
    let (Some(one), Some(other)) = (&a.gpu, &b.gpu) else {
        return Some(Reason::NoDevice { device: "GPU at both ends" });
    };
    let why = a.no_peers.get(other).or_else(|| b.no_peers.get(one))?;
    Some(Reason::NoPeerAccess { why: why.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(host: &str, name: &str) -> Offer {
        Offer { gpu: Some(name.to_owned()), ..Offer::new(host, &[]) }
    }

    #[test]
    fn the_best_way_that_both_can_go() {
        assert_eq!(
            choose(&gpu("a", "0"), &gpu("a", "1")),
            Ok(Choice { way: Way::CudaPeer, refused: vec![] })
        );
        let far = choose(&gpu("a", "0"), &gpu("b", "0")).unwrap();
        assert_eq!(far.way, Way::InfiniBand);
        assert_eq!(
            far.refused,
            [(Way::CudaPeer, Reason::OtherHost), (Way::SharedMemory, Reason::OtherHost)]
        );
        let host_memory = choose(&Offer::new("a", &[]), &gpu("a", "0")).unwrap();
        assert_eq!((host_memory.way, host_memory.refused.len()), (Way::SharedMemory, 1));
    }

    #[test]
    fn it_is_the_same_from_either_end() {
        let closed =
            Offer { no_peers: [("1".to_owned(), "ACS".to_owned())].into(), ..gpu("a", "0") };
        let no_memory =
            Offer { cannot: [(Way::SharedMemory, Reason::Forbidden)].into(), ..gpu("a", "1") };
        let choice = choose(&closed, &no_memory).unwrap();
        assert_eq!(Ok(&choice), choose(&no_memory, &closed).as_ref());
        assert_eq!(choice.way, Way::InfiniBand);
        let reasons: Vec<String> =
            choice.refused.iter().map(|(_, reason)| reason.to_string()).collect();
        assert_eq!(reasons, ["no access from GPU to GPU: ACS", "forbidden by the job"]);
    }

    #[test]
    fn what_is_demanded_is_given_or_refused_with_the_reason() {
        let (a, b) = (gpu("a", "0"), gpu("b", "0"));
        assert_eq!(demand(Way::Tcp, &a, &b).unwrap().way, Way::Tcp);
        let error = demand(Way::SharedMemory, &a, &b).unwrap_err();
        assert_eq!(error.to_string(), "no shm (on another host)");
        let deaf = Offer { cannot: Way::ALL.map(|way| (way, Reason::Forbidden)).into(), ..a };
        assert_eq!(choose(&deaf, &b).unwrap_err().refused.len(), 4);
    }
}
