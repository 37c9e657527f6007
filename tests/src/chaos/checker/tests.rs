//! Hand-made histories: each kind of violation is found, and allowed events are not.

use laws::Law;

use super::super::history::{Ending, Reduction};
use super::*;

const MS: i64 = 1_000;

/// Returns an attempt of child 1 that holds all of lock 0 from `from` to `to`.
fn hold(number: u32, token: u64, from: i64, to: i64) -> Attempt {
    Attempt {
        child: 1,
        number,
        lock: 0,
        weight: ALL,
        limit: ALL,
        invoked: from - MS,
        bound: 2_000 * MS,
        answered: Some(from),
        grant: Some(Grant { at: from, token, until: from + 100 * MS }),
        reduction: None,
        ending: Some(Ending { at: to, until: from + 100 * MS, bound: 400 * MS }),
        released: Some((to + MS, End::Ok)),
        wrote: None,
        read: None,
        counted: None,
    }
}

fn read(number: u32, token: u64, from: i64, to: i64) -> Attempt {
    Attempt { weight: 1, ..hold(number, token, from, to) }
}

/// Returns an attempt that holds `weight` of three permits, without a token.
fn permits(number: u32, weight: u32, from: i64, to: i64) -> Attempt {
    Attempt { weight, limit: 3, ..hold(number, 0, from, to) }
}

/// Returns the same write, downgraded to a read at `at`.
fn reduced(write: Attempt, at: i64, token: u64) -> Attempt {
    let until = write.grant.expect("it has one").until;
    let answered = Some((at + MS, End::Ok));
    let reduction = Reduction { at, until, bound: 400 * MS, answered, token: Some(token) };
    Attempt { reduction: Some(reduction), ..write }
}

/// Returns a run in which the server has issued all of these grants, for long enough.
fn run(attempts: Vec<Attempt>) -> Evidence {
    let server = |attempt: &Attempt| {
        let grant = attempt.grant?;
        let who = Some((attempt.child, attempt.number));
        Some(ServerGrant {
            lock: attempt.lock,
            token: grant.token,
            again: Vec::new(),
            who,
            at: grant.at,
            ends: grant.until + 6 * MS,
            ran_out: false,
            reduced: attempt.reduction.and_then(|reduction| reduction.token),
        })
    };
    let grants = attempts.iter().filter_map(server).collect();
    let fates = BTreeMap::from([(1, Fate::default()), (2, Fate::default())]);
    Evidence {
        attempts,
        grants,
        knows_grants: true,
        fates,
        server_ahead: 0,
        all_claimed: true,
        end: 10_000 * MS,
    }
}

fn what(evidence: &Evidence) -> Vec<What> {
    check(evidence).into_iter().map(|violation| violation.what).collect()
}

fn one_after_the_other() -> Evidence {
    run(vec![hold(1, 10, 100 * MS, 110 * MS), hold(2, 11, 110 * MS, 120 * MS)])
}

#[test]
fn a_history_as_it_should_be_is_accepted() {
    let mut evidence = one_after_the_other();
    evidence.attempts.push(Attempt { lock: 1, ..hold(3, 5, 105 * MS, 115 * MS) });
    evidence.grants.push(ServerGrant {
        lock: 1,
        token: 5,
        again: Vec::new(),
        who: Some((1, 3)),
        at: 0,
        ends: 300 * MS,
        ran_out: false,
        reduced: None,
    });
    assert_eq!(what(&evidence), []);
}

#[test]
fn two_who_believe_at_once_are_found() {
    let evidence = run(vec![hold(1, 10, 100 * MS, 111 * MS), hold(2, 11, 110 * MS, 120 * MS)]);
    assert_eq!(what(&evidence), [What::Overlap]);
}

#[test]
fn a_long_hold_is_compared_with_all_that_begin_within_it() {
    let evidence = run(vec![
        hold(1, 10, 100 * MS, 190 * MS),
        hold(2, 11, 110 * MS, 111 * MS),
        hold(3, 12, 150 * MS, 151 * MS),
    ]);
    assert_eq!(what(&evidence), [What::Overlap, What::Overlap]);
}

#[test]
fn belief_ends_with_the_deadline_however_late_the_holder_releases() {
    let mut late = hold(1, 10, 100 * MS, 900 * MS);
    late.released = Some((901 * MS, End::Lost));
    let evidence = run(vec![late, hold(2, 11, 210 * MS, 220 * MS)]);
    assert_eq!(what(&evidence), []);
}

#[test]
fn a_grant_that_was_over_when_it_was_told_is_no_belief() {
    let mut over = hold(2, 9, 105 * MS, 106 * MS);
    over.invoked = 1;
    over.grant = Some(Grant { until: 104 * MS, ..over.grant.expect("it has one") });
    over.ending = Some(Ending { until: 104 * MS, ..over.ending.expect("it has one") });
    let evidence = run(vec![hold(1, 10, 100 * MS, 110 * MS), over]);
    assert_eq!(what(&evidence), []);
}

#[test]
fn a_killed_holder_believes_until_its_end_and_not_beyond() {
    let killed = Attempt { ending: None, released: None, ..hold(1, 10, 100 * MS, 0) };
    let mut evidence = run(vec![killed, Attempt { child: 2, ..hold(2, 11, 150 * MS, 160 * MS) }]);
    evidence.grants[1].who = Some((2, 2));
    evidence.fates.get_mut(&1).expect("it is there").killed = Some(140 * MS);
    assert_eq!(what(&evidence), []);
    evidence.fates.get_mut(&1).expect("it is there").killed = Some(151 * MS);
    assert_eq!(what(&evidence), [What::Overlap]);
}

#[test]
fn a_token_given_out_twice_is_found() {
    let mut evidence = one_after_the_other();
    evidence.attempts.push(Attempt { invoked: 99 * MS, ..hold(3, 10, 130 * MS, 131 * MS) });
    evidence.attempts[2].invoked = 50 * MS;
    assert!(what(&evidence).contains(&What::Law(Law::S3)));
}

#[test]
fn a_token_that_fell_in_real_time_is_found_and_one_of_two_at_once_may_be_either() {
    let mut evidence = run(vec![hold(1, 11, 100 * MS, 110 * MS), hold(2, 10, 120 * MS, 130 * MS)]);
    assert_eq!(what(&evidence), [What::Law(Law::S3)]);
    // The second was requested before the first was granted: the order of responses proves nothing.
    evidence.attempts[1].invoked = 99 * MS;
    assert_eq!(what(&evidence), []);
}

#[test]
fn a_grant_that_the_server_never_gave_is_found() {
    let mut evidence = one_after_the_other();
    evidence.grants[1].who = Some((1, 77));
    assert_eq!(what(&evidence), [What::UnknownGrant]);
    evidence.grants.pop();
    assert_eq!(what(&evidence), [What::UnknownGrant]);
}

#[test]
fn a_grant_that_ran_out_unknown_to_everybody_is_found_where_everybody_could_hear() {
    let mut evidence = one_after_the_other();
    evidence.grants[0].ran_out = true;
    assert_eq!(what(&evidence), [], "its holder knew");
    evidence.grants.push(ServerGrant {
        lock: 0,
        token: 12,
        again: Vec::new(),
        who: Some((1, 9)),
        at: 400 * MS,
        ends: 500 * MS,
        ran_out: true,
        reduced: None,
    });
    assert_eq!(what(&evidence), [What::Unclaimed]);
    evidence.all_claimed = false;
    assert_eq!(what(&evidence), []);
}

#[test]
fn a_grant_that_its_waiter_does_not_hear_of_is_found() {
    let waiting = Attempt { grant: None, ending: None, released: None, ..hold(9, 0, MS, 0) };
    let mut evidence = run(vec![Attempt { answered: Some(1_400 * MS), ..waiting }]);
    let who = Some((1, 9));
    evidence.grants.push(ServerGrant {
        lock: 0,
        token: 12,
        again: Vec::new(),
        who,
        at: 399 * MS,
        ends: 3_000 * MS,
        ran_out: false,
        reduced: None,
    });
    assert_eq!(what(&evidence), [What::Unclaimed]);
    // The waiter gave up at the same time.
    evidence.grants[0].at = 401 * MS;
    assert_eq!(what(&evidence), []);
}

#[test]
fn a_guard_that_outlives_its_lease_is_found() {
    let mut evidence = one_after_the_other();
    evidence.grants[0].ends = 199 * MS;
    assert_eq!(what(&evidence), [What::LateDeadline]);
    evidence.server_ahead = -2 * MS;
    assert_eq!(what(&evidence), []);
}

#[test]
fn a_hold_lost_before_its_deadline_is_found() {
    let mut evidence = one_after_the_other();
    evidence.attempts[0].released = Some((150 * MS, End::Lost));
    assert_eq!(what(&evidence), [What::LostEarly]);
    evidence.attempts[0].released = Some((198 * MS, End::Lost));
    assert_eq!(what(&evidence), []);
}

#[test]
fn a_call_that_does_not_end_in_time_is_found() {
    let late = |answered| Attempt { bound: 10 * MS, answered, grant: None, ..hold(1, 0, MS, 0) };
    let late = |answered| Attempt { ending: None, released: None, ..late(answered) };
    assert_eq!(what(&run(vec![late(Some(3_009 * MS))])), []);
    assert_eq!(what(&run(vec![late(Some(3_011 * MS))])), [What::Late]);
    assert_eq!(what(&run(vec![late(None)])), [What::Late]);
    let mut evidence = one_after_the_other();
    evidence.attempts[1].released = Some((4_000 * MS, End::Ok));
    assert_eq!(what(&evidence), [What::Late]);
}

#[test]
fn the_time_for_which_a_process_was_stopped_counts_for_nothing() {
    let late =
        Attempt { bound: 10 * MS, answered: Some(5_000 * MS), grant: None, ..hold(1, 0, MS, 0) };
    let mut evidence = run(vec![Attempt { ending: None, released: None, ..late }]);
    evidence.fates.get_mut(&1).expect("it is there").stopped = vec![(-50, 4_000 * MS)];
    assert_eq!(what(&evidence), []);
}

#[test]
fn a_call_of_a_killed_process_may_have_ended_either_way() {
    let open =
        Attempt { answered: None, grant: None, ending: None, released: None, ..hold(1, 0, MS, 0) };
    let mut evidence = run(vec![open]);
    evidence.fates.get_mut(&1).expect("it is there").killed = Some(2 * MS);
    // The server may have granted it.
    evidence.grants.push(ServerGrant {
        lock: 0,
        token: 9,
        again: Vec::new(),
        who: Some((1, 1)),
        at: 0,
        ends: 50 * MS,
        ran_out: false,
        reduced: None,
    });
    assert_eq!(what(&evidence), []);
}

#[test]
fn a_million_attempts_take_seconds() {
    let attempts = (0..1_000_000_u32)
        .map(|n| hold(n, u64::from(n) + 1, i64::from(n) * 200 * MS, i64::from(n) * 200 * MS + 5))
        .collect();
    let evidence = Evidence { end: i64::MAX, ..run(attempts) };
    let started = std::time::Instant::now();
    assert_eq!(what(&evidence), []);
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}

#[test]
fn reads_go_together_and_beside_a_write_nothing() {
    let reads = || vec![read(1, 10, 100 * MS, 150 * MS), read(2, 10, 110 * MS, 120 * MS)];
    let write = |from| Attempt { invoked: 99 * MS, ..hold(3, 11, from, 190 * MS) };
    assert_eq!(what(&run([reads(), vec![write(150 * MS)]].concat())), []);
    assert_eq!(what(&run([reads(), vec![write(149 * MS)]].concat())), [What::Overlap]);
    let late = Attempt { invoked: 99 * MS, ..read(4, 12, 189 * MS, 191 * MS) };
    let evidence = run([reads(), vec![write(150 * MS), late]].concat());
    assert_eq!(what(&evidence), [What::Overlap], "a read that comes in while another writes");
}

#[test]
fn permits_go_together_up_to_their_limit() {
    let first = || vec![permits(1, 2, 100 * MS, 130 * MS), permits(2, 1, 110 * MS, 120 * MS)];
    let third = |from| permits(3, 1, from, 140 * MS);
    assert_eq!(what(&run([first(), vec![third(120 * MS)]].concat())), []);
    assert_eq!(what(&run([first(), vec![third(119 * MS)]].concat())), [What::Overlap]);
    let write = |from| hold(4, 11, from, 150 * MS);
    assert_eq!(what(&run([first(), vec![write(130 * MS)]].concat())), []);
    assert_eq!(what(&run([first(), vec![write(129 * MS)]].concat())), [What::Overlap]);
}

#[test]
fn a_writer_that_reads_on_counts_on_no_more_from_then_on() {
    let write = || reduced(hold(1, 10, 100 * MS, 190 * MS), 150 * MS, 11);
    let other = |token, from| Attempt { invoked: 99 * MS, ..read(2, token, from, 160 * MS) };
    assert_eq!(what(&run(vec![write(), other(11, 150 * MS)])), []);
    assert_eq!(what(&run(vec![write(), other(9, 149 * MS)])), [What::Overlap]);
    let next = Attempt { invoked: 99 * MS, ..hold(2, 12, 180 * MS, 185 * MS) };
    assert_eq!(what(&run(vec![write(), next])), [What::Overlap], "it still reads");
}

#[test]
fn those_who_share_have_one_token_and_no_other_has_it() {
    let mut evidence = run(vec![read(1, 10, 100 * MS, 110 * MS), read(2, 10, 120 * MS, 130 * MS)]);
    assert_eq!(what(&evidence), []);
    evidence = run(vec![read(1, 10, 100 * MS, 110 * MS), read(2, 9, 120 * MS, 130 * MS)]);
    assert_eq!(what(&evidence), [What::Law(Law::S3)], "it fell");
    evidence = run(vec![
        read(1, 10, 100 * MS, 110 * MS),
        Attempt { invoked: 99 * MS, ..hold(2, 10, 120 * MS, 130 * MS) },
    ]);
    assert_eq!(what(&evidence), [What::Law(Law::S3)], "of a write and a read");
    evidence = run(vec![reduced(hold(1, 10, 100 * MS, 190 * MS), 150 * MS, 10)]);
    assert!(what(&evidence).contains(&What::Law(Law::S3)), "of a write and its own read");
}

#[test]
fn the_grants_of_permits_and_the_tokens_of_readers_are_the_server_s() {
    let mut evidence = run(vec![permits(1, 2, 100 * MS, 110 * MS)]);
    evidence.grants[0].token = 77;
    assert_eq!(what(&evidence), []);
    evidence.grants[0].ends = 199 * MS;
    assert_eq!(what(&evidence), [What::LateDeadline]);
    evidence.grants[0].who = Some((1, 2));
    assert_eq!(what(&evidence), [What::UnknownGrant]);

    evidence = run(vec![reduced(hold(1, 10, 100 * MS, 190 * MS), 150 * MS, 11)]);
    assert_eq!(what(&evidence), []);
    evidence.grants[0].reduced = Some(12);
    assert_eq!(what(&evidence), [What::UnknownGrant]);
}

#[test]
fn a_writer_that_is_told_too_early_or_too_late_that_it_does_not_read_is_found() {
    let write = |answered| {
        let mut write = reduced(hold(1, 10, 100 * MS, 190 * MS), 150 * MS, 11);
        let reduction = write.reduction.as_mut().expect("it has one");
        (reduction.answered, reduction.token) = (Some(answered), None);
        Attempt { ending: None, released: None, ..write }
    };
    assert_eq!(what(&run(vec![write((151 * MS, End::Lost))])), [What::LostEarly]);
    assert_eq!(what(&run(vec![write((198 * MS, End::Lost))])), []);
    assert_eq!(what(&run(vec![write((3_549 * MS, End::Unknown))])), []);
    assert_eq!(what(&run(vec![write((3_551 * MS, End::Unknown))])), [What::Late]);
}

#[test]
fn a_fenced_pair_that_is_torn_and_valid_permits_beyond_the_limit_are_found() {
    let reads = |pairs| run(vec![Attempt { read: Some(pairs), ..read(1, 10, 100 * MS, 110 * MS) }]);
    assert_eq!(what(&reads([Pair::Equal, Pair::Torn])), []);
    assert_eq!(what(&reads([Pair::Refused, Pair::Torn])), []);
    assert_eq!(what(&reads([Pair::Torn, Pair::Equal])), [What::TornRead]);
    let counts = |counted| {
        run(vec![Attempt { counted: Some(counted), ..permits(1, 2, 100 * MS, 110 * MS) }])
    };
    assert_eq!(what(&counts([3, 9])), []);
    assert_eq!(what(&counts([4, 4])), [What::OverLimit]);
}
