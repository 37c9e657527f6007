//! Grants and renewals whose writes must be confirmed by the store.

use super::*;

/// Returns why a write is not confirmed.
fn few() -> StoreError {
    StoreError::refused(LockErrorKind::Unavailable, "1 of 2 replicas")
}

/// Returns a table with confirmed grants only, and a granted attempt.
fn granted_alone() -> (Core<()>, u64, Member, StoreRequest) {
    let mut core = core();
    core.rules.confirms_writes = true;
    let (attempt, request) = core.event(at(0)).begin(wish("a"), ()).expect("it is open");
    let request = request.expect("it is sent");
    let member = member_of(&request);
    let granted = Answer::Acquired(reply(vec![Acquired::Granted], LEASE, Some(&member)));
    core.event(at(1)).replied(&request, &granted);
    assert!(matches!(core.event(at(1)).take(attempt), Outcome::Waits));
    let confirm = only_confirmed(&mut core);
    (core, attempt, member, confirm)
}

/// Returns the only request among the effects: a renewal to be confirmed.
fn only_confirmed(core: &mut Core<()>) -> StoreRequest {
    let requests = core.drain().into_iter().filter_map(|effect| match effect {
        Effect::Confirm(request) => Some(request),
        Effect::Send(request) => panic!("{request:?}"),
        _ => None,
    });
    let [confirm] = requests.collect::<Vec<_>>().try_into().expect("one");
    confirm
}

#[test]
fn a_grant_is_handed_out_once_it_is_confirmed() {
    let (mut core, attempt, member, confirm) = granted_alone();
    let held = Answer::Renewed(reply(vec![Renewed::Held], LEASE, Some(&member)));
    core.event(at(2)).replied(&confirm, &held);
    assert!(matches!(core.event(at(2)).take(attempt), Outcome::Granted { .. }));
    // The lock was free.
    let is_note =
        |effect: &_| matches!(effect, Effect::Observe(Note::Granted { handed_over: false, .. }));
    assert!(core.drain().iter().any(is_note));
}

#[test]
fn a_grant_that_is_not_confirmed_is_refused_and_released() {
    for is_answered in [true, false] {
        let (mut core, attempt, member, confirm) = granted_alone();
        let held = Answer::Renewed(reply(vec![Renewed::Held], LEASE, Some(&member)));
        let answer = is_answered.then_some(&held);
        core.event(at(2)).unconfirmed(&confirm, answer, &few());
        let Outcome::Refused(Refusal::Store(error)) = core.event(at(2)).take(attempt) else {
            panic!("it is not refused");
        };
        assert_eq!(error, few());
        let requests = ticked(&mut core, at(2));
        let [StoreRequest { command: Command::Leave { leaving }, .. }] = requests.as_slice() else {
            panic!("{requests:?}");
        };
        assert_eq!(leaving[0].member, member);
    }
}

#[test]
fn a_hold_that_the_server_does_not_know_is_lost_whether_that_is_confirmed_or_not() {
    let (mut core, renewal, _) = renewed_alone();
    let not_held = Answer::Renewed(reply(vec![Renewed::NotHeld], Duration::ZERO, None));
    core.event(at(11_001)).unconfirmed(&renewal, Some(&not_held), &few());
    assert_eq!(lost(&mut core), 1);
}

/// Returns a confirmed hold, its renewal, and the response.
fn renewed_alone() -> (Core<()>, StoreRequest, Answer) {
    let (mut core, attempt, member, confirm) = granted_alone();
    let held = Answer::Renewed(reply(vec![Renewed::Held], LEASE, Some(&member)));
    core.event(at(2)).replied(&confirm, &held);
    core.drain();
    assert!(matches!(core.event(at(2)).take(attempt), Outcome::Granted { .. }));
    core.event(at(11_000)).tick();
    let renewal = only_confirmed(&mut core);
    (core, renewal, held)
}

#[test]
fn a_renewal_counts_once_it_is_confirmed() {
    for (is_confirmed, losses) in [(true, 0), (false, 1)] {
        let (mut core, renewal, held) = renewed_alone();
        match is_confirmed {
            true => core.event(at(11_001)).replied(&renewal, &held),
            false => core.event(at(11_001)).unconfirmed(&renewal, Some(&held), &few()),
        }
        core.drain();
        core.event(at(29_800)).tick();
        assert_eq!(lost(&mut core), losses, "confirmed: {is_confirmed}");
    }
}

#[test]
fn a_renewal_that_is_not_confirmed_is_soon_asked_for_again() {
    let (mut core, renewal, held) = renewed_alone();
    core.event(at(11_001)).unconfirmed(&renewal, Some(&held), &few());
    let effects = core.drain();
    let is_noted = effects.iter().any(|effect| match effect {
        Effect::Observe(Note::RenewalFailed { error, .. }) => {
            error.detail.contains("1 of 2 replicas")
        }
        _ => false,
    });
    assert!(is_noted, "{effects:?}");
    core.event(at(12_002)).tick();
    assert_eq!(member_of(&only_confirmed(&mut core)), member_of(&renewal));
}

#[test]
fn a_grant_whose_confirmation_has_no_answer_is_asked_for_again() {
    let (mut core, attempt, member, confirm) = granted_alone();
    core.event(at(2)).unanswered(&confirm, &StoreError::ambiguous("cut"));
    core.drain();
    assert!(matches!(core.event(at(2)).take(attempt), Outcome::Waits));
    let requests = ticked(&mut core, at(400));
    let [StoreRequest { command: Command::Touch { members }, .. }] = requests.as_slice() else {
        panic!("{requests:?}");
    };
    assert_eq!(members, &[member]);
}
