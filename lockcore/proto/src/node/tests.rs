//! The table alone: events in, requests out.

mod attempts;
mod batches;
mod clocks;
mod closing;
mod confirmed;
mod fence;
mod giving_back;
mod grants;
mod holds;
mod lanes;
mod lines;
mod moved;
mod newest;
mod releases;
mod revoked;
mod shared;

use super::*;
use crate::demand::Demand;
use crate::member::{Label, Member};
use crate::terms::Terms;
use crate::{Acquired, Grant, Left, Mode, Presence, Released, Renewed, Reply, Touched};

const LEASE: Duration = Duration::from_secs(30);
const ACQUIRES: usize = 8;

const LANES: u16 = 3;

/// The lanes of a Cluster with three servers, to which the slots are dealt in turns.
fn lanes() -> Lanes {
    (0..crate::wire::slot::SLOTS).map(|slot| slot % LANES).collect()
}

/// Returns the nth name in a lane.
fn named(lane: u16, nth: usize) -> String {
    let names = (0..).map(|number: u64| number.to_string());
    let mut in_lane = names.filter(|name| LockName::from(name.as_str()).slot() % LANES == lane);
    in_lane.nth(nth).expect("there are more names than slots")
}

fn at(ms: u64) -> Moment {
    Moment::from_micros(ms * 1_000)
}

fn core() -> Core<()> {
    let rules = Rules { acquires: ACQUIRES, seed: 7, ..Rules::default() };
    Core::new(NodeId::from("AAAAAAAAAAAAAAAAAAAAAA"), rules)
}

fn wish(lock: &str) -> Request {
    Request {
        lock: LockName::from(lock),
        options: Terms { lease: LEASE, ..Terms::default() },
        mode: Mode::Wait,
        label: Label::new("test"),
        demand: Demand::EXCLUSIVE,
    }
}

fn token() -> crate::token::FencingToken {
    crate::token::FencingToken::try_from(1).expect("small")
}

fn reply<T>(outcome: T, left: Duration, grant: Option<&Member>) -> Reply<T> {
    let left_ms = left.as_millis() as u64;
    let grant = grant.map(|member| Grant {
        member: member.clone(),
        token: token(),
        left_ms,
        batch: Vec::new(),
    });
    Reply {
        outcome,
        grants: grant.into_iter().collect(),
        first_end_ms: Some(left_ms),
        now_us: Some(1),
        skipped: 0,
        more: false,
    }
}

/// Returns a grant message.
fn grant_message(member: &Member, left_ms: u64) -> Event {
    Event::Granted { token: token(), grants: vec![(member.number(), left_ms)] }
}

fn member_of(request: &StoreRequest) -> Member {
    match &request.command {
        Command::Acquire { members, .. } => members[0].clone(),
        Command::Release { member } => member.clone(),
        Command::Confirm { member } => member.clone(),
        Command::Renew { members } if members.len() == 1 => members[0].clone(),
        other => panic!("{other:?} is not of one member"),
    }
}

fn sent(core: &mut Core<()>) -> Vec<StoreRequest> {
    core.drain()
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Send(request) => Some(request),
            _ => None,
        })
        .collect()
}

fn lost(core: &mut Core<()>) -> usize {
    core.drain().into_iter().filter(|effect| matches!(effect, Effect::NotifyLost(()))).count()
}

/// Queues an attempt.
fn queued(core: &mut Core<()>, now: Moment, lock: &str) -> (u64, Member) {
    let (attempt, request) = core.event(now).begin(wish(lock), ()).expect("it is open");
    let request = request.expect("the subscription stands");
    let queued = reply(vec![Acquired::Queued { position: 0 }], LEASE, None);
    core.event(now).replied(&request, &Answer::Acquired(queued));
    core.drain();
    (attempt, member_of(&request))
}

/// Queues a read; returns the attempt, request and member id.
fn read_queued(core: &mut Core<()>, now: Moment) -> (u64, StoreRequest, u64) {
    let wish = Request { demand: Demand::READ, ..wish("a") };
    let (attempt, request) = core.event(now).begin(wish, ()).expect("it is open");
    let request = request.expect("the subscription stands");
    let queued = reply(vec![Acquired::Queued { position: 0 }], LEASE, None);
    core.event(now).replied(&request, &Answer::Acquired(queued));
    core.drain();
    let number = core.current(attempt).expect("it waits");
    (attempt, request, number)
}

/// Acquires a lock; returns the guard's member id.
fn held(core: &mut Core<()>, now: Moment, lock: &str) -> (u64, Member) {
    let (attempt, member) = offered(core, now, lock);
    match core.event(now).take(attempt) {
        Outcome::Granted { number, .. } => (number, member),
        other => panic!("{other:?}"),
    }
}

fn offered(core: &mut Core<()>, now: Moment, lock: &str) -> (u64, Member) {
    let (attempt, request) = core.event(now).begin(wish(lock), ()).expect("it is open");
    let request = request.expect("the subscription stands");
    let member = member_of(&request);
    let granted = reply(vec![Acquired::Granted], LEASE, Some(&member));
    let granted = Reply { now_us: Some(now.as_micros()), ..granted };
    core.event(now).replied(&request, &Answer::Acquired(granted));
    core.drain();
    (attempt, member)
}

/// Acquires a lock while an acquire copy may still run.
fn ambiguously_held(core: &mut Core<()>, now: Moment, lock: &str) -> u64 {
    let (attempt, request) = core.event(now).begin(wish(lock), ()).expect("it is open");
    let request = request.expect("the subscription stands");
    core.event(now).unanswered(&request, &StoreError::ambiguous("cut"));
    let now = now + Duration::from_millis(198);
    let again = ticked(core, now);
    let granted = reply(vec![Acquired::Granted], LEASE, Some(&member_of(&again[0])));
    core.event(now).replied(&again[0], &Answer::Acquired(granted));
    core.drain();
    match core.event(now).take(attempt) {
        Outcome::Granted { number, .. } => number,
        other => panic!("{other:?}"),
    }
}

/// Returns the requests sent by a tick, behind the releases and leaves of earlier events.
fn ticked(core: &mut Core<()>, now: Moment) -> Vec<StoreRequest> {
    let mut requests = sent(core);
    requests.retain(gives_back);
    while core.event(now).tick() {}
    requests.extend(sent(core));
    requests
}

fn gives_back(request: &StoreRequest) -> bool {
    matches!(request.command, Command::Release { .. } | Command::Leave { .. })
}
