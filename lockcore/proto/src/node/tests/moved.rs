//! Members reported gone by the server, when another server takes over.

use super::*;
use crate::terms::WhenBusy;

/// Releases a hold; the release is answered.
fn released(core: &mut Core<()>, now: Moment, lock: &str) -> Member {
    let (number, member) = held(core, now, lock);
    let request = core.event(now).release(number).request().expect("it is held");
    let answer = Answer::Released(reply(Released::Released, Duration::ZERO, None));
    core.event(now).replied(&request, &answer);
    core.drain();
    member
}

/// Makes a waiter leave; the leave is answered.
fn left(core: &mut Core<()>, now: Moment, lock: &str) -> Member {
    let (attempt, member) = queued(core, now, lock);
    core.event(now).cancel(attempt);
    let requests = ticked(core, now);
    let left = reply(vec![Left::Left], Duration::ZERO, None);
    core.event(now).replied(&requests[0], &Answer::Left(left));
    core.drain();
    member
}

/// Returns the members that leave in these requests.
fn leaving(requests: &[StoreRequest]) -> Vec<Member> {
    let members = requests.iter().flat_map(|request| match &request.command {
        Command::Leave { leaving } => leaving.iter().map(|leaving| leaving.member.clone()),
        other => panic!("{other:?} is no leave"),
    });
    members.collect()
}

fn answer_all(core: &mut Core<()>, now: Moment, requests: &[StoreRequest]) {
    for request in requests {
        let outcome = vec![Left::Absent; leaving(std::slice::from_ref(request)).len()];
        let answer = Answer::Left(reply(outcome, Duration::ZERO, None));
        core.event(now).replied(request, &answer);
        core.drain();
    }
}

// P1.
#[test]
fn on_another_server_all_leave_once_more_that_ended_lately() {
    let mut core = core();
    let gone = [released(&mut core, at(0), "a"), left(&mut core, at(1), "b")];
    core.event(at(2_000)).moved();
    let requests = ticked(&mut core, at(2_000));
    assert_eq!(leaving(&requests), gone);
    assert_eq!(core.counts().given_back, 2);
    answer_all(&mut core, at(2_001), &requests);
    assert_eq!(core.counts().given_back, 0);
    assert_eq!(ticked(&mut core, at(2_002)), [], "once is enough");
}

#[test]
fn on_the_same_server_none_leaves_once_more() {
    let mut core = core();
    released(&mut core, at(0), "a");
    core.event(at(1)).linked(Link::Up, Link::Up);
    assert_eq!(ticked(&mut core, at(2)), []);
}

#[test]
fn one_whose_end_a_replica_has_by_now_does_not_leave_once_more() {
    let mut core = core();
    released(&mut core, at(0), "a");
    let late = released(&mut core, at(1_000), "b");
    let last = released(&mut core, at(10_001), "c");
    core.event(at(10_001)).moved();
    assert_eq!(leaving(&ticked(&mut core, at(10_001))), [late, last]);
}

// The old server may have received nothing that it could replicate since then.
#[test]
fn after_a_failover_that_took_long_those_leave_once_more_that_ended_before_it() {
    let mut core = core();
    let gone = released(&mut core, at(0), "a");
    core.event(at(60_000)).moved();
    assert_eq!(leaving(&ticked(&mut core, at(60_000))), [gone]);
}

#[test]
fn members_that_are_to_leave_once_more_do_so_although_a_slot_moves_much_later() {
    let mut core = core();
    let gone = released(&mut core, at(0), "a");
    core.event(at(1)).moved();
    core.event(at(11_000)).set_lanes(lanes());
    assert_eq!(leaving(&ticked(&mut core, at(11_000))), [gone]);
}

// M4: on each new server all of them left again, for as long as servers changed.
#[test]
fn a_member_leaves_once_more_on_one_server_alone_however_many_take_over() {
    let mut core = core();
    released(&mut core, at(0), "a");
    core.event(at(1)).moved();
    let requests = ticked(&mut core, at(1));
    assert_eq!(leaving(&requests).len(), 1);
    answer_all(&mut core, at(2), &requests);
    core.event(at(3)).moved();
    assert_eq!(ticked(&mut core, at(3)), []);
}

// A moving slot does not concern locks in other slots.
#[test]
fn only_members_of_locks_that_have_another_server_leave_once_more_on_a_cluster() {
    let mut core = core();
    core.event(at(0)).set_lanes(lanes());
    let moved = released(&mut core, at(0), &named(0, 0));
    released(&mut core, at(0), &named(1, 0));
    let to_the_last = |slot| if slot % LANES == 0 { LANES } else { slot % LANES };
    core.event(at(1)).set_lanes((0..crate::wire::slot::SLOTS).map(to_the_last).collect());
    let requests = ticked(&mut core, at(1));
    assert_eq!(leaving(&requests), [moved]);
    assert_eq!(requests[0].lane, LANES);
}

// The other servers went on, and their releases replaced those that the silent server had run.
#[test]
fn after_a_long_outage_of_one_server_those_leave_once_more_that_ended_there_before_it() {
    let mut core = core();
    core.event(at(0)).set_lanes(lanes());
    let gone = released(&mut core, at(0), &named(0, 0));
    for second in 1..60 {
        released(&mut core, at(1_000 * second), &named(1, 0));
    }
    let to_the_last = |slot| if slot % LANES == 0 { LANES } else { slot % LANES };
    core.event(at(60_000)).set_lanes((0..crate::wire::slot::SLOTS).map(to_the_last).collect());
    assert_eq!(leaving(&ticked(&mut core, at(60_000))), [gone]);
}

#[test]
fn a_refused_leave_is_repeated_until_the_server_takes_it() {
    let mut core = core();
    let member = released(&mut core, at(0), "a");
    core.event(at(1)).moved();
    let requests = ticked(&mut core, at(1));
    let refused = StoreError::refused(LockErrorKind::ReadOnly, "no replica yet");
    core.event(at(2)).unanswered(&requests[0], &refused);
    core.drain();
    assert_eq!(leaving(&ticked(&mut core, at(200))), [member]);
}

#[test]
fn many_leave_once_more_in_parts_and_what_a_caller_releases_goes_first() {
    let mut core = core();
    let many = 1_000;
    for lock in 0..many {
        released(&mut core, at(0), &format!("{lock}"));
    }
    let (number, _) = held(&mut core, at(1), "now");
    core.event(at(2)).moved();
    core.event(at(2)).dropped(number);
    let mut requests = ticked(&mut core, at(2));
    let first = requests.remove(0);
    assert!(matches!(first.command, Command::Release { .. }), "{first:?}");
    let mut again = 0;
    while !requests.is_empty() {
        assert!(requests.len() <= 16, "{} at once", requests.len());
        again += leaving(&requests).len();
        answer_all(&mut core, at(3), &requests);
        requests = ticked(&mut core, at(3));
    }
    assert_eq!(again, many);
}

#[test]
fn while_the_new_server_refuses_only_a_part_leaves_once_more() {
    let mut core = core();
    for lock in 0..100 {
        released(&mut core, at(0), &format!("{lock}"));
    }
    core.event(at(1)).moved();
    let requests = ticked(&mut core, at(1));
    assert_eq!(leaving(&requests).len(), 16);
    for request in &requests {
        let refused = StoreError::refused(LockErrorKind::ReadOnly, "no replica yet");
        core.event(at(2)).unanswered(request, &refused);
    }
    core.drain();
    assert_eq!(ticked(&mut core, at(2)), []);
}

#[test]
fn a_member_whose_end_was_heard_of_twice_leaves_once_more() {
    let mut core = core();
    let member = released(&mut core, at(0), "a");
    core.event(at(1)).remember_release(Some(member.number()), &LockName::from("a"), &member);
    core.event(at(2)).moved();
    assert_eq!(leaving(&ticked(&mut core, at(2))), [member]);
    assert_eq!(core.counts().given_back, 1);
}

#[test]
fn a_leave_that_waits_for_its_next_try_keeps_no_member_from_leaving_once_more() {
    let mut core = core();
    let gone = released(&mut core, at(0), "a");
    let (attempt, _) = queued(&mut core, at(1), "b");
    core.event(at(1)).cancel(attempt);
    let refused = ticked(&mut core, at(1));
    core.event(at(2)).unanswered(&refused[0], &StoreError::refused(LockErrorKind::WrongType, "b"));
    core.event(at(3)).moved();
    assert_eq!(leaving(&ticked(&mut core, at(3))), [gone]);
}

/// Queues an attempt that the server then removes for a newer one. The caller does not take the
/// refusal.
fn superseded(core: &mut Core<()>, now: Moment) -> (u64, Member) {
    let options = Terms { when_busy: WhenBusy::KeepNewest, ..wish("a").options };
    let newest = Request { options, ..wish("a") };
    let (attempt, request) = core.event(now).begin(newest, ()).expect("it is open");
    let request = request.expect("there is room");
    let queued = reply(vec![Acquired::Queued { position: 0 }], LEASE, None);
    core.event(now).replied(&request, &Answer::Acquired(queued));
    let member = member_of(&request);
    core.event(now).heard(Event::Superseded { numbers: vec![member.number()] });
    core.drain();
    (attempt, member)
}

#[test]
fn a_member_whose_caller_has_not_taken_its_refusal_leaves_once_more_too() {
    let mut core = core();
    let (attempt, member) = superseded(&mut core, at(0));
    core.event(at(1)).moved();
    let requests = ticked(&mut core, at(1));
    assert_eq!(leaving(&requests), [member]);
    answer_all(&mut core, at(2), &requests);
    assert_eq!(core.counts().given_back, 0);
    let outcome = core.event(at(3)).take(attempt);
    assert!(matches!(outcome, Outcome::Refused(Refusal::Kind(LockErrorKind::Superseded))));
    assert!(core.table.entries().is_empty());
}

#[test]
fn a_grant_to_a_member_whose_caller_has_not_taken_its_refusal_is_given_back() {
    let mut core = core();
    let (_, member) = superseded(&mut core, at(0));
    queued(&mut core, at(1), "a");
    core.event(at(2)).touch_line(&LockName::from("a"));
    let touch = sent(&mut core).remove(0);
    let waiting = Touched { members: vec![Presence::Waiting], listeners: 1 };
    let answer = Answer::Touched(reply(waiting, LEASE, Some(&member)));
    core.event(at(3)).replied(&touch, &answer);
    assert_eq!(leaving(&ticked(&mut core, at(3))), [member]);
}
