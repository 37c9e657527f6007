//! `check`: what must be true of what the clients saw, together with what the server did.
//!
//! Everything is sorted once and then looked at once: O(n log n) of the attempts. An attempt whose
//! end is not on record may have ended either way.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use super::history::{Attempt, Grant};
use super::record::End;
use super::trace::ServerGrant;
use super::violation::{Violation, What};

/// What a call may take beyond its bound on a machine that does other things as well.
const SLACK_US: i64 = 3_000_000;
/// The two clocks are read one after the other.
const CLOCKS_US: i64 = 500;

/// A guard is told this long before its deadline that it is lost, so that it is not too late: a
/// hundredth of the lease, and where any is lost no lease is longer than 900 ms.
const LEAD_US: i64 = 10_000;

/// Where everybody is soon connected again, a grant is heard of before this.
const UNHEARD_US: i64 = 1_000_000;

/// What one child went through.
#[derive(Clone, Debug, Default)]
pub(super) struct Fate {
    /// When it was about to be killed.
    pub(super) killed: Option<i64>,
    /// From when to when it was stopped.
    pub(super) stopped: Vec<(i64, i64)>,
}

/// All that is known of a run.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    pub(super) attempts: Vec<Attempt>,
    pub(super) grants: Vec<ServerGrant>,
    pub(super) fates: BTreeMap<u32, Fate>,
    /// How far the server's clock is ahead of the clients'.
    pub(super) server_ahead: i64,
    /// Whether no grant may run out unknown to everybody.
    pub(super) all_claimed: bool,
    /// When the run was over, by the clients' clock.
    pub(super) end: i64,
}

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut found = Vec::new();
    overlaps(evidence, &mut found);
    tokens(evidence, &mut found);
    grants(evidence, &mut found);
    losses(evidence, &mut found);
    bounds(evidence, &mut found);
    if evidence.all_claimed {
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

/// Until when the holder believed in its hold, as far as is on record.
fn believed_until(evidence: &Evidence, attempt: &Attempt, grant: Grant) -> i64 {
    match (attempt.ending, evidence.fates.get(&attempt.child).and_then(|fate| fate.killed)) {
        (Some(ending), _) => ending.at.min(ending.until),
        (None, Some(killed)) => killed.min(grant.until),
        (None, None) => grant.until,
    }
}

/// At no instant two clients believe to hold one lock.
fn overlaps(evidence: &Evidence, found: &mut Vec<Violation>) {
    let mut holds: Vec<_> = held(evidence)
        .map(|(attempt, grant)| {
            (attempt.lock, grant.at, believed_until(evidence, attempt, grant), attempt)
        })
        // A process that was stopped may be told of what is over.
        .filter(|(_, from, until, _)| from < until)
        .collect();
    holds.sort_by_key(|(lock, from, ..)| (*lock, *from));
    // The latest end so far, of one lock after the other.
    let mut last: Option<(u32, i64, &Attempt)> = None;
    for (lock, from, until, attempt) in holds {
        let before = last.filter(|(of, ..)| *of == lock);
        if let Some((_, end, holder)) = before.filter(|(_, end, _)| from < *end) {
            let (holder, attempt) = (name(holder), name(attempt));
            let detail = format!("{attempt} from {from}, while {holder} believed until {end}");
            found.push(Violation::new(What::Overlap, detail));
        }
        if before.is_none_or(|(_, end, _)| until > end) {
            last = Some((lock, until, attempt));
        }
    }
}

/// Tokens are given out once, and who asks after another was granted gets a higher one.
fn tokens(evidence: &Evidence, found: &mut Vec<Violation>) {
    let mut by_token: HashMap<(u32, u64), &Attempt> = HashMap::new();
    let mut granted: Vec<_> = Vec::new();
    for (attempt, grant) in held(evidence) {
        if let Some(other) = by_token.insert((attempt.lock, grant.token), attempt) {
            let detail = format!("{} of {} and {}", grant.token, name(attempt), name(other));
            found.push(Violation::new(What::TokenNotRising, detail));
        }
        granted.push((attempt.lock, grant.at, grant.token));
    }
    granted.sort_unstable();
    let mut asked: Vec<_> = held(evidence).collect();
    asked.sort_by_key(|(attempt, _)| (attempt.lock, attempt.invoked));
    let mut before = granted.into_iter().peekable();
    let mut highest = (u32::MAX, 0);
    for (attempt, grant) in asked {
        while let Some((lock, at, token)) = before.peek().copied() {
            if (lock, at) >= (attempt.lock, attempt.invoked) {
                break;
            }
            highest = if highest.0 == lock { (lock, highest.1.max(token)) } else { (lock, token) };
            before.next();
        }
        if highest.0 == attempt.lock && grant.token <= highest.1 {
            let detail = format!("{} of {} after {}", grant.token, name(attempt), highest.1);
            found.push(Violation::new(What::TokenNotRising, detail));
        }
    }
}

/// Every grant is one of the server's, and no guard outlives the lease there.
fn grants(evidence: &Evidence, found: &mut Vec<Violation>) {
    let given: HashMap<_, _> =
        evidence.grants.iter().map(|grant| ((grant.lock, grant.token), grant)).collect();
    for (attempt, grant) in held(evidence) {
        let who = Some((attempt.child, attempt.number));
        let Some(given) = given.get(&(attempt.lock, grant.token)).filter(|given| given.who == who)
        else {
            let detail = format!("{} of {}", grant.token, name(attempt));
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

/// A grant that nobody hears of costs the others its lease, and its waiter its turn.
fn unclaimed(evidence: &Evidence, found: &mut Vec<Violation>) {
    let attempts: HashMap<_, _> = evidence
        .attempts
        .iter()
        .map(|attempt| ((attempt.child, attempt.number), attempt))
        .collect();
    for given in &evidence.grants {
        let attempt = given.who.and_then(|who| attempts.get(&who));
        let is_told = attempt.and_then(|attempt| attempt.grant).is_some();
        let waited = attempt.and_then(|attempt| attempt.answered).map_or(0, |answered| {
            answered + evidence.server_ahead - given.at // until it gave up
        });
        if !is_told && (given.ran_out || waited > UNHEARD_US) {
            let detail = format!("{given:?}, its client waited on for {waited} us");
            found.push(Violation::new(What::Unclaimed, detail));
        }
    }
}

/// Who is told that its hold was lost had reached its deadline.
fn losses(evidence: &Evidence, found: &mut Vec<Violation>) {
    for (attempt, _) in held(evidence) {
        if let (Some(ending), Some((at, End::Lost))) = (attempt.ending, attempt.released)
            && at < ending.until - LEAD_US
        {
            let detail = format!("{} {} us before its deadline", name(attempt), ending.until - at);
            found.push(Violation::new(What::LostEarly, detail));
        }
    }
}

/// Every call ends within its bound, the time not counted for which its process was stopped.
fn bounds(evidence: &Evidence, found: &mut Vec<Violation>) {
    for attempt in &evidence.attempts {
        let fate = evidence.fates.get(&attempt.child).cloned().unwrap_or_default();
        let mut check = |call: &str, from: i64, to: Option<i64>, bound: i64| {
            let end = match (to, fate.killed) {
                (Some(to), _) => to,
                (None, Some(_)) => return, // nobody knows
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
        // A guard that is dropped has no answer.
        if let (Some(ending), Some((at, _))) = (attempt.ending, attempt.released) {
            check("release", ending.at, Some(at), ending.bound);
        }
    }
}
