//! Releases and leaves, beside acquires.

use super::*;

/// Returns the response of a server where every lock is free.
fn answer_of(request: &StoreRequest) -> Answer {
    match &request.command {
        Command::Acquire { members, .. } => {
            Answer::Acquired(reply(vec![Acquired::Granted], LEASE, members.first()))
        }
        Command::Release { .. } => {
            Answer::Released(reply(Released::Released, Duration::ZERO, None))
        }
        Command::Leave { leaving } => {
            Answer::Left(reply(vec![Left::Left; leaving.len()], Duration::ZERO, None))
        }
        other => panic!("{other:?} is not sent here"),
    }
}

// H1: in a process with a busy thread, a round of tasks lies between a request and its response,
// and the background has one turn in each round.
#[test]
fn holds_without_an_owner_are_fewer_than_twice_the_tasks_however_busy_they_are() {
    const TASKS: usize = 1_000;
    let rules = Rules { seed: 7, ..Rules::default() };
    let mut core: Core<()> = Core::new(NodeId::from("AAAAAAAAAAAAAAAAAAAAAA"), rules);
    let mut attempts: Vec<Option<u64>> = vec![None; TASKS];
    let mut on_their_way: Vec<StoreRequest> = Vec::new();
    for round in 0..50 {
        let now = at(round);
        for request in std::mem::take(&mut on_their_way) {
            core.event(now).replied(&request, &answer_of(&request));
            on_their_way.extend(sent(&mut core));
        }
        for (task, attempt) in attempts.iter_mut().enumerate() {
            if let Some(asked) = *attempt {
                match core.event(now).take(asked) {
                    Outcome::Granted { number, .. } => core.event(now).dropped(number),
                    Outcome::Waits => continue,
                    Outcome::Refused(refusal) => panic!("{refusal:?}"),
                }
                on_their_way.extend(sent(&mut core));
            }
            let wish = wish(&format!("{task} {round}"));
            let (asked, request) = core.event(now).begin(wish, ()).expect("it is open");
            *attempt = Some(asked);
            on_their_way.extend(request);
        }
        core.event(now).tick();
        on_their_way.extend(sent(&mut core));
        let given_back = core.counts().given_back;
        assert!(given_back < 2 * TASKS, "{given_back} after {round} rounds");
    }
}

#[test]
fn a_dropped_guard_is_released_at_once_in_a_flood_of_cancelled_waits() {
    let mut core = core();
    let waits: Vec<_> =
        (0..1_000).map(|wait| queued(&mut core, at(0), &format!("{wait}")).0).collect();
    let (number, member) = held(&mut core, at(0), "guarded");
    for wait in waits {
        core.event(at(1)).cancel(wait);
        core.drain();
    }
    core.event(at(1)).dropped(number);
    let requests = sent(&mut core);
    let release = Command::Release { member };
    assert!(requests.iter().any(|request| request.command == release), "{requests:?}");
}

#[test]
fn the_leave_of_a_cancelled_wait_goes_out_at_once_whatever_acquires_are_on_their_way() {
    let mut core = core();
    let (wait, member) = queued(&mut core, at(0), "a");
    for acquire in 0..1_000 {
        core.event(at(0)).begin(wish(&format!("{acquire}")), ()).expect("it is open");
    }
    core.drain();
    core.event(at(1)).cancel(wait);
    let requests = sent(&mut core);
    let [StoreRequest { command: Command::Leave { leaving }, .. }] = &requests[..] else {
        panic!("{requests:?}");
    };
    assert_eq!(leaving[0].member, member);
}

#[test]
fn cancelled_waits_that_find_many_leaves_on_their_way_leave_together() {
    let mut core = core();
    let waits: Vec<_> = (0..500).map(|_| queued(&mut core, at(0), "a").0).collect();
    let mut first = Vec::new();
    for wait in waits {
        core.event(at(1)).cancel(wait);
        first.extend(sent(&mut core));
    }
    assert_eq!(first.len(), 2 * ACQUIRES, "each alone");
    assert_eq!(ticked(&mut core, at(1)), [], "no more until one is answered");
    let mut others = Vec::new();
    for leave in &first[..2] {
        core.event(at(2)).replied(leave, &answer_of(leave));
        for request in sent(&mut core) {
            let Command::Leave { leaving } = &request.command else { panic!("{request:?}") };
            others.push(leaving.len());
        }
    }
    assert_eq!(others, [256, 500 - 2 * ACQUIRES - 256]);
}

#[test]
fn a_failed_release_is_repeated_by_a_tick() {
    let mut core = core();
    let (number, member) = held(&mut core, at(0), "a");
    core.event(at(1)).dropped(number);
    let release = sent(&mut core);
    core.event(at(2)).unanswered(&release[0], &StoreError::ambiguous("cut"));
    let again = ticked(&mut core, at(2));
    let [StoreRequest { command: Command::Leave { leaving }, .. }] = &again[..] else {
        panic!("{again:?}");
    };
    assert_eq!(leaving[0].member, member);
}
