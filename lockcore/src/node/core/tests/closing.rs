//! A node that is closed.

use super::*;

#[test]
fn a_shutdown_gives_back_what_the_server_has_of_a_lost_hold_whose_guard_is_still_there() {
    let mut core = core();
    let mut fx = Vec::new();
    let longest = LockOptions::new().lease(LEASE).max_hold(Duration::from_secs(2)).terms();
    let (attempt, ask) =
        core.begin(at(0), Request { options: longest, ..wish("a") }, ()).expect("it is open");
    let ask = ask.expect("the subscription stands");
    let granted = reply(Acquired::Granted, LEASE, Some(&member_of(&ask)));
    core.replied(at(0), &ask, &Answer::Acquired(granted), &mut fx);
    assert!(matches!(core.take(at(0), attempt, &mut fx), Outcome::Granted { .. }));
    assert_eq!(ticked(&mut core, at(2_000)), [], "it is lost, and its guard has not gone");
    core.close();
    assert_eq!(core.take_holds(at(2_001), 0, "the node was shut down", &mut fx), (0, None));
    assert_eq!(core.counts().given_back, 1);
    let releases = ticked(&mut core, at(2_001));
    assert_eq!(releases[0].command, Command::Release { member: member_of(&ask) });
}

#[test]
fn an_offer_that_is_not_taken_before_its_node_is_closed_is_not_asked_for_again() {
    for is_ticked in [false, true] {
        let mut core = core();
        let mut fx = Vec::new();
        let (attempt, member) = offered(&mut core, at(0), "a");
        core.close();
        core.end_attempts(at(1), 0, LockErrorKind::Closed, &mut fx);
        let mut asks = if is_ticked { ticked(&mut core, at(20_000)) } else { Vec::new() };
        let taken = core.take(at(20_001), attempt, &mut fx);
        let Outcome::Refused(Refusal::Kind(LockErrorKind::Closed)) = taken else {
            panic!("{taken:?}");
        };
        asks.extend(ticked(&mut core, at(20_002)));
        asks.extend(sent(&mut fx));
        assert_eq!(asks.len(), 1, "{asks:?}");
        assert_eq!(asks[0].command, Command::Release { member });
        assert_eq!(core.counts().attempts, 0);
    }
}

#[test]
fn a_closed_node_ends_what_waits_and_takes_what_is_held() {
    let mut core = core();
    let mut fx = Vec::new();
    let (attempt, _) = queued(&mut core, at(0), "a");
    let (number, _) = held(&mut core, at(0), "b");
    core.close();
    assert!(core.begin(at(1), wish("c"), ()).is_none());
    assert_eq!(core.end_attempts(at(1), 0, LockErrorKind::Closed, &mut fx), (1, None));
    let Outcome::Refused(refusal) = core.take(at(1), attempt, &mut fx) else {
        panic!("it was ended");
    };
    assert_eq!(refusal, Refusal::Kind(LockErrorKind::Closed));
    assert_eq!(core.take_holds(at(2), 0, "the node was shut down", &mut fx), (1, None));
    assert_eq!(lost(&mut fx), 1);
    assert_eq!(core.release(at(3), number, &mut fx), None, "it was taken away");
    for ask in ticked(&mut core, at(3)) {
        let answer = match &ask.command {
            Command::Leave { .. } => Answer::Left(reply(vec![Left::Left], LEASE, None)),
            _ => Answer::Released(reply(Released::Released, LEASE, None)),
        };
        core.replied(at(4), &ask, &answer, &mut fx);
    }
    let Counts { attempts, holds, given_back, .. } = core.counts();
    assert_eq!((attempts, holds, given_back), (0, 0, 0));
}
