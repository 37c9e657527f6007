//! Reads, writes and permits: several grants at once.

use super::*;

fn is_granted(core: &mut Core<()>, now: Moment, attempt: u64) -> bool {
    matches!(core.take(now, attempt, &mut Vec::new()), Outcome::Granted { .. })
}

#[test]
fn one_message_grants_several_and_another_takes_several_away() {
    let (mut core, mut fx) = (core(), Vec::new());
    let [one, other, third] = [(); 3].map(|()| read_queued(&mut core, at(0)));
    let grants = vec![(one.2, 10_000), (other.2, 10_000), (999 << 20, 10_000)];
    core.heard(at(1), Event::GrantedSeveral { token: token(), grants }, &mut fx);
    assert!(is_granted(&mut core, at(1), one.0) && is_granted(&mut core, at(1), other.0));
    assert!(!is_granted(&mut core, at(1), third.0));
    let numbers = vec![one.2, other.2, 999 << 20];
    core.heard(at(2), Event::RevokedSeveral { numbers }, &mut fx);
    assert_eq!(lost(&mut fx), 2);
}

#[test]
fn one_reply_tells_of_several_holds_each_with_its_own_time_left() {
    let (mut core, mut fx) = (core(), Vec::new());
    let [one, other] = [(); 2].map(|()| read_queued(&mut core, at(0)));
    let held = |(_, ask, _): &(u64, Ask, u64), left_ms| Share {
        member: member_of(ask),
        token: token(),
        left_ms,
    };
    let several = vec![held(&one, 30_000), held(&other, 10_000)];
    let presence = Touched { members: vec![Presence::Holding; 2], listeners: 1 };
    let answer = Answer::Touched(Reply { several, ..reply(presence, LEASE, None) });
    let touch = Ask {
        command: Command::Touch { members: vec![member_of(&one.1), member_of(&other.1)] },
        ..one.1.clone()
    };
    core.replied(at(1), &touch, &answer, &mut fx);
    assert!(is_granted(&mut core, at(1), one.0) && is_granted(&mut core, at(1), other.0));
    let until = |number| match &core.entries[&number].state {
        State::Held(lease) => lease.until(),
        other => panic!("{other:?}"),
    };
    assert!(until(one.2) > at(29_000) && until(other.2) < at(10_000));
}

#[test]
fn what_a_downgrade_grants_is_taken_in_and_one_that_is_not_held_is_lost() {
    let (mut core, mut fx) = (core(), Vec::new());
    let [write, read] = [(); 2].map(|()| read_queued(&mut core, at(0)));
    let grants = vec![(write.2, 10_000)];
    core.heard(at(1), Event::GrantedSeveral { token: token(), grants }, &mut fx);
    assert_eq!(core.downgrade(at(1), write.2), None, "its caller has not come for it");
    assert!(is_granted(&mut core, at(1), write.0));
    let ask = core.downgrade(at(1), write.2).expect("held");
    assert_eq!(ask.command, Command::Downgrade { member: member_of(&write.1) });
    let several = vec![Share { member: member_of(&read.1), token: token(), left_ms: 10_000 }];
    let done = Reply { several, ..reply(Renewed::Held, LEASE, None) };
    core.replied(at(2), &ask, &Answer::Renewed(done), &mut fx);
    assert!(is_granted(&mut core, at(2), read.0));
    assert_eq!(lost(&mut fx), 0);
    let gone = reply(Renewed::NotHeld, Duration::ZERO, None);
    core.replied(at(3), &ask, &Answer::Renewed(gone), &mut fx);
    assert_eq!(lost(&mut fx), 1);
}
