//! Touches of local queues.

use super::*;

#[test]
fn touches_of_long_lines_are_on_their_way_four_scripts_at_once_too() {
    let mut core = core();
    for lock in 0..20 {
        for _ in 0..256 {
            queued(&mut core, at(0), &format!("{lock}"));
        }
    }
    let due = core.next().expect("lines wait");
    let requests = ticked(&mut core, due);
    assert_eq!(touches(&requests), 4);
}

// A3.
#[test]
fn after_an_interruption_lines_are_touched_once_within_the_window_and_part_from_then_on() {
    let mut core = core();
    for lock in 0..20_000 {
        queued(&mut core, at(0), &format!("{lock}"));
    }
    core.event(at(500)).linked(Link::down("cut"), Link::Up);
    assert_eq!(ticked(&mut core, at(600)), [], "nothing is sent without a connection");
    core.event(at(700)).linked(Link::Up, Link::Up);
    core.event(at(700)).heard(Event::Resubscribed);
    core.drain();
    let mut touched = 0;
    loop {
        let requests = ticked(&mut core, at(701));
        if requests.is_empty() {
            break;
        }
        assert!(requests.len() <= 4 * 64, "{} are on their way at once", requests.len());
        touched += requests.len();
        for request in requests {
            let waiting = Touched { members: vec![Presence::Waiting], listeners: 1 };
            let answer = Answer::Touched(reply(waiting, LEASE, None));
            core.event(at(701)).replied(&request, &answer);
            core.drain();
        }
    }
    assert_eq!(touched, 20_000, "each once, although two things said that messages may be missing");
    let dues: Vec<Moment> = core.table.lane(0).touches.iter().map(|(at, _)| *at).collect();
    let in_window = |from, to| dues.iter().filter(|due| (from..to).contains(*due)).count();
    for start in (2_701..4_701).step_by(250) {
        let part = in_window(at(start), at(start + 250));
        assert!((1_500..3_500).contains(&part), "{part} lines are due in a quarter of a second");
    }
}

fn touches(requests: &[StoreRequest]) -> usize {
    requests.iter().filter(|request| matches!(request.command, Command::Touch { .. })).count()
}

#[test]
fn a_touch_that_is_due_takes_along_lines_that_follow_soon_but_none_that_waits_for_a_lease_to_end() {
    let mut core = core();
    for (at_ms, lock) in [(0, "a"), (60, "b"), (300, "c")] {
        queued(&mut core, at(at_ms), lock);
    }
    let due = core.next().expect("the first");
    // The lease of this lock's holder ends a little later.
    let (_, waits) = queued(&mut core, at(0), "d");
    core.event(at(3_000)).heard(Event::Poked { number: waits.number() });
    let request = sent(&mut core).remove(0);
    core.event(at(3_000)).touch_line(&LockName::from("d"));
    let waiting = Touched { members: vec![Presence::Waiting], listeners: 1 };
    let left = (due + Duration::from_millis(40)).since(at(3_000));
    core.event(at(3_000)).replied(&request, &Answer::Touched(reply(waiting, left, None)));
    let requests = ticked(&mut core, due);
    let locks: Vec<&str> = requests.iter().map(|request| request.lock.as_str()).collect();
    assert_eq!(locks, ["a", "b"]);
}

#[test]
fn no_more_lines_are_touched_ahead_of_time_than_the_window_has_room_for() {
    let mut core = core();
    for number in 0..300 {
        queued(&mut core, at(number / 30), &format!("line {number}"));
    }
    let due = core.next().expect("lines wait");
    let requests = ticked(&mut core, due);
    assert_eq!(touches(&requests), 256);
}

#[test]
fn where_a_command_left_something_to_do_a_touch_follows_at_once() {
    let mut core = core();
    let (_, request, _) = read_queued(&mut core, at(0));
    let member = member_of(&request);
    let release = StoreRequest { command: Command::Release { member }, ..request };
    let done = Reply { more: true, ..reply(Released::Released, LEASE, None) };
    core.event(at(1)).replied(&release, &Answer::Released(done));
    let asked = sent(&mut core);
    assert_eq!(asked[0].command, Command::Touch { members: Vec::new() });
    assert_eq!(asked[0].lock, release.lock);
    let done = Touched { members: Vec::new(), listeners: 1 };
    let done = Reply { more: true, ..reply(done, LEASE, None) };
    core.event(at(2)).replied(&asked[0], &Answer::Touched(done));
    assert_eq!(sent(&mut core).len(), 1, "until nothing is left to do");
}

/// Passes in the response to a touch that found no subscriber of this node. Returns how often the
/// subscription is opened again.
fn unheard(core: &mut Core<()>, now: Moment, touch: &StoreRequest) -> usize {
    let waiting = Touched { members: vec![Presence::Waiting], listeners: 0 };
    core.event(now).replied(touch, &Answer::Touched(reply(waiting, LEASE, None)));
    core.drain().into_iter().filter(|effect| matches!(effect, Effect::Reopen)).count()
}

#[test]
fn a_touch_from_before_the_subscription_came_back_does_not_have_it_opened_again() {
    let mut core = core();
    queued(&mut core, at(0), "a");
    core.event(at(1_000)).linked(Link::Up, Link::down("cut"));
    core.event(at(1_001)).touch_line(&LockName::from("a"));
    let before = sent(&mut core);
    core.event(at(1_002)).linked(Link::Up, Link::Up);
    assert_eq!(unheard(&mut core, at(1_003), &before[0]), 0, "it was sent while there was none");
    let since = ticked(&mut core, at(1_003));
    assert_eq!((touches(&since), unheard(&mut core, at(1_004), &since[0])), (1, 1));
}

#[test]
fn of_several_touches_on_their_way_one_has_the_subscription_opened_again() {
    let mut core = core();
    for lock in ["a", "b"] {
        queued(&mut core, at(0), lock);
    }
    for lock in ["a", "b"] {
        core.event(at(1_000)).touch_line(&LockName::from(lock));
    }
    let touches = sent(&mut core);
    assert_eq!(unheard(&mut core, at(1_001), &touches[0]), 1);
    assert_eq!(unheard(&mut core, at(1_002), &touches[1]), 0, "it is being opened");
    core.event(at(1_003)).touch_line(&LockName::from("a"));
    let later = sent(&mut core);
    assert_eq!(unheard(&mut core, at(1_004), &later[0]), 1, "it is still unknown");
}

// A request with a lease of 100 ms once had all waiters touched 25 times a second for good.
#[test]
fn a_line_is_touched_as_rarely_as_its_present_waiters_need_once_one_with_a_short_lease_has_left() {
    let mut core = core();
    queued(&mut core, at(0), "a");
    let options = Terms { lease: Duration::from_millis(100), ..Terms::default() };
    let short = Request { options, ..wish("a") };
    let (attempt, request) = core.event(at(0)).begin(short, ()).expect("it is open");
    let queued = reply(vec![Acquired::Queued { position: 1 }], LEASE, None);
    core.event(at(0)).replied(&request.expect("there is room"), &Answer::Acquired(queued));
    core.event(at(1)).cancel(attempt);
    core.drain();
    let mut touched = 0;
    for now in (0..20_000).step_by(10) {
        for request in ticked(&mut core, at(now)) {
            let Command::Touch { members } = &request.command else { continue };
            touched += 1;
            let members = vec![Presence::Waiting; members.len()];
            let answer = Touched { members, listeners: 1 };
            core.event(at(now)).replied(&request, &Answer::Touched(reply(answer, LEASE, None)));
        }
    }
    assert!((4..=7).contains(&touched), "{touched} touches in 20 s");
}
