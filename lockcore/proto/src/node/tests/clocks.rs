//! Server clocks, beside the node's own clock.

use std::collections::BTreeSet;

use super::*;

/// Returns the response of a server whose clock shows `ms`.
fn by(server_ms: u64, answer: Answer) -> Answer {
    let now_us = Some(server_ms * 1_000);
    match answer {
        Answer::Renewed(reply) => Answer::Renewed(Reply { now_us, ..reply }),
        Answer::Touched(reply) => Answer::Touched(Reply { now_us, ..reply }),
        other => panic!("{other:?}"),
    }
}

fn renewed(request: &StoreRequest, server_ms: u64) -> Answer {
    by(server_ms, Answer::Renewed(reply(vec![Renewed::Held], LEASE, Some(&member_of(request)))))
}

// A4.
#[test]
fn holds_are_renewed_at_once_when_the_server_s_clock_ran_ahead_and_none_is_lost_by_that() {
    let mut core = core();
    let holds: Vec<_> = (0..200).map(|lock| held(&mut core, at(0), &format!("{lock}")).0).collect();
    let (offer, _) = offered(&mut core, at(5_000), "offered");
    // A third of a lease later, and the next response in time.
    let first = ticked(&mut core, at(10_000));
    core.event(at(10_010)).replied(&first[0], &renewed(&first[0], 10_005));
    core.event(at(10_130)).replied(&first[1], &renewed(&first[1], 10_120));
    assert_eq!(ticked(&mut core, at(10_131)), [], "all of them are on their way");
    assert_eq!(core.doubted_before, Moment::default());
    // The node's clock has advanced by a tenth of a second, the server's clock by 40 s.
    let (_, request) = core.event(at(10_200)).begin(wish("x"), ()).expect("it is open");
    let request = request.expect("the subscription stands");
    let granted = reply(vec![Acquired::Granted], LEASE, Some(&member_of(&request)));
    let answer = Answer::Acquired(Reply { now_us: Some(50_205_000), ..granted });
    core.event(at(10_210)).replied(&request, &answer);
    assert_eq!(lost(&mut core), 0, "only the server can say that");
    let mut again = ticked(&mut core, at(10_211));
    assert_eq!(again.len(), 2, "the others are on their way since before");
    core.event(at(10_212)).take(offer);
    again.extend(ticked(&mut core, at(10_212)));
    assert_eq!(again.len(), 3, "and the hold that was only offered by then");
    // A renewal in flight is repeated: it may have run before.
    core.event(at(10_220)).replied(&first[2], &renewed(&first[2], 50_215));
    assert_eq!(ticked(&mut core, at(10_221))[0].command.renews(), first[2].command.renews());
    for request in &again {
        core.event(at(10_230)).replied(request, &renewed(request, 50_225));
    }
    assert_eq!((ticked(&mut core, at(10_231)), lost(&mut core)), (vec![], 0));
    assert_eq!(core.counts().holds, holds.len() + 2, "and the two that were offered");
}

// A4.
#[test]
fn a_grant_from_before_the_server_s_clock_ran_ahead_is_confirmed_before_it_is_handed_out() {
    let mut core = core();
    let (attempt, member) = queued(&mut core, at(0), "a");
    let (_, request) = core.event(at(2_000)).begin(wish("x"), ()).expect("it is open");
    let queued = reply(vec![Acquired::Queued { position: 0 }], LEASE, None);
    let answer = Answer::Acquired(Reply { now_us: Some(1_000_000_000), ..queued });
    core.event(at(2_001)).replied(&request.expect("sent"), &answer);
    let message = grant_message(&member, 10_000);
    core.event(at(2_002)).heard(message);
    assert!(matches!(core.event(at(2_002)).take(attempt), Outcome::Waits));
    let confirming = sent(&mut core);
    assert_eq!(confirming[0].command, Command::Confirm { member });
    core.event(at(2_003)).replied(&confirming[0], &renewed(&confirming[0], 1_000_001));
    assert!(matches!(core.event(at(2_004)).take(attempt), Outcome::Granted { .. }));
}

// A4.
#[test]
fn a_server_that_answers_late_out_of_order_or_with_a_clock_set_back_gives_no_doubt() {
    let mut core = core();
    let requests: Vec<_> = (0..4)
        .map(|number| {
            let wish = wish(&format!("lock {number}"));
            let (_, request) = core.event(at(number * 100)).begin(wish, ()).expect("it is open");
            request.expect("the subscription stands")
        })
        .collect();
    let queued = |server_ms: u64| {
        let queued = reply(vec![Acquired::Queued { position: 0 }], LEASE, None);
        Answer::Acquired(Reply { now_us: Some(server_ms * 1_000), ..queued })
    };
    core.event(at(10)).replied(&requests[0], &queued(5_000));
    // This request ran three seconds after it was sent, and is answered even later.
    core.event(at(3_500)).replied(&requests[2], &queued(8_100));
    core.event(at(3_600)).replied(&requests[1], &queued(5_100));
    core.event(at(3_700)).replied(&requests[3], &queued(1_000));
    assert_eq!(core.doubted_before, Moment::default());
    // The next response is compared with this one.
    let (_, request) = core.event(at(3_800)).begin(wish("a"), ()).expect("it is open");
    core.event(at(3_900)).replied(&request.expect("sent"), &queued(5_000));
    assert_eq!(core.doubted_before, at(3_800));
}

#[test]
fn an_answer_that_does_not_tell_the_time_is_compared_with_nothing() {
    let mut core = core();
    for (lock, now_us) in [("a", 1_000), ("b", 0), ("c", 1_500)] {
        let (_, request) = core.event(at(1_000)).begin(wish(lock), ()).expect("it is open");
        let queued = Reply {
            now_us: Some(now_us),
            ..reply(vec![Acquired::Queued { position: 0 }], LEASE, None)
        };
        core.event(at(1_001)).replied(&request.expect("sent"), &Answer::Acquired(queued));
    }
    assert_eq!(core.doubted_before, Moment::default());
}

// Clocks of different servers are not compared with each other.
#[test]
fn each_slot_of_a_cluster_has_a_clock_of_its_own() {
    let mut core = core();
    core.event(at(0)).set_lanes(lanes());
    let locks = [0, 1].map(|lane| named(lane, 0));
    for lock in &locks {
        held(&mut core, at(0), lock);
    }
    // The second server's clock is set forward, which is reported once.
    for (now, clocks) in [(10_000, [10_005, 90_005]), (20_000, [20_005, 100_005])] {
        let renewals = ticked(&mut core, at(now));
        for request in &renewals {
            let server_ms = clocks[usize::from(request.lane)];
            core.event(at(now + 10)).replied(request, &renewed(request, server_ms));
        }
        for request in ticked(&mut core, at(now + 20)) {
            core.event(at(now + 30))
                .replied(&request, &renewed(&request, clocks[usize::from(request.lane)] + 20));
        }
        assert_eq!(core.doubted_before, at(10_000), "at {now}");
    }
}

// Each slot would show the step, and each detection begins to renew all holds from the first on.
#[test]
fn a_step_of_a_server_s_clock_is_detected_once_however_many_of_its_slots_have_holds() {
    const HOLDS: usize = 1_024;
    let mut core = core();
    core.event(at(0)).set_lanes(lanes());
    let mut slots = BTreeSet::new();
    let mut names = (0..).map(|number: u64| number.to_string());
    while slots.len() < HOLDS {
        let name = names.next().expect("there is no last number");
        if slots.insert(LockName::from(name.as_str()).slot()) {
            held(&mut core, at(0), &name);
        }
    }
    let (mut steps, mut renewals, mut now) = (0, 0, 11_000);
    loop {
        while core.event(at(now)).tick() {}
        let mut requests = Vec::new();
        for effect in core.drain() {
            match effect {
                Effect::Send(request) => requests.push(request),
                Effect::Observe(Note::ServerAhead { .. }) => steps += 1,
                _ => {}
            }
        }
        if requests.is_empty() {
            break;
        }
        renewals += requests.len();
        now += 1;
        for request in &requests {
            core.event(at(now)).replied(request, &renewed(request, now + 5_000));
        }
    }
    assert_eq!(steps, LANES, "one for each server");
    assert!(renewals <= 2 * HOLDS, "{renewals} renewals");
}

#[test]
fn a_late_response_that_shows_the_server_ahead_takes_no_later_doubt_back() {
    let mut core = core();
    let (hold, _) = held(&mut core, at(5_500), "a");
    let (_, request) = core.event(at(5_000)).begin(wish("a"), ()).expect("it is open");
    core.event(at(6_000)).linked(Link::Up, Link::Up);
    let queued = reply(vec![Acquired::Queued { position: 0 }], LEASE, None);
    let answer = Answer::Acquired(Reply { now_us: Some(1_000_000_000), ..queued });
    core.event(at(6_001)).replied(&request.expect("sent"), &answer);
    assert_eq!(core.doubted_before, at(6_000) + Duration::from_micros(1));
    let renewed = ticked(&mut core, at(6_002));
    assert!(
        renewed.iter().any(|request| request
            .command
            .renews()
            .iter()
            .any(|member| member.number() == hold)),
        "{renewed:?}"
    );
}
