//! A lock as an operator sees it.

use std::time::Duration;

use proto::{Demand, FencingToken, Inspection, Label, Member, Party};

/// The holders of one name and its waiters; made by [`Locks::inspect`](crate::Locks::inspect).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInspection {
    /// The holders, in the order in which their leases end: one lock, or reads and permits. On a
    /// [quorum](crate::guide::quorum), those of the lowest primary come first, then those that only
    /// others have.
    pub holders: Vec<Participant>,
    /// The waiters, the next one first; on a quorum, those of the lowest primary. Without those
    /// whose process has been silent for 15 s.
    pub waiters: Vec<Participant>,
    /// The number of holds, also of those that are not shown. Reads and permits whose leases have
    /// ended count until another request needs their room.
    pub holding: u64,
    /// The number of waiters, also of those that are not shown. Those whose process has ended count
    /// until a command meets them.
    pub waiting: u64,
    /// The token that the holders share. `None` for a lock, whose token only its holder knows,
    /// unless JVMs share its queue; `None` on a quorum.
    pub token: Option<FencingToken>,
}

/// A holder of a name, or a waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Participant {
    /// The text that names it in the store, unique to one acquisition.
    pub member: String,
    /// The label, for people, exactly as it was set: escape control characters before you print it.
    /// `None` for members of other programs, such as a JVM service.
    pub label: Option<String>,
    /// The node that it belongs to; `None` for members of other programs. See
    /// [`Locks::node`](crate::Locks::node).
    pub node: Option<String>,
    /// The demand that it holds or waits for. A lock that was made a read is a read.
    pub demand: Demand,
    /// The time since it was first asked for: since its acquisition began, also if that has lost
    /// its place since. So the age of a holder includes its wait, unlike
    /// [`Activity::age`](crate::operate::Activity::age): no store notes when a hold begins, and a
    /// holder has held for no longer than this. By the server's clock, as its node knew it when it
    /// connected. `None` for members of other programs.
    pub age: Option<Duration>,
    /// The time left of its lease; zero if it waits.
    pub lease_left: Duration,
    /// Whether no more is left of the lease than a claim: a third of the lease, 2 to 10 s, and at
    /// most the lease. So it is `true` of a hold that was handed over and is not renewed yet, of
    /// one whose renewal is late, and always of a lease of 2 s or less. `false` for a waiter and
    /// for members of other programs.
    pub is_claim: bool,
    /// The primaries of a [quorum](crate::guide::quorum) at which its process holds the name.
    /// `None` for a waiter, and on a store that is no quorum.
    pub primaries: Option<HeldPrimaries>,
}

/// The part of a quorum's primaries at which a process holds a name. Fewer than a majority are
/// those of an acquisition on its way, or of a hold that is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldPrimaries {
    /// The primaries that say so.
    pub held: usize,
    /// All primaries, also those that did not answer.
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

    /// Joins the inspections of the `all` primaries of a quorum that have answered: the holders of
    /// each, and the waiters of the first.
    pub(crate) fn of_quorum(each: Vec<Self>, all: usize) -> Option<Self> {
        let of = |process: &Option<String>, found: &Self| {
            found.holders.iter().any(|holder| holder.node == *process)
        };
        let mut joined = each.first()?.clone();
        // Reads that are held together share none.
        joined.token = None;
        for found in &each {
            // All holds of a process that no lower primary has shown.
            let is_new = |holder: &&Participant| !of(&holder.node, &joined);
            let new: Vec<_> = found.holders.iter().filter(is_new).cloned().collect();
            joined.holding += new.len() as u64;
            joined.holders.extend(new);
        }
        for holder in &mut joined.holders {
            let held = each.iter().filter(|found| of(&holder.node, found)).count();
            holder.primaries = Some(HeldPrimaries { held, all });
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
            node: ours.map(|member| member.node().to_owned()),
            // A hold that was reduced keeps the text of its member.
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
