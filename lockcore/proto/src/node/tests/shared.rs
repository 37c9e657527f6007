//! Reads, writes and permits: several grants at once.

use super::*;

fn is_granted(core: &mut Core<()>, now: Moment, attempt: u64) -> bool {
    matches!(core.event(now).take(attempt), Outcome::Granted { .. })
}

#[test]
fn one_message_grants_several_and_another_takes_several_away() {
    let mut core = core();
    let [one, other, third] = [(); 3].map(|()| read_queued(&mut core, at(0)));
    let grants = vec![(one.2, 10_000), (other.2, 10_000), (999 << 20, 10_000)];
    core.event(at(1)).heard(Event::Granted { token: token(), grants });
    assert!(is_granted(&mut core, at(1), one.0) && is_granted(&mut core, at(1), other.0));
    assert!(!is_granted(&mut core, at(1), third.0));
    let numbers = vec![one.2, other.2, 999 << 20];
    core.event(at(2)).heard(Event::Revoked { numbers });
    assert_eq!(lost(&mut core), 2);
}

#[test]
fn one_reply_tells_of_several_holds_each_with_its_own_time_left() {
    let mut core = core();
    let [one, other] = [(); 2].map(|()| read_queued(&mut core, at(0)));
    let held = |(_, request, _): &(u64, StoreRequest, u64), left_ms| Grant {
        member: member_of(request),
        token: token(),
        left_ms,
        batch: Vec::new(),
    };
    let grants = vec![held(&one, 30_000), held(&other, 10_000)];
    let presence = Touched { members: vec![Presence::Holding; 2], listeners: 1 };
    let answer = Answer::Touched(Reply { grants, ..reply(presence, LEASE, None) });
    let touch = StoreRequest {
        command: Command::Touch { members: vec![member_of(&one.1), member_of(&other.1)] },
        ..one.1.clone()
    };
    core.event(at(1)).replied(&touch, &answer);
    assert!(is_granted(&mut core, at(1), one.0) && is_granted(&mut core, at(1), other.0));
    let until = |number| match &core.table.entries()[&number].state {
        State::Held(lease) => lease.until(),
        other => panic!("{other:?}"),
    };
    assert!(until(one.2) > at(29_000) && until(other.2) < at(10_000));
}

#[test]
fn what_a_downgrade_grants_is_taken_in_and_one_that_is_not_held_is_lost() {
    let mut core = core();
    let [write, read] = [(); 2].map(|()| read_queued(&mut core, at(0)));
    let grants = vec![(write.2, 10_000)];
    core.event(at(1)).heard(Event::Granted { token: token(), grants });
    assert_eq!(core.event(at(1)).downgrade(write.2), None, "its caller has not come for it");
    assert!(is_granted(&mut core, at(1), write.0));
    let request = core.event(at(1)).downgrade(write.2).expect("held");
    let weight = std::num::NonZeroU32::MIN;
    assert_eq!(request.command, Command::reduce(member_of(&write.1), weight));
    let (member, batch) = (member_of(&read.1), Vec::new());
    let grants = vec![Grant { member, token: token(), left_ms: 10_000, batch }];
    let done = Reply { grants, ..reply(vec![Renewed::Held], LEASE, None) };
    core.event(at(2)).replied(&request, &Answer::Renewed(done));
    assert!(is_granted(&mut core, at(2), read.0));
    assert_eq!(lost(&mut core), 0);
    let gone = reply(vec![Renewed::NotHeld], Duration::ZERO, None);
    core.event(at(3)).replied(&request, &Answer::Renewed(gone));
    assert_eq!(lost(&mut core), 1);
}
