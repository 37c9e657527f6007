//! A node that is closed.

use super::*;

#[test]
fn a_shutdown_releases_what_the_server_has_of_a_lost_hold_whose_guard_is_still_there() {
    let mut core = core();
    let longest =
        Terms { lease: LEASE, max_hold: Some(Duration::from_secs(2)), ..Terms::default() };
    let (attempt, request) =
        core.event(at(0)).begin(Request { options: longest, ..wish("a") }, ()).expect("it is open");
    let request = request.expect("the subscription stands");
    let granted = reply(vec![Acquired::Granted], LEASE, Some(&member_of(&request)));
    core.event(at(0)).replied(&request, &Answer::Acquired(granted));
    assert!(matches!(core.event(at(0)).take(attempt), Outcome::Granted { .. }));
    assert_eq!(ticked(&mut core, at(1_900)), [], "it is lost, and its guard has not gone");
    core.close();
    assert_eq!(core.event(at(1_901)).take_holds(0, "the node was shut down"), (0, None));
    assert_eq!(core.counts().given_back, 1);
    let leaving = vec![Leaving::new(member_of(&request), false)];
    let leaves = ticked(&mut core, at(1_901));
    assert_eq!(leaves[0].command, Command::Leave { leaving });
}

#[test]
fn an_offer_that_is_not_taken_before_its_node_is_closed_is_not_asked_for_again() {
    for is_ticked in [false, true] {
        let mut core = core();
        let (attempt, member) = offered(&mut core, at(0), "a");
        core.close();
        core.event(at(1)).end_attempts(0, LockErrorKind::Closed);
        let mut requests = if is_ticked { ticked(&mut core, at(20_000)) } else { Vec::new() };
        let taken = core.event(at(20_001)).take(attempt);
        let Outcome::Refused(Refusal::Kind(LockErrorKind::Closed)) = taken else {
            panic!("{taken:?}");
        };
        requests.extend(ticked(&mut core, at(20_002)));
        requests.extend(sent(&mut core));
        assert_eq!(requests.len(), 1, "{requests:?}");
        assert_eq!(requests[0].command, Command::Release { member });
        assert_eq!(core.counts().attempts, 0);
    }
}

#[test]
fn a_closed_node_ends_what_waits_and_takes_what_is_held() {
    let mut core = core();
    let (attempt, _) = queued(&mut core, at(0), "a");
    let (number, _) = held(&mut core, at(0), "b");
    core.close();
    assert!(core.event(at(1)).begin(wish("c"), ()).is_none());
    assert_eq!(core.event(at(1)).end_attempts(0, LockErrorKind::Closed), (1, None));
    let Outcome::Refused(refusal) = core.event(at(1)).take(attempt) else {
        panic!("it was ended");
    };
    assert_eq!(refusal, Refusal::Kind(LockErrorKind::Closed));
    assert_eq!(core.event(at(2)).take_holds(0, "the node was shut down"), (1, None));
    let (mut requests, mut lost) = (Vec::new(), 0);
    for effect in core.drain() {
        match effect {
            Effect::Send(request) => requests.push(request),
            Effect::NotifyLost(()) => lost += 1,
            _ => {}
        }
    }
    assert_eq!(lost, 1);
    assert_eq!(core.event(at(3)).release(number), GivenBack::Nothing, "it was taken away");
    for request in requests {
        let answer = match &request.command {
            Command::Leave { .. } => Answer::Left(reply(vec![Left::Left], LEASE, None)),
            _ => Answer::Released(reply(Released::Released, LEASE, None)),
        };
        core.event(at(4)).replied(&request, &answer);
    }
    let Counts { attempts, holds, given_back, .. } = core.counts();
    assert_eq!((attempts, holds, given_back), (0, 0, 0));
}

/// A bounded part of the holds is taken at a time, and between two parts other tasks run.
#[test]
fn a_lost_batch_at_the_end_of_a_part_is_released_once_with_its_guard() {
    let mut core = core();
    for nth in 1..MAX_AT_ONCE {
        held(&mut core, at(0), &nth.to_string());
    }
    let members = [(); 2].map(|()| {
        let (_, member) = queued(&mut core, at(0), "a");
        member
    });
    let numbers = members.each_ref().map(Member::number);
    let grant = Event::GrantedBatch { token: token(), left_ms: 10_000, numbers: numbers.to_vec() };
    core.event(at(1)).heard(grant);
    let Outcome::Granted { number, .. } = core.event(at(1)).take(numbers[0] >> ROUND_BITS) else {
        panic!("it is not granted");
    };
    core.event(at(2)).heard(Event::Revoked { numbers: numbers.to_vec() });
    core.drain();
    core.close();
    core.event(at(3)).end_attempts(0, LockErrorKind::Closed);
    core.event(at(3)).take_holds(0, "the node was shut down");
    let mut requests = sent(&mut core);
    for request in &requests {
        let answer = match &request.command {
            Command::Leave { .. } => Answer::Left(reply(vec![Left::Left], LEASE, None)),
            _ => Answer::Released(reply(Released::Released, LEASE, None)),
        };
        core.event(at(3)).replied(request, &answer);
    }
    core.event(at(4)).dropped(number);
    requests.extend(sent(&mut core));
    let is_left = |request: &&StoreRequest| match &request.command {
        Command::Leave { leaving } => leaving.iter().any(|one| one.member == members[0]),
        _ => false,
    };
    assert_eq!(requests.iter().filter(is_left).count(), 1);
}

#[test]
fn an_offer_that_is_not_taken_before_its_runtime_ends_is_refused() {
    let mut core = core();
    let (attempt, _) = offered(&mut core, at(0), "a");
    core.close();
    core.event(at(1)).end_attempts(0, LockErrorKind::Closed);
    core.drain();
    assert_eq!(core.event(at(1)).lose_holds(0, "the runtime has ended"), None);
    let effects = core.drain();
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Wake(()))), "{effects:?}");
    let Outcome::Refused(Refusal::Kind(LockErrorKind::Closed)) = core.event(at(2)).take(attempt)
    else {
        panic!("it was ended");
    };
}
