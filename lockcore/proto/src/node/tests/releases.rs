//! Releases and leaves.

use super::*;
use crate::Inspection;

/// Returns the command that releases a hold granted by a message, before or after the acquire was
/// answered.
fn released_after_a_message(is_answered: bool) -> Command {
    let mut core = core();
    let (attempt, request) = core.event(at(0)).begin(wish("a"), ()).expect("it is open");
    let request = request.expect("it is sent");
    let message = grant_message(&member_of(&request), 10_000);
    core.event(at(1)).heard(message);
    let Outcome::Granted { number, .. } = core.event(at(1)).take(attempt) else {
        panic!("it was told");
    };
    if is_answered {
        let queued = reply(vec![Acquired::Queued { position: 0 }], LEASE, None);
        core.event(at(2)).replied(&request, &Answer::Acquired(queued));
    }
    core.event(at(3)).release(number).request().expect("it is held").command
}

// Found by chaos: a proxy ran an acquire copy after the release, before it forwarded the response.
#[test]
fn what_is_released_before_its_acquire_was_answered_leaves_a_tombstone_and_else_none() {
    let early = released_after_a_message(false);
    assert!(matches!(early, Command::Leave { leaving } if leaving[0].ambiguous));
    assert!(matches!(released_after_a_message(true), Command::Release { .. }));
}

// Found by the simulation: on a promoted replica, the member was still queued.
#[test]
fn a_release_that_grants_its_own_member_once_more_has_that_hold_released() {
    for outcome in [Released::NotHeld, Released::Released] {
        let mut core = core();
        let (number, member) = held(&mut core, at(0), "a");
        let release = core.event(at(1)).release(number).request().expect("it is held");
        let granted = reply(outcome, LEASE, Some(&member));
        core.event(at(2)).replied(&release, &Answer::Released(granted));
        let requests = ticked(&mut core, at(2));
        let [StoreRequest { command: Command::Leave { leaving }, .. }] = requests.as_slice() else {
            panic!("{outcome:?}: {requests:?}");
        };
        assert_eq!(leaving[0].member, member);
    }
}

// A16.
#[test]
fn a_renewal_that_its_release_has_overtaken_means_nothing() {
    let mut core = core();
    let (number, member) = held(&mut core, at(0), "a");
    let renewals = ticked(&mut core, at(10_000));
    assert_eq!(renewals[0].command.renews(), [member]);
    let release = core.event(at(10_001)).release(number).request().expect("it is held");
    let released = reply(Released::Released, Duration::ZERO, None);
    core.event(at(10_002)).replied(&release, &Answer::Released(released));
    let not_held = reply(vec![Renewed::NotHeld], Duration::ZERO, None);
    core.event(at(10_003)).replied(&renewals[0], &Answer::Renewed(not_held));
    assert_eq!(lost(&mut core), 0);
    assert!(core.table.entries().is_empty());
}

// A15.
#[test]
fn a_leave_is_repeated_whatever_the_error_until_the_server_has_expired_it() {
    let mut core = core();
    let (attempt, _) = queued(&mut core, at(0), "a");
    core.event(at(1)).cancel(attempt);
    let denied = StoreError::refused(LockErrorKind::Denied, "no right");
    let mut now = at(1);
    let mut repeated = 0;
    while core.counts().given_back > 0 {
        for request in ticked(&mut core, now) {
            repeated += 1;
            core.event(now).unanswered(&request, &denied);
        }
        now = core.next().unwrap_or(now);
    }
    assert!(now >= at(30_000), "given up at {now:?}");
    assert!((15..30).contains(&repeated), "{repeated} times");
    assert_eq!(core.counts().failed, 1);
}

/// Cancels a waiter while there is no connection, until the core gives its leave up. Returns the
/// member, and the time.
fn given_up(core: &mut Core<()>, lock: &str, error: &StoreError) -> (Member, Moment) {
    let (attempt, member) = queued(core, at(0), lock);
    core.event(at(1)).linked(Link::down("away"), Link::down("away"));
    core.event(at(1)).cancel(attempt);
    let mut now = at(1);
    while core.counts().given_back > 0 {
        for request in ticked(core, now) {
            core.event(now).unanswered(&request, error);
        }
        now = core.next().unwrap_or(now);
    }
    assert_eq!(core.counts().failed, 1);
    (member, now)
}

/// Returns the members that leave by these requests.
fn leaving(requests: &[StoreRequest]) -> Vec<Member> {
    let leaving = requests.iter().flat_map(|request| match &request.command {
        Command::Leave { leaving } => leaving.iter().map(|leaving| leaving.member.clone()),
        other => panic!("{other:?} is no leave"),
    });
    leaving.collect()
}

// Otherwise the node's touches for later waiters would keep the member alive at the head of the
// queue, where it would be granted the lock, and nobody would take it.
#[test]
fn a_waiter_whose_leave_was_given_up_in_an_outage_leaves_after_it() {
    let away = StoreError::ambiguous("away");
    // A server with too few replicas, or with a full disk.
    let refuses_writes = StoreError::refused(LockErrorKind::ReadOnly, "MISCONF");
    for error in [away, refuses_writes] {
        let mut core = core();
        let (member, now) = given_up(&mut core, "a", &error);
        assert_eq!(ticked(&mut core, now), [], "nothing is sent without a connection");
        core.event(now).linked(Link::Up, Link::Up);
        let requests = ticked(&mut core, now);
        assert_eq!(leaving(&requests), [member], "{error:?}");
        let left = reply(vec![Left::Left], Duration::ZERO, None);
        core.event(now).replied(&requests[0], &Answer::Left(left));
        assert_eq!(ticked(&mut core, now), [], "once is enough");
        assert_eq!((core.counts().given_back, core.counts().failed), (0, 1));
    }
}

#[test]
fn a_leave_that_was_given_up_follows_its_lock_to_another_server() {
    let mut core = core();
    core.event(at(0)).set_lanes(lanes());
    let (member, now) = given_up(&mut core, &named(0, 0), &StoreError::ambiguous("away"));
    let now = now + Duration::from_secs(60);
    core.event(now).set_lanes((0..crate::wire::slot::SLOTS).map(|_| 1).collect());
    core.event(now).linked(Link::Up, Link::Up);
    let requests = ticked(&mut core, now);
    assert_eq!((leaving(&requests), requests[0].lane), (vec![member], 1));
}

#[test]
fn a_second_outage_lets_a_given_up_waiter_leave_once_more_and_counts_it_no_second_time() {
    let mut core = core();
    let away = StoreError::ambiguous("away");
    let (member, mut now) = given_up(&mut core, "a", &away);
    for _ in 0..2 {
        core.event(now).linked(Link::Up, Link::Up);
        let again = ticked(&mut core, now);
        assert_eq!(leaving(&again), std::slice::from_ref(&member));
        core.event(now).linked(Link::down("away"), Link::down("away"));
        core.event(now).unanswered(&again[0], &away);
        while core.counts().given_back > 0 {
            now = core.next().expect("it is repeated").max(now);
            for request in ticked(&mut core, now) {
                core.event(now).unanswered(&request, &away);
            }
        }
    }
    assert_eq!(core.counts().failed, 1);
}

/// Lets this error end every leave of the lock and every touch, until nothing is due for a while.
/// Returns the number of leaves.
fn refuse(core: &mut Core<()>, now: &mut Moment, lock: &str, error: &StoreError) -> usize {
    let end = *now + 4 * LEASE;
    let mut leaves = 0;
    while *now < end {
        for request in ticked(core, *now) {
            assert_eq!(request.lock.as_str(), lock);
            leaves += usize::from(matches!(request.command, Command::Leave { .. }));
            core.event(*now).unanswered(&request, error);
        }
        let Some(next) = core.next() else { break };
        *now = next.max(*now);
    }
    leaves
}

// While a server refuses writes, the connection is up. A leave that is repeated for ever would keep
// the node, and a shutdown, from its end.
#[test]
fn a_leave_given_up_at_a_server_that_refuses_writes_is_sent_again_once_a_write_is_accepted() {
    let refuses_writes = StoreError::refused(LockErrorKind::ReadOnly, "MISCONF");
    for others in [0, 1] {
        let mut core = core();
        let (attempt, member) = queued(&mut core, at(0), "a");
        for _ in 0..others {
            queued(&mut core, at(0), "a");
        }
        core.event(at(1)).cancel(attempt);
        let mut now = at(1);
        let leaves = refuse(&mut core, &mut now, "a", &refuses_writes);
        assert_eq!(core.counts().given_back, 0, "after {leaves} leaves");
        assert!((15..30).contains(&leaves), "{leaves} leaves");
        let inspect = core.untracked_request(LockName::from("a"), Command::INSPECT, now);
        let (holds, waiters) = (Vec::new(), Vec::new());
        let found = Inspection { holds, waiters, holding: 0, waiting: 0, token: None, now_us: 1 };
        core.event(now).replied(&inspect, &Answer::Inspected(found));
        while core.event(now).tick() {}
        assert_eq!(core.counts().given_back, 0, "the server accepts reads at all times");
        held(&mut core, now, "b");
        assert_eq!(leaving(&ticked(&mut core, now)), [member]);
    }
}

// Found by reading: only an outage of all primaries counted.
#[test]
fn a_waiter_whose_leave_was_given_up_while_its_own_primary_was_away_leaves_after_it() {
    let away = StoreError::refused(LockErrorKind::Unavailable, "away");
    let (here, there) = (named(0, 0), named(1, 0));
    let again = |ends_outage: fn(&mut Core<()>, Moment)| {
        let mut core = core();
        core.event(at(0)).set_lanes(lanes());
        let (attempt, member) = queued(&mut core, at(0), &here);
        core.event(at(1)).cancel(attempt);
        let mut now = at(1);
        refuse(&mut core, &mut now, &here, &away);
        held(&mut core, now, &there);
        assert_eq!(ticked(&mut core, now), [], "another primary replies");
        ends_outage(&mut core, now);
        let requests = ticked(&mut core, now);
        assert_eq!((leaving(&requests), core.counts().given_back), (vec![member], 1));
    };
    again(|core, now| core.event(now).linked(Link::Up, Link::Up));
    again(|core, now| drop(held(core, now, &named(0, 1))));
    // Another server has the slot.
    again(|core, now| {
        core.event(now).set_lanes((0..crate::wire::slot::SLOTS).map(|_| LANES).collect());
    });
}

#[test]
fn a_closed_node_repeats_no_leave_that_was_given_up() {
    let mut core = core();
    let (attempt, _) = queued(&mut core, at(0), "a");
    core.event(at(1)).cancel(attempt);
    core.event(at(1)).close();
    let mut now = at(1);
    refuse(&mut core, &mut now, "a", &StoreError::ambiguous("away"));
    core.event(now).linked(Link::Up, Link::Up);
    assert_eq!(ticked(&mut core, now), []);
}

// The key belongs to another program, for example, so it would be refused forever.
#[test]
fn a_leave_that_was_given_up_because_the_server_refused_it_is_not_repeated() {
    let mut core = core();
    let refused = StoreError::refused(LockErrorKind::WrongType, "another program");
    let (_, now) = given_up(&mut core, "a", &refused);
    core.event(now).linked(Link::Up, Link::Up);
    assert_eq!(ticked(&mut core, now), []);
}

#[test]
fn a_new_connection_ends_the_pause_before_a_leave_is_tried_again() {
    let mut core = core();
    let (attempt, _) = queued(&mut core, at(0), "a");
    core.event(at(1)).cancel(attempt);
    let away = StoreError::refused(LockErrorKind::Unavailable, "away");
    for now in [1, 101, 301, 701] {
        let requests = ticked(&mut core, at(now));
        assert_eq!(requests.len(), 1, "at {now} ms");
        core.event(at(now)).unanswered(&requests[0], &away);
    }
    assert_eq!(ticked(&mut core, at(800)), [], "its pause has grown to 800 ms");
    core.event(at(800)).linked(Link::Up, Link::Up);
    let leaves = ticked(&mut core, at(800));
    assert!(
        matches!(leaves[..], [StoreRequest { command: Command::Leave { .. }, .. }]),
        "{leaves:?}"
    );
}

#[test]
fn many_that_leave_one_lock_leave_together() {
    let mut core = core();
    let attempts: Vec<_> = (0..100).map(|_| queued(&mut core, at(0), "a").0).collect();
    for attempt in attempts {
        core.event(at(1)).cancel(attempt);
    }
    let leaves = ticked(&mut core, at(1));
    assert!(
        matches!(&leaves[..], [StoreRequest { command: Command::Leave { leaving }, .. }] if leaving.len() == 100)
    );
}

#[test]
fn a_dropped_guard_is_released_and_an_ambiguous_one_leaves() {
    let mut core = core();
    let (number, member) = held(&mut core, at(0), "a");
    core.event(at(1)).dropped(number);
    assert_eq!(ticked(&mut core, at(1))[0].command, Command::Release { member });

    let number = ambiguously_held(&mut core, at(2), "b");
    core.event(at(203)).dropped(number);
    let leaves = ticked(&mut core, at(203));
    assert!(matches!(&leaves[0].command, Command::Leave { leaving } if leaving[0].ambiguous));
}

#[test]
fn a_leaked_hold_of_which_a_copy_may_still_run_ends_with_a_tombstone() {
    let mut core = core();
    let (known, _) = held(&mut core, at(0), "a");
    let ambiguous = ambiguously_held(&mut core, at(0), "b");
    core.event(at(300)).leak(known);
    core.event(at(300)).leak(ambiguous);
    assert_eq!(ticked(&mut core, at(300 + 59_999)), [], "it ends by itself");
    let leaves = ticked(&mut core, at(300 + 60_000));
    assert_eq!(leaves.len(), 1, "the other one is over");
    assert_eq!(leaves[0].lock.as_str(), "b");
    assert!(matches!(&leaves[0].command, Command::Leave { leaving } if leaving[0].ambiguous));
}

// Found by the simulation: a copy of the acquire in a buffer was granted after the last leave.
#[test]
fn a_given_up_waiter_whose_acquire_may_still_run_leaves_a_tombstone_after_the_outage() {
    let away = StoreError::ambiguous("away");
    for is_answered in [false, true] {
        let mut core = core();
        let (attempt, request) = core.event(at(0)).begin(wish("a"), ()).expect("it is open");
        let request = request.expect("it is sent");
        let queued = reply(vec![Acquired::Queued { position: 0 }], LEASE, None);
        match is_answered {
            true => core.event(at(1)).replied(&request, &Answer::Acquired(queued)),
            false => core.event(at(1)).unanswered(&request, &away),
        }
        core.event(at(1)).linked(Link::down("away"), Link::down("away"));
        core.event(at(2)).cancel(attempt);
        let mut now = at(2);
        while core.counts().given_back > 0 {
            for request in ticked(&mut core, now) {
                core.event(now).unanswered(&request, &away);
            }
            now = core.next().unwrap_or(now);
        }
        core.event(now).linked(Link::Up, Link::Up);
        let requests = ticked(&mut core, now);
        let Command::Leave { leaving } = &requests[0].command else { panic!("{requests:?}") };
        assert_eq!(leaving[0].ambiguous, !is_answered);
    }
}
