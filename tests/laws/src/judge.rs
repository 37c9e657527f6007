//! The laws for single commands.

use std::fmt::Debug;

use proto::{ALL, Demand};

use crate::law::{Broken, Law};

/// A member's hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held<M> {
    /// The holder.
    pub member: M,
    /// The hold's weight.
    pub weight: u64,
    /// The most weight in use together with this hold.
    pub limit: u64,
    /// The lease end, ms; `None` if the hold never ends, or the observer does not know the end.
    pub ends_ms: Option<u64>,
    /// Whether the lease has certainly not expired. An expired part stays until it is removed.
    pub is_live: bool,
}

impl<M> Held<M> {
    /// Whether this is a hold of everything.
    pub fn is_whole(&self) -> bool {
        self.weight == u64::from(ALL)
    }
}

/// The kind of a command: what it may do to the holds it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Changes no hold. A member that already holds receives the same hold again.
    Acquire {
        /// Whether the member was given up earlier.
        is_refused: bool,
    },
    /// Extends a hold's lease.
    Extend,
    /// Lowers a hold's weight.
    Lower,
    /// Ends a hold, and reports whether it existed.
    Release {
        /// The reply.
        counts: bool,
    },
    /// Ends holds.
    End,
    /// Changes no hold.
    Other,
}

/// A waiter as queued after the command.
#[derive(Debug, Clone, Copy)]
pub struct Waiting<M> {
    /// The waiter.
    pub member: M,
    /// The waiter's demand.
    pub demand: Demand,
    /// Whether a grant can reach the waiter.
    pub is_reached: bool,
}

/// A command on a lock, as known to an observer.
pub trait Evidence {
    /// The observer's name for a member.
    type Member: Copy + PartialEq + Debug;

    /// The command's kind.
    fn kind(&self) -> Kind;

    /// Whether the command names this member.
    fn names(&self, member: Self::Member) -> bool;

    /// The holds before the command.
    fn before(&self) -> &[Held<Self::Member>];

    /// The holds after the command.
    fn after(&self) -> &[Held<Self::Member>];

    /// The holds granted by the command, in order. If the order is unknown, sorted by limit: holds
    /// that fit in any order fit in this order.
    fn granted(&self) -> Vec<Held<Self::Member>>;

    /// A granted batch's members, in serving order.
    fn batch(&self) -> Vec<Self::Member> {
        Vec::new()
    }

    /// The waiting members, in the order of arrival.
    fn arrivals(&self) -> impl Iterator<Item = Self::Member>;

    /// Whether an ungranted waiting member could have been granted first.
    fn could_be_granted(&self, member: Self::Member) -> bool;

    /// Whether both members were queued by this command, `waiter` after `other`.
    fn came_after(&self, waiter: Self::Member, other: Self::Member) -> bool {
        let _ = (waiter, other);
        false
    }

    /// Whether the command names several members, processed in turn: then an expired part may be
    /// removed for a later member, after the grant to an earlier member has shared the part's
    /// token.
    fn is_of_several(&self) -> bool {
        false
    }

    /// The waiters after the command, in order, as far as a grant may go. All have unexpired
    /// liveness deadlines.
    fn queue(&self) -> impl Iterator<Item = Waiting<Self::Member>>;

    /// Whether the command leaves work for the next command.
    fn leaves_more(&self) -> bool;

    /// Whether the command hands free weight on.
    fn hands_on(&self) -> bool {
        let mut live = self.before().iter().filter(|held| held.is_live);
        match self.kind() {
            Kind::Acquire { is_refused } => {
                !is_refused && !live.any(|held| self.names(held.member))
            }
            Kind::Lower => live.any(|held| self.names(held.member)),
            Kind::Extend => false,
            Kind::Release { .. } | Kind::End | Kind::Other => true,
        }
    }

    /// The most weight in use after the command.
    fn in_use(&self) -> u64 {
        self.after().iter().filter(|held| held.is_live).map(|held| held.weight).sum()
    }

    /// The weight of parts in use, as stored in the lock key.
    fn written(&self) -> Option<u64>;

    /// The tokens that the command reports, to its caller and to others.
    fn reported_tokens(&self) -> Vec<u64>;

    /// The greatest token before the command.
    fn last_token(&self) -> u64;

    /// The parts' shared token before the command.
    fn shared_token(&self) -> u64;

    /// Whether the next part may get a new token although parts are held.
    fn may_renew_shared_token(&self) -> bool {
        false
    }

    /// Whether the fast path leaves the grant to the script, which then issues the token.
    fn is_left_to_the_script(&self) -> bool {
        false
    }

    /// Whether a lock requested again keeps the token.
    fn repeats_token(&self) -> bool {
        false
    }
}

/// The holds live after a command and not before. `batch` are the members that shared a hold of
/// everything before the command: the same hold may now have the name of another of them.
pub fn new_holds<M: Copy + PartialEq>(
    before: &[Held<M>],
    after: &[Held<M>],
    batch: &[M],
) -> Vec<Held<M>> {
    let is_same = |was: &Held<M>, held: &Held<M>| {
        let is_renamed = batch.contains(&held.member) && was.is_whole();
        was.member == held.member || is_renamed && Held { member: held.member, ..*was } == *held
    };
    let was_live = |held: &Held<M>| before.iter().any(|was| was.is_live && is_same(was, held));
    after.iter().filter(|held| held.is_live && !was_live(held)).copied().collect()
}

fn find<M: Copy + PartialEq>(holds: &[Held<M>], member: M) -> Option<&Held<M>> {
    holds.iter().find(|held| held.member == member)
}

/// Judges a command: returns the laws it breaks.
pub fn judge<E: Evidence>(evidence: &E) -> Vec<Broken> {
    let case = Case { evidence, granted: evidence.granted() };
    let checks = [
        (Law::S4, case.changed()),
        (Law::S1, case.exceeding()),
        (Law::S6, case.miscounted()),
        (Law::S7, case.wrong_sum()),
        (Law::S3, case.wrong_token()),
        (Law::F1, case.overtaken()),
        (Law::F5, case.left_waiting()),
    ];
    let broken = checks.into_iter().filter_map(|(law, how)| Some(Broken { law, how: how? }));
    broken.collect()
}

struct Case<'a, E: Evidence> {
    evidence: &'a E,
    granted: Vec<Held<E::Member>>,
}

impl<'a, E: Evidence> Case<'a, E> {
    fn is_granted(&self, member: E::Member) -> bool {
        find(&self.granted, member).is_some()
    }

    /// Whether the command may end this hold.
    fn may_end(&self, member: E::Member) -> bool {
        let ends = matches!(self.evidence.kind(), Kind::Release { .. } | Kind::End);
        ends && self.evidence.names(member)
    }

    fn live_before(&self) -> impl Iterator<Item = &'a Held<E::Member>> {
        self.evidence.before().iter().filter(|held| held.is_live)
    }

    /// The same hold after the command.
    fn after(&self, held: &Held<E::Member>) -> Option<&'a Held<E::Member>> {
        find(self.evidence.after(), held.member)
    }

    /// Finds a hold changed by a command that does not name it, or in a way the command may not.
    fn changed(&self) -> Option<String> {
        let kind = self.evidence.kind();
        if kind == Kind::Extend && !self.granted.is_empty() {
            return Some(format!("a renewal grants {:?}", self.granted));
        }
        let is_right = |before: &&Held<E::Member>| {
            let is_named = self.evidence.names(before.member);
            let after = self.after(before);
            match kind {
                _ if self.may_end(before.member) => true,
                Kind::Extend if is_named => after.is_some_and(|it| it.weight == before.weight),
                Kind::Lower if is_named => after
                    .is_some_and(|it| it.ends_ms == before.ends_ms && it.weight <= before.weight),
                _ => after == Some(before),
            }
        };
        let changed = self.live_before().find(|before| !is_right(before))?;
        Some(format!("{changed:?} becomes {:?}", self.after(changed)))
    }

    /// Finds a grant that does not fit beside earlier grants and the holds not ended by the
    /// command. A hold with a lowered weight makes room in the same step.
    fn exceeding(&self) -> Option<String> {
        let kept = self.live_before().filter(|held| !self.may_end(held.member));
        let weight = |held: &Held<E::Member>| {
            self.after(held).map_or(held.weight, |after| after.weight.min(held.weight))
        };
        let mut used: u64 = kept.map(weight).sum();
        let exceeds = |held: &&Held<E::Member>| {
            used += held.weight;
            used > held.limit
        };
        let held = self.granted.iter().find(exceeds)?;
        Some(format!("{held:?} makes it {used}, beside {:?}", self.evidence.before()))
    }

    /// Finds a release that does not count although the hold existed, or counts although it did
    /// not. An expired part counts, if nothing was granted instead.
    fn miscounted(&self) -> Option<String> {
        let Kind::Release { counts } = self.evidence.kind() else { return None };
        let before = self.evidence.before();
        let is_there = before.iter().any(|held| self.evidence.names(held.member));
        (counts != is_there).then(|| format!("a release counts: {counts}, of {before:?}"))
    }

    /// Finds a stored weight other than the holds' sum: every command writes it, so
    /// every command can get it wrong.
    fn wrong_sum(&self) -> Option<String> {
        let sum: u64 = self.evidence.after().iter().map(|held| held.weight).sum();
        let written = self.evidence.written().filter(|written| *written != sum)?;
        Some(format!("{written} are in use, and not {sum}"))
    }

    /// Whether the command turns a hold of everything into a part.
    fn lowers_a_lock(&self) -> bool {
        let is_part = |held: &Held<E::Member>| !held.is_whole();
        self.evidence.kind() == Kind::Lower
            && self
                .live_before()
                .any(|held| held.is_whole() && self.after(held).is_some_and(is_part))
    }

    /// Whether an earlier part is still held: then all parts share that token.
    fn is_token_shared(&self) -> bool {
        if self.evidence.after().iter().any(Held::is_whole) {
            return false;
        }
        let mut parts = self.evidence.before().iter().filter(|held| !held.is_whole());
        parts.any(|held| self.after(held).is_some() && !self.is_granted(held.member))
    }

    /// Whether a grant may have shared the token of parts removed since.
    fn may_have_shared_token(&self) -> bool {
        let mut ended = self.evidence.before().iter().filter(|held| !held.is_live);
        self.evidence.is_of_several()
            && !self.evidence.after().iter().any(Held::is_whole)
            && ended.any(|held| !held.is_whole())
    }

    /// Finds a new token that is not above all earlier tokens, a token that differs from the parts'
    /// shared token, or a grant without a token.
    fn wrong_token(&self) -> Option<String> {
        let tokens = self.evidence.reported_tokens();
        let Some(token) = tokens.first().copied() else {
            let is_owed = !self.granted.is_empty() || self.lowers_a_lock();
            let is_owed = is_owed && !self.evidence.is_left_to_the_script();
            return is_owed.then(|| format!("no token of {:?}", self.granted));
        };
        let (last, shared) = (self.evidence.last_token(), self.evidence.shared_token());
        let is_right = if self.is_token_shared() {
            token == shared || token > last && self.evidence.may_renew_shared_token()
        } else if self.granted.is_empty() && self.evidence.repeats_token() {
            token == last
        } else {
            token > last || token == shared && self.may_have_shared_token()
        };
        let is_right = is_right && tokens.iter().all(|other| *other == token);
        (!is_right).then(|| {
            format!("{tokens:?} are reported, the last was {last}, that of parts {shared}")
        })
    }

    /// Finds a member that is granted, or served in a batch, before a member that arrived earlier.
    fn overtaken(&self) -> Option<String> {
        let batch = self.evidence.batch();
        let granted = self.granted.iter().map(|held| (held.member, &batch[..0]));
        let served = batch.iter().enumerate().map(|(index, member)| (*member, &batch[..index]));
        granted.chain(served).find_map(|(granted, before)| {
            let ahead = self.evidence.arrivals().take_while(|member| *member != granted);
            let came_after = |member: &E::Member| self.evidence.came_after(*member, granted);
            let ahead = ahead.filter(|member| !came_after(member));
            let is_served = |member| self.is_granted(member) || before.contains(&member);
            let mut left = ahead.filter(|member| !is_served(*member));
            // A batch member could have been granted before.
            let could_be = |member: &E::Member| {
                batch.contains(member) || self.evidence.could_be_granted(*member)
            };
            let overtaken = left.find(could_be)?;
            Some(format!("{granted:?} is granted before {overtaken:?}"))
        })
    }

    /// Finds a fitting waiter, if the command must grant all free weight.
    fn left_waiting(&self) -> Option<String> {
        if self.evidence.leaves_more() || !self.evidence.hands_on() {
            return None;
        }
        let used = self.evidence.in_use();
        let member = next(self.evidence.queue(), used)?;
        Some(format!("{member:?} waits, and {used} are in use"))
    }
}

/// The waiter to be granted now: the first reachable waiter, if it fits.
fn next<M>(mut queue: impl Iterator<Item = Waiting<M>>, used: u64) -> Option<M> {
    let first = queue.find(|waiting| waiting.is_reached)?;
    first.demand.fits(used).then_some(first.member)
}
