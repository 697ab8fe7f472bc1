//! Recursive halving and doubling: in round `i`, swap halves with the rank whose number differs in
//! bit `i`; then back.
//!
//! ```text
//! halving-doubling all_reduce, n = 4
//!      rank 0              rank 1              rank 2               rank 3
//! 0    in2,3 ->1           in0,1 ->0           in2,3 ->3            in0,1 ->2
//! 1    tmp0 =in0 +=1       tmp2 <-0 +=in2      tmp0 =in0 +=3        tmp2 <-2 +=in2
//!      tmp1 =in1 +=1 ->2   tmp3 <-0 +=in3 ->3  tmp1 =in1 +=3        tmp3 <-2 +=in3
//!                                              tmp0 ->0             tmp2 ->1
//! 2    out0 =tmp0 +=2 ->2  out2 =tmp2 +=3 ->3  out1 <-0 +=tmp1 ->0  out3 <-1 +=tmp3 ->1
//! 3    out1 <-2            out3 <-3            out0 <-0 ->3         out2 <-1 ->2
//!      out0,1 ->1          out2,3 ->0          out1 ->3             out3 ->2
//! 4    out2,3 <-1          out0,1 <-0          out2,3 <-3           out0,1 <-2
//! ```
//!
//! Each exchange halves what a rank is responsible for: it sends the half that its partner keeps,
//! and combines the other half with what the partner sends, in the order of the ranks. After lg n
//! rounds every rank has one chunk complete. The way back is recursive doubling, the last partner
//! first. Nearest ranks are partners in the rounds with most bytes, and they usually share a host.
//!
//! **Cost**: all-reduce 2 lg n a + 2 (n-1)/n S b + (n-1)/n S g, reduce-scatter half of the first
//! two and all of the last. If n is no power of two, the [surplus](super::surplus) ranks take a
//! step more at each end, with S bytes each.
//!
//! **Why**: as few bytes as a ring in lg n steps instead of n: vectors of middle size.
//!
//! # Reduce-scatter
//!
//! The same rounds; in the end a member has its own block and its guest's.
//!
//! ```text
//! halving-doubling reduce_scatter, n = 4
//!      rank 0             rank 1              rank 2           rank 3
//! 0    in1,3 ->1          in0,2 ->0           in1,3 ->3        in0,2 ->2
//! 1    tmp0 =in0 +=1      tmp1 <-0 +=in1      tmp0 =in0 +=3    tmp1 <-2 +=in1
//!      tmp2 =in2 +=1 ->2  tmp3 <-0 +=in3 ->3  tmp2 =in2 +=3    tmp3 <-2 +=in3
//!                                             tmp0 ->0         tmp1 ->1
//! 2    out0 =tmp0 +=2     out1 =tmp1 +=3      out2 <-0 +=tmp2  out3 <-1 +=tmp3
//! ```
//!
//! **Source**: R. Rabenseifner, "Optimization of collective reduction operations", ICCS 2004; here
//! with the nearest partner first, which keeps the order of the ranks.

use super::surplus::{Members, Seat};
use super::{Collective, combine, receive, send};
use crate::schedule::{Schedule, Span, Step, input, output, scratch};

pub(super) fn schedule(collective: Collective, world: usize, rank: usize) -> Option<Schedule> {
    let members = Members::new(world);
    match collective {
        Collective::AllReduce => Some(Schedule::new(members.count, all_reduce(members, rank))),
        Collective::ReduceScatter => {
            Some(Schedule::new(world, reduce_scatter(members, world, rank)))
        }
        Collective::Broadcast { .. }
        | Collective::Reduce { .. }
        | Collective::Gather { .. }
        | Collective::AllGather
        | Collective::Scatter { .. }
        | Collective::AllToAll
        | Collective::Scan
        | Collective::ExclusiveScan
        | Collective::Barrier => None,
    }
}

fn all_reduce(members: Members, rank: usize) -> Vec<Step> {
    let all = 0..members.count;
    let (member, guest) = match members.seat(rank) {
        Seat::Member { member, guest } => (member, guest),
        Seat::Guest { host } => {
            return send(host, all.clone().map(input)).chain(receive(host, all)).collect();
        }
    };
    // Numbers read backwards, so that what a rank is responsible for are chunks in a row.
    let owner = |chunk: usize| {
        (0..members.levels()).fold(0, |read, level| read << 1 | (chunk >> level & 1))
    };
    let owners = Vec::from_iter(all.clone().map(owner));
    let halves = Halves { members, rank, member, guest, own: owners[member], owners };
    let mut steps = halves.reduce();
    steps.extend((0..members.levels()).rev().flat_map(|level| halves.gather(level)));
    steps.extend(guest.into_iter().flat_map(|to| send(to, all.clone().map(output))));
    steps
}

fn reduce_scatter(members: Members, world: usize, rank: usize) -> Vec<Step> {
    let (member, guest) = match members.seat(rank) {
        Seat::Member { member, guest } => (member, guest),
        Seat::Guest { host } => {
            return send(host, (0..world).map(input)).chain(receive(host, [rank])).collect();
        }
    };
    let owners = (0..members.count)
        .flat_map(|member| members.ranks(member..member + 1).map(move |_| member));
    let halves = Halves { members, rank, member, guest, own: rank, owners: owners.collect() };
    let mut steps = halves.reduce();
    steps.extend(guest.map(|to| Step::Send { from: halves.room(to, members.levels() + 1), to }));
    steps
}

struct Halves {
    members: Members,
    rank: usize,
    member: usize,
    guest: Option<usize>,
    /// The chunk that ends in our output.
    own: usize,
    /// The member that each chunk is complete at.
    owners: Vec<usize>,
}

impl Halves {
    /// What `member` is responsible for before round `level`, together with all that agree with it
    /// in the bits so far.
    fn shared(&self, member: usize, level: usize) -> impl Iterator<Item = usize> {
        let agrees = move |owner: usize| (owner ^ member) & ((1 << level) - 1) == 0;
        (0..self.owners.len()).filter(move |&chunk| agrees(self.owners[chunk]))
    }

    /// Where a chunk is once `combined` messages were combined with it: two rows of scratch take
    /// turns, and what is ours ends in the output. In place that is the input, so it must have gone
    /// through scratch before.
    fn room(&self, chunk: usize, combined: usize) -> Span {
        let last = self.members.levels() + usize::from(self.guest.is_some());
        match combined {
            0 => input(chunk),
            _ if chunk == self.own && combined == last && last > 1 => output(chunk),
            _ => scratch((combined - 1) % 2 * self.owners.len() + chunk),
        }
    }

    /// Combines one more message of `peer` with `chunk`.
    fn join(&self, peer: usize, chunk: usize, combined: usize) -> [Step; 2] {
        combine(self.rank, peer, self.room(chunk, combined), self.room(chunk, combined + 1))
    }

    /// Everything of the guest, then half of the rest in each round.
    fn reduce(&self) -> Vec<Step> {
        let whole = |guest| (0..self.owners.len()).flat_map(move |c| self.join(guest, c, 0));
        let mut steps = Vec::from_iter(self.guest.into_iter().flat_map(whole));
        let mut combined = usize::from(self.guest.is_some());
        for level in 0..self.members.levels() {
            let partner = self.member ^ 1 << level;
            let peer = self.members.rank(partner);
            steps.extend(send(
                peer,
                self.shared(partner, level + 1).map(|c| self.room(c, combined)),
            ));
            steps.extend(
                self.shared(self.member, level + 1).flat_map(|c| self.join(peer, c, combined)),
            );
            combined += 1;
        }
        let (from, into) = (self.room(self.own, combined), output(self.own));
        steps.extend((from != into).then_some(Step::Copy { from, into }));
        steps
    }

    fn gather(&self, level: usize) -> impl Iterator<Item = Step> {
        let partner = self.member ^ 1 << level;
        let peer = self.members.rank(partner);
        send(peer, self.shared(self.member, level + 1).map(output))
            .chain(receive(peer, self.shared(partner, level + 1)))
    }
}
