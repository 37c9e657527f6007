//! The fast path, and the attempts waiting behind it.

use super::*;

/// A node whose connections have a fast path.
fn fast_core() -> Core<()> {
    let mut core = core();
    core.set_fast_path(true);
    core
}

fn begun(core: &mut Core<()>, now: Moment, lock: &str) -> (u64, Option<StoreRequest>) {
    core.event(now).begin(wish(lock), ()).expect("it is open")
}

fn outcome(outcome: Acquired, grant: Option<&Member>) -> Answer {
    Answer::Acquired(reply(vec![outcome], LEASE, grant))
}

fn not_served(may_hold: bool) -> Answer {
    outcome(Acquired::NotServed { may_hold }, None)
}

/// Returns the acquires among the effects as they go out, each with its way and its members'
/// attempts.
fn acquires(core: &mut Core<()>) -> Vec<(Way, Vec<u64>)> {
    let of = |request: &StoreRequest| match &request.command {
        Command::Acquire { members, .. } => {
            let attempts = members.iter().map(|member| member.number() >> ROUND_BITS);
            (request.way, attempts.collect())
        }
        other => panic!("{other:?}"),
    };
    let requests = sent(core);
    grouped(requests, |_| true, |_| 0).iter().flatten().map(of).collect()
}

#[test]
fn an_acquire_goes_the_fast_path_where_the_name_was_free_the_last_time() {
    let mut core = fast_core();
    let (_, request) = begun(&mut core, at(0), "a");
    let request = request.expect("it is alone");
    assert_eq!(request.way, Way::Fast);
    core.event(at(1)).replied(&request, &outcome(Acquired::Queued { position: 0 }, None));
    assert_eq!(begun(&mut core, at(2), "a").1.expect("alone").way, Way::Script, "it was busy");
    assert_eq!(begun(&mut core, at(2), "b").1.expect("alone").way, Way::Fast, "another name");

    let mut core = fast_core();
    let permits = Request { demand: Demand::READ, ..wish("a") };
    let (_, request) = core.event(at(0)).begin(permits, ()).expect("it is open");
    assert_eq!(request.expect("alone").way, Way::Script, "a read has no fast path");
    core.set_fast_path(false);
    assert_eq!(begun(&mut core, at(0), "b").1.expect("alone").way, Way::Script);
}

#[test]
fn attempts_behind_a_fast_acquire_are_sent_with_its_answer_in_one_acquire() {
    for is_answered in [true, false] {
        let mut core = fast_core();
        let (_, request) = begun(&mut core, at(0), "a");
        let request = request.expect("it is alone");
        let behind = [1, 2].map(|ms| begun(&mut core, at(ms), "a"));
        assert!(behind.iter().all(|(_, request)| request.is_none()));
        assert!(ticked(&mut core, at(3)).is_empty(), "they wait for the answer");
        assert_eq!(begun(&mut core, at(3), "b").1.map(|request| request.way), Some(Way::Fast));
        match is_answered {
            true => {
                let granted = outcome(Acquired::Granted, Some(&member_of(&request)));
                core.event(at(4)).replied(&request, &granted);
            }
            false => core.event(at(4)).unanswered(&request, &StoreError::ambiguous("cut")),
        }
        let together = (Way::Script, behind.map(|(attempt, _)| attempt).to_vec());
        assert_eq!(acquires(&mut core), [together], "{is_answered}");
    }
}

#[test]
fn a_fast_acquire_that_is_not_served_goes_by_script_in_front_of_the_attempts_behind_it() {
    let mut core = fast_core();
    let (first, request) = begun(&mut core, at(0), "a");
    let request = request.expect("it is alone");
    let (behind, _) = begun(&mut core, at(1), "a");
    core.event(at(2)).replied(&request, &not_served(false));
    assert_eq!(acquires(&mut core), [(Way::Script, vec![first, behind])]);
    assert!(core.awaits_store(first).is_some() && core.is_asking(first));
    assert_eq!(begun(&mut core, at(3), "a").1, None, "two are on their way");
    assert_eq!(acquires(&mut core), []);
    core.event(at(3)).tick();
    assert_eq!(acquires(&mut core).len(), 1, "behind no fence");
}

#[test]
fn attempts_for_which_there_is_no_room_behind_a_fence_go_in_their_turn() {
    let mut core = fast_core();
    let (first, request) = begun(&mut core, at(0), "a");
    let request = request.expect("it is alone");
    let behind: Vec<_> = (0..ACQUIRES).map(|_| begun(&mut core, at(1), "a").0).collect();
    core.event(at(2)).replied(&request, &not_served(false));
    let mut sent = acquires(&mut core);
    let (_, members) = sent.remove(0);
    assert_eq!((members.len(), members[0], sent), (ACQUIRES, first, vec![]));
    assert!(ticked(&mut core, at(2)).is_empty(), "there is no room yet");
    let last = core.round(behind[ACQUIRES - 1]).expect("there");
    assert_eq!(core.phase(last), Some(Phase::Unsent));
}

#[test]
fn an_attempt_that_gives_up_behind_a_fence_is_never_sent() {
    let mut core = fast_core();
    let (_, request) = begun(&mut core, at(0), "a");
    let request = request.expect("it is alone");
    let (behind, _) = begun(&mut core, at(1), "a");
    core.event(at(1)).cancel(behind);
    core.event(at(2)).replied(&request, &outcome(Acquired::Granted, Some(&member_of(&request))));
    assert_eq!(acquires(&mut core), []);
    assert_eq!(core.phase(behind << ROUND_BITS), None);
}

#[test]
fn a_try_that_ends_behind_a_fence_does_not_say_that_too_many_are_under_way() {
    let mut core = fast_core();
    begun(&mut core, at(0), "a");
    let tried = Request { mode: Mode::Try, ..wish("a") };
    let (behind, request) = core.event(at(1)).begin(tried, ()).expect("it is open");
    assert_eq!(request, None);
    let (_, other) = begun(&mut core, at(1), "b");
    assert!(!core.is_answered(behind));
    core.event(at(2)).replied(&other.expect("it is alone"), &not_served(false));
    assert!(core.is_answered(behind), "the server is slow");
    assert_eq!(core.event(at(3)).cancel(behind), None);
}

#[test]
fn an_attempt_that_gave_up_and_is_not_served_is_over_unless_it_may_hold() {
    for may_hold in [false, true] {
        let mut core = fast_core();
        let (attempt, request) = begun(&mut core, at(0), "a");
        let request = request.expect("it is alone");
        core.event(at(1)).cancel(attempt);
        core.event(at(2)).replied(&request, &not_served(may_hold));
        let leaves = sent(&mut core);
        let is_leave = |request: &&StoreRequest| matches!(request.command, Command::Leave { .. });
        assert_eq!(leaves.iter().filter(is_leave).count(), usize::from(may_hold));
        assert_eq!(core.phase(attempt << ROUND_BITS).is_some(), may_hold);
    }
}

#[test]
fn a_member_that_may_hold_is_no_doubt_once_the_script_has_answered() {
    for is_answered in [true, false] {
        let mut core = fast_core();
        let (attempt, request) = begun(&mut core, at(0), "a");
        core.event(at(1)).replied(&request.expect("it is alone"), &not_served(true));
        let script = sent(&mut core).remove(0);
        let Outcome::Granted { number, .. } = (match is_answered {
            true => {
                let granted = outcome(Acquired::Granted, Some(&member_of(&script)));
                core.event(at(2)).replied(&script, &granted);
                core.event(at(2)).take(attempt)
            }
            false => {
                let refused = StoreError::refused(LockErrorKind::Unavailable, "busy");
                core.event(at(2)).unanswered(&script, &refused);
                core.event(at(2)).cancel(attempt);
                let leaves = sent(&mut core);
                let [StoreRequest { command: Command::Leave { leaving }, .. }] = &leaves[..] else {
                    panic!("{leaves:?}")
                };
                assert!(leaving[0].ambiguous);
                continue;
            }
        }) else {
            panic!("it is granted")
        };
        let release = core.event(at(3)).release(number).request().expect("it is held");
        assert!(matches!(release.command, Command::Release { .. }), "{release:?}");
    }
}

#[test]
fn a_release_goes_the_fast_path_where_the_name_was_free_and_notes_that_it_fell_back() {
    let mut core = fast_core();
    let (number, _) = held(&mut core, at(0), "a");
    let release = core.event(at(1)).release(number).request().expect("it is held");
    assert_eq!(release.way, Way::Fast);
    let released = Answer::Released(reply(Released::Released, LEASE, None));
    let fell_back = StoreRequest { way: Way::FellBack, ..release };
    core.event(at(2)).replied(&fell_back, &released);
    assert_eq!(begun(&mut core, at(3), "a").1.expect("alone").way, Way::Script, "others waited");
    let (number, _) = held(&mut core, at(4), "b");
    let release = core.event(at(5)).release(number).request().expect("it is held");
    core.event(at(6)).replied(&release, &released);
    assert_eq!(begun(&mut core, at(7), "b").1.expect("alone").way, Way::Fast);
}

#[test]
fn names_that_differ_in_a_number_have_histories_of_their_own() {
    let mut busy = super::super::fence::BusyNames::default();
    let names: Vec<_> = (0..64).map(|n| LockName::from(&*format!("shop:order:{n:04}"))).collect();
    let are_free = |name: &&LockName| {
        let is_free = !busy.has(name);
        busy.note(name, true);
        is_free
    };
    let free = names.iter().filter(are_free).count();
    assert!(free > 60, "{free} of 64 names");
    names.iter().for_each(|name| busy.note(name, false));
    assert!(!names.iter().any(|name| busy.has(name)));
}
