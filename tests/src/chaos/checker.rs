//! `check`: compares the clients' records with the server's commands.
//!
//! Everything is sorted once and then read once: O(n log n) in the number of attempts. An attempt
//! without a recorded end may have ended either way.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use laws::Law;
use proto::ALL;

use super::history::{Attempt, Grant};
use super::record::{End, Pair};
use super::trace::ServerGrant;
use super::violation::{Violation, What};

/// How far a call may exceed its bound on a busy machine, in µs.
const SLACK_US: i64 = 3_000_000;
/// The difference that two clocks read one after the other may have, in µs.
const CLOCKS_US: i64 = 500;

/// How long before the deadline a guard is notified of the loss, so that the notification is not
/// too late: a hundredth of the lease, and where holds are lost no lease is longer than 900 ms.
const LEAD_US: i64 = 10_000;

/// The bound within which a client is notified of a grant where every node soon reconnects.
const UNHEARD_US: i64 = 1_000_000;

/// When one child was killed, stopped and resumed.
#[derive(Clone, Debug, Default)]
pub(super) struct Fate {
    /// When the child was about to be killed.
    pub(super) killed: Option<i64>,
    /// When the child was stopped and continued.
    pub(super) stopped: Vec<(i64, i64)>,
}

/// All evidence of a run.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    pub(super) attempts: Vec<Attempt>,
    pub(super) grants: Vec<ServerGrant>,
    /// True if the server's grants are known, because its commands show who got them.
    pub(super) knows_grants: bool,
    pub(super) fates: BTreeMap<u32, Fate>,
    /// How far the server's clock is ahead of the clients' clock, in µs.
    pub(super) server_ahead: i64,
    /// True if no grant may expire without its client having used it.
    pub(super) all_claimed: bool,
    /// When the run was over, by the clients' clock.
    pub(super) end: i64,
}

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut found = Vec::new();
    overlaps(evidence, &mut found);
    tokens(evidence, &mut found);
    if evidence.knows_grants {
        grants(evidence, &mut found);
    }
    losses(evidence, &mut found);
    bounds(evidence, &mut found);
    uses(evidence, &mut found);
    if evidence.knows_grants && evidence.all_claimed {
        unclaimed(evidence, &mut found);
    }
    found
}

fn name(attempt: &Attempt) -> String {
    super::client::label(attempt.child, attempt.number)
}

fn held(evidence: &Evidence) -> impl Iterator<Item = (&Attempt, Grant)> {
    evidence.attempts.iter().filter_map(|attempt| Some((attempt, attempt.grant?)))
}

/// Returns the time until which the holder relied on its hold, as far as recorded.
fn believed_until(evidence: &Evidence, attempt: &Attempt, grant: Grant) -> i64 {
    match (attempt.ending, evidence.fates.get(&attempt.child).and_then(|fate| fate.killed)) {
        (Some(ending), _) => ending.at.min(ending.until),
        (None, Some(killed)) => killed.min(grant.until),
        (None, None) => grant.until,
    }
}

/// A hold that a client relied on, with weight and time.
struct Belief<'a> {
    attempt: &'a Attempt,
    weight: u64,
    from: i64,
    until: i64,
}

/// Returns the period in which the client relied on a hold; two periods for a writer downgraded to
/// a reader.
fn beliefs<'a>(evidence: &Evidence, attempt: &'a Attempt, grant: Grant) -> Vec<Belief<'a>> {
    let from = grant.at;
    let until = believed_until(evidence, attempt, grant);
    let belief = |weight: u32, from, until| Belief { attempt, weight: weight.into(), from, until };
    match attempt.reduction {
        // From then on the writer relies only on a read, whether the server is informed or not.
        Some(reduction) => vec![
            belief(attempt.weight, from, until.min(reduction.at)),
            belief(1, reduction.at, until),
        ],
        None => vec![belief(attempt.weight, from, until)],
    }
}

/// Checks that clients never rely at the same instant on more of a lock than is available: nothing
/// beside a write or a lock, and of permits at most their limit. All permit requests for a lock
/// have the same limit.
fn overlaps(evidence: &Evidence, found: &mut Vec<Violation>) {
    let mut beliefs: Vec<_> = held(evidence)
        .flat_map(|(attempt, grant)| beliefs(evidence, attempt, grant))
        // A stopped process may learn late that its hold has ended.
        .filter(|belief| belief.from < belief.until)
        .collect();
    beliefs.sort_by_key(|belief| (belief.attempt.lock, belief.from));
    let mut current: Vec<Belief<'_>> = Vec::new();
    for belief in beliefs {
        let lock = belief.attempt.lock;
        current.retain(|other| other.attempt.lock == lock && other.until > belief.from);
        current.push(belief);
        let used: u64 = current.iter().map(|belief| belief.weight).sum();
        let limit = current.iter().map(|belief| belief.attempt.limit).min().unwrap_or(ALL);
        if used > limit.into() {
            let of = |belief: &Belief<'_>| {
                let Belief { attempt, weight, from, until } = belief;
                let hold = attempt.grant.map_or(String::new(), |grant| {
                    format!("token {}, certain until {} at first", grant.token, grant.until)
                });
                let asked = attempt.invoked;
                format!("{weight} of {} asked {asked}, {from} to {until}, {hold}", name(attempt))
            };
            let all: Vec<_> = current.iter().map(of).collect();
            let detail = format!("of {limit} of lock {lock}: {}", all.join(", "));
            found.push(Violation::new(What::Overlap, detail));
        }
    }
}

/// A token received by a client.
struct ReceivedToken<'a> {
    attempt: &'a Attempt,
    token: u64,
    asked: i64,
    at: i64,
    /// Whether other holds may have the same token.
    is_shared: bool,
    /// Whether the token must be above all earlier tokens.
    is_new: bool,
}

fn received_tokens(evidence: &Evidence) -> Vec<ReceivedToken<'_>> {
    let mut received = Vec::new();
    for (attempt, grant) in held(evidence).filter(|(_, grant)| grant.token > 0) {
        let is_shared = attempt.weight < ALL;
        let token = grant.token;
        let asked = attempt.invoked;
        let at = grant.at;
        received.push(ReceivedToken { attempt, token, asked, at, is_shared, is_new: !is_shared });
        if let Some(reduction) = attempt.reduction
            && let (Some(token), Some((at, _))) = (reduction.token, reduction.answered)
        {
            let asked = reduction.at;
            received.push(ReceivedToken {
                attempt,
                token,
                asked,
                at,
                is_shared: true,
                is_new: true,
            });
        }
    }
    received
}

fn tokens(evidence: &Evidence, found: &mut Vec<Violation>) {
    let received = received_tokens(evidence);
    one_each(&received, found);
    rising(received, found);
}

/// Checks that each token is issued once, except to parts sharing a token.
fn one_each(all: &[ReceivedToken<'_>], found: &mut Vec<Violation>) {
    let mut by_token: HashMap<(u32, u64), &ReceivedToken<'_>> = HashMap::new();
    for received in all {
        if let Some(other) = by_token.insert((received.attempt.lock, received.token), received)
            && !(received.is_shared && other.is_shared)
        {
            let detail = format!(
                "{} of {} and {}",
                received.token,
                name(received.attempt),
                name(other.attempt)
            );
            found.push(Violation::new(Law::S3, detail));
        }
    }
}

/// Checks that an attempt begun after another's grant gets no lower token, and a higher token for a
/// write or a downgrade.
fn rising(mut received: Vec<ReceivedToken<'_>>, found: &mut Vec<Violation>) {
    let mut granted: Vec<_> =
        received.iter().map(|one| (one.attempt.lock, one.at, one.token)).collect();
    granted.sort_unstable();
    received.sort_by_key(|one| (one.attempt.lock, one.asked));
    let mut before = granted.into_iter().peekable();
    let mut highest = (u32::MAX, 0);
    for ReceivedToken { attempt, token, asked, is_new, .. } in received {
        while let Some((lock, at, token)) = before.peek().copied() {
            if (lock, at) >= (attempt.lock, asked) {
                break;
            }
            highest = if highest.0 == lock { (lock, highest.1.max(token)) } else { (lock, token) };
            before.next();
        }
        if highest.0 == attempt.lock && (token < highest.1 || is_new && token == highest.1) {
            let detail = format!("{token} of {} after {}", name(attempt), highest.1);
            found.push(Violation::new(Law::S3, detail));
        }
    }
}

/// Checks that every grant was issued by the server, and no guard outlives the lease there.
fn grants(evidence: &Evidence, found: &mut Vec<Violation>) {
    let mut given: HashMap<_, Vec<&ServerGrant>> = HashMap::new();
    for grant in &evidence.grants {
        given.entry((grant.lock, grant.who)).or_default().push(grant);
    }
    for (attempt, grant) in held(evidence) {
        let who = Some((attempt.child, attempt.number));
        // Permits have no token: match them with the last grant.
        let is_it = |given: &&&ServerGrant| {
            let has_token = given.token == grant.token || given.again.contains(&grant.token);
            grant.token == 0 || has_token
        };
        let given = given.get(&(attempt.lock, who)).and_then(|all| all.iter().rev().find(is_it));
        let read = attempt.reduction.and_then(|reduction| reduction.token);
        let given = given.filter(|given| read.is_none() || given.reduced == read);
        let Some(given) = given else {
            let detail = format!("{} of {}, {read:?} as a reader", grant.token, name(attempt));
            found.push(Violation::new(What::UnknownGrant, detail));
            continue;
        };
        let last = attempt.ending.map_or(grant.until, |ending| ending.until.max(grant.until));
        let late = last + evidence.server_ahead - given.ends;
        if late > CLOCKS_US {
            let detail = format!("{} by {late} us", name(attempt));
            found.push(Violation::new(What::LateDeadline, detail));
        }
    }
}

/// Checks that no grant stays unused: it would cost the others a lease, and the waiter the turn.
fn unclaimed(evidence: &Evidence, found: &mut Vec<Violation>) {
    let attempts: HashMap<_, _> = evidence
        .attempts
        .iter()
        .map(|attempt| ((attempt.child, attempt.number), attempt))
        .collect();
    for given in &evidence.grants {
        let attempt = given.who.and_then(|who| attempts.get(&who));
        let is_received = attempt.and_then(|attempt| attempt.grant).is_some();
        let waited = attempt.and_then(|attempt| attempt.answered).map_or(0, |answered| {
            answered + evidence.server_ahead - given.at // until it gave up
        });
        if !is_received && (given.ran_out || waited > UNHEARD_US) {
            let detail = format!("{given:?}, its client waited on for {waited} us");
            found.push(Violation::new(What::Unclaimed, detail));
        }
    }
}

/// Checks that a guard notified of its loss had reached its deadline.
fn losses(evidence: &Evidence, found: &mut Vec<Violation>) {
    for (attempt, _) in held(evidence) {
        let ended = attempt.ending.map(|ending| (ending.until, attempt.released));
        let reduced = attempt.reduction.map(|reduction| (reduction.until, reduction.answered));
        for (until, answer) in ended.into_iter().chain(reduced) {
            if let Some((at, End::Lost)) = answer
                && at < until - LEAD_US
            {
                let detail = format!("{} {} us before its deadline", name(attempt), until - at);
                found.push(Violation::new(What::LostEarly, detail));
            }
        }
    }
}

/// Checks that every call ends within the bound, not counting the time when its process was
/// stopped.
fn bounds(evidence: &Evidence, found: &mut Vec<Violation>) {
    for attempt in &evidence.attempts {
        let fate = evidence.fates.get(&attempt.child).cloned().unwrap_or_default();
        let mut check = |call: &str, from: i64, to: Option<i64>, bound: i64| {
            let end = match (to, fate.killed) {
                (Some(to), _) => to,
                (None, Some(_)) => return, // unknown
                (None, None) => evidence.end,
            };
            let paused = |(stop, cont): &(i64, i64)| (end.min(*cont) - from.max(*stop)).max(0);
            let took = end - from - fate.stopped.iter().map(paused).sum::<i64>();
            if took > bound + SLACK_US || to.is_none() {
                let detail = format!(
                    "{call} of {}: {took} us, bound {bound} us, ended {to:?}",
                    name(attempt)
                );
                found.push(Violation::new(What::Late, detail));
            }
        };
        check("acquisition", attempt.invoked, attempt.answered, attempt.bound);
        if let Some(reduction) = attempt.reduction {
            let answered = reduction.answered.map(|(at, _)| at);
            check("downgrade", reduction.at, answered, reduction.bound);
        }
        // A dropped guard has no response.
        if let (Some(ending), Some((at, _))) = (attempt.ending, attempt.released) {
            check("release", ending.at, Some(at), ending.bound);
        }
    }
}

/// Checks that no fenced pair is seen half written, and that valid holds never use more than is
/// available.
fn uses(evidence: &Evidence, found: &mut Vec<Violation>) {
    for attempt in &evidence.attempts {
        if let Some([Pair::Torn, _]) = attempt.read {
            found.push(Violation::new(What::TornRead, name(attempt)));
        }
        if let Some([valid, _]) = attempt.counted.filter(|[valid, _]| *valid > attempt.limit.into())
        {
            let detail = format!("{valid} with {} of {}", name(attempt), attempt.limit);
            found.push(Violation::new(What::OverLimit, detail));
        }
    }
}
