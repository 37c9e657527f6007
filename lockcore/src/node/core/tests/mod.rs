//! The table by itself: events in, requests out.

mod attempts;
mod clocks;
mod closing;
mod grants;
mod holds;
mod lines;
mod moved;
mod releases;
mod replicas;
mod revoked;
mod shared;

use super::*;
use crate::member::Label;
use crate::options::LockOptions;
use crate::store::protocol::permits::Demand;
use crate::store::{
    Acquired, Grant, Left, Mode, Presence, Released, Renewed, Reply, Share, Touched,
};

const LEASE: Duration = Duration::from_secs(30);
const ACQUIRES: usize = 8;

fn at(ms: u64) -> Moment {
    Moment::from_micros(ms * 1_000)
}

fn core() -> Core<()> {
    let rules = Rules {
        confirm_grants: false,
        replicas: 0,
        peers: false,
        window: 64,
        acquires: ACQUIRES,
        seed: 7,
    };
    Core::new(NodeId::of("AAAAAAAAAAAAAAAAAAAAAA"), rules)
}

fn wish(lock: &str) -> Request {
    Request {
        lock: LockName::from(lock),
        options: LockOptions::new().lease(LEASE).terms(),
        mode: Mode::Wait,
        label: Label::new("test"),
        demand: None,
    }
}

fn token() -> crate::token::FencingToken {
    crate::token::FencingToken::try_from(1).expect("small")
}

fn reply<T>(outcome: T, left: Duration, grant: Option<&Member>) -> Reply<T> {
    let grant = grant.map(|member| Grant { member: member.clone(), token: token() });
    let left_ms = left.as_millis() as u64;
    Reply {
        outcome,
        left_ms,
        grant,
        foreign: false,
        now_us: 1,
        passed_over: 0,
        several: Vec::new(),
        more: false,
    }
}

fn member_of(ask: &Ask) -> Member {
    match &ask.command {
        Command::Acquire { member, .. }
        | Command::Release { member }
        | Command::Renew { member } => member.clone(),
        other => panic!("{other:?} is not of one member"),
    }
}

fn sent(fx: &mut Effects<()>) -> Vec<Ask> {
    fx.drain(..)
        .filter_map(|effect| match effect {
            Effect::Send(ask) => Some(ask),
            _ => None,
        })
        .collect()
}

fn lost(fx: &mut Effects<()>) -> usize {
    fx.drain(..).filter(|effect| matches!(effect, Effect::TellLost(()))).count()
}

/// An attempt in the queue.
fn queued(core: &mut Core<()>, now: Moment, lock: &str) -> (u64, Member) {
    let mut fx = Vec::new();
    let (attempt, ask) = core.begin(now, wish(lock), ()).expect("it is open");
    let ask = ask.expect("the subscription stands");
    let queued = reply(Acquired::Queued { position: 0 }, LEASE, None);
    core.replied(now, &ask, &Answer::Acquired(queued), &mut fx);
    (attempt, member_of(&ask))
}

/// A read in the queue; its attempt, its request and its number.
fn read_queued(core: &mut Core<()>, now: Moment) -> (u64, Ask, u64) {
    let mut fx = Vec::new();
    let wish = wish("a");
    let wish = Request { lock: wish.lock.shared(), demand: Some(Demand::READ), ..wish };
    let (attempt, ask) = core.begin(now, wish, ()).expect("it is open");
    let ask = ask.expect("the subscription stands");
    let queued = reply(Acquired::Queued { position: 0 }, LEASE, None);
    core.replied(now, &ask, &Answer::Acquired(queued), &mut fx);
    let number = core.current(attempt).expect("it waits");
    (attempt, ask, number)
}

/// A guard; its number.
fn held(core: &mut Core<()>, now: Moment, lock: &str) -> (u64, Member) {
    let (attempt, member) = offered(core, now, lock);
    match core.take(now, attempt, &mut Vec::new()) {
        Outcome::Granted { number, .. } => (number, member),
        other => panic!("{other:?}"),
    }
}

fn offered(core: &mut Core<()>, now: Moment, lock: &str) -> (u64, Member) {
    let mut fx = Vec::new();
    let (attempt, ask) = core.begin(now, wish(lock), ()).expect("it is open");
    let ask = ask.expect("the subscription stands");
    let member = member_of(&ask);
    let granted = reply(Acquired::Granted, LEASE, Some(&member));
    let granted = Reply { now_us: now.as_micros(), ..granted };
    core.replied(now, &ask, &Answer::Acquired(granted), &mut fx);
    (attempt, member)
}

/// A guard of which a copy of the acquire may still run.
fn ambiguously_held(core: &mut Core<()>, now: Moment, lock: &str) -> u64 {
    let mut fx = Vec::new();
    let (attempt, ask) = core.begin(now, wish(lock), ()).expect("it is open");
    let ask = ask.expect("the subscription stands");
    core.unanswered(now, &ask, &StoreError::ambiguous("cut"), &mut fx);
    let now = now + Duration::from_millis(198);
    let again = ticked(core, now);
    let granted = reply(Acquired::Granted, LEASE, Some(&member_of(&again[0])));
    core.replied(now, &again[0], &Answer::Acquired(granted), &mut fx);
    match core.take(now, attempt, &mut fx) {
        Outcome::Granted { number, .. } => number,
        other => panic!("{other:?}"),
    }
}

fn ticked(core: &mut Core<()>, now: Moment) -> Vec<Ask> {
    let mut fx = Vec::new();
    while core.tick(now, &mut fx) {}
    sent(&mut fx)
}
