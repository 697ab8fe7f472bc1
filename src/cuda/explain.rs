//! Explanations of calls on GPUs: the candidates with their predicted costs.

use super::comm::Comm;
use super::forms::{chunk_of, one_hop_forms};
use super::place::MailboxPlace;
use super::plan::{CallPrices, LAUNCH_NS, longest_lines};
use crate::algorithms::Algorithm;
use crate::schedule::collective::Collective;
use crate::schedule::hosts::{Boards, Hosts};
use crate::topology::{DeviceLinks, StreamLinks};
use crate::tuner::{
    CostTable, DevicePrices, DeviceQuestion, Explanation, PlanOverride, Question, choose,
};
use maypole_kernels::packed::MOST_SHORT_RANKS;

/// Explains the plan of `collective` of `bytes` bytes in all (of the vector, or of all blocks together) for ranks on
/// `hosts`, on GPUs that `links` join: every candidate with its predicted time. `wanted` is the algorithm that is used
/// instead of the tuner's choice. Needs no GPU. `maypole explain --transport cuda` prints these prices.
///
/// The predicted costs order the candidates. The costs of the start of a call, of a message, and of a byte in a GPU's
/// memory are those between ranks that share one H100. Ranks that share a GPU share the bandwidth of its memory. A byte
/// that another GPU reads takes at least as long as the narrowest link of the path takes, and no call takes less than
/// its busiest link needs for its traffic, by the links' typical bandwidths: nothing between two GPUs has been measured.
///
/// Ranks of several hosts meet in memory of these, and threads carry publications between them over streams, so a
/// message to another host costs two through memory of a host and one of a stream by `costs`, which have the network,
/// too. The links of their GPUs do not count.
///
/// ```
/// use maypole::schedule::{collective::Collective, hosts::Hosts};
/// use maypole::topology::{DeviceLinks, LinkKind, NodeKind, Topology};
/// use maypole::tuner::CostTable;
/// // Four GPUs around one switch, at so many GB/s.
/// let of = |switch: NodeKind, kind: LinkKind, bandwidth: f64| {
///     let mut host = Topology::new();
///     let switch = host.add(switch, Some(0), "switch");
///     for gpu in ["GPU0", "GPU1", "GPU2", "GPU3"] {
///         let gpu = host.add(NodeKind::Gpu, Some(0), gpu);
///         host.join(gpu, switch, kind, bandwidth);
///     }
///     let (hosts, links) = (Hosts::new(&[0; 4]), DeviceLinks::new(&host, &[0, 1, 2, 3]).unwrap());
///     let all = maypole::cuda::explain(
///         &hosts, &links, &CostTable::BUILT_IN, Collective::AllReduce, 64 << 20, None);
///     all.chosen().unwrap().predicted_ns
/// };
/// let pci = of(NodeKind::PciSwitch, LinkKind::Pci, 20.0);
/// assert!(pci > 5 * of(NodeKind::GpuSwitch, LinkKind::NvLink(18), 450.0));
/// let microseconds = |network: &str| {
///     let costs = CostTable { network: network.parse().unwrap(), ..CostTable::BUILT_IN };
///     let (hosts, links) = (Hosts::new(&[0, 0, 1, 1]), DeviceLinks::apart(4));
///     let all = maypole::cuda::explain(&hosts, &links, &costs, Collective::AllReduce, 64 << 20, None);
///     all.chosen().unwrap().predicted_ns / 1000
/// };
/// // At least the bytes of one vector leave each host.
/// assert!(microseconds("0.2ms,1Gbit") > 64 * 8 * 1000);
/// assert!(microseconds("0.2ms,100Gbit") < 100_000);
/// ```
///
/// # Panics
/// If the hosts are those of another number of ranks than the links.
pub fn explain(
    hosts: &Hosts,
    links: &DeviceLinks,
    costs: &CostTable,
    collective: Collective,
    bytes: usize,
    wanted: Option<PlanOverride>,
) -> Explanation {
    assert_eq!(hosts.world(), links.world(), "the ranks of the hosts have GPUs");
    let (place, unknown) = match hosts.is_one() {
        true => (MailboxPlace::Gpus, None),
        false => (MailboxPlace::Hosts, Some(DeviceLinks::unknown(links.gpus()))),
    };
    let machine = (&place.boards(hosts), unknown.as_ref().unwrap_or(links));
    let streams = (costs, &StreamLinks::undecided());
    let short = (place == MailboxPlace::Gpus && links.world() <= MOST_SHORT_RANKS)
        .then(|| longest_lines(links) as u64);
    let call = (collective, bytes);
    let mut explanation = explain_at((place, short), streams, machine, call, (wanted, |_| true));
    if !hosts.is_one() {
        explanation.refuse_gpus(BETWEEN_HOSTS);
    }
    explanation
}

const BETWEEN_HOSTS: &str = "mailboxes are in memory of the host: the ranks are on several hosts";

/// As [`explain`], with mailboxes that are there, between whose hosts there are such streams. Calls with publications
/// of at most `short` bytes may be one exchange. The algorithm is one that the call may take by `keeps_order`.
fn explain_at(
    (place, short): (MailboxPlace, Option<u64>),
    (costs, streams): (&CostTable, &StreamLinks),
    (boards, links): (&Boards, &DeviceLinks),
    (collective, bytes): (Collective, usize),
    (wanted, keeps_order): (Option<PlanOverride>, impl Fn(Algorithm) -> bool),
) -> Explanation {
    let prices = CallPrices::of(place, costs);
    let gpus = Some(DeviceQuestion { links, unit: prices.unit, start_ns: LAUNCH_NS });
    let units = bytes.div_ceil(prices.unit);
    let question = Question { collective, boards, bytes: units, crowding: 1, gpus };
    let mut choice = choose(&question, wanted, &prices.costs);
    let mut gpus = sources(&prices, place, links);
    if let Ok(choice) = &mut choice {
        choice.keep_to(keeps_order);
        let world = links.world();
        let chosen = (choice.plan.algorithm, wanted.is_none());
        let mut forms = one_hop_forms(collective, world, chosen).into_iter();
        let form = forms.find_map(|form| Some((form, chunk_of(form, collective, (bytes, world))?)));
        if let Some((form, _)) = form.filter(|(_, chunk)| Some(*chunk as u64) <= short) {
            choice.run_as(form);
            gpus.is_exchange = true;
        }
    }
    let mut explanation = Explanation::on_gpus(&question, streams, wanted, choice, gpus);
    (explanation.bytes, explanation.priced_bytes) = (bytes, bytes);
    if let Ok(choice) = &mut explanation.choice {
        choice.plan.window = choice.plan.window.saturating_mul(prices.unit);
        for candidate in &mut choice.candidates {
            candidate.plan.window = candidate.plan.window.saturating_mul(prices.unit);
        }
    }
    explanation
}

/// The sources of the costs.
fn sources(prices: &CallPrices, place: MailboxPlace, links: &DeviceLinks) -> DevicePrices {
    let one_gpu = links.gpus().iter().all(|gpu| *gpu == links.gpus()[0]);
    let network = prices.costs.network;
    let between = match links.between(0, 0) {
        _ if place == MailboxPlace::Hosts && !network.is_near() => format!(", over {network}"),
        _ if one_gpu || place == MailboxPlace::Hosts => String::new(),
        Some(_) => "; links by their typical bandwidths, not measured".to_owned(),
        None => "; what joins GPUs is not counted, and was not measured".to_owned(),
    };
    let source = format!("{}{between}", prices.source);
    let are_measured = one_gpu && place == MailboxPlace::Gpus;
    let links = links.clone();
    DevicePrices { links, source, are_measured, is_exchange: false }
}

impl Comm {
    /// Returns why the mailboxes of the ranks are in memory of the host, which their GPUs read and write;
    /// `None` if they are in the memory of the GPUs, or if there are none. Calls, graphs and errors are
    /// the same. Equal on all ranks.
    ///
    /// ```no_run
    /// # fn rank(comm: maypole::cuda::Comm) {
    /// if let Some(why) = comm.host_mailboxes() {
    ///     println!("GPUs do not reach one another: {why}");
    /// }
    /// # }
    /// ```
    pub fn host_mailboxes(&self) -> Option<String> {
        self.lock().connected().in_host.clone()
    }

    /// Returns true if the ranks are on several hosts, and publications go between these without a call of
    /// the host. Equal on all ranks.
    ///
    /// ```no_run
    /// # fn rank(comm: maypole::cuda::Comm) {
    /// if comm.spans_hosts() {
    ///     println!("{}", comm.explain(maypole::schedule::collective::Collective::AllReduce, 1 << 20));
    /// }
    /// # }
    /// ```
    pub fn spans_hosts(&self) -> bool {
        self.lock().connected().place == MailboxPlace::Hosts
    }

    /// Returns how publications of this rank reach the ranks of other hosts, in words: `ranks 2, 3 by RDMA writes by
    /// port 1 of mlx5_0`. `None` if there are no other hosts, or no mailboxes.
    ///
    /// ```no_run
    /// # fn rank(comm: maypole::cuda::Comm) {
    /// println!("{}", comm.courier_ways().unwrap_or_default());
    /// # }
    /// ```
    pub fn courier_ways(&self) -> Option<String> {
        self.lock().connected().courier.as_ref().map(|courier| courier.ways.clone())
    }

    /// Explains the plan of a call: as [`explain`], with this group's choices. Says why mailboxes are in
    /// [memory of the host](Self::host_mailboxes), if they are. Not collective.
    pub fn explain(&self, collective: Collective, bytes: usize) -> Explanation {
        let rank = self.lock();
        let engine = rank.comm.engine.get();
        let wanted = engine.settings.plan_for(collective);
        let place = rank.connected().place;
        let machine = (&rank.machine.boards, &rank.machine.links);
        let conditions = &engine.conditions;
        let streams = (&conditions.prices(), &conditions.links);
        let short = rank.connected().board.longest_short_call();
        let chooser = engine.chooser_on(&rank.machine);
        let wanted = (wanted, |algorithm| chooser.keeps_order(collective, algorithm));
        let mut explanation =
            explain_at((place, short), streams, machine, (collective, bytes), wanted);
        if let Some(why) = &rank.connected().in_host {
            explanation.refuse_gpus(&format!("mailboxes are in memory of the host: {why}"));
        }
        explanation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Microseconds of an all-reduce by ranks that share one H100, as `tests/gpu.sh` measured them on
    /// 23 November 2026: by bytes, for 2, 4 and 8 ranks.
    const MEASURED_US: [(usize, [f64; 3]); 5] = [
        (8, [9.3, 11.5, 14.2]),
        (64 << 10, [11.0, 14.3, 18.2]),
        (1 << 20, [11.4, 17.4, 24.8]),
        (16 << 20, [57.5, 129.0, 377.0]),
        (128 << 20, [431.0, 908.0, 3203.0]),
    ];

    fn on_one_host(links: &DeviceLinks, collective: Collective, bytes: usize) -> Explanation {
        let hosts = Hosts::new(&vec![0; links.world()]);
        explain(&hosts, links, &CostTable::BUILT_IN, collective, bytes, None)
    }

    /// Predicted costs are lower than measured times, because all ranks use the memory
    /// concurrently, but they grow as the measured times do. Of 128 MiB on 8 ranks, the two-shot
    /// plan was measured; the cheapest by price has not been.
    #[test]
    fn prices_of_ranks_that_share_a_gpu_are_near_what_was_measured() {
        for (bytes, measured) in MEASURED_US {
            for (ranks, us) in [2, 4, 8].into_iter().zip(measured) {
                let links = DeviceLinks::unknown(&vec![0; ranks]);
                let all = on_one_host(&links, Collective::AllReduce, bytes);
                let chosen = all.chosen().unwrap();
                let predicted = chosen.predicted_ns as f64 / 1e3;
                let ratio = predicted / us;
                println!("{bytes} bytes, {ranks} ranks: {predicted} us, {ratio:.2} of {us}");
                assert!(
                    (0.3..1.5).contains(&ratio),
                    "{bytes} bytes, {ranks} ranks: {predicted} us"
                );
            }
        }
    }

    #[test]
    fn a_barrier_is_priced_as_the_exchange_that_runs() {
        for ranks in [2, 4, 8, 9] {
            let all = on_one_host(&DeviceLinks::unknown(&vec![0; ranks]), Collective::Barrier, 0);
            let is_one = ranks <= MOST_SHORT_RANKS;
            assert_eq!(all.chosen().unwrap().plan.algorithm, Algorithm::OneShot, "{all}");
            assert_eq!(all.to_string().contains("one exchange of all ranks"), is_one, "{all}");
        }
    }
}
