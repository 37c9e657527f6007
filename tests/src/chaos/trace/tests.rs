//! Hand-made command sequences: what a broken script would do is found.

use super::*;

const ANN: &str = "~1AAAAAAAAAAAAAAAAAAAAAA:1:1000:c1-1";
const BEN: &str = "~1AAAAAAAAAAAAAAAAAAAAAA:2:1000:c1-2";
const CAT: &str = "~1BBBBBBBBBBBBBBBBBBBBBB:1:1000:c2-1";
/// Of what is read, written and held in permits.
const REN: &str = "~2AAAAAAAAAAAAAAAAAAAAAA:3:1000:r:c1-3";
const RON: &str = "~2BBBBBBBBBBBBBBBBBBBBBB:2:1000:r:c2-2";
const WIM: &str = "~2BBBBBBBBBBBBBBBBBBBBBB:3:1000:w:c2-3";
const TWO: &str = "~2AAAAAAAAAAAAAAAAAAAAAA:4:1000:2/3:c1-4";
const DUO: &str = "~2BBBBBBBBBBBBBBBBBBBBBB:4:1000:2/3:c2-4";
const ALL: u64 = 1 << 30;
const START: u64 = 1_700_000_000_000_000;

/// A server that runs scripts of our own, 10 ms after each other.
struct Scene {
    trace: Trace,
    now: u64,
}

impl Scene {
    fn new(passes_allowed: bool) -> Self {
        Self { trace: Trace::new(passes_allowed), now: START }
    }

    /// A script of `member` with these commands, `;` between them.
    fn run(mut self, member: &str, commands: &str) -> Self {
        self.now += 10_000;
        let mut line = |source, text: &str| {
            let text = text
                .replace("HOLD", "torture-0")
                .replace("QUEUE", "redisson_lock_queue:{torture-0}")
                .replace("TIMES", "redisson_lock_timeout:{torture-0}")
                .replace("TOKEN", "redisson_lock_token:{torture-0}")
                .replace("GONE", "redisson_lock_gone:{torture-0}")
                .replace("STATE", "lock_permits:{torture-2}")
                .replace("HELD", "lock_permits_holds:{torture-2}")
                .replace("LINE", "lock_permits_queue:{torture-2}")
                .replace("ALIVE", "lock_permits_deadlines:{torture-2}")
                .replace("ENDED", "lock_permits_gone:{torture-2}")
                .replace("LEASE", &((self.now / 1_000) + 1_000).to_string())
                .replace("SOON", &((self.now / 1_000) + 15_000).to_string());
            let args = text.split_whitespace().map(|arg| arg.as_bytes().to_vec()).collect();
            let time_us = self.now;
            self.trace.feed(&MonitorLine { time_us, database: 0, source, args });
        };
        line(Source::Client("c".to_owned()), &format!("EVALSHA sha 1 HOLD {member}"));
        for command in commands.split(';').filter(|command| !command.trim().is_empty()) {
            line(Source::Lua, command);
        }
        self
    }

    fn wait(mut self, ms: u64) -> Self {
        self.now += ms * 1_000;
        self
    }

    fn takes(self, member: &str, token: u64) -> Self {
        let commands =
            format!("SET TOKEN {token} PX 60000; HSET HOLD {member} 1; PEXPIRE HOLD 1000");
        self.run(member, &commands)
    }

    fn queues(self, member: &str) -> Self {
        self.run(member, &format!("ZADD TIMES SOON {member}; RPUSH QUEUE {member}"))
    }

    /// `member` gives the lock to `next`, at the head.
    fn gives(self, member: &str, next: &str, token: u64) -> Self {
        let commands = format!(
            "HDEL HOLD {member}; SET TOKEN {token} PX 60000; HSET HOLD {next} 1; PEXPIRE HOLD 333;
             LPOP QUEUE; ZREM TIMES {next}"
        );
        self.run(member, &commands)
    }

    /// `member` acquires something that others may share, by these commands.
    fn asks(self, member: &str, commands: &str) -> Self {
        self.run(&format!("{member} wait"), commands)
    }

    /// `member` holds what it asks for, and `used` are in use then.
    fn joins(self, member: &str, used: u64, token: u64) -> Self {
        let commands = format!("ZADD HELD NX LEASE {member}; HSET STATE used {used} token {token}");
        self.asks(member, &commands)
    }

    fn waits(self, member: &str) -> Self {
        self.asks(member, &format!("ZADD ALIVE SOON {member}; ZADD LINE 1 {member}"))
    }

    /// `member` gives back, and those of the others who wait hold then.
    fn hands(self, member: &str, others: &[&str], used: u64, token: u64) -> Self {
        let granted: String = others
            .iter()
            .map(|other| format!("ZADD HELD LEASE {other}; ZREM LINE {other}; ZREM ALIVE {other};"))
            .collect();
        let state = format!("HSET STATE used {used} token {token}");
        self.run(member, &format!("{granted} ZREM HELD {member}; {state}"))
    }

    #[track_caller]
    fn finds(mut self, expected: &[What]) -> Trace {
        self.trace.finish();
        let found: Vec<What> = self.trace.violations.iter().map(|found| found.what).collect();
        assert_eq!(found, expected, "{:?}", self.trace.violations);
        self.trace
    }
}

fn calm() -> Scene {
    Scene::new(false)
}

#[test]
fn a_queue_served_in_order_is_accepted_and_its_grants_are_known() {
    let scene =
        calm().takes(ANN, 10).queues(BEN).queues(CAT).gives(ANN, BEN, 11).gives(BEN, CAT, 12);
    let trace = scene.finds(&[]);
    let who: Vec<_> = trace.grants.iter().map(|grant| (grant.token, grant.who)).collect();
    assert_eq!(who, [(10, Some((1, 1))), (11, Some((1, 2))), (12, Some((2, 1)))]);
    let ends = START as i64 + 50_000 + 333_000;
    assert!((ends..=ends + 2_000).contains(&trace.grants[2].ends), "{}", trace.grants[2].ends);
}

#[test]
fn a_renewal_moves_the_end_of_the_hold_it_is_of() {
    let trace = calm().takes(ANN, 10).run(ANN, "PEXPIRE HOLD 1000").finds(&[]);
    assert_eq!(trace.grants[0].ends, START as i64 + 20_000 + 1_000_000 + 2_000);
}

#[test]
fn a_grant_within_another_s_lease_is_found_and_one_after_it_is_not() {
    calm().takes(ANN, 10).wait(900).takes(BEN, 11).finds(&[What::TwoHolds]);
    calm().takes(ANN, 10).wait(1_000).takes(BEN, 11).finds(&[]);
}

#[test]
fn an_overtaken_waiter_is_found() {
    let scene = calm().takes(ANN, 10).queues(BEN);
    scene.run(ANN, &format!("HDEL HOLD {ANN}")).takes(CAT, 11).finds(&[What::OutOfOrder]);
}

#[test]
fn passing_over_is_allowed_only_where_connections_may_be_gone() {
    let scene = |allowed| {
        let scene = Scene::new(allowed).takes(ANN, 10).queues(CAT).queues(BEN);
        scene.run(
            ANN,
            &format!(
                "HDEL HOLD {ANN}; LREM QUEUE 1 {BEN}; ZREM TIMES {BEN}; SET TOKEN 11 PX 1;
                 HSET HOLD {BEN} 1; PEXPIRE HOLD 333; ZADD TIMES XX LT 5 {CAT}"
            ),
        )
    };
    assert_eq!(scene(true).finds(&[]).passed_over, 1);
    scene(false).finds(&[What::PassedOver]);
}

#[test]
fn a_live_waiter_that_is_dropped_is_found_and_a_dead_one_may_be() {
    let sweep = format!("LREM QUEUE 1 {BEN}; ZREM TIMES {BEN}");
    let scene = || calm().takes(ANN, 10).queues(BEN);
    scene().run(CAT, &sweep).finds(&[What::PlaceLost, What::PlaceLost]);
    scene().wait(15_000).run(CAT, &sweep).finds(&[]);
    scene().run(BEN, &sweep).finds(&[]);
    scene().run(CAT, "LPOP QUEUE").finds(&[What::PlaceLost]);
}

#[test]
fn an_attempt_that_is_queued_anew_is_found() {
    calm().takes(ANN, 10).queues(BEN).queues(BEN).finds(&[What::QueuedTwice]);
    let moved = format!("LREM QUEUE 1 {BEN}; RPUSH QUEUE {BEN}");
    calm().takes(ANN, 10).queues(BEN).run(CAT, &moved).finds(&[What::PlaceLost]);
}

#[test]
fn a_token_that_does_not_rise_is_found() {
    let scene = || calm().takes(ANN, 10).queues(BEN);
    scene().gives(ANN, BEN, 10).finds(&[What::TokenNotRising]);
    scene().gives(ANN, BEN, 9).finds(&[What::TokenNotRising]);
}

#[test]
fn a_hold_ended_by_somebody_else_is_found() {
    calm().takes(ANN, 10).run(BEN, &format!("HDEL HOLD {ANN}")).finds(&[What::WrongRelease]);
    calm().takes(ANN, 10).run(BEN, &format!("HDEL HOLD {BEN}")).finds(&[]);
}

#[test]
fn a_hold_without_an_end_or_with_too_late_a_one_is_found() {
    let take = format!("SET TOKEN 10 PX 1; HSET HOLD {ANN} 1");
    calm().run(ANN, &take).finds(&[What::Endless]);
    calm().run(ANN, &format!("{take}; PEXPIRE HOLD 1001")).finds(&[What::Endless]);
    calm().takes(ANN, 10).run(ANN, "PERSIST HOLD").finds(&[What::Endless]);
}

#[test]
fn a_member_that_comes_back_after_its_hold_or_its_tombstone_is_found() {
    let ended = || calm().takes(ANN, 10).run(ANN, &format!("HDEL HOLD {ANN}"));
    ended().takes(ANN, 11).finds(&[What::GrantedAgain]);
    ended().queues(ANN).finds(&[What::GrantedAgain]);
    // Its lease ended before it heard of it: it may ask again.
    let trace = calm().takes(ANN, 10).wait(1_000).takes(ANN, 11).finds(&[]);
    assert_eq!(trace.grants.iter().map(|grant| grant.ran_out).collect::<Vec<_>>(), [true, false]);
    calm()
        .run(BEN, &format!("SET GONE:{BEN} 1 PX 60000"))
        .takes(BEN, 10)
        .finds(&[What::GrantedAgain]);
}

#[test]
fn reads_writes_and_permits_that_go_together_are_accepted_and_known() {
    let scene = calm().joins(REN, 1, 10).joins(RON, 2, 10).waits(WIM).waits(TWO);
    let trace = scene
        .hands(REN, &[], 1, 10)
        .hands(RON, &[WIM], ALL, 11)
        .hands(WIM, &[TWO], 2, 12)
        .finds(&[]);
    let who: Vec<_> = trace.grants.iter().map(|grant| (grant.token, grant.who)).collect();
    let expected = [(10, (1, 3)), (10, (2, 2)), (11, (2, 3)), (12, (1, 4))];
    assert_eq!(who, expected.map(|(token, who)| (token, Some(who))));
    assert_eq!(trace.grants[3].ends, START as i64 + 70_000 + 1_000_000);
}

#[test]
fn more_than_fits_beside_what_is_held_is_found() {
    calm().joins(REN, 1, 10).joins(WIM, ALL + 1, 11).finds(&[What::TwoHolds]);
    calm().joins(WIM, ALL, 10).joins(REN, ALL + 1, 11).finds(&[What::TwoHolds]);
    calm().joins(TWO, 2, 10).joins(DUO, 4, 10).finds(&[What::TwoHolds]);
    calm().joins(TWO, 2, 10).joins(REN, 3, 10).finds(&[]);
}

#[test]
fn a_lapsed_hold_makes_room_and_another_s_live_one_does_not() {
    let take = format!("ZADD HELD LEASE {RON}; ZREM HELD {WIM}; HSET STATE used 1 token 11");
    let trace = calm().joins(WIM, ALL, 10).wait(1_000).asks(RON, &take).finds(&[]);
    assert_eq!(trace.grants.iter().map(|grant| grant.ran_out).collect::<Vec<_>>(), [true, false]);
    calm().joins(WIM, ALL, 10).wait(900).asks(RON, &take).finds(&[What::WrongRelease]);
}

#[test]
fn a_newcomer_that_fits_does_not_pass_a_waiting_head_that_does_not() {
    let scene = calm().joins(REN, 1, 10).waits(WIM).joins(RON, 2, 10);
    scene.finds(&[What::OutOfOrder]);
}

#[test]
fn a_waiter_that_fits_and_is_left_is_found_unless_it_is_passed_over() {
    let scene = |allowed| Scene::new(allowed).joins(WIM, ALL, 10).waits(REN).waits(RON);
    scene(false).hands(WIM, &[REN, RON], 2, 11).finds(&[]);
    scene(false).hands(WIM, &[REN], 1, 11).finds(&[What::LeftWaiting]);
    let passing = format!(
        "ZADD HELD LEASE {RON}; ZREM HELD {WIM}; ZADD ALIVE LEASE {REN}; ZREM LINE {RON};
         ZREM ALIVE {RON}; HSET STATE used 1 token 11"
    );
    assert_eq!(scene(true).run(WIM, &passing).finds(&[]).passed_over, 1);
    // Who only renews hands nothing on.
    let renewal = format!("ZADD HELD LEASE {RON}");
    scene(true).run(WIM, &passing).run(RON, &renewal).finds(&[]);
}

#[test]
fn a_sum_that_is_not_that_of_the_holds_is_found() {
    calm().joins(TWO, 2, 10).joins(REN, 2, 10).finds(&[What::WrongSum]);
    calm().joins(TWO, 2, 10).run(TWO, &format!("ZREM HELD {TWO}")).finds(&[What::WrongSum]);
}

#[test]
fn tokens_are_the_same_for_those_who_share_and_new_for_each_write_and_after_it() {
    calm().joins(REN, 1, 10).joins(RON, 2, 11).finds(&[What::TokenNotRising]);
    let free = || calm().joins(REN, 1, 10).hands(REN, &[], 0, 10);
    free().joins(WIM, ALL, 10).finds(&[What::TokenNotRising]);
    free()
        .joins(WIM, ALL, 11)
        .hands(WIM, &[], 0, 11)
        .joins(RON, 1, 11)
        .finds(&[What::TokenNotRising]);
}

#[test]
fn a_write_that_is_reduced_has_a_new_token_and_a_weight_that_does_not_rise() {
    let reduce = |token| {
        format!(
            "HSET STATE {WIM} 1; ZADD HELD LEASE {REN}; ZREM LINE {REN}; ZREM ALIVE {REN};
                 HSET STATE used 2 token {token}"
        )
    };
    let scene = || calm().joins(WIM, ALL, 10).waits(REN);
    let trace = scene().run(WIM, &reduce(11)).joins(RON, 3, 11).finds(&[]);
    assert_eq!(trace.grants[0].reduced, Some(11));
    scene().run(WIM, &reduce(10)).finds(&[What::TokenNotRising]);
    let alone = format!("HSET STATE {WIM} 1; HSET STATE used 1 token 11");
    scene().run(WIM, &alone).finds(&[What::LeftWaiting]);
    let raise = format!("HSET STATE {WIM} 2; HSET STATE used 3");
    scene().run(WIM, &reduce(11)).run(WIM, &raise).finds(&[What::TwoHolds]);
}

#[test]
fn only_a_place_whose_patience_was_over_moves_to_the_end() {
    let scene = || calm().joins(WIM, ALL, 10).waits(REN).waits(RON);
    scene().waits(REN).finds(&[What::PlaceLost]);
    let renewal = format!("ZADD HELD LEASE {WIM}");
    let mut scene = scene();
    for _ in 0..30 {
        scene = scene.wait(500).run(WIM, &renewal);
    }
    let touch = format!("ZADD ALIVE SOON {RON}");
    scene.run(RON, &touch).waits(REN).hands(WIM, &[RON, REN], 2, 11).finds(&[]);
}

#[test]
fn a_renewal_beyond_the_lease_or_after_its_end_is_found() {
    let renewal = format!("ZADD HELD LEASE {REN}");
    let trace = calm().joins(REN, 1, 10).run(REN, &renewal).finds(&[]);
    assert_eq!(trace.grants[0].ends, START as i64 + 20_000 + 1_000_000);
    let long = format!("ZADD HELD SOON {REN}");
    calm().joins(REN, 1, 10).run(REN, &long).finds(&[What::Endless]);
    calm().joins(REN, 1, 10).wait(1_000).run(REN, &renewal).finds(&[What::Endless]);
    // It may ask again.
    let again = format!("ZADD HELD LEASE {REN}; HSET STATE used 1");
    calm().joins(REN, 1, 10).wait(1_000).asks(REN, &again).finds(&[]);
}

#[test]
fn one_that_shares_and_comes_back_after_its_end_is_found() {
    let ended = || calm().joins(REN, 1, 10).hands(REN, &[], 0, 10);
    ended().joins(REN, 1, 10).finds(&[What::GrantedAgain]);
    ended().joins(WIM, ALL, 11).waits(REN).finds(&[What::GrantedAgain]);
    let left = || calm().run(REN, &format!("SET ENDED:{REN} 1 PXAT 5"));
    left().joins(REN, 1, 10).finds(&[What::GrantedAgain]);
}
