//! Holds force-released while the grant is in flight.

use super::*;

/// Returns an attempt sent at 0 ms, with a grant in flight.
fn asking() -> (Core<()>, u64, StoreRequest, Answer) {
    let mut core = core();
    let (attempt, request) = core.event(at(0)).begin(wish("a"), ()).expect("it is open");
    let request = request.expect("the subscription stands");
    let granted = reply(vec![Acquired::Granted], LEASE, Some(&member_of(&request)));
    (core, attempt, request, Answer::Acquired(granted))
}

fn is_granted(core: &mut Core<()>, now: Moment, attempt: u64) -> bool {
    matches!(core.event(now).take(attempt), Outcome::Granted { .. })
}

/// Notifies the member of a force release; returns the requests of that event.
fn revoke(core: &mut Core<()>, now: Moment, member: &Member) -> Vec<StoreRequest> {
    core.event(now).heard(Event::Revoked { numbers: vec![member.number()] });
    sent(core)
}

/// Returns the only renewal among the effects.
fn renewal(core: &mut Core<()>) -> StoreRequest {
    let [request] = sent(core).try_into().expect("one request");
    assert!(matches!(request.command, Command::Confirm { .. }), "{request:?}");
    request
}

fn renewed(outcome: Renewed, request: &StoreRequest) -> Answer {
    let left = if outcome == Renewed::Held { LEASE } else { Duration::ZERO };
    Answer::Renewed(reply(vec![outcome], left, Some(&member_of(request))))
}

// H4.
#[test]
fn a_revocation_that_overtakes_the_grants_answer_keeps_the_lock_from_its_caller() {
    let (mut core, attempt, request, granted) = asking();
    revoke(&mut core, at(1), &member_of(&request));
    core.event(at(2)).replied(&request, &granted);
    assert!(!is_granted(&mut core, at(2), attempt), "the answer may be older");
    let confirm = renewal(&mut core);
    core.event(at(3)).replied(&confirm, &renewed(Renewed::NotHeld, &confirm));
    assert!(!is_granted(&mut core, at(3), attempt));
    // The attempt continues at the tail of the queue.
    let [touch] = ticked(&mut core, at(3)).try_into().expect("one request");
    let gone = Touched { members: vec![Presence::Gone], listeners: 1 };
    core.event(at(4)).replied(&touch, &Answer::Touched(reply(gone, LEASE, None)));
    let [again] = sent(&mut core).try_into().expect("one request");
    assert_ne!(member_of(&again), member_of(&request));
    let granted = reply(vec![Acquired::Granted], LEASE, Some(&member_of(&again)));
    core.event(at(5)).replied(&again, &Answer::Acquired(granted));
    assert!(is_granted(&mut core, at(5), attempt), "it was asked for after the revocation");
}

#[test]
fn a_revocation_of_an_earlier_hold_costs_one_renewal() {
    let (mut core, attempt, request, granted) = asking();
    revoke(&mut core, at(1), &member_of(&request));
    core.event(at(2)).replied(&request, &granted);
    let confirm = renewal(&mut core);
    core.event(at(3)).replied(&confirm, &renewed(Renewed::Held, &confirm));
    assert!(is_granted(&mut core, at(3), attempt));
}

#[test]
fn a_grant_that_is_being_confirmed_when_it_is_revoked_is_confirmed_once_more() {
    for confirms_writes in [false, true] {
        let (mut core, attempt, request, granted) = asking();
        core.rules.confirms_writes = confirms_writes;
        core.rules.confirm_grants = true;
        match confirms_writes {
            false => {
                core.event(at(1)).heard(grant_message(&member_of(&request), 30_000));
            }
            true => core.event(at(1)).replied(&request, &granted),
        }
        let confirm = |core: &mut Core<()>| {
            let requests: Vec<StoreRequest> = core
                .drain()
                .into_iter()
                .filter_map(|effect| match effect {
                    Effect::Send(request) | Effect::Confirm(request) => Some(request),
                    _ => None,
                })
                .collect();
            let [request] = requests.try_into().expect("one request");
            request
        };
        let first = confirm(&mut core);
        revoke(&mut core, at(2), &member_of(&request));
        // The lock was held at the renewal, and the write was acknowledged since.
        let held = renewed(Renewed::Held, &first);
        core.event(at(3)).replied(&first, &held);
        assert!(!is_granted(&mut core, at(3), attempt), "confirms: {confirms_writes}");
        let second = confirm(&mut core);
        let not_held = renewed(Renewed::NotHeld, &second);
        core.event(at(4)).replied(&second, &not_held);
        assert!(!is_granted(&mut core, at(4), attempt), "confirms: {confirms_writes}");
    }
}

#[test]
fn a_revocation_that_overtakes_an_answer_to_another_request_is_remembered_for_it() {
    let mut core = core();
    let (attempt, member) = queued(&mut core, at(0), "a");
    let touch = ticked(&mut core, at(4_000)).pop().expect("a touch");
    revoke(&mut core, at(4_001), &member);
    let holding = Touched { members: vec![Presence::Holding], listeners: 1 };
    let touched = Answer::Touched(reply(holding, LEASE, Some(&member)));
    core.event(at(4_002)).replied(&touch, &touched);
    assert!(!is_granted(&mut core, at(4_002), attempt));
    renewal(&mut core);
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
    let mut core = core();
    let (attempt, request, number) = read_queued(&mut core, at(0));
    core.event(at(1)).heard(Event::Revoked { numbers: vec![number] });
    let message = Event::Granted { token: token(), grants: vec![(number, 10_000)] };
    core.event(at(2)).heard(message);
    assert!(!is_granted(&mut core, at(2), attempt));
    assert_eq!(member_of(&renewal(&mut core)), member_of(&request));
}

// Found by the simulation: an acquire copy was queued after the revocation, and its touch was taken
// as proof of a later grant.
#[test]
fn a_message_that_comes_after_a_revocation_and_a_touch_is_confirmed() {
    let mut core = core();
    let (attempt, member) = queued(&mut core, at(0), "a");
    revoke(&mut core, at(1), &member);
    for ms in [1, 5_000] {
        let [touch] = ticked(&mut core, at(ms)).try_into().expect("one request");
        let waiting = Touched { members: vec![Presence::Waiting], listeners: 1 };
        core.event(at(ms)).replied(&touch, &Answer::Touched(reply(waiting, LEASE, None)));
        core.drain();
    }
    core.event(at(5_001)).heard(grant_message(&member, 30_000));
    assert!(!is_granted(&mut core, at(5_001), attempt));
    assert_eq!(member_of(&renewal(&mut core)), member);
}

#[test]
fn a_new_connection_has_every_grant_confirmed_that_was_asked_for_before() {
    // A revocation may be among the missed messages.
    let (mut core, attempt, request, granted) = asking();
    core.event(at(1)).linked(Link::Up, Link::Up);
    core.event(at(2)).replied(&request, &granted);
    assert!(!is_granted(&mut core, at(2), attempt));
    let confirm = renewal(&mut core);
    core.event(at(3)).replied(&confirm, &renewed(Renewed::Held, &confirm));
    assert!(is_granted(&mut core, at(3), attempt));
}

// Found by the simulation: a confirmation counted that was sent before the new connection.
#[test]
fn a_new_connection_has_a_grant_confirmed_once_more_that_was_being_confirmed() {
    let (mut core, attempt, request, granted) = asking();
    revoke(&mut core, at(1), &member_of(&request));
    core.event(at(2)).replied(&request, &granted);
    let confirm = renewal(&mut core);
    core.event(at(3)).linked(Link::Up, Link::Up);
    core.event(at(4)).replied(&confirm, &renewed(Renewed::Held, &confirm));
    assert!(!is_granted(&mut core, at(4), attempt));
    let again = renewal(&mut core);
    core.event(at(5)).replied(&again, &renewed(Renewed::Held, &again));
    assert!(is_granted(&mut core, at(5), attempt));
}

#[test]
fn what_was_revoked_before_its_acquire_was_answered_leaves_a_tombstone() {
    // A proxy that runs requests twice may still run an acquire copy.
    let (mut core, _, request, _) = asking();
    let member = member_of(&request);
    core.event(at(1)).heard(grant_message(&member, 30_000));
    core.drain();
    let requests = revoke(&mut core, at(2), &member);
    let [StoreRequest { command: Command::Leave { leaving }, .. }] = requests.as_slice() else {
        panic!("{requests:?}");
    };
    assert!(leaving[0].ambiguous && leaving[0].member == member);
}

// Found by the simulation: the copy had run between the force release and its message.
#[test]
fn what_was_revoked_after_an_answer_that_came_later_than_its_grant_leaves() {
    let (mut core, _, request, granted) = asking();
    let member = member_of(&request);
    core.event(at(1)).heard(grant_message(&member, 30_000));
    core.event(at(2)).replied(&request, &granted);
    core.drain();
    let [leave] = revoke(&mut core, at(3), &member).try_into().expect("one request");
    let leaving = vec![Leaving::new(member, false)];
    assert_eq!(leave.command, Command::Leave { leaving });
}

// A proxy may run an acquire twice before it forwards the response: if the first hold was
// force-released meanwhile, the second copy waits.
#[test]
fn a_release_that_finds_nothing_is_followed_by_a_leave() {
    let mut core = core();
    let (number, member) = held(&mut core, at(0), "a");
    let release = core.event(at(1)).release(number).request().expect("it is held");
    let not_held = Answer::Released(reply(Released::NotHeld, Duration::ZERO, None));
    core.event(at(2)).replied(&release, &not_held);
    let [leave] = ticked(&mut core, at(2)).try_into().expect("one request");
    let leaving = vec![Leaving::new(member, false)];
    assert_eq!(leave.command, Command::Leave { leaving });
}

#[test]
fn a_touch_from_before_the_acquires_answer_loses_no_position() {
    let (mut core, _, request, _) = asking();
    core.rules.confirm_grants = true;
    core.event(at(1)).heard(grant_message(&member_of(&request), 30_000));
    core.drain();
    revoke(&mut core, at(2), &member_of(&request));
    let is_touch = |request: &StoreRequest| matches!(request.command, Command::Touch { .. });
    let touch = ticked(&mut core, at(2)).into_iter().find(is_touch).expect("it asks");
    let queued = reply(vec![Acquired::Queued { position: 0 }], LEASE, None);
    core.event(at(3)).replied(&request, &Answer::Acquired(queued));
    core.drain();
    let gone = Touched { members: vec![Presence::Gone], listeners: 1 };
    core.event(at(4)).replied(&touch, &Answer::Touched(reply(gone, LEASE, None)));
    let again = [sent(&mut core), ticked(&mut core, at(4))].concat();
    assert!(!again.is_empty() && again.iter().all(is_touch), "{again:?}");
}
