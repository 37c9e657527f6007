//! The table by itself: events in, requests out.

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
    Core::new(NodeId::from("AAAAAAAAAAAAAAAAAAAAAA"), rules)
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

/// So many attempts, and the requests that their callers send.
fn begun(core: &mut Core<()>, count: usize) -> Vec<(u64, Option<Ask>)> {
    (0..count).map(|_| core.begin(at(0), wish("k"), ()).expect("it is open")).collect()
}

/// The attempts whose acquires a tick sends.
fn sent_in_turn(core: &mut Core<()>) -> Vec<u64> {
    assert!(core.next().is_some_and(|next| next <= at(0)), "nothing is due");
    let asks = ticked(core, at(0));
    let numbers = asks.iter().map(|ask| core.number(&member_of(ask)).expect("of this node"));
    numbers.map(|number| number >> ROUND_BITS).collect()
}

#[test]
fn only_so_many_acquires_are_on_their_way_and_the_others_follow_in_their_order() {
    let mut core = core();
    let begun = begun(&mut core, ACQUIRES + 4);
    assert!(begun[..ACQUIRES].iter().all(|(_, ask)| ask.is_some()));
    assert!(begun[ACQUIRES..].iter().all(|(_, ask)| ask.is_none()));
    let asks: Vec<_> = begun.iter().filter_map(|(_, ask)| ask.clone()).collect();
    let behind = |place: usize| begun[ACQUIRES + place].0;

    let queued = Answer::Acquired(reply(Acquired::Queued { position: 0 }, LEASE, None));
    core.replied(at(0), &asks[1], &queued, &mut Vec::new());
    // Not those that come now: others came before them.
    let (late, ask) = core.begin(at(0), wish("k"), ()).expect("it is open");
    assert!(ask.is_none());
    assert_eq!(sent_in_turn(&mut core), [behind(0)]);

    let error = StoreError::ambiguous("cut");
    core.unanswered(at(0), &asks[0], &error, &mut Vec::new());
    for ask in &asks[2..5] {
        core.replied(at(0), ask, &queued, &mut Vec::new());
    }
    assert_eq!(sent_in_turn(&mut core), [behind(1), behind(2), behind(3), late]);
}

#[test]
fn nothing_is_sent_for_an_attempt_that_is_cancelled_before_its_turn() {
    let mut core = core();
    let begun = begun(&mut core, ACQUIRES + 2);
    let (cancelled, _) = begun[ACQUIRES];
    let mut fx = Vec::new();
    assert_eq!(core.cancel(at(0), cancelled, &mut fx), None);
    assert_eq!(sent(&mut fx), []);

    let asked = begun[0].1.as_ref().expect("there was room");
    let queued = Answer::Acquired(reply(Acquired::Queued { position: 0 }, LEASE, None));
    core.replied(at(0), asked, &queued, &mut Vec::new());
    assert_eq!(sent_in_turn(&mut core), [begun[ACQUIRES + 1].0]);
    assert_eq!(core.counts().attempts, ACQUIRES + 1);
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

#[test]
fn an_attempt_that_is_cancelled_before_its_answer_leaves_after_it() {
    let mut core = core();
    let mut fx = Vec::new();
    let (attempt, ask) = core.begin(at(0), wish("a"), ()).expect("it is open");
    let ask = ask.expect("the subscription stands");
    core.cancel(at(1), attempt, &mut fx);
    assert_eq!(ticked(&mut core, at(1)), [], "a leave must not overtake its acquire");
    let queued = reply(Acquired::Queued { position: 3 }, LEASE, None);
    core.replied(at(2), &ask, &Answer::Acquired(queued), &mut fx);
    let leaves = ticked(&mut core, at(2));
    assert!(matches!(&leaves[0].command, Command::Leave { leaving } if !leaving[0].ambiguous));
    core.replied(at(3), &leaves[0], &Answer::Left(reply(vec![Left::Left], LEASE, None)), &mut fx);
    assert_eq!(core.counts(), Counts::default());
    assert!(core.entries.is_empty() && core.lines.is_empty() && core.next().is_none());
}

#[test]
fn an_acquire_without_an_answer_is_asked_for_again_and_leaves_with_a_tombstone() {
    let mut core = core();
    let mut fx = Vec::new();
    let (attempt, ask) = core.begin(at(0), wish("a"), ()).expect("it is open");
    let ask = ask.expect("the subscription stands");
    core.unanswered(at(1), &ask, &StoreError::ambiguous("cut"), &mut fx);
    assert_eq!(ticked(&mut core, at(50)), []);
    let again = ticked(&mut core, at(101));
    assert_eq!(again[0].command, ask.command);
    core.unanswered(at(102), &again[0], &StoreError::ambiguous("cut"), &mut fx);
    let error = core.cancel(at(103), attempt, &mut fx).expect("the store did not answer");
    assert_eq!(error.kind, LockErrorKind::Unavailable);
    let leaves = ticked(&mut core, at(103));
    assert!(matches!(&leaves[0].command, Command::Leave { leaving } if leaving[0].ambiguous));
}

#[test]
fn a_place_that_is_lost_costs_the_number_and_a_grant_of_it_is_not_believed() {
    let mut core = core();
    let mut fx = Vec::new();
    let (attempt, first) = queued(&mut core, at(0), "a");
    let touches = ticked(&mut core, at(5_000));
    let gone = Touched { members: vec![Presence::Gone], listeners: 1 };
    core.replied(at(5_001), &touches[0], &Answer::Touched(reply(gone, LEASE, None)), &mut fx);
    let asks = sent(&mut fx);
    let second = member_of(&asks[0]);
    assert_ne!(first, second);
    assert_eq!(core.counts().places_lost, 1);
    let message = |member| Event::Granted { member, token: token(), left_ms: 10_000 };
    core.heard(at(5_002), message(first), &mut fx);
    assert!(matches!(core.take(at(5_002), attempt, &mut fx), Outcome::Waits));
    core.heard(at(5_003), message(second), &mut fx);
    assert!(matches!(core.take(at(5_003), attempt, &mut fx), Outcome::Granted { .. }));
}

#[test]
fn a_hold_that_nobody_here_wants_is_given_back_once() {
    let mut core = core();
    let mut fx = Vec::new();
    let stray = Member::from("~1AAAAAAAAAAAAAAAAAAAAAA:4711:30000:late");
    for now in [0, 1] {
        let (_, ask) = core.begin(at(now), wish("a"), ()).expect("it is open");
        let answer = reply(Acquired::Queued { position: 0 }, LEASE, Some(&stray));
        let ask = ask.expect("the subscription stands");
        core.replied(at(now), &ask, &Answer::Acquired(answer), &mut fx);
    }
    let leaves = ticked(&mut core, at(1));
    let [Ask { command: Command::Leave { leaving }, .. }] = leaves.as_slice() else {
        panic!("{leaves:?}");
    };
    assert_eq!(leaving[0].member, stray);
}

/// A hold is released, then an attempt that began at `begun` hears that the server still has it.
/// Who leaves because of that.
fn left_after_a_release(begun: u64, meanwhile: impl FnOnce(&mut Core<()>)) -> Vec<Leaving> {
    let mut core = core();
    let mut fx = Vec::new();
    let (number, member) = held(&mut core, at(0), "a");
    let release = core.release(at(1), number, &mut fx).expect("it is held");
    let begin = |core: &mut Core<()>| {
        let (_, enqueue) = core.begin(at(begun), wish("a"), ()).expect("it is open");
        enqueue.expect("it is sent")
    };
    let early = (begun <= 2).then(|| begin(&mut core));
    let released = Reply { now_us: 9_000_000, ..reply(Released::Released, Duration::ZERO, None) };
    core.replied(at(2), &release, &Answer::Released(released), &mut fx);
    meanwhile(&mut core);
    let enqueue = early.unwrap_or_else(|| begin(&mut core));
    let queued = reply(Acquired::Queued { position: 0 }, LEASE, Some(&member));
    let queued = Reply { now_us: 5_000_000, ..queued };
    core.replied(at(6), &enqueue, &Answer::Acquired(queued), &mut fx);
    let left = ticked(&mut core, at(6)).into_iter().filter_map(|ask| match ask.command {
        Command::Leave { leaving } => Some(leaving),
        _ => None,
    });
    let left: Vec<_> = left.flatten().collect();
    assert!(left.iter().all(|leaving| leaving.member == member));
    left
}

// Answers that are taken in by different tasks change places.
#[test]
fn an_older_answer_that_names_a_member_released_since_asks_for_nothing() {
    assert_eq!(left_after_a_release(1, |_| {}).len(), 0);
}

// Found by the simulation: the server's clock was set back meanwhile.
#[test]
fn what_was_asked_for_after_a_release_tells_of_the_hold_and_it_is_given_back() {
    assert_eq!(left_after_a_release(5, |_| {}).len(), 1);
}

// Found by the simulation: a replica was promoted that knew nothing of the release.
#[test]
fn a_new_connection_tells_of_a_hold_that_was_released_and_it_is_given_back() {
    let reconnect = |core: &mut Core<()>| {
        core.linked(at(3), Link::Down { reason: "another primary".into() }, Link::Up);
        core.linked(at(4), Link::Up, Link::Up);
    };
    assert_eq!(left_after_a_release(1, reconnect).len(), 1);
}

/// What gives a hold back that a message granted, before or after its acquire was answered.
fn released_after_a_message(is_answered: bool) -> Command {
    let mut core = core();
    let mut fx = Vec::new();
    let (attempt, ask) = core.begin(at(0), wish("a"), ()).expect("it is open");
    let ask = ask.expect("it is sent");
    let message = Event::Granted { member: member_of(&ask), token: token(), left_ms: 10_000 };
    core.heard(at(1), message, &mut fx);
    let Outcome::Granted { number, .. } = core.take(at(1), attempt, &mut fx) else {
        panic!("it was told");
    };
    if is_answered {
        let queued = reply(Acquired::Queued { position: 0 }, LEASE, None);
        core.replied(at(2), &ask, &Answer::Acquired(queued), &mut fx);
    }
    core.release(at(3), number, &mut fx).expect("it is held").command
}

// Found by chaos: a proxy ran a copy of the acquire after the release, before it passed the answer
// on.
#[test]
fn what_is_released_before_its_acquire_was_answered_leaves_a_tombstone_and_else_none() {
    let early = released_after_a_message(false);
    assert!(matches!(early, Command::Leave { leaving } if leaving[0].ambiguous));
    assert!(matches!(released_after_a_message(true), Command::Release { .. }));
}

// Found by the simulation: on a replica that was promoted, the member waited still.
#[test]
fn a_release_that_grants_its_own_member_once_more_has_that_hold_given_back() {
    let mut core = core();
    let mut fx = Vec::new();
    let (number, member) = held(&mut core, at(0), "a");
    let release = core.release(at(1), number, &mut fx).expect("it is held");
    let granted = reply(Released::NotHeld, LEASE, Some(&member));
    core.replied(at(2), &release, &Answer::Released(granted), &mut fx);
    let asks = ticked(&mut core, at(2));
    let [Ask { command: Command::Leave { leaving }, .. }] = asks.as_slice() else {
        panic!("{asks:?}");
    };
    assert_eq!(leaving[0].member, member);
}

#[test]
fn touches_of_long_lines_are_on_their_way_four_scripts_at_once_too() {
    let mut core = core();
    for lock in 0..20 {
        for _ in 0..256 {
            queued(&mut core, at(0), &format!("{lock}"));
        }
    }
    let due = core.next().expect("lines wait");
    let asks = ticked(&mut core, due);
    assert_eq!(touches(&asks), 4);
}

/// A table that hands a grant out once two replicas have it, and an attempt that was granted.
fn granted_alone() -> (Core<()>, u64, Member, Ask) {
    let mut core = core();
    core.rules.replicas = 2;
    let mut fx = Vec::new();
    let (attempt, ask) = core.begin(at(0), wish("a"), ()).expect("it is open");
    let ask = ask.expect("it is sent");
    let member = member_of(&ask);
    let granted = Answer::Acquired(reply(Acquired::Granted, LEASE, Some(&member)));
    core.replied(at(1), &ask, &granted, &mut fx);
    assert!(matches!(core.take(at(1), attempt, &mut Vec::new()), Outcome::Waits));
    let confirm = only_confirmed(fx);
    (core, attempt, member, confirm)
}

/// The one request among the effects, a renewal that replicas are to have.
fn only_confirmed(mut fx: Effects<()>) -> Ask {
    let confirms = fx.extract_if(.., |effect| matches!(effect, Effect::Confirm(_)));
    let confirms = confirms.filter_map(|effect| match effect {
        Effect::Confirm(ask) => Some(ask),
        _ => None,
    });
    let [confirm] = confirms.collect::<Vec<_>>().try_into().expect("one");
    assert!(sent(&mut fx).is_empty());
    confirm
}

#[test]
fn a_grant_is_handed_out_once_enough_replicas_have_it() {
    let (mut core, attempt, member, confirm) = granted_alone();
    let held = Answer::Renewed(reply(Renewed::Held, LEASE, Some(&member)));
    core.confirmed(at(2), &confirm, (&held, 2), &mut Vec::new());
    assert!(matches!(core.take(at(2), attempt, &mut Vec::new()), Outcome::Granted { .. }));
}

#[test]
fn a_grant_that_too_few_replicas_have_is_refused_and_given_back() {
    let (mut core, attempt, member, confirm) = granted_alone();
    let held = Answer::Renewed(reply(Renewed::Held, LEASE, Some(&member)));
    core.confirmed(at(2), &confirm, (&held, 1), &mut Vec::new());
    let Outcome::Refused(Refusal::Store(error)) = core.take(at(2), attempt, &mut Vec::new()) else {
        panic!("it is not refused");
    };
    assert_eq!(error.kind, LockErrorKind::Unavailable);
    assert!(error.detail.contains("1 of 2 replicas"), "{}", error.detail);
    let asks = ticked(&mut core, at(2));
    let [Ask { command: Command::Leave { leaving }, .. }] = asks.as_slice() else {
        panic!("{asks:?}");
    };
    assert_eq!(leaving[0].member, member);
}

/// A hold that two replicas have, its renewal, and the answer to it.
fn renewed_alone() -> (Core<()>, Ask, Answer) {
    let (mut core, attempt, member, confirm) = granted_alone();
    let held = Answer::Renewed(reply(Renewed::Held, LEASE, Some(&member)));
    core.confirmed(at(2), &confirm, (&held, 2), &mut Vec::new());
    assert!(matches!(core.take(at(2), attempt, &mut Vec::new()), Outcome::Granted { .. }));
    let mut fx = Vec::new();
    core.tick(at(11_000), &mut fx);
    (core, only_confirmed(fx), held)
}

#[test]
fn a_renewal_counts_once_enough_replicas_have_it() {
    for (replicas, losses) in [(2, 0), (1, 1)] {
        let (mut core, renewal, held) = renewed_alone();
        core.confirmed(at(11_001), &renewal, (&held, replicas), &mut Vec::new());
        let mut fx = Vec::new();
        core.tick(at(29_800), &mut fx);
        assert_eq!(lost(&mut fx), losses, "{replicas} replicas");
    }
}

#[test]
fn a_renewal_that_too_few_replicas_have_is_soon_asked_for_again() {
    let (mut core, renewal, held) = renewed_alone();
    let mut fx = Vec::new();
    core.confirmed(at(11_001), &renewal, (&held, 0), &mut fx);
    let told = fx.iter().any(|effect| match effect {
        Effect::Observe(Note::RenewalFailed { error, .. }) => {
            error.detail.contains("0 of 2 replicas acknowledged the renewal")
        }
        _ => false,
    });
    assert!(told, "{fx:?}");
    let mut fx = Vec::new();
    core.tick(at(12_002), &mut fx);
    assert_eq!(member_of(&only_confirmed(fx)), member_of(&renewal));
}

#[test]
fn a_grant_whose_replicas_could_not_be_asked_is_asked_for_again() {
    let (mut core, attempt, member, confirm) = granted_alone();
    core.unanswered(at(2), &confirm, &StoreError::ambiguous("cut"), &mut Vec::new());
    assert!(matches!(core.take(at(2), attempt, &mut Vec::new()), Outcome::Waits));
    let asks = ticked(&mut core, at(400));
    let [Ask { command: Command::Touch { members }, .. }] = asks.as_slice() else {
        panic!("{asks:?}");
    };
    assert_eq!(members, &[member]);
}

// A16.
#[test]
fn a_renewal_that_its_release_has_overtaken_means_nothing() {
    let mut core = core();
    let mut fx = Vec::new();
    let (number, member) = held(&mut core, at(0), "a");
    let renewals = ticked(&mut core, at(10_000));
    assert_eq!(renewals[0].command, Command::Renew { member });
    let release = core.release(at(10_001), number, &mut fx).expect("it is held");
    let released = reply(Released::Released, Duration::ZERO, None);
    core.replied(at(10_002), &release, &Answer::Released(released), &mut fx);
    let not_held = reply(Renewed::NotHeld, Duration::ZERO, None);
    core.replied(at(10_003), &renewals[0], &Answer::Renewed(not_held), &mut fx);
    assert_eq!(lost(&mut fx), 0);
    assert!(core.entries.is_empty());
}

// A11.
#[test]
fn an_offer_that_is_not_taken_is_not_renewed_and_is_given_on_after_a_claim() {
    let mut core = core();
    let mut fx = Vec::new();
    let (attempt, first) = offered(&mut core, at(0), "a");
    assert_eq!(ticked(&mut core, at(9_999)), [], "nothing renews it");
    let given_on = ticked(&mut core, at(10_000));
    assert_eq!(given_on[0].command, Command::Release { member: first.clone() });
    assert_eq!(ticked(&mut core, at(60_000)), [], "it is not asked for before its caller comes");
    assert!(matches!(core.take(at(60_000), attempt, &mut fx), Outcome::Waits));
    let again = sent(&mut fx);
    assert_ne!(member_of(&again[0]), first);
    let granted = reply(Acquired::Granted, LEASE, Some(&member_of(&again[0])));
    core.replied(at(60_001), &again[0], &Answer::Acquired(granted), &mut fx);
    assert!(matches!(core.take(at(60_002), attempt, &mut fx), Outcome::Granted { .. }));
}

// A8.
#[test]
fn forty_thousand_holds_that_end_together_are_told_in_parts_and_before_their_deadline() {
    let mut core = core();
    for lock in 0..40_000 {
        held(&mut core, at(0), &format!("{lock}"));
    }
    let error = StoreError::ambiguous("unreachable");
    let mut told = 0;
    let mut now = at(9_000);
    while told < 40_000 {
        let mut fx = Vec::new();
        core.tick(now, &mut fx);
        assert!(fx.len() <= 4 * MAX_AT_ONCE, "{} effects in one section", fx.len());
        let asks: Vec<Ask> = fx
            .iter()
            .filter_map(|effect| match effect {
                Effect::Send(ask) => Some(ask.clone()),
                _ => None,
            })
            .collect();
        told += lost(&mut fx);
        for ask in asks {
            core.unanswered(now, &ask, &error, &mut Vec::new());
        }
        // So fast comes the driver, under load.
        now = now + Duration::from_micros(500);
        if told == 0 && now < at(29_590) {
            now = now + Duration::from_millis(10);
        }
    }
    assert!(now <= at(29_700), "the last was told at {now:?}, its deadline was at 29.7 s");
}

// A7.
#[test]
fn a_new_connection_has_every_hold_renewed_at_once_in_windows() {
    let mut core = core();
    for lock in 0..1_000 {
        held(&mut core, at(0), &format!("{lock}"));
    }
    core.linked(at(20), Link::Up, Link::Up);
    let mut renewed = 0;
    let mut rounds = 0;
    loop {
        let asks = ticked(&mut core, at(21));
        if asks.is_empty() {
            break;
        }
        assert!(asks.len() <= MAX_AT_ONCE, "{} at once", asks.len());
        rounds += 1;
        renewed += asks.len();
        for ask in asks {
            let held = reply(Renewed::Held, LEASE, Some(&member_of(&ask)));
            core.replied(at(21), &ask, &Answer::Renewed(held), &mut Vec::new());
        }
    }
    assert_eq!((renewed, rounds), (1_000, 4), "each once, 256 at a time");
}

// A3.
#[test]
fn after_an_interruption_lines_are_touched_once_within_the_window_and_part_from_then_on() {
    let mut core = core();
    for lock in 0..20_000 {
        queued(&mut core, at(0), &format!("{lock}"));
    }
    core.linked(at(500), Link::Down { reason: "cut".into() }, Link::Up);
    assert_eq!(ticked(&mut core, at(600)), [], "nothing is sent without a connection");
    core.linked(at(700), Link::Up, Link::Up);
    core.heard(at(700), Event::Resubscribed, &mut Vec::new());
    let mut touched = 0;
    loop {
        let asks = ticked(&mut core, at(701));
        if asks.is_empty() {
            break;
        }
        assert!(asks.len() <= 4 * 64, "{} are on their way at once", asks.len());
        touched += asks.len();
        for ask in asks {
            let waiting = Touched { members: vec![Presence::Waiting], listeners: 1 };
            let answer = Answer::Touched(reply(waiting, LEASE, None));
            core.replied(at(701), &ask, &answer, &mut Vec::new());
        }
    }
    assert_eq!(touched, 20_000, "each once, although two things said that messages may be missing");
    let dues: Vec<Moment> = core.touches.iter().map(|(at, _)| *at).collect();
    let in_window = |from, to| dues.iter().filter(|due| (from..to).contains(*due)).count();
    for start in (2_701..4_701).step_by(250) {
        let part = in_window(at(start), at(start + 250));
        assert!((1_500..3_500).contains(&part), "{part} lines are due in a quarter of a second");
    }
}

// A15.
#[test]
fn a_leave_is_repeated_whatever_the_error_until_the_server_has_expired_it() {
    let mut core = core();
    let mut fx = Vec::new();
    let (attempt, _) = queued(&mut core, at(0), "a");
    core.cancel(at(1), attempt, &mut fx);
    let denied = StoreError::refused(LockErrorKind::Denied, "no right");
    let mut now = at(1);
    let mut repeated = 0;
    while core.counts().given_back > 0 {
        for ask in ticked(&mut core, now) {
            repeated += 1;
            core.unanswered(now, &ask, &denied, &mut fx);
        }
        now = core.next().unwrap_or(now);
    }
    assert!(now >= at(30_000), "given up at {now:?}");
    assert!((15..30).contains(&repeated), "{repeated} times");
    assert_eq!(core.counts().failed, 1);
}

#[test]
fn many_that_leave_one_lock_leave_together() {
    let mut core = core();
    let mut fx = Vec::new();
    let attempts: Vec<_> = (0..100).map(|_| queued(&mut core, at(0), "a").0).collect();
    for attempt in attempts {
        core.cancel(at(1), attempt, &mut fx);
    }
    let leaves = ticked(&mut core, at(1));
    assert!(
        matches!(&leaves[..], [Ask { command: Command::Leave { leaving }, .. }] if leaving.len() == 100)
    );
}

#[test]
fn a_dropped_guard_is_released_and_an_ambiguous_one_leaves() {
    let mut core = core();
    let mut fx = Vec::new();
    let (number, member) = held(&mut core, at(0), "a");
    core.dropped(at(1), number, &mut fx);
    assert_eq!(ticked(&mut core, at(1))[0].command, Command::Release { member });

    let number = ambiguously_held(&mut core, at(2), "b");
    core.dropped(at(203), number, &mut fx);
    let leaves = ticked(&mut core, at(203));
    assert!(matches!(&leaves[0].command, Command::Leave { leaving } if leaving[0].ambiguous));
}

#[test]
fn a_leaked_hold_of_which_a_copy_may_still_run_ends_with_a_tombstone() {
    let mut core = core();
    let mut fx = Vec::new();
    let (known, _) = held(&mut core, at(0), "a");
    let ambiguous = ambiguously_held(&mut core, at(0), "b");
    core.leak(at(300), known, &mut fx);
    core.leak(at(300), ambiguous, &mut fx);
    assert_eq!(ticked(&mut core, at(300 + 59_999)), [], "it ends by itself");
    let leaves = ticked(&mut core, at(300 + 60_000));
    assert_eq!(leaves.len(), 1, "the other one is over");
    assert_eq!(leaves[0].lock.as_str(), "b");
    assert!(matches!(&leaves[0].command, Command::Leave { leaving } if leaving[0].ambiguous));
}

#[test]
fn a_shutdown_gives_back_what_the_server_has_of_a_lost_hold_whose_guard_is_still_there() {
    let mut core = core();
    let mut fx = Vec::new();
    let longest = LockOptions::new().lease(LEASE).max_hold(Duration::from_secs(2)).terms();
    let (attempt, ask) =
        core.begin(at(0), Request { options: longest, ..wish("a") }, ()).expect("it is open");
    let ask = ask.expect("the subscription stands");
    let granted = reply(Acquired::Granted, LEASE, Some(&member_of(&ask)));
    core.replied(at(0), &ask, &Answer::Acquired(granted), &mut fx);
    assert!(matches!(core.take(at(0), attempt, &mut fx), Outcome::Granted { .. }));
    assert_eq!(ticked(&mut core, at(2_000)), [], "it is lost, and its guard has not gone");
    core.close();
    assert_eq!(core.take_holds(at(2_001), 0, "the node was shut down", &mut fx), (0, None));
    assert_eq!(core.counts().given_back, 1);
    let releases = ticked(&mut core, at(2_001));
    assert_eq!(releases[0].command, Command::Release { member: member_of(&ask) });
}

#[test]
fn an_offer_that_is_not_taken_before_its_node_is_closed_is_not_asked_for_again() {
    for is_ticked in [false, true] {
        let mut core = core();
        let mut fx = Vec::new();
        let (attempt, member) = offered(&mut core, at(0), "a");
        core.close();
        core.end_attempts(at(1), 0, LockErrorKind::Closed, &mut fx);
        let mut asks = if is_ticked { ticked(&mut core, at(20_000)) } else { Vec::new() };
        let taken = core.take(at(20_001), attempt, &mut fx);
        let Outcome::Refused(Refusal::Kind(LockErrorKind::Closed)) = taken else {
            panic!("{taken:?}");
        };
        asks.extend(ticked(&mut core, at(20_002)));
        asks.extend(sent(&mut fx));
        assert_eq!(asks.len(), 1, "{asks:?}");
        assert_eq!(asks[0].command, Command::Release { member });
        assert_eq!(core.counts().attempts, 0);
    }
}

#[test]
fn a_closed_node_ends_what_waits_and_takes_what_is_held() {
    let mut core = core();
    let mut fx = Vec::new();
    let (attempt, _) = queued(&mut core, at(0), "a");
    let (number, _) = held(&mut core, at(0), "b");
    core.close();
    assert!(core.begin(at(1), wish("c"), ()).is_none());
    assert_eq!(core.end_attempts(at(1), 0, LockErrorKind::Closed, &mut fx), (1, None));
    let Outcome::Refused(refusal) = core.take(at(1), attempt, &mut fx) else {
        panic!("it was ended");
    };
    assert_eq!(refusal, Refusal::Kind(LockErrorKind::Closed));
    assert_eq!(core.take_holds(at(2), 0, "the node was shut down", &mut fx), (1, None));
    assert_eq!(lost(&mut fx), 1);
    assert_eq!(core.release(at(3), number, &mut fx), None, "it was taken away");
    for ask in ticked(&mut core, at(3)) {
        let answer = match &ask.command {
            Command::Leave { .. } => Answer::Left(reply(vec![Left::Left], LEASE, None)),
            _ => Answer::Released(reply(Released::Released, LEASE, None)),
        };
        core.replied(at(4), &ask, &answer, &mut fx);
    }
    let Counts { attempts, holds, given_back, .. } = core.counts();
    assert_eq!((attempts, holds, given_back), (0, 0, 0));
}

fn renewals(asks: &[Ask]) -> usize {
    asks.iter().filter(|ask| matches!(ask.command, Command::Renew { .. })).count()
}

fn touches(asks: &[Ask]) -> usize {
    asks.iter().filter(|ask| matches!(ask.command, Command::Touch { .. })).count()
}

#[test]
fn a_renewal_that_is_due_takes_along_those_that_follow_soon_and_is_no_later_for_it() {
    let mut core = core();
    for (at_ms, lock) in [(0, "a"), (100, "b"), (300, "c"), (301, "d"), (5_000, "e")] {
        held(&mut core, at(at_ms), lock);
    }
    assert_eq!(core.next(), Some(at(10_000)), "a third of the lease, as if it were alone");
    assert_eq!(ticked(&mut core, at(9_999)), [], "nothing is renewed for the sake of company");
    assert_eq!(renewals(&ticked(&mut core, at(10_000))), 3, "a hundredth of the lease ahead");
    assert_eq!(core.next(), Some(at(10_301)));
}

#[test]
fn renewals_in_a_burst_part_again() {
    let mut core = core();
    let mut fx = Vec::new();
    for number in 0..200 {
        held(&mut core, at(0), &format!("lock {number}"));
    }
    let asks = ticked(&mut core, at(10_000));
    assert_eq!(renewals(&asks), 200);
    for ask in &asks {
        let held = reply(crate::store::Renewed::Held, LEASE, Some(&member_of(ask)));
        core.replied(at(10_001), ask, &Answer::Renewed(held), &mut fx);
    }
    let mut rounds = Vec::new();
    while let Some(next) = core.next().filter(|next| *next <= at(20_000)) {
        rounds.push(renewals(&ticked(&mut core, next)));
    }
    assert_eq!(rounds.iter().sum::<usize>(), 200);
    assert!(rounds.len() >= 3 && rounds.iter().all(|together| *together < 120), "{rounds:?}");
}

#[test]
fn a_touch_that_is_due_takes_along_lines_that_follow_soon_but_none_that_waits_for_a_lease_to_end() {
    let mut core = core();
    let mut fx = Vec::new();
    for (at_ms, lock) in [(0, "a"), (60, "b"), (300, "c")] {
        queued(&mut core, at(at_ms), lock);
    }
    let due = core.next().expect("the first");
    // The lease of this one's holder ends a little later than that.
    let (_, waits) = queued(&mut core, at(0), "d");
    core.heard(at(3_000), Event::Poked { member: waits }, &mut fx);
    let ask = sent(&mut fx).remove(0);
    core.touch_line(at(3_000), &LockName::from("d"), 10, &mut fx);
    let waiting = Touched { members: vec![Presence::Waiting], listeners: 1 };
    let left = (due + Duration::from_millis(40)).since(at(3_000));
    core.replied(at(3_000), &ask, &Answer::Touched(reply(waiting, left, None)), &mut fx);
    let asks = ticked(&mut core, due);
    let locks: Vec<&str> = asks.iter().map(|ask| ask.lock.as_str()).collect();
    assert_eq!(locks, ["a", "b"]);
}

#[test]
fn no_more_lines_are_touched_ahead_of_time_than_the_window_has_room_for() {
    let mut core = core();
    for number in 0..300 {
        queued(&mut core, at(number / 30), &format!("line {number}"));
    }
    let due = core.next().expect("lines wait");
    let asks = ticked(&mut core, due);
    assert_eq!(touches(&asks), 256);
}

/// The answer of a server whose clock shows `ms`.
fn by(server_ms: u64, answer: Answer) -> Answer {
    let now_us = server_ms * 1_000;
    match answer {
        Answer::Renewed(reply) => Answer::Renewed(Reply { now_us, ..reply }),
        Answer::Touched(reply) => Answer::Touched(Reply { now_us, ..reply }),
        other => panic!("{other:?}"),
    }
}

fn renewed(ask: &Ask, server_ms: u64) -> Answer {
    by(server_ms, Answer::Renewed(reply(Renewed::Held, LEASE, Some(&member_of(ask)))))
}

// A4.
#[test]
fn holds_are_renewed_at_once_when_the_server_s_clock_ran_ahead_and_none_is_lost_by_that() {
    let mut core = core();
    let mut fx = Vec::new();
    let holds: Vec<_> = (0..200).map(|lock| held(&mut core, at(0), &format!("{lock}")).0).collect();
    let (offer, _) = offered(&mut core, at(5_000), "offered");
    // A third of a lease later, and the next one in time.
    let first = ticked(&mut core, at(10_000));
    core.replied(at(10_010), &first[0], &renewed(&first[0], 10_005), &mut fx);
    core.replied(at(10_130), &first[1], &renewed(&first[1], 10_120), &mut fx);
    assert_eq!(ticked(&mut core, at(10_131)), [], "all of them are on their way");
    assert_eq!(core.doubt, Moment::default());
    // Here a tenth of a second, there 40 s.
    let (_, ask) = core.begin(at(10_200), wish("x"), ()).expect("it is open");
    let ask = ask.expect("the subscription stands");
    let granted = reply(Acquired::Granted, LEASE, Some(&member_of(&ask)));
    let answer = Answer::Acquired(Reply { now_us: 50_205_000, ..granted });
    core.replied(at(10_210), &ask, &answer, &mut fx);
    assert_eq!(lost(&mut fx), 0, "only the server can say that");
    let mut again = ticked(&mut core, at(10_211));
    assert_eq!(again.len(), 2, "the others are on their way since before");
    core.take(at(10_212), offer, &mut fx);
    again.extend(ticked(&mut core, at(10_212)));
    assert_eq!(again.len(), 3, "and what was only offered by then");
    // What was on its way is asked for once more: it may have run before.
    core.replied(at(10_220), &first[2], &renewed(&first[2], 50_215), &mut fx);
    assert_eq!(ticked(&mut core, at(10_221))[0].command, first[2].command);
    for ask in &again {
        core.replied(at(10_230), ask, &renewed(ask, 50_225), &mut fx);
    }
    assert_eq!((ticked(&mut core, at(10_231)), lost(&mut fx)), (vec![], 0));
    assert_eq!(core.counts().holds, holds.len() + 2, "and the two that were offered");
}

// A4.
#[test]
fn a_grant_from_before_the_server_s_clock_ran_ahead_is_confirmed_before_it_is_handed_out() {
    let mut core = core();
    let mut fx = Vec::new();
    let (attempt, member) = queued(&mut core, at(0), "a");
    let (_, ask) = core.begin(at(2_000), wish("x"), ()).expect("it is open");
    let queued = reply(Acquired::Queued { position: 0 }, LEASE, None);
    let answer = Answer::Acquired(Reply { now_us: 1_000_000_000, ..queued });
    core.replied(at(2_001), &ask.expect("sent"), &answer, &mut fx);
    let message = Event::Granted { member: member.clone(), token: token(), left_ms: 10_000 };
    core.heard(at(2_002), message, &mut fx);
    assert!(matches!(core.take(at(2_002), attempt, &mut fx), Outcome::Waits));
    let confirming = sent(&mut fx);
    assert_eq!(confirming[0].command, Command::Renew { member });
    core.replied(at(2_003), &confirming[0], &renewed(&confirming[0], 1_000_001), &mut fx);
    assert!(matches!(core.take(at(2_004), attempt, &mut fx), Outcome::Granted { .. }));
}

// A4.
#[test]
fn a_server_that_answers_late_out_of_order_or_with_a_clock_set_back_gives_no_doubt() {
    let mut core = core();
    let mut fx = Vec::new();
    let asks: Vec<_> = (0..4)
        .map(|number| {
            let (_, ask) = core.begin(at(number * 100), wish("a"), ()).expect("it is open");
            ask.expect("the subscription stands")
        })
        .collect();
    let queued = |server_ms: u64| {
        let queued = reply(Acquired::Queued { position: 0 }, LEASE, None);
        Answer::Acquired(Reply { now_us: server_ms * 1_000, ..queued })
    };
    core.replied(at(10), &asks[0], &queued(5_000), &mut fx);
    // Run three seconds after it was sent, and told later still.
    core.replied(at(3_500), &asks[2], &queued(8_100), &mut fx);
    core.replied(at(3_600), &asks[1], &queued(5_100), &mut fx);
    core.replied(at(3_700), &asks[3], &queued(1_000), &mut fx);
    assert_eq!(core.doubt, Moment::default());
    // The next is compared with that.
    let (_, ask) = core.begin(at(3_800), wish("a"), ()).expect("it is open");
    core.replied(at(3_900), &ask.expect("sent"), &queued(5_000), &mut fx);
    assert_eq!(core.doubt, at(3_800));
}

/// A waiter whose first acquire was not answered, and whose second found it at the tail.
fn queued_twice(core: &mut Core<()>) -> (u64, Member) {
    let mut fx = Vec::new();
    let (attempt, ask) = core.begin(at(0), wish("a"), ()).expect("it is open");
    let ask = ask.expect("the subscription stands");
    core.unanswered(at(1), &ask, &StoreError::ambiguous("cut"), &mut fx);
    let again = ticked(core, at(20_000));
    let queued = reply(Acquired::Queued { position: 0 }, LEASE, None);
    core.replied(at(20_001), &again[0], &Answer::Acquired(queued), &mut fx);
    (attempt, member_of(&again[0]))
}

#[test]
fn a_message_of_a_grant_that_lapsed_before_the_second_copy_queued_again_makes_no_guard() {
    let mut core = core();
    let mut fx = Vec::new();
    let (attempt, member) = queued_twice(&mut core);
    let old = Event::Granted { member: member.clone(), token: token(), left_ms: 10_000 };
    core.heard(at(20_002), old, &mut fx);
    assert!(matches!(core.take(at(20_002), attempt, &mut fx), Outcome::Waits));
    let asked = sent(&mut fx);
    assert_eq!(asked[0].command, Command::Renew { member: member.clone() });
    let answer = Answer::Renewed(reply(Renewed::NotHeld, Duration::ZERO, None));
    core.replied(at(20_003), &asked[0], &answer, &mut fx);
    assert!(matches!(core.take(at(20_003), attempt, &mut fx), Outcome::Waits));
    let touch = ticked(&mut core, at(20_003));
    assert_eq!(touch[0].command, Command::Touch { members: vec![member] }, "and it waits on");
}

#[test]
fn a_grant_that_was_confirmed_has_the_token_of_what_is_held_now() {
    let mut core = core();
    let mut fx = Vec::new();
    let (attempt, member) = queued_twice(&mut core);
    let old = Event::Granted { member: member.clone(), token: token(), left_ms: 10_000 };
    core.heard(at(20_002), old, &mut fx);
    let asked = sent(&mut fx);
    let later = crate::token::FencingToken::try_from(7).expect("small");
    let held = reply(Renewed::Held, LEASE, None);
    let grant = Some(Grant { member, token: later });
    core.replied(at(20_003), &asked[0], &Answer::Renewed(Reply { grant, ..held }), &mut fx);
    match core.take(at(20_003), attempt, &mut fx) {
        Outcome::Granted { token, .. } => assert_eq!(token, later),
        other => panic!("{other:?}"),
    }
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

fn is_granted(core: &mut Core<()>, now: Moment, attempt: u64) -> bool {
    matches!(core.take(now, attempt, &mut Vec::new()), Outcome::Granted { .. })
}

#[test]
fn one_message_grants_several_and_another_takes_several_away() {
    let (mut core, mut fx) = (core(), Vec::new());
    let [one, other, third] = [(); 3].map(|()| read_queued(&mut core, at(0)));
    let grants = vec![(one.2, 10_000), (other.2, 10_000), (999 << 20, 10_000)];
    core.heard(at(1), Event::GrantedSeveral { token: token(), grants }, &mut fx);
    assert!(is_granted(&mut core, at(1), one.0) && is_granted(&mut core, at(1), other.0));
    assert!(!is_granted(&mut core, at(1), third.0));
    let numbers = vec![one.2, other.2, 999 << 20];
    core.heard(at(2), Event::RevokedSeveral { numbers }, &mut fx);
    assert_eq!(lost(&mut fx), 2);
}

#[test]
fn one_reply_tells_of_several_holds_each_with_its_own_time_left() {
    let (mut core, mut fx) = (core(), Vec::new());
    let [one, other] = [(); 2].map(|()| read_queued(&mut core, at(0)));
    let held = |(_, ask, _): &(u64, Ask, u64), left_ms| Share {
        member: member_of(ask),
        token: token(),
        left_ms,
    };
    let several = vec![held(&one, 30_000), held(&other, 10_000)];
    let presence = Touched { members: vec![Presence::Holding; 2], listeners: 1 };
    let answer = Answer::Touched(Reply { several, ..reply(presence, LEASE, None) });
    let touch = Ask {
        command: Command::Touch { members: vec![member_of(&one.1), member_of(&other.1)] },
        ..one.1.clone()
    };
    core.replied(at(1), &touch, &answer, &mut fx);
    assert!(is_granted(&mut core, at(1), one.0) && is_granted(&mut core, at(1), other.0));
    let until = |number| match &core.entries[&number].state {
        State::Held(lease) => lease.until(),
        other => panic!("{other:?}"),
    };
    assert!(until(one.2) > at(29_000) && until(other.2) < at(10_000));
}

#[test]
fn where_a_command_left_something_to_do_a_touch_follows_at_once() {
    let (mut core, mut fx) = (core(), Vec::new());
    let (_, ask, _) = read_queued(&mut core, at(0));
    let member = member_of(&ask);
    let release = Ask { command: Command::Release { member }, ..ask };
    let done = Reply { more: true, ..reply(Released::Released, LEASE, None) };
    core.replied(at(1), &release, &Answer::Released(done), &mut fx);
    let asked = sent(&mut fx);
    assert_eq!(asked[0].command, Command::Touch { members: Vec::new() });
    assert_eq!(asked[0].lock, release.lock);
    let done = Touched { members: Vec::new(), listeners: 1 };
    let done = Reply { more: true, ..reply(done, LEASE, None) };
    core.replied(at(2), &asked[0], &Answer::Touched(done), &mut fx);
    assert_eq!(sent(&mut fx).len(), 1, "until nothing is left to do");
}

#[test]
fn an_answer_that_does_not_tell_the_time_is_compared_with_nothing() {
    let (mut core, mut fx) = (core(), Vec::new());
    let (_, ask, _) = read_queued(&mut core, at(1_000));
    for now_us in [1_000, 0, 1_500] {
        let told = Reply { now_us, ..reply(Acquired::Queued { position: 0 }, LEASE, None) };
        core.replied(at(1_001), &ask, &Answer::Acquired(told), &mut fx);
    }
    assert_eq!(core.doubt, Moment::default());
}

#[test]
fn what_a_downgrade_grants_is_taken_in_and_one_that_is_not_held_is_lost() {
    let (mut core, mut fx) = (core(), Vec::new());
    let [write, read] = [(); 2].map(|()| read_queued(&mut core, at(0)));
    let grants = vec![(write.2, 10_000)];
    core.heard(at(1), Event::GrantedSeveral { token: token(), grants }, &mut fx);
    assert_eq!(core.downgrade(at(1), write.2), None, "its caller has not come for it");
    assert!(is_granted(&mut core, at(1), write.0));
    let ask = core.downgrade(at(1), write.2).expect("held");
    assert_eq!(ask.command, Command::Downgrade { member: member_of(&write.1) });
    let several = vec![Share { member: member_of(&read.1), token: token(), left_ms: 10_000 }];
    let done = Reply { several, ..reply(Renewed::Held, LEASE, None) };
    core.replied(at(2), &ask, &Answer::Renewed(done), &mut fx);
    assert!(is_granted(&mut core, at(2), read.0));
    assert_eq!(lost(&mut fx), 0);
    let gone = reply(Renewed::NotHeld, Duration::ZERO, None);
    core.replied(at(3), &ask, &Answer::Renewed(gone), &mut fx);
    assert_eq!(lost(&mut fx), 1);
}
