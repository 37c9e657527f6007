//! Grants and renewals that replicas are to have.

use super::*;

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
    let mut fx = Vec::new();
    core.confirmed(at(2), &confirm, (&held, 2), &mut fx);
    assert!(matches!(core.take(at(2), attempt, &mut Vec::new()), Outcome::Granted { .. }));
    // The lock was free.
    let is_note =
        |effect: &_| matches!(effect, Effect::Observe(Note::Granted { handed_over: false, .. }));
    assert!(fx.iter().any(is_note));
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
