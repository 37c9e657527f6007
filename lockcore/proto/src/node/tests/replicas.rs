//! Grants and renewals that replicas have to acknowledge.

use super::*;

/// A table that hands a grant out once two replicas have it, and an attempt that was granted.
fn granted_alone() -> (Core<()>, u64, Member, Ask) {
    let mut core = core();
    core.rules.replicas = 2;
    let (attempt, ask) = core.event(at(0)).begin(wish("a"), ()).expect("it is open");
    let ask = ask.expect("it is sent");
    let member = member_of(&ask);
    let granted = Answer::Acquired(reply(vec![Acquired::Granted], LEASE, Some(&member)));
    core.event(at(1)).replied(&ask, &granted);
    assert!(matches!(core.event(at(1)).take(attempt), Outcome::Waits));
    let confirm = only_confirmed(&mut core);
    (core, attempt, member, confirm)
}

/// The one request among the effects, a renewal that replicas have to acknowledge.
fn only_confirmed(core: &mut Core<()>) -> Ask {
    let requests = core.drain().into_iter().filter_map(|effect| match effect {
        Effect::Confirm(ask) => Some(ask),
        Effect::Send(ask) => panic!("{ask:?}"),
        _ => None,
    });
    let [confirm] = requests.collect::<Vec<_>>().try_into().expect("one");
    confirm
}

#[test]
fn a_grant_is_handed_out_once_enough_replicas_have_it() {
    let (mut core, attempt, member, confirm) = granted_alone();
    let held = Answer::Renewed(reply(vec![Renewed::Held], LEASE, Some(&member)));
    core.event(at(2)).confirmed(&confirm, (&held, 2));
    assert!(matches!(core.event(at(2)).take(attempt), Outcome::Granted { .. }));
    // The lock was free.
    let is_note =
        |effect: &_| matches!(effect, Effect::Observe(Note::Granted { handed_over: false, .. }));
    assert!(core.drain().iter().any(is_note));
}

#[test]
fn a_grant_that_too_few_replicas_have_is_refused_and_released() {
    let (mut core, attempt, member, confirm) = granted_alone();
    let held = Answer::Renewed(reply(vec![Renewed::Held], LEASE, Some(&member)));
    core.event(at(2)).confirmed(&confirm, (&held, 1));
    let Outcome::Refused(Refusal::Store(error)) = core.event(at(2)).take(attempt) else {
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
    let held = Answer::Renewed(reply(vec![Renewed::Held], LEASE, Some(&member)));
    core.event(at(2)).confirmed(&confirm, (&held, 2));
    core.drain();
    assert!(matches!(core.event(at(2)).take(attempt), Outcome::Granted { .. }));
    core.event(at(11_000)).tick();
    let renewal = only_confirmed(&mut core);
    (core, renewal, held)
}

#[test]
fn a_renewal_counts_once_enough_replicas_have_it() {
    for (replicas, losses) in [(2, 0), (1, 1)] {
        let (mut core, renewal, held) = renewed_alone();
        core.event(at(11_001)).confirmed(&renewal, (&held, replicas));
        core.drain();
        core.event(at(29_800)).tick();
        assert_eq!(lost(&mut core), losses, "{replicas} replicas");
    }
}

#[test]
fn a_renewal_that_too_few_replicas_have_is_soon_asked_for_again() {
    let (mut core, renewal, held) = renewed_alone();
    core.event(at(11_001)).confirmed(&renewal, (&held, 0));
    let effects = core.drain();
    let told = effects.iter().any(|effect| match effect {
        Effect::Observe(Note::RenewalFailed { error, .. }) => {
            error.detail.contains("0 of 2 replicas acknowledged the renewal")
        }
        _ => false,
    });
    assert!(told, "{effects:?}");
    core.event(at(12_002)).tick();
    assert_eq!(member_of(&only_confirmed(&mut core)), member_of(&renewal));
}

#[test]
fn a_grant_whose_replicas_could_not_be_asked_is_asked_for_again() {
    let (mut core, attempt, member, confirm) = granted_alone();
    core.event(at(2)).unanswered(&confirm, &StoreError::ambiguous("cut"));
    core.drain();
    assert!(matches!(core.event(at(2)).take(attempt), Outcome::Waits));
    let asks = ticked(&mut core, at(400));
    let [Ask { command: Command::Touch { members }, .. }] = asks.as_slice() else {
        panic!("{asks:?}");
    };
    assert_eq!(members, &[member]);
}
