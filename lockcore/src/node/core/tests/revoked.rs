//! Holds that are force-released while their grant is on its way.

use super::*;

/// An attempt that was sent at 0 ms, and is granted by an answer that is on its way.
fn asking() -> (Core<()>, u64, Ask, Answer) {
    let mut core = core();
    let (attempt, ask) = core.begin(at(0), wish("a"), ()).expect("it is open");
    let ask = ask.expect("the subscription stands");
    let granted = reply(Acquired::Granted, LEASE, Some(&member_of(&ask)));
    (core, attempt, ask, Answer::Acquired(granted))
}

fn is_granted(core: &mut Core<()>, now: Moment, attempt: u64) -> bool {
    matches!(core.take(now, attempt, &mut Vec::new()), Outcome::Granted { .. })
}

fn revoke(core: &mut Core<()>, now: Moment, member: &Member) {
    core.heard(now, Event::Revoked { member: member.clone() }, &mut Vec::new());
}

/// The one renewal among the effects.
fn renewal(fx: &mut Effects<()>) -> Ask {
    let [ask] = sent(fx).try_into().expect("one request");
    assert!(matches!(ask.command, Command::Renew { .. }), "{ask:?}");
    ask
}

fn renewed(outcome: Renewed, ask: &Ask) -> Answer {
    let left = if outcome == Renewed::Held { LEASE } else { Duration::ZERO };
    Answer::Renewed(reply(outcome, left, Some(&member_of(ask))))
}

// H4.
#[test]
fn a_revocation_that_overtakes_the_grants_answer_keeps_the_lock_from_its_caller() {
    let (mut core, attempt, ask, granted) = asking();
    revoke(&mut core, at(1), &member_of(&ask));
    let mut fx = Vec::new();
    core.replied(at(2), &ask, &granted, &mut fx);
    assert!(!is_granted(&mut core, at(2), attempt), "the answer may be older");
    let confirm = renewal(&mut fx);
    core.replied(at(3), &confirm, &renewed(Renewed::NotHeld, &confirm), &mut fx);
    assert!(!is_granted(&mut core, at(3), attempt));
    // The attempt goes on at the tail of the queue.
    let [touch] = ticked(&mut core, at(3)).try_into().expect("one request");
    let gone = Touched { members: vec![Presence::Gone], listeners: 1 };
    core.replied(at(4), &touch, &Answer::Touched(reply(gone, LEASE, None)), &mut fx);
    let [again] = sent(&mut fx).try_into().expect("one request");
    assert_ne!(member_of(&again), member_of(&ask));
    let granted = reply(Acquired::Granted, LEASE, Some(&member_of(&again)));
    core.replied(at(5), &again, &Answer::Acquired(granted), &mut fx);
    assert!(is_granted(&mut core, at(5), attempt), "it was asked for after the revocation");
}

#[test]
fn a_revocation_of_an_earlier_hold_costs_one_renewal() {
    let (mut core, attempt, ask, granted) = asking();
    revoke(&mut core, at(1), &member_of(&ask));
    let mut fx = Vec::new();
    core.replied(at(2), &ask, &granted, &mut fx);
    let confirm = renewal(&mut fx);
    core.replied(at(3), &confirm, &renewed(Renewed::Held, &confirm), &mut fx);
    assert!(is_granted(&mut core, at(3), attempt));
}

#[test]
fn a_grant_that_is_being_confirmed_when_it_is_revoked_is_confirmed_once_more() {
    for replicas in [0, 1] {
        let (mut core, attempt, ask, granted) = asking();
        core.rules.replicas = replicas;
        core.rules.confirm_grants = true;
        let mut fx = Vec::new();
        match replicas {
            0 => {
                let (member, token) = (member_of(&ask), token());
                let message = Event::Granted { member, token, left_ms: 30_000 };
                core.heard(at(1), message, &mut fx);
            }
            _ => core.replied(at(1), &ask, &granted, &mut fx),
        }
        let confirm = |fx: &mut Effects<()>| {
            let asks: Vec<Ask> = fx
                .drain(..)
                .filter_map(|effect| match effect {
                    Effect::Send(ask) | Effect::Confirm(ask) => Some(ask),
                    _ => None,
                })
                .collect();
            let [ask] = asks.try_into().expect("one request");
            ask
        };
        let first = confirm(&mut fx);
        revoke(&mut core, at(2), &member_of(&ask));
        // Held when it was renewed, and acknowledged since.
        let held = renewed(Renewed::Held, &first);
        core.confirmed(at(3), &first, (&held, replicas), &mut fx);
        assert!(!is_granted(&mut core, at(3), attempt), "{replicas} replicas");
        let second = confirm(&mut fx);
        let not_held = renewed(Renewed::NotHeld, &second);
        core.confirmed(at(4), &second, (&not_held, replicas), &mut fx);
        assert!(!is_granted(&mut core, at(4), attempt), "{replicas} replicas");
    }
}

#[test]
fn a_revocation_that_overtakes_an_answer_to_another_request_is_remembered_for_it() {
    let (mut core, mut fx) = (core(), Vec::new());
    let (attempt, member) = queued(&mut core, at(0), "a");
    let touch = ticked(&mut core, at(4_000)).pop().expect("a touch");
    revoke(&mut core, at(4_001), &member);
    let holding = Touched { members: vec![Presence::Holding], listeners: 1 };
    let told = Answer::Touched(reply(holding, LEASE, Some(&member)));
    core.replied(at(4_002), &touch, &told, &mut fx);
    assert!(!is_granted(&mut core, at(4_002), attempt));
    renewal(&mut fx);
}

#[test]
fn a_waiting_member_whose_hold_was_revoked_asks_at_once_where_it_stands() {
    let mut core = core();
    let (_, member) = queued(&mut core, at(0), "a");
    revoke(&mut core, at(10), &member);
    let [touch] = ticked(&mut core, at(10)).try_into().expect("one request");
    assert!(matches!(touch.command, Command::Touch { .. }));
}

#[test]
fn reads_that_are_revoked_before_their_grant_is_told_are_not_handed_out() {
    let (mut core, mut fx) = (core(), Vec::new());
    let (attempt, ask, number) = read_queued(&mut core, at(0));
    core.heard(at(1), Event::RevokedSeveral { numbers: vec![number] }, &mut fx);
    let message = Event::GrantedSeveral { token: token(), grants: vec![(number, 10_000)] };
    core.heard(at(2), message, &mut fx);
    assert!(!is_granted(&mut core, at(2), attempt));
    assert_eq!(member_of(&renewal(&mut fx)), member_of(&ask));
}

#[test]
fn a_new_connection_has_every_grant_confirmed_that_was_asked_for_before() {
    // A revocation may be among the messages that were missed.
    let (mut core, attempt, ask, granted) = asking();
    core.linked(at(1), Link::Up, Link::Up);
    let mut fx = Vec::new();
    core.replied(at(2), &ask, &granted, &mut fx);
    assert!(!is_granted(&mut core, at(2), attempt));
    let confirm = renewal(&mut fx);
    core.replied(at(3), &confirm, &renewed(Renewed::Held, &confirm), &mut fx);
    assert!(is_granted(&mut core, at(3), attempt));
}

#[test]
fn what_was_revoked_before_its_acquire_was_answered_leaves_a_tombstone() {
    // A proxy that runs requests twice may still run a copy of the acquire.
    let (mut core, _, ask, _) = asking();
    let (member, token) = (member_of(&ask), token());
    let message = Event::Granted { member: member.clone(), token, left_ms: 30_000 };
    core.heard(at(1), message, &mut Vec::new());
    revoke(&mut core, at(2), &member);
    let asks = ticked(&mut core, at(2));
    let [Ask { command: Command::Leave { leaving }, .. }] = asks.as_slice() else {
        panic!("{asks:?}");
    };
    assert!(leaving[0].ambiguous && leaving[0].member == member);
}
