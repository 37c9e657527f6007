//! Attempts: sent in order, cancelled, requested again.

use super::*;

/// Begins `count` attempts; returns them with the requests sent by their callers.
fn begun(core: &mut Core<()>, count: usize) -> Vec<(u64, Option<StoreRequest>)> {
    let wishes = (0..count).map(|number| wish(&format!("lock {number}")));
    wishes.map(|wish| core.event(at(0)).begin(wish, ()).expect("it is open")).collect()
}

/// Returns the attempts whose acquires a tick sends.
fn sent_in_turn(core: &mut Core<()>) -> Vec<u64> {
    assert!(core.next().is_some_and(|next| next <= at(0)), "nothing is due");
    let requests = ticked(core, at(0));
    let numbers =
        requests.iter().map(|request| core.number(&member_of(request)).expect("of this node"));
    numbers.map(|number| number >> ROUND_BITS).collect()
}

#[test]
fn only_so_many_acquires_are_on_their_way_and_the_others_follow_in_their_order() {
    let mut core = core();
    let begun = begun(&mut core, ACQUIRES + 4);
    assert!(begun[..ACQUIRES].iter().all(|(_, request)| request.is_some()));
    assert!(begun[ACQUIRES..].iter().all(|(_, request)| request.is_none()));
    let requests: Vec<_> = begun.iter().filter_map(|(_, request)| request.clone()).collect();
    let behind = |place: usize| begun[ACQUIRES + place].0;

    let queued = Answer::Acquired(reply(vec![Acquired::Queued { position: 0 }], LEASE, None));
    core.event(at(0)).replied(&requests[1], &queued);
    core.drain();
    // A new attempt is not sent now: earlier attempts are first.
    let (late, request) = core.event(at(0)).begin(wish("k"), ()).expect("it is open");
    assert!(request.is_none());
    assert_eq!(sent_in_turn(&mut core), [behind(0)]);

    let error = StoreError::ambiguous("cut");
    core.event(at(0)).unanswered(&requests[0], &error);
    core.drain();
    for request in &requests[2..5] {
        core.event(at(0)).replied(request, &queued);
        core.drain();
    }
    assert_eq!(sent_in_turn(&mut core), [behind(1), behind(2), behind(3), late]);
}

#[test]
fn nothing_is_sent_for_an_attempt_that_is_cancelled_before_its_turn() {
    let mut core = core();
    let begun = begun(&mut core, ACQUIRES + 2);
    let (cancelled, _) = begun[ACQUIRES];
    assert_eq!(core.event(at(0)).cancel(cancelled), None);
    assert_eq!(sent(&mut core), []);

    let asked = begun[0].1.as_ref().expect("there was room");
    let queued = Answer::Acquired(reply(vec![Acquired::Queued { position: 0 }], LEASE, None));
    core.event(at(0)).replied(asked, &queued);
    core.drain();
    assert_eq!(sent_in_turn(&mut core), [begun[ACQUIRES + 1].0]);
    assert_eq!(core.counts().attempts, ACQUIRES + 1);
}

#[test]
fn an_attempt_that_is_cancelled_before_its_answer_leaves_after_it() {
    let mut core = core();
    let (attempt, request) = core.event(at(0)).begin(wish("a"), ()).expect("it is open");
    let request = request.expect("the subscription stands");
    core.event(at(1)).cancel(attempt);
    assert_eq!(ticked(&mut core, at(1)), [], "a leave must not overtake its acquire");
    let queued = reply(vec![Acquired::Queued { position: 3 }], LEASE, None);
    core.event(at(2)).replied(&request, &Answer::Acquired(queued));
    let leaves = ticked(&mut core, at(2));
    assert!(matches!(&leaves[0].command, Command::Leave { leaving } if !leaving[0].ambiguous));
    core.event(at(3)).replied(&leaves[0], &Answer::Left(reply(vec![Left::Left], LEASE, None)));
    assert_eq!(core.counts(), Counts::default());
    assert!(
        core.table.entries().is_empty() && core.table.lines().is_empty() && core.next().is_none()
    );
}

#[test]
fn an_acquire_without_an_answer_is_asked_for_again_and_leaves_with_a_tombstone() {
    let mut core = core();
    let (attempt, request) = core.event(at(0)).begin(wish("a"), ()).expect("it is open");
    let request = request.expect("the subscription stands");
    core.event(at(1)).unanswered(&request, &StoreError::ambiguous("cut"));
    assert_eq!(ticked(&mut core, at(50)), []);
    let again = ticked(&mut core, at(101));
    assert_eq!(again[0].command, request.command);
    core.event(at(102)).unanswered(&again[0], &StoreError::ambiguous("cut"));
    let error = core.event(at(103)).cancel(attempt).expect("the store did not answer");
    assert_eq!(error.kind, LockErrorKind::Unavailable);
    let leaves = ticked(&mut core, at(103));
    assert!(matches!(&leaves[0].command, Command::Leave { leaving } if leaving[0].ambiguous));
}

#[test]
fn a_position_that_is_lost_costs_the_number_and_a_grant_of_it_is_not_believed() {
    let mut core = core();
    let (attempt, first) = queued(&mut core, at(0), "a");
    let touches = ticked(&mut core, at(5_000));
    let gone = Touched { members: vec![Presence::Gone], listeners: 1 };
    core.event(at(5_001)).replied(&touches[0], &Answer::Touched(reply(gone, LEASE, None)));
    let requests = sent(&mut core);
    let second = member_of(&requests[0]);
    assert_ne!(first, second);
    assert_eq!(core.counts().positions_lost, 1);
    let message = |member: &Member| grant_message(member, 10_000);
    core.event(at(5_002)).heard(message(&first));
    assert!(matches!(core.event(at(5_002)).take(attempt), Outcome::Waits));
    core.event(at(5_003)).heard(message(&second));
    assert!(matches!(core.event(at(5_003)).take(attempt), Outcome::Granted { .. }));
}

#[test]
fn an_attempt_that_ends_without_a_subscription_has_the_kind_of_the_error_that_broke_it() {
    for (broke, kind) in [
        (LockErrorKind::ReadOnly, LockErrorKind::ReadOnly),
        (LockErrorKind::Unavailable, LockErrorKind::Unavailable),
        // The next connection may be accepted, with the current password of that time.
        (LockErrorKind::Denied, LockErrorKind::Unavailable),
    ] {
        let mut core = core();
        let down = Link::broken(&StoreError::refused(broke, "why"));
        core.event(at(0)).linked(Link::Up, down);
        let (attempt, _) = core.event(at(1)).begin(wish("a"), ()).expect("it is open");
        let error = core.event(at(2)).cancel(attempt).expect("nothing got through");
        assert_eq!(error.kind, kind, "{error:?}");
        assert!(error.detail.ends_with("why"), "{error:?}");
    }
}

/// Begins `count` attempts for one lock; returns the first attempt's request, sent by the caller.
fn begun_for(core: &mut Core<()>, count: usize, lock: &str) -> (Vec<u64>, StoreRequest) {
    let begun: Vec<_> =
        (0..count).map(|_| core.event(at(0)).begin(wish(lock), ()).expect("it is open")).collect();
    assert!(begun[1..].iter().all(|(_, request)| request.is_none()));
    let request = begun[0].1.clone().expect("none came before");
    (begun.into_iter().map(|(attempt, _)| attempt).collect(), request)
}

/// Returns the only request sent by a tick, as it goes out.
fn sent_together(core: &mut Core<()>, now: Moment) -> StoreRequest {
    let mut groups = grouped(ticked(core, now), |_| true, |_| 0);
    assert_eq!(groups.len(), 1, "{groups:?}");
    groups.remove(0).remove(0)
}

fn attempts_of(core: &Core<()>, request: &StoreRequest) -> Vec<u64> {
    let Command::Acquire { members, .. } = &request.command else { panic!("{request:?}") };
    let number = |member| core.number(member).expect("of this node");
    members.iter().map(|member| number(member) >> ROUND_BITS).collect()
}

#[test]
fn attempts_for_a_lock_that_is_asked_for_go_together_with_the_next_tick_in_their_order() {
    let mut core = core();
    let (attempts, first) = begun_for(&mut core, 4, "a");
    assert!(core.event(at(0)).begin(wish("b"), ()).expect("open").1.is_some(), "of another lock");
    assert!(core.next().is_some_and(|next| next <= at(0)), "not held back");
    let request = sent_together(&mut core, at(0));
    assert_eq!(attempts_of(&core, &request), attempts[1..]);
    assert_eq!(core.table.lane(0).traffic.asking, 5);

    let outcomes = [0, 1, 2].map(|position| Acquired::Queued { position });
    let queued = reply(outcomes.to_vec(), LEASE, None);
    core.event(at(1)).replied(&request, &Answer::Acquired(queued));
    assert_eq!(core.table.lane(0).traffic.asking, 2);
    let waiting = |attempt: &u64| core.phase(core.round(*attempt).expect("there"));
    assert!(attempts[1..].iter().all(|attempt| waiting(attempt) == Some(Phase::Waiting)));
    // The first attempt still requests the lock.
    assert!(core.event(at(2)).begin(wish("a"), ()).expect("open").1.is_none());
    let last = sent_together(&mut core, at(2));
    let granted = reply(vec![Acquired::Granted], LEASE, Some(&member_of(&first)));
    core.event(at(3)).replied(&first, &Answer::Acquired(granted));
    let queued = Answer::Acquired(reply(vec![Acquired::Queued { position: 3 }], LEASE, None));
    core.event(at(4)).replied(&last, &queued);
    assert!(core.event(at(5)).begin(wish("a"), ()).expect("open").1.is_some(), "none is asked for");
}

#[test]
fn each_of_those_that_asked_together_takes_its_own_outcome() {
    let mut core = core();
    let (attempts, _) = begun_for(&mut core, 6, "a");
    let request = sent_together(&mut core, at(0));
    let Command::Acquire { members, .. } = &request.command else { panic!("{request:?}") };
    let outcomes = vec![
        Acquired::Granted,
        Acquired::Queued { position: 0 },
        Acquired::Busy,
        Acquired::Full { waiting: 7 },
        Acquired::Refused,
    ];
    core.event(at(1)).cancel(attempts[2]);
    let granted = reply(outcomes, LEASE, Some(&members[0]));
    core.event(at(2)).replied(&request, &Answer::Acquired(granted));
    let outcome = core.event(at(2)).take(attempts[1]);
    assert!(matches!(outcome, Outcome::Granted { since, .. } if since == at(2)), "{outcome:?}");
    for (attempt, expected) in [(attempts[3], Refusal::Busy), (attempts[4], Refusal::Full(7))] {
        let outcome = core.event(at(2)).take(attempt);
        assert!(matches!(&outcome, Outcome::Refused(of) if *of == expected), "{outcome:?}");
    }
    // The attempt without a caller leaves. The refused attempt requests the lock in its next round.
    let requests = ticked(&mut core, at(2));
    let leaves = |request: &StoreRequest| match &request.command {
        Command::Leave { leaving } => leaving[0].member == members[1],
        _ => false,
    };
    assert!(requests.iter().any(leaves), "{requests:?}");
    assert_eq!(core.counts().positions_lost, 1);
    let round = core.round(attempts[5]).expect("there");
    assert_eq!(Core::<()>::parts_of(round), (attempts[5], 1));
}

#[test]
fn those_whose_common_acquire_is_not_answered_all_ask_again_together() {
    let mut core = core();
    let (attempts, _) = begun_for(&mut core, 4, "a");
    let request = sent_together(&mut core, at(0));
    core.event(at(1)).cancel(attempts[3]);
    core.event(at(2)).unanswered(&request, &StoreError::ambiguous("cut"));
    assert_eq!(core.table.lane(0).traffic.asking, 1);
    let requests = ticked(&mut core, at(2));
    assert!(matches!(&requests[0].command, Command::Leave { leaving } if leaving[0].ambiguous));
    let again = sent_together(&mut core, at(102));
    assert_eq!(attempts_of(&core, &again), attempts[1..3]);
    assert!(again.background);
    let repeating = core.table.lane(0).traffic.repeating;
    let queued = [0, 1].map(|position| Acquired::Queued { position });
    core.event(at(103)).replied(&again, &Answer::Acquired(reply(queued.to_vec(), LEASE, None)));
    let left = core.table.lane(0).traffic.repeating;
    assert_eq!(repeating - left, 2, "each takes a part of the window");
}

#[test]
fn each_of_those_that_were_granted_together_is_released_without_a_tombstone() {
    let mut core = core();
    let (attempts, _) = begun_for(&mut core, 3, "a");
    let request = sent_together(&mut core, at(0));
    let Command::Acquire { members, .. } = &request.command else { panic!("{request:?}") };
    let granted = vec![Acquired::Granted, Acquired::Granted];
    let mut granted = reply(granted, LEASE, Some(&members[0]));
    granted.grants.push(Grant { member: members[1].clone(), ..granted.grants[0].clone() });
    core.event(at(1)).replied(&request, &Answer::Acquired(granted));
    for attempt in &attempts[1..] {
        let Outcome::Granted { number, .. } = core.event(at(1)).take(*attempt) else {
            panic!("it is granted");
        };
        let release = core.event(at(1)).release(number).request().expect("it is held");
        assert!(matches!(release.command, Command::Release { .. }), "no copy may run: {release:?}");
    }
}

// A dead Redis Cluster server may have many attempts, which would be sent again at each response
// from the other servers.
#[test]
fn attempts_parked_for_a_dead_server_are_asked_for_ever_more_rarely_until_a_server_is_new() {
    let mut core = core();
    core.event(at(0)).set_lanes(lanes());
    let dead_lock = named(0, 0);
    let dead = StoreError::refused(LockErrorKind::Unavailable, "refused");
    let (_, request) = core.event(at(0)).begin(wish(&dead_lock), ()).expect("it is open");
    core.event(at(0)).unanswered(&request.expect("there is room"), &dead);
    let mut asked = Vec::new();
    for now in (0..20_000).step_by(50) {
        for request in ticked(&mut core, at(now)) {
            match request.lock.as_str() {
                lock if lock == dead_lock => {
                    asked.push(now);
                    core.event(at(now)).unanswered(&request, &dead);
                }
                _ => core.event(at(now)).unanswered(&request, &dead),
            }
        }
        let (alive, request) =
            core.event(at(now)).begin(wish(&named(1, 0)), ()).expect("it is open");
        if let Some(request) = request {
            let busy = Answer::Acquired(reply(vec![Acquired::Busy], LEASE, None));
            core.event(at(now)).replied(&request, &busy);
        }
        core.event(at(now)).take(alive);
    }
    assert!((8..16).contains(&asked.len()), "asked at {asked:?}");
    core.event(at(20_000)).linked(Link::Up, Link::Up);
    let again = ticked(&mut core, at(20_000));
    assert!(again.iter().any(|request| request.lock.as_str() == dead_lock), "{again:?}");
}

/// Begins `count` attempts, and refuses each request up to this time. Returns for each attempt when
/// its acquire was sent by a tick.
fn refused_until(core: &mut Core<()>, count: usize, end: u64) -> Vec<Vec<u64>> {
    let dead = StoreError::refused(LockErrorKind::Unavailable, "refused");
    let begun = begun(core, count);
    let mut asked = vec![Vec::new(); count];
    for request in begun.iter().filter_map(|(_, request)| request.as_ref()) {
        core.event(at(0)).unanswered(request, &dead);
    }
    for now in (0..end).step_by(10) {
        for request in ticked(core, at(now)) {
            let attempt = attempts_of(core, &request)[0];
            let place = begun.iter().position(|(begun, _)| *begun == attempt).expect("begun");
            asked[place].push(now);
            core.event(at(now)).unanswered(&request, &dead);
        }
    }
    asked
}

// Only a part of them fits into the window of requests in flight.
#[test]
fn many_parked_attempts_are_asked_for_as_rarely_as_a_single_one() {
    for (place, asked) in refused_until(&mut core(), 200, 20_000).iter().enumerate() {
        assert!((8..=16).contains(&asked.len()), "{place} of 200: {asked:?}");
    }
}

#[test]
fn an_attempt_behind_many_that_stay_parked_is_asked_for_in_the_same_rounds() {
    let asked = refused_until(&mut core(), 101, 1_000);
    assert!(asked[100].len() > 1, "only as the first acquire: {asked:?}");
}

/// Loses an attempt's queue position again and again, up to the last round but one.
fn lose_positions(core: &mut Core<()>, attempt: u64) {
    while let Some(number) = core.current(attempt).filter(|number| number & ROUNDS != ROUNDS - 1) {
        core.position_lost(number);
        core.drain();
    }
}

/// An attempt's rounds, as bits of the member id.
const ROUNDS: u64 = (1 << ROUND_BITS) - 1;

/// Asserts that the attempt has ended with an error, and that the next attempt still waits under
/// its own member id.
#[track_caller]
fn ends_beside(core: &mut Core<()>, attempt: u64, neighbour: &Member) {
    let outcome = core.event(at(60_000)).take(attempt);
    let Outcome::Refused(Refusal::Store(error)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(error.kind, LockErrorKind::Unavailable);
    assert!(error.detail.contains("lost its queue position"), "{error:?}");
    let number = core.current(attempt + 1).expect("it waits");
    assert_eq!(core.member(number), Some(neighbour));
    assert_eq!(core.counts().attempts, 1);
}

#[test]
fn an_attempt_that_has_lost_its_last_position_ends_and_takes_no_number_of_the_next_one() {
    let mut core = core();
    let (attempt, _) = queued(&mut core, at(0), "a");
    let (_, neighbour) = queued(&mut core, at(0), "b");
    lose_positions(&mut core, attempt);
    let last = core.current(attempt).expect("it waits");
    core.position_lost(last);
    assert!(core.drain().iter().any(|effect| matches!(effect, Effect::Wake(()))));
    ends_beside(&mut core, attempt, &neighbour);
}

#[test]
fn an_attempt_that_misses_its_turn_in_its_last_round_ends() {
    let mut core = core();
    let (attempt, _) = queued(&mut core, at(0), "a");
    let (_, neighbour) = queued(&mut core, at(0), "b");
    lose_positions(&mut core, attempt);
    let number = core.current(attempt).expect("it waits");
    core.table.change(number, |entry| entry.state = State::Waiting);
    core.event(at(1)).heard(Event::Granted { token: token(), grants: vec![(number, 10_000)] });
    let confirmations = core.drain().into_iter().filter_map(|effect| match effect {
        Effect::Confirm(request) => Some(request),
        _ => None,
    });
    for request in confirmations.collect::<Vec<_>>() {
        let held = reply(vec![Renewed::Held], LEASE, Some(&member_of(&request)));
        core.event(at(2)).replied(&request, &Answer::Renewed(held));
    }
    ticked(&mut core, at(50_000));
    ends_beside(&mut core, attempt, &neighbour);
}

#[test]
fn an_acquire_that_has_not_failed_waits_for_the_store_since_its_server_last_answered() {
    let mut core = core();
    core.event(at(0)).set_lanes(lanes());
    let begin = |core: &mut Core<()>, lane, nth| {
        core.event(at(1)).begin(wish(&named(lane, nth)), ()).expect("it is open")
    };
    let first: Vec<_> = (0..ACQUIRES).map(|nth| begin(&mut core, 0, nth)).collect();
    let (unsent, request) = begin(&mut core, 0, ACQUIRES);
    assert!(request.is_none(), "there is no room");
    let asked = |place: usize| first[place].1.as_ref().expect("there was room");
    let (other, other_ask) = begin(&mut core, 1, 0);
    let queued = || Answer::Acquired(reply(vec![Acquired::Queued { position: 0 }], LEASE, None));
    core.event(at(5)).replied(other_ask.as_ref().expect("its lane has room"), &queued());
    let since = |core: &Core<()>, attempts: &[u64]| -> Vec<_> {
        attempts.iter().map(|attempt| core.awaits_store(*attempt)).collect()
    };
    // Another server has responded.
    let all = [unsent, first[0].0, first[1].0, other];
    assert_eq!(since(&core, &all), [Some(at(1)), Some(at(1)), Some(at(1)), None]);
    core.event(at(6)).replied(asked(0), &queued());
    assert_eq!(since(&core, &all), [Some(at(6)), None, Some(at(6)), None]);
    let away = StoreError::refused(LockErrorKind::Unavailable, "away");
    core.event(at(7)).unanswered(asked(1), &away);
    assert_eq!(core.awaits_store(first[1].0), Some(at(1)), "it has failed");
    core.event(at(8)).cancel(first[1].0);
    assert_eq!(core.awaits_store(first[1].0), None);
}

/// The caller has counted its own end, such as a time-out.
#[test]
fn an_attempt_without_a_caller_is_not_noted_as_refused() {
    let error = StoreError::ambiguous("cut");
    let busy = Answer::Acquired(reply(vec![Acquired::Busy], LEASE, None));
    for (answer, is_cancelled) in [(None, true), (Some(&busy), true), (Some(&busy), false)] {
        let mut core = core();
        let wish = Request { mode: Mode::Try, ..wish("a") };
        let (attempt, request) = core.event(at(0)).begin(wish, ()).expect("it is open");
        let request = request.expect("the first is sent");
        if is_cancelled {
            core.event(at(1)).cancel(attempt);
        }
        match answer {
            Some(answer) => core.event(at(2)).replied(&request, answer),
            None => core.event(at(2)).unanswered(&request, &error),
        }
        let is_note = |effect: &_| matches!(effect, Effect::Observe(Note::Refused { .. }));
        assert_eq!(core.drain().iter().any(is_note), !is_cancelled, "{answer:?}");
    }
}

// The caller is about to cancel it.
#[test]
fn an_attempt_taken_for_the_last_time_does_not_request_the_lock_again_that_it_has_missed() {
    let mut core = core();
    let (attempt, _) = offered(&mut core, at(0), "a");
    assert!(matches!(core.event(at(60_000)).take_last(attempt), Outcome::Waits));
    let requests = ticked(&mut core, at(60_000));
    assert!(requests.iter().all(gives_back), "{requests:?}");
    core.event(at(60_000)).cancel(attempt);
    assert_eq!(core.counts().attempts, 0);
    let requests = ticked(&mut core, at(60_000));
    assert!(requests.is_empty(), "{requests:?}");
}
