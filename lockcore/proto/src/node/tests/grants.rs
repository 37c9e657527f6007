//! Grants without a waiting caller, offers, and messages about lapsed grants.

use super::*;

#[test]
fn a_hold_that_nobody_here_wants_is_released_once() {
    let mut core = core();
    let orphan = Member::parse("~1AAAAAAAAAAAAAAAAAAAAAA:4711:30000:late").expect("a member");
    for now in [0, 1] {
        let (_, request) = core.event(at(now)).begin(wish("a"), ()).expect("it is open");
        let answer = reply(vec![Acquired::Queued { position: 0 }], LEASE, Some(&orphan));
        let request = request.expect("the subscription stands");
        core.event(at(now)).replied(&request, &Answer::Acquired(answer));
    }
    let leaves = ticked(&mut core, at(1));
    let [StoreRequest { command: Command::Leave { leaving }, .. }] = leaves.as_slice() else {
        panic!("{leaves:?}");
    };
    assert_eq!(leaving[0].member, orphan);
}

/// Releases a hold, then reports to an attempt begun at `begun` that the server still has the hold.
/// Returns the members that leave as a result.
fn left_after_a_release(begun: u64, meanwhile: impl FnOnce(&mut Core<()>)) -> Vec<Leaving> {
    let mut core = core();
    let (number, member) = held(&mut core, at(0), "a");
    let release = core.event(at(1)).release(number).request().expect("it is held");
    let begin = |core: &mut Core<()>| {
        let (_, enqueue) = core.event(at(begun)).begin(wish("a"), ()).expect("it is open");
        enqueue.expect("it is sent")
    };
    let early = (begun <= 2).then(|| begin(&mut core));
    let released =
        Reply { now_us: Some(9_000_000), ..reply(Released::Released, Duration::ZERO, None) };
    core.event(at(2)).replied(&release, &Answer::Released(released));
    meanwhile(&mut core);
    let enqueue = early.unwrap_or_else(|| begin(&mut core));
    let queued = reply(vec![Acquired::Queued { position: 0 }], LEASE, Some(&member));
    let queued = Reply { now_us: Some(5_000_000), ..queued };
    core.event(at(6)).replied(&enqueue, &Answer::Acquired(queued));
    let left = ticked(&mut core, at(6)).into_iter().filter_map(|request| match request.command {
        Command::Leave { leaving } => Some(leaving),
        _ => None,
    });
    let left: Vec<_> = left.flatten().collect();
    assert!(left.iter().all(|leaving| leaving.member == member));
    left
}

// Different tasks may process responses in another order.
#[test]
fn an_older_answer_that_names_a_member_released_since_asks_for_nothing() {
    assert_eq!(left_after_a_release(1, |_| {}).len(), 0);
}

// Found by the simulation: the server's clock was set back meanwhile.
#[test]
fn what_was_asked_for_after_a_release_tells_of_the_hold_and_it_is_released() {
    assert_eq!(left_after_a_release(5, |_| {}).len(), 1);
}

// Found by the simulation: the promoted replica did not have the release.
#[test]
fn a_new_connection_tells_of_a_hold_that_was_released_and_it_is_released_again() {
    let reconnect = |core: &mut Core<()>| {
        core.event(at(3)).linked(Link::down("another primary"), Link::Up);
        core.event(at(4)).moved();
        core.event(at(4)).linked(Link::Up, Link::Up);
    };
    assert_eq!(left_after_a_release(1, reconnect).len(), 1);
}

// A11.
#[test]
fn an_offer_that_is_not_taken_is_not_renewed_and_is_given_on_after_a_claim() {
    let mut core = core();
    let (attempt, first) = offered(&mut core, at(0), "a");
    assert_eq!(ticked(&mut core, at(9_999)), [], "nothing renews it");
    let given_on = ticked(&mut core, at(10_000));
    assert_eq!(given_on[0].command, Command::Release { member: first.clone() });
    assert_eq!(ticked(&mut core, at(60_000)), [], "it is not asked for before its caller comes");
    assert!(matches!(core.event(at(60_000)).take(attempt), Outcome::Waits));
    let again = sent(&mut core);
    assert_ne!(member_of(&again[0]), first);
    let granted = reply(vec![Acquired::Granted], LEASE, Some(&member_of(&again[0])));
    core.event(at(60_001)).replied(&again[0], &Answer::Acquired(granted));
    assert!(matches!(core.event(at(60_002)).take(attempt), Outcome::Granted { .. }));
}

/// Returns a waiter whose first acquire was not answered, and whose second acquire found it at the
/// tail.
fn queued_twice(core: &mut Core<()>) -> (u64, Member) {
    let (attempt, request) = core.event(at(0)).begin(wish("a"), ()).expect("it is open");
    let request = request.expect("the subscription stands");
    core.event(at(1)).unanswered(&request, &StoreError::ambiguous("cut"));
    let again = ticked(core, at(20_000));
    let queued = reply(vec![Acquired::Queued { position: 0 }], LEASE, None);
    core.event(at(20_001)).replied(&again[0], &Answer::Acquired(queued));
    (attempt, member_of(&again[0]))
}

#[test]
fn a_message_of_a_grant_that_lapsed_before_the_second_copy_queued_again_makes_no_guard() {
    let mut core = core();
    let (attempt, member) = queued_twice(&mut core);
    let old = grant_message(&member, 10_000);
    core.event(at(20_002)).heard(old);
    assert!(matches!(core.event(at(20_002)).take(attempt), Outcome::Waits));
    let asked = sent(&mut core);
    assert_eq!(asked[0].command, Command::Confirm { member: member.clone() });
    let answer = Answer::Renewed(reply(vec![Renewed::NotHeld], Duration::ZERO, None));
    core.event(at(20_003)).replied(&asked[0], &answer);
    assert!(matches!(core.event(at(20_003)).take(attempt), Outcome::Waits));
    let touch = ticked(&mut core, at(20_003));
    assert_eq!(touch[0].command, Command::Touch { members: vec![member] }, "and it waits on");
}

#[test]
fn a_grant_that_was_confirmed_has_the_token_of_what_is_held_now() {
    let mut core = core();
    let (attempt, member) = queued_twice(&mut core);
    let old = grant_message(&member, 10_000);
    core.event(at(20_002)).heard(old);
    let asked = sent(&mut core);
    let later = crate::token::FencingToken::try_from(7).expect("small");
    let held = reply(vec![Renewed::Held], LEASE, None);
    let grants = vec![Grant { member, token: later, left_ms: 30_000, batch: Vec::new() }];
    core.event(at(20_003)).replied(&asked[0], &Answer::Renewed(Reply { grants, ..held }));
    match core.event(at(20_003)).take(attempt) {
        Outcome::Granted { token, .. } => assert_eq!(token, later),
        other => panic!("{other:?}"),
    }
}

// The store then knows of which lock the token is, and asks for no lower token there.
#[test]
fn a_message_of_grants_names_the_lock_of_a_member_known_here() {
    let mut core = core();
    let (_, member) = queued(&mut core, at(0), "a");
    let token = token();
    let messages = |number: u64| {
        let numbers = vec![number + 1, number];
        let grants = numbers.iter().map(|number| (*number, 10_000)).collect();
        [Event::Granted { token, grants }, Event::GrantedBatch { token, left_ms: 10_000, numbers }]
    };
    for message in messages(member.number()) {
        assert_eq!(core.lock_of(&message).map(LockName::as_str), Some("a"), "{message:?}");
    }
    for message in messages(member.number() + 2) {
        assert_eq!(core.lock_of(&message), None, "{message:?}");
    }
}
