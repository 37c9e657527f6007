//! Hand-made command sequences: what a broken script would do is found.

use super::*;

const ANN: &str = "~1AAAAAAAAAAAAAAAAAAAAAA:1:1000:c1-1";
const BEN: &str = "~1AAAAAAAAAAAAAAAAAAAAAA:2:1000:c1-2";
const CAT: &str = "~1BBBBBBBBBBBBBBBBBBBBBB:1:1000:c2-1";
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
