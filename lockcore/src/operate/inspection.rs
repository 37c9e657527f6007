//! [`LockInspection`]: the holders and waiters of a lock, for operators.

use std::time::Duration;

use proto::{Demand, FencingToken, Inspection, Label, Member, NodeId, Party};

/// The holders and waiters of a name; made by [`Locks::inspect`](crate::Locks::inspect).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInspection {
    /// The holders, sorted by the end of their leases, earliest first: either one lock, or reads
    /// and permits. On a [quorum](crate::guide::quorum), the holders at the first primary in the
    /// list come first, then holders known only to other primaries.
    pub holders: Vec<Participant>,
    /// The waiters in queue order, the next to be granted first; on a quorum, the waiters at the
    /// first primary in the list. Waiters whose process has been silent for 15 s are left out.
    pub waiters: Vec<Participant>,
    /// The number of all holders, even if [`holders`](Self::holders) contains only a part. Expired
    /// reads and permits may be included, because the server removes them only when another request
    /// does not fit beside them. On a quorum, if a primary has shown only part of its holders, the
    /// greatest number at a primary, or the number of `holders` if that is greater.
    pub holding: u64,
    /// The number of all waiters, even if [`waiters`](Self::waiters) contains only a part. Waiters
    /// whose process has ended are included until a command on the lock removes them.
    pub waiting: u64,
    /// The fencing token that the present reads share. `None` if no reads are held, because the
    /// server does not store the tokens of locks, and permits have no token. With
    /// [`redisson_peers`](crate::LocksBuilder::redisson_peers), the last token of the lock. `None`
    /// on a quorum.
    pub token: Option<FencingToken>,
}

/// A holder or waiter of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Participant {
    /// The text that stands for this holder or waiter in the store, unique to one acquisition.
    pub member: String,
    /// The [label](crate::LockRequest::label), for people, exactly as set: escape control
    /// characters before printing. `None` for other programs, such as a JVM service.
    pub label: Option<String>,
    /// The id of the `Locks` that holds or waits, as returned by
    /// [`Locks::node`](crate::Locks::node); `None` for other programs.
    pub node: Option<NodeId>,
    /// What is held or waited for: the lock, a read or permits. A downgraded lock is a read.
    pub demand: Demand,
    /// The time since the acquisition began, even if the request lost its queue position since.
    /// Unlike [`Activity::age`](crate::operate::Activity::age), a holder's age includes the wait,
    /// because no store records when a hold begins: it is an upper bound for the hold. `None` for
    /// other programs. Measured by the server's clock, as known to the holder's or waiter's node
    /// since it connected.
    pub age: Option<Duration>,
    /// The time until the lease expires; zero for a waiter.
    pub lease_left: Duration,
    /// True if the holder may not have renewed the lease since the grant: the remaining lease is no
    /// longer than a claim, which is a third of the lease, 2 to 10 s, and at most the lease. So it
    /// is `true` for a lock granted after a wait until the first renewal, for a late renewal, and
    /// always for a lease of 2 s or less. `false` for waiters and other programs.
    pub is_claim: bool,
    /// The number of [quorum](crate::guide::quorum) primaries at which the process holds the name.
    /// `None` for a waiter, without a quorum, and if a primary has shown only part of its holders.
    pub primaries: Option<HeldPrimaries>,
}

/// The number of quorum primaries at which a process holds the name. If it is less than a majority,
/// the acquisition is in progress, or the hold is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldPrimaries {
    /// The number of primaries that report the hold.
    pub held: usize,
    /// The number of all primaries, including those without a response.
    pub all: usize,
}

impl LockInspection {
    pub(crate) fn new(inspection: Inspection) -> Self {
        let now_ms = inspection.now_us / 1_000;
        let now_us = inspection.now_us;
        let holds = inspection.holds.iter();
        let live = inspection.waiters.iter().filter(|(_, deadline_ms)| *deadline_ms > now_ms);
        Self {
            holders: holds
                .map(|hold| Participant::new(&hold.party, hold.weight, hold.left_ms, now_us))
                .collect(),
            waiters: live
                .map(|(party, _)| Participant::new(party, party.weight(), 0, now_us))
                .collect(),
            holding: inspection.holding,
            waiting: inspection.waiting,
            token: inspection.token,
        }
    }

    /// Combines the inspections of a lock at the responding primaries, which `each` contains in
    /// list order: the holders at all of them, and the waiters at the first. `all` is the number of
    /// primaries in the quorum, and `most` the number of holders that each was asked for. Returns
    /// `None` if no primary responded.
    pub(crate) fn of_quorum(each: Vec<Self>, all: usize, most: usize) -> Option<Self> {
        let of = |process: &Option<NodeId>, found: &Self| {
            found.holders.iter().any(|holder| holder.node == *process)
        };
        let mut joined = each.first()?.clone();
        // Concurrent reads on a quorum share no token.
        joined.token = None;
        // A primary counts expired holders, too, and does not show them.
        let is_part = |found: &Self| {
            found.holders.len() >= most && found.holding > found.holders.len() as u64
        };
        let is_whole = !each.iter().any(is_part);
        for found in &each {
            // Add the holders of processes that no earlier primary has shown.
            let is_new = |holder: &&Participant| !of(&holder.node, &joined);
            let new: Vec<_> = found.holders.iter().filter(is_new).cloned().collect();
            joined.holders.extend(new);
        }
        // A holder that one primary shows may be among the others that another primary only counts.
        let holding = each.iter().map(|found| found.holding).max().unwrap_or(0);
        joined.holding = holding.max(joined.holders.len() as u64);
        for holder in &mut joined.holders {
            let held = each.iter().filter(|found| of(&holder.node, found)).count();
            holder.primaries = is_whole.then_some(HeldPrimaries { held, all });
        }
        Some(joined)
    }
}

impl Participant {
    fn new(party: &Party, weight: u64, left_ms: u64, now_us: u64) -> Self {
        let ours = party.ours();
        let age = |member: &Member| Duration::from_micros(now_us.saturating_sub(member.began_us()));
        let is_claim =
            |member: &Member| (1..=proto::claim_ms(member.lease_ms())).contains(&left_ms);
        let demand = ours.map_or(Demand::EXCLUSIVE, Member::demand);
        Self {
            member: party.to_string(),
            label: ours.map(|member| Label::unescape(member.label())),
            node: ours.map(|member| NodeId::from(member.node())),
            // A downgraded hold keeps its text in the store, which still names a lock: only the
            // weight differs.
            demand: match demand {
                Demand::EXCLUSIVE if weight < demand.weight() => Demand::READ,
                demand => demand,
            },
            age: ours.map(age),
            lease_left: Duration::from_millis(left_ms),
            is_claim: ours.is_some_and(is_claim),
            primaries: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the inspection at a primary that has shown only the holder of this process, of
    /// `holding` holders.
    fn part(node: &str, holding: u64) -> LockInspection {
        let holder = Participant {
            member: node.to_owned(),
            label: None,
            node: Some(NodeId::from(node)),
            demand: Demand::READ,
            age: None,
            lease_left: Duration::from_secs(10),
            is_claim: false,
            primaries: None,
        };
        LockInspection { holders: vec![holder], waiters: vec![], holding, waiting: 0, token: None }
    }

    #[test]
    fn a_part_of_the_holders_of_a_quorum_counts_none_twice() {
        let primaries = |found: &LockInspection| -> Vec<_> {
            found.holders.iter().map(|holder| holder.primaries.map(|at| at.held)).collect()
        };
        // All three hold at each primary, which has shown the one whose lease ends first.
        let parts = ["a", "b", "c"].map(|node| part(node, 3)).into();
        let found = LockInspection::of_quorum(parts, 3, 1).expect("three responses");
        assert_eq!((found.holding, primaries(&found)), (3, vec![None; 3]));
        let whole = ["a", "b", "b"].map(|node| part(node, 1)).into();
        let found = LockInspection::of_quorum(whole, 3, 1).expect("three responses");
        assert_eq!((found.holding, primaries(&found)), (2, vec![Some(1), Some(2)]));
        // The second holder has expired.
        let expired = ["a", "a", "a"].map(|node| part(node, 2)).into();
        let found = LockInspection::of_quorum(expired, 3, 2).expect("three responses");
        assert_eq!((found.holding, primaries(&found)), (2, vec![Some(3)]));
    }
}
