//! Renewals, and holds that end.

use super::*;

// A8.
#[test]
fn forty_thousand_holds_that_end_together_are_told_in_parts_and_before_their_deadline() {
    let mut core = core();
    for lock in 0..40_000 {
        held(&mut core, at(0), &format!("{lock}"));
    }
    let error = StoreError::ambiguous("unreachable");
    let mut notified = 0;
    let mut now = at(9_000);
    while notified < 40_000 {
        core.event(now).tick();
        let effects = core.drain();
        assert!(effects.len() <= 4 * MAX_AT_ONCE, "{} effects in one section", effects.len());
        let requests: Vec<StoreRequest> = effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Send(request) => Some(request.clone()),
                _ => None,
            })
            .collect();
        notified +=
            effects.iter().filter(|effect| matches!(effect, Effect::NotifyLost(()))).count();
        for request in requests {
            core.event(now).unanswered(&request, &error);
            core.drain();
        }
        // Under load, the driver calls this often.
        now = now + Duration::from_micros(500);
        if notified == 0 && now < at(29_590) {
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
    core.event(at(20)).linked(Link::Up, Link::Up);
    let mut renewed = 0;
    let mut rounds = 0;
    loop {
        let requests = ticked(&mut core, at(21));
        if requests.is_empty() {
            break;
        }
        assert!(requests.len() <= MAX_AT_ONCE, "{} at once", requests.len());
        rounds += 1;
        renewed += requests.len();
        for request in requests {
            let held = reply(vec![Renewed::Held], LEASE, Some(&member_of(&request)));
            core.event(at(21)).replied(&request, &Answer::Renewed(held));
            core.drain();
        }
    }
    assert_eq!((renewed, rounds), (1_000, 4), "each once, 256 at a time");
}

fn renewals(requests: &[StoreRequest]) -> usize {
    requests.iter().filter(|request| matches!(request.command, Command::Renew { .. })).count()
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
    for number in 0..200 {
        held(&mut core, at(0), &format!("lock {number}"));
    }
    let requests = ticked(&mut core, at(10_000));
    assert_eq!(renewals(&requests), 200);
    for request in &requests {
        let held = reply(vec![Renewed::Held], LEASE, Some(&member_of(request)));
        core.event(at(10_001)).replied(request, &Answer::Renewed(held));
    }
    let mut rounds = Vec::new();
    while let Some(next) = core.next().filter(|next| *next <= at(20_000)) {
        rounds.push(renewals(&ticked(&mut core, next)));
    }
    assert_eq!(rounds.iter().sum::<usize>(), 200);
    assert!(rounds.len() >= 3 && rounds.iter().all(|together| *together < 120), "{rounds:?}");
}

#[test]
fn a_confirmation_of_a_hold_is_sent_at_once_and_counts_as_its_renewal() {
    let mut core = core();
    let (number, member) = held(&mut core, at(0), "a");
    let request = core.event(at(5_000)).confirmation(number).expect("it is held");
    assert_eq!(request.command, Command::Confirm { member: member.clone() });
    assert!(!request.background, "its caller waits for it");
    let answer = Answer::Renewed(reply(vec![Renewed::Held], LEASE, Some(&member)));
    core.event(at(5_001)).replied(&request, &answer);
    core.drain();
    // Counted from the request, as for any renewal.
    core.event(at(34_599)).tick();
    assert_eq!(lost(&mut core), 0);
    core.event(at(34_700)).tick();
    assert_eq!(lost(&mut core), 1);
    assert_eq!(core.event(at(34_700)).confirmation(number), None);
}

#[test]
fn a_confirmation_that_finds_nothing_ends_the_hold_and_one_without_an_answer_does_not() {
    let mut core = core();
    let (number, _) = held(&mut core, at(0), "a");
    let request = core.event(at(1)).confirmation(number).expect("it is held");
    core.event(at(2)).unanswered(&request, &StoreError::ambiguous("cut"));
    assert_eq!(lost(&mut core), 0);
    let request = core.event(at(3)).confirmation(number).expect("it is still held");
    let answer = Answer::Renewed(reply(vec![Renewed::NotHeld], LEASE, None));
    core.event(at(4)).replied(&request, &answer);
    assert_eq!(lost(&mut core), 1);
    let (waiting, _) = queued(&mut core, at(5), "b");
    let number = core.current(waiting).expect("it waits");
    assert_eq!(core.event(at(5)).confirmation(number), None);
    assert!(!core.drain().iter().any(|effect| matches!(effect, Effect::Confirm(_))));
}

// Once, the server kept the hold for up to a lease longer, until the guard was dropped.
#[test]
fn a_renewed_hold_is_released_when_max_hold_ends_although_its_guard_remains() {
    let mut core = core();
    let options =
        Terms { lease: LEASE, max_hold: Some(Duration::from_secs(40)), ..Terms::default() };
    let longest = Request { options, ..wish("a") };
    let (attempt, request) = core.event(at(0)).begin(longest, ()).expect("it is open");
    let request = request.expect("the subscription stands");
    let member = member_of(&request);
    let granted = reply(vec![Acquired::Granted], LEASE, Some(&member));
    core.event(at(0)).replied(&request, &Answer::Acquired(granted));
    let Outcome::Granted { number, .. } = core.event(at(0)).take(attempt) else { panic!("free") };
    for now in [10_000, 20_000, 30_000] {
        let renewal = ticked(&mut core, at(now));
        let renewed = reply(vec![Renewed::Held], LEASE, Some(&member_of(&renewal[0])));
        core.event(at(now)).replied(&renewal[0], &Answer::Renewed(renewed));
    }
    core.drain();
    core.event(at(39_900)).tick();
    let told = core.drain();
    assert!(told.iter().any(|effect| matches!(effect, Effect::NotifyLost(()))), "{told:?}");
    assert_eq!(
        ticked(&mut core, at(39_999)),
        [],
        "the guard may rely on the hold until its deadline"
    );
    assert_eq!(core.next(), Some(at(40_000)));
    let leaves: Vec<Command> =
        ticked(&mut core, at(40_000)).into_iter().map(|request| request.command).collect();
    assert_eq!(leaves, [Command::Leave { leaving: vec![Leaving::new(member, false)] }]);
    assert!(matches!(core.event(at(40_001)).release(number), GivenBack::Nothing));
}
