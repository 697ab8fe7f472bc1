//! The network between hosts, as far as costs depend on it: in coarse classes, so that the same
//! network gives the same plans from run to run.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The latency and the bandwidth of the network between hosts.
///
/// ```
/// use maypole::tuner::Network;
/// use std::time::Duration;
///
/// let round_trips = [1900, 2300].map(Duration::from_micros);
/// let measured = Network::measured(&round_trips, &[117_000_000, 95_000_000]);
/// assert_eq!(measured.to_string(), "a round trip of 2.048 ms and 1 Gbit/s");
/// assert_eq!("200us,10Gbit".parse::<Network>()?.to_string(), "a round trip of 0.2 ms and 10 Gbit/s");
/// assert_eq!(Network::measured(&[Duration::from_micros(40)], &[]), Network::default());
/// # Ok::<(), maypole::tuner::NoNetwork>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct Network {
    /// Picoseconds of a message between two hosts in the network, in addition to its cost over
    /// loopback.
    pub hop: u64,
    /// Picoseconds that the interface of a host takes for a KiB; 0 if it takes no longer than a copy.
    pub wire: u64,
    /// How many machines the hosts are on, if several share one, as containers do; else 0. Not in files.
    #[serde(skip)]
    pub machines: u64,
}

/// A text that describes no network.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "a network is a round trip, and the bandwidth of a host if it counts, like 0.2ms or 1ms,10Gbit"
)]
pub struct NoNetwork;

/// Round trips in a class are up to so many times as long as the shortest.
const WIDTH: u64 = 4;
/// Microseconds of the shortest round trip of the first class. Below it a hop costs the same as
/// over loopback.
const NEAR: u64 = 64;
/// The greatest round trip and the greatest time of a KiB that count, in picoseconds.
const MOST: u64 = 10_000_000_000_000;
const PICOSECONDS_OF_US: u64 = 1_000_000;
/// A KiB at 10 Gbit/s and at more, and where nothing was measured; also a KiB that a machine carries between its own
/// hosts, which is assumed.
pub(super) const WIRE: u64 = 819_200;
/// A KiB at 1 Gbit/s.
const WIRE_OF_GBIT: u64 = 8_192_000;
/// Below so many bytes a second a bandwidth is in the class of 1 Gbit/s or in a slower one. Common bandwidths, of
/// which headers take a part, lie far from the limits of the classes.
const SLOW: u64 = 275_000_000;
/// Of a KiB at one bit a second.
const PICOSECONDS_OF_KIB: f64 = 8.0 * 1024.0 * 1e12;

impl Network {
    /// The class of a network with these round trips between hosts, and with these bandwidths in bytes a second: of the
    /// middle ones. Each class of round trips holds those from its shortest one up to four times as long, and stands
    /// for twice the shortest; a class of bandwidths is four times as fast as the next, too.
    pub fn measured(round_trips: &[Duration], bandwidths: &[u64]) -> Self {
        let Some(middle) = median(round_trips) else { return Self::default() };
        let Some(class) = Self::class(middle).checked_sub(1) else { return Self::default() };
        let shortest = NEAR.saturating_mul(WIDTH.pow(class));
        let round_trip = shortest.saturating_mul(2 * PICOSECONDS_OF_US).min(MOST);
        Self { hop: round_trip / 2, wire: median(bandwidths).map_or(WIRE, wire), machines: 0 }
    }

    /// The class of a round trip: 0 for one so short that a hop costs the same as over loopback.
    fn class(round_trip: Duration) -> u32 {
        let us = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX);
        (us / NEAR).checked_ilog(WIDTH).map_or(0, |log| log + 1)
    }

    /// True if unknown: its hosts are priced as ranks that loopback joins.
    pub fn is_near(self) -> bool {
        (self.hop, self.wire) == (0, 0)
    }

    /// This network between `hosts` hosts that are on `machines` machines.
    pub(crate) fn on_machines(self, hosts: usize, machines: usize) -> Self {
        let is_shared = machines < hosts && !self.is_near();
        Self { machines: if is_shared { machines as u64 } else { 0 }, ..self }
    }
}

fn median<T: Copy + Ord>(measured: &[T]) -> Option<T> {
    let mut sorted = measured.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

/// Picoseconds of a KiB in the class of a bandwidth in bytes a second.
fn wire(bandwidth: u64) -> u64 {
    match SLOW / bandwidth.max(1) {
        0 => WIRE,
        times => (WIRE_OF_GBIT * WIDTH.pow(times.ilog(WIDTH))).min(MOST),
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a round trip of {} ms", self.hop as f64 * 2.0 / 1e9)?;
        if self.wire > 0 {
            let gbit = PICOSECONDS_OF_KIB / self.wire as f64 / 1e9;
            write!(f, " and {} Gbit/s", (gbit * 1e3).round() / 1e3)?;
        }
        Ok(())
    }
}

impl FromStr for Network {
    type Err = NoNetwork;

    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let mut parts = text.split(',').map(str::trim);
        let units = [("us", 1e6), ("ms", 1e9), ("s", 1e12)];
        let round_trip = quantity(parts.next().unwrap_or_default(), &units)?;
        let bits = parts.next().map(|it| {
            let rates = [("Mbit", 1e6), ("Mbit/s", 1e6), ("Gbit", 1e9), ("Gbit/s", 1e9)];
            quantity(it, &rates).and_then(|rate| if rate > 0.0 { Ok(rate) } else { Err(NoNetwork) })
        });
        let wire = bits.transpose()?.map_or(0.0, |bits| PICOSECONDS_OF_KIB / bits);
        let [hop, wire] = [round_trip / 2.0, wire];
        let fits = [hop, wire].iter().all(|it| *it <= MOST as f64) && parts.next().is_none();
        // A given hop of no time differs from an unmeasured one.
        if fits {
            Ok(Self { hop: (hop as u64).max(1), wire: wire as u64, machines: 0 })
        } else {
            Err(NoNetwork)
        }
    }
}

/// A number that is not negative, with one of these units.
fn quantity(text: &str, units: &[(&str, f64)]) -> Result<f64, NoNetwork> {
    let end = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, factor) = units.iter().find(|it| it.0 == unit.trim()).ok_or(NoNetwork)?;
    Ok(number.parse::<f64>().map_err(|_| NoNetwork)? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(us: &[u64]) -> u64 {
        let trips: Vec<_> = us.iter().copied().map(Duration::from_micros).collect();
        Network::measured(&trips, &[]).hop / PICOSECONDS_OF_US
    }

    #[test]
    fn round_trips_that_are_alike_are_one_class() {
        assert_eq!([of(&[]), of(&[0]), of(&[63])], [0; 3]);
        assert_eq!([of(&[64]), of(&[200]), of(&[255])], [64; 3]);
        assert_eq!([of(&[1024]), of(&[2100]), of(&[4095])], [1024; 3]);
        assert_eq!(of(&[10_000]), 4096);
        // One slow link or one slow rank does not change the class.
        assert_eq!(of(&[200, 210, 90_000]), 64);
    }

    #[test]
    fn bandwidths_that_are_alike_are_one_class() {
        let mbit = |measured: &[u64]| {
            let bandwidths: Vec<u64> = measured.iter().map(|it| it * 125_000).collect();
            let wire = Network::measured(&[Duration::from_millis(1)], &bandwidths).wire;
            (PICOSECONDS_OF_KIB / wire as f64 / 1e6).round()
        };
        assert_eq!([mbit(&[]), mbit(&[9000]), mbit(&[2350]), mbit(&[100_000])], [10_000.0; 4]);
        assert_eq!([mbit(&[940]), mbit(&[1000]), mbit(&[600])], [1000.0; 3]);
        assert_eq!([mbit(&[90]), mbit(&[100])], [63.0; 2]);
        // Neither one slow rank nor one wrong measurement changes the class.
        assert_eq!(mbit(&[20, 940, 60_000]), 1000.0);
        assert_eq!(wire(0), MOST);
    }

    #[test]
    fn texts_that_are_no_network_are_refused() {
        for text in ["", "1", "ms", "-1ms", "1ms,", "1ms,0Gbit", "1ms,1Gbit,2", "1e3ms", "99999s"] {
            assert_eq!(text.parse::<Network>(), Err(NoNetwork), "{text}");
        }
        let network = "1 ms, 1 Gbit/s".parse::<Network>().unwrap();
        assert_eq!(network.hop, 500_000_000);
        assert_eq!(network.wire, 8_192_000);
        assert!(!"0us".parse::<Network>().unwrap().is_near());
    }

    proptest! {
        #[test]
        fn no_text_and_no_time_makes_it_panic(text in ".*", us in any::<u64>()) {
            let _ = text.parse::<Network>();
            prop_assert!(wire(us) >= WIRE);
            prop_assert!(of(&[us]) <= MOST / PICOSECONDS_OF_US);
        }
    }
}
