//! Attempts of which only the newest waits.

use super::*;
use crate::node::effect::Effect;
use crate::terms::WhenBusy;

fn newest(lock: &str) -> Request {
    let wish = wish(lock);
    Request { options: Terms { when_busy: WhenBusy::KeepNewest, ..wish.options }, ..wish }
}

/// Begins an attempt and returns its in-flight request.
fn asked(core: &mut Core<()>) -> (u64, StoreRequest, Member) {
    let (attempt, request) = core.event(at(0)).begin(newest("a"), ()).expect("it is open");
    let request = request.expect("the subscription stands");
    let member = member_of(&request);
    assert!(member.keeps_newest());
    (attempt, request, member)
}

/// Queues an attempt.
fn waiting(core: &mut Core<()>) -> (u64, Member) {
    let (attempt, request, member) = asked(core);
    let queued = reply(vec![Acquired::Queued { position: 0 }], LEASE, None);
    core.event(at(0)).replied(&request, &Answer::Acquired(queued));
    core.drain();
    (attempt, member)
}

fn superseded(member: &Member) -> Event {
    Event::Superseded { numbers: vec![member.number()] }
}

/// Asserts that the attempt has ended in favour of a newer attempt, that the caller is woken, and
/// that nothing is left.
#[track_caller]
fn ends(core: &mut Core<()>, attempt: u64) {
    let is_woken = core.drain().iter().any(|effect| matches!(effect, Effect::Wake(())));
    assert!(is_woken);
    let outcome = core.event(at(9_000)).take(attempt);
    let expected = Outcome::Refused(Refusal::Kind(LockErrorKind::Superseded));
    assert_eq!(format!("{outcome:?}"), format!("{expected:?}"));
    assert_eq!(core.counts(), Counts::default());
    assert!(core.table.entries().is_empty() && core.table.lines().is_empty());
    assert_eq!(ticked(core, at(9_000)), []);
}

#[test]
fn one_that_waits_ends_by_the_message_and_is_not_asked_for_again() {
    let mut core = core();
    let (attempt, member) = waiting(&mut core);
    core.event(at(1)).heard(superseded(&member));
    ends(&mut core, attempt);
}

#[test]
fn a_message_that_comes_before_the_answer_ends_it_too() {
    let mut core = core();
    let (attempt, request, member) = asked(&mut core);
    core.event(at(1)).heard(superseded(&member));
    let queued = reply(vec![Acquired::Queued { position: 0 }], LEASE, None);
    core.event(at(2)).replied(&request, &Answer::Acquired(queued));
    ends(&mut core, attempt);
}

#[test]
fn where_the_message_is_lost_a_touch_tells() {
    let mut core = core();
    let (attempt, _) = waiting(&mut core);
    let touches = ticked(&mut core, at(5_000));
    let touched = Touched { members: vec![Presence::Superseded], listeners: 1 };
    core.event(at(5_001)).replied(&touches[0], &Answer::Touched(reply(touched, LEASE, None)));
    ends(&mut core, attempt);
}

#[test]
fn one_whose_acquire_was_not_answered_finds_that_it_is_superseded_and_leaves() {
    let mut core = core();
    let (attempt, request, _) = asked(&mut core);
    core.event(at(1)).unanswered(&request, &StoreError::ambiguous("cut"));
    let again = ticked(&mut core, at(101));
    assert_eq!(again[0].command, request.command);
    let refused = reply(vec![Acquired::Refused], LEASE, None);
    core.event(at(102)).replied(&again[0], &Answer::Acquired(refused));
    let outcome = core.event(at(103)).take(attempt);
    let Outcome::Refused(Refusal::Kind(kind)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(kind, LockErrorKind::Superseded);
    let leaves = ticked(&mut core, at(103));
    assert!(matches!(&leaves[0].command, Command::Leave { leaving } if leaving[0].ambiguous));
}

#[test]
fn a_position_that_is_lost_is_asked_for_again() {
    let mut core = core();
    let (_, first) = waiting(&mut core);
    let touches = ticked(&mut core, at(5_000));
    let gone = Touched { members: vec![Presence::Gone], listeners: 1 };
    core.event(at(5_001)).replied(&touches[0], &Answer::Touched(reply(gone, LEASE, None)));
    let second = member_of(&sent(&mut core)[0]);
    assert!(second.keeps_newest() && second != first);
    assert_eq!(core.counts().positions_lost, 1);
}

/// The message comes from a server that has been replaced since.
#[test]
fn a_grant_that_is_confirmed_first_is_not_given_up() {
    let mut core = core();
    let (attempt, member) = waiting(&mut core);
    core.event(at(1)).heard(grant_message(&member, 10));
    let requests = sent(&mut core);
    assert!(matches!(requests[0].command, Command::Confirm { .. }));
    core.event(at(2)).heard(superseded(&member));
    assert!(matches!(core.event(at(3)).take(attempt), Outcome::Waits));
    assert_eq!(core.counts().attempts, 1);
}

/// The same for a grant that was handed out.
#[test]
fn a_hold_is_not_touched() {
    let mut core = core();
    let (attempt, member) = waiting(&mut core);
    core.event(at(1)).heard(grant_message(&member, 10_000));
    core.event(at(2)).heard(superseded(&member));
    assert!(matches!(core.event(at(3)).take(attempt), Outcome::Granted { .. }));
    core.event(at(4)).heard(superseded(&member));
    assert_eq!(lost(&mut core), 0);
}

#[test]
fn a_message_about_one_that_is_not_replaced_is_forged_and_ends_nothing() {
    let mut core = core();
    let (attempt, request) = core.event(at(0)).begin(wish("a"), ()).expect("it is open");
    let request = request.expect("the subscription stands");
    let queued = reply(vec![Acquired::Queued { position: 0 }], LEASE, None);
    core.event(at(0)).replied(&request, &Answer::Acquired(queued));
    core.event(at(1)).heard(superseded(&member_of(&request)));
    assert!(matches!(core.event(at(2)).take(attempt), Outcome::Waits));
    assert_eq!(core.counts().attempts, 1);
}

#[test]
fn with_confirm_grants_the_server_is_asked_before_the_message_ends_anything() {
    let mut core = core();
    core.rules.confirm_grants = true;
    let (attempt, member) = waiting(&mut core);
    for (presence, at_ms) in [(Presence::Waiting, 1), (Presence::Superseded, 3)] {
        core.event(at(at_ms)).heard(superseded(&member));
        assert!(matches!(core.event(at(at_ms)).take(attempt), Outcome::Waits));
        let touches = sent(&mut core);
        assert!(matches!(&touches[0].command, Command::Touch { members } if members[0] == member));
        let touched = Touched { members: vec![presence], listeners: 1 };
        let answer = Answer::Touched(reply(touched, LEASE, None));
        core.event(at(at_ms + 1)).replied(&touches[0], &answer);
    }
    ends(&mut core, attempt);
}

#[test]
fn with_confirm_grants_a_message_that_comes_before_the_answer_is_asked_about_after_it() {
    let mut core = core();
    core.rules.confirm_grants = true;
    let (attempt, request, member) = asked(&mut core);
    core.event(at(1)).heard(superseded(&member));
    let queued = reply(vec![Acquired::Queued { position: 0 }], LEASE, None);
    core.event(at(2)).replied(&request, &Answer::Acquired(queued));
    assert!(matches!(core.event(at(2)).take(attempt), Outcome::Waits));
    let touches = ticked(&mut core, at(2));
    let touched = Touched { members: vec![Presence::Superseded], listeners: 1 };
    core.event(at(3)).replied(&touches[0], &Answer::Touched(reply(touched, LEASE, None)));
    ends(&mut core, attempt);
}

#[test]
fn a_server_that_takes_over_is_told_that_it_has_left() {
    let mut core = core();
    let (attempt, member) = waiting(&mut core);
    core.event(at(1)).heard(superseded(&member));
    ends(&mut core, attempt);
    core.event(at(9_001)).moved();
    let leaves = ticked(&mut core, at(9_001));
    let [StoreRequest { command: Command::Leave { leaving }, .. }] = &leaves[..] else {
        panic!("{leaves:?}")
    };
    assert_eq!(leaving[0].member, member);
}

#[test]
fn a_try_waits_for_nothing_and_is_no_such_member() {
    let mut core = core();
    let wish = Request { mode: Mode::Try, ..newest("a") };
    let (_, request) = core.event(at(0)).begin(wish, ()).expect("it is open");
    assert!(!member_of(&request.expect("sent")).keeps_newest());
}

/// The server dequeues it in a separate command.
#[test]
fn it_is_in_no_batch_and_asked_for_alone() {
    let rules = Rules { acquires: ACQUIRES, batch_limit: 8, ..Rules::default() };
    let mut core: Core<()> = Core::new(NodeId::from("AAAAAAAAAAAAAAAAAAAAAA"), rules);
    let requests: Vec<_> =
        (0..3).map(|_| core.event(at(0)).begin(newest("a"), ()).expect("it is open").1).collect();
    assert!(requests[0].is_some() && requests[1].is_none());
    let rest = ticked(&mut core, at(0));
    let groups = grouped(rest, |_| true, |_| 0);
    let sizes = groups.iter().map(|group| match &group[0].command {
        Command::Acquire { members, .. } => members.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [1, 1]);
}
