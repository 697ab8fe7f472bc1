//! The activities of a simulation, as a trace.

use crate::clocks::{PortActivity, TimedActivity};
use maypole::schedule::trace::{ArrowEnd, Fact, Slice, SliceKind, Trace, TraceLane, digit};
use std::collections::BTreeMap;

/// The activities of a [simulation](crate::clocks::activities()) as a trace. A rank has a lane
/// for sending, one for receiving and one for combining, because it does these at the same time, and more
/// lanes where links have ports of their own. A message is two slices: one in the sender's lane while it
/// occupies the sender's port, and one in the receiver's lane while it arrives.
///
/// ```
/// use maypole::{algorithms::Algorithm, schedule::collective::Collective, schedule::Layout};
/// use maypole_pictures::clocks::{Cost, Ports, activities};
/// use maypole_pictures::{lanes, timeline};
/// let ring = Algorithm::Ring.schedules(Collective::AllReduce, 2).unwrap();
/// let cost = Cost { alpha: 1e-6, beta: 1e-9, gamma: 0.0, ports: Ports::Single };
/// let run = activities(&ring, &Layout::even(4000, 2), 1, 1, cost).unwrap();
/// assert_eq!(lanes::text(&timeline::trace(&run.activities), 12), "
///                  0           6000 ns
/// rank 0 sends     |111..|111..
///        receives  ..|111..|111
/// rank 1 sends     |000..|000..
///        receives  ..|000..|000
/// ".trim_start_matches('\n'));
/// ```
pub fn trace(activities: &[TimedActivity]) -> Trace {
    let takes_time = |it: &&TimedActivity| it.part != PortActivity::Combines || it.end > it.start;
    let mut activities: Vec<&TimedActivity> = activities.iter().filter(takes_time).collect();
    activities.sort_by(|a, b| a.start.total_cmp(&b.start));
    // By rank, activity and level: the end of the lane's last slice, and its activities.
    let mut lanes: BTreeMap<(usize, PortActivity, usize), (u64, Vec<&TimedActivity>)> =
        BTreeMap::new();
    for activity in activities {
        let start = nanoseconds(activity.start);
        let end = nanoseconds(activity.end);
        let level = |level: &usize| {
            let lane = lanes.get(&(activity.rank, activity.part, *level));
            lane.is_none_or(|(until, _)| *until <= start)
        };
        let level = (0..).find(level).expect("there are enough numbers");
        let lane = lanes.entry((activity.rank, activity.part, level)).or_default();
        lane.0 = end;
        lane.1.push(activity);
    }
    let mut trace = Trace::default();
    for ((rank, part, level), (_, activities)) in lanes {
        let lane = trace.lanes.len();
        let (name, kind) = name_of(part);
        trace.lanes.push(TraceLane {
            process: 1,
            process_name: "simulated".to_owned(),
            thread: lane as u64 + 1,
            owner: format!("rank {rank}"),
            part: if level == 0 { name.to_owned() } else { format!("{name} {}", level + 1) },
        });
        trace.slices.extend(activities.iter().map(|activity| slice(activity, kind, lane)));
        trace.ends.extend(activities.iter().filter_map(|activity| arrow(activity, lane)));
    }
    trace
}

/// The name of a part of a rank, and the kind of its slices.
fn name_of(part: PortActivity) -> (&'static str, SliceKind) {
    match part {
        PortActivity::Sends => ("sends", SliceKind::Send),
        PortActivity::Receives => ("receives", SliceKind::Receive),
        PortActivity::Combines => ("combines", SliceKind::Combine),
    }
}

fn slice(activity: &TimedActivity, kind: SliceKind, lane: usize) -> Slice {
    let TimedActivity { part, peer, step, window, bytes, .. } = *activity;
    let (name, mark) = match part {
        PortActivity::Sends => (format!("send to {peer}"), digit(peer)),
        PortActivity::Receives => (format!("receive from {peer}"), digit(peer)),
        PortActivity::Combines => ("combine".to_owned(), '+'),
    };
    let number = |number: usize| Fact::Number(number as u64);
    let facts = vec![
        ("bytes", number(bytes)),
        ("peer", number(peer)),
        ("step", number(step)),
        ("window", number(window)),
    ];
    let start = nanoseconds(activity.start);
    let end = nanoseconds(activity.end);
    Slice { lane, kind, name, start, end, mark, facts }
}

fn arrow(activity: &TimedActivity, lane: usize) -> Option<ArrowEnd> {
    let points_here = activity.part == PortActivity::Receives;
    let at = nanoseconds(activity.start);
    let message = activity.id as u64;
    let arrow = ArrowEnd { message, lane, at, points_here };
    (activity.part != PortActivity::Combines).then_some(arrow)
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}
