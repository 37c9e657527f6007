//! Grants that no caller waits for, offers, and messages of grants that have lapsed.

use super::*;

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
        core.moved(at(4));
        core.linked(at(4), Link::Up, Link::Up);
    };
    assert_eq!(left_after_a_release(1, reconnect).len(), 1);
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
