//! Hand-made command sequences: the trace finds the errors of broken scripts.

use laws::Law;

use super::*;
use crate::{holds_key, lock_key, queue_key, tombstones_key};

const ANN: &str = "~2AAAAAAAAAAAAAAAAAAAAAA:1:1000:w:c1-1";
const BEN: &str = "~2AAAAAAAAAAAAAAAAAAAAAA:2:1000:w:c1-2";
const CAT: &str = "~2BBBBBBBBBBBBBBBBBBBBBB:1:1000:w:c2-1";
const REN: &str = "~2AAAAAAAAAAAAAAAAAAAAAA:3:1000:r:c1-3";
const RON: &str = "~2BBBBBBBBBBBBBBBBBBBBBB:2:1000:r:c2-2";
const TWO: &str = "~2AAAAAAAAAAAAAAAAAAAAAA:4:1000:2/3:c1-4";
const DUO: &str = "~2BBBBBBBBBBBBBBBBBBBBBB:4:1000:2/3:c2-4";
const START: u64 = 1_700_000_000_000_000;
/// The counter at the start.
const FIRST: u64 = 1_600_000_000_000_000;

/// A server that runs scripts of our own, 10 ms apart.
struct Scene {
    trace: Trace,
    now: u64,
    /// The interval between two scripts, µs.
    pace: u64,
    score: u64,
}

/// Returns the value of a token that is easy to read.
fn token(number: u64) -> u64 {
    FIRST + number
}

impl Scene {
    fn new(skips_allowed: bool) -> Self {
        let trace = Trace::new(skips_allowed);
        let scene = Self { trace, now: START, pace: 10_000, score: 0 };
        scene.run("acquire", "", &format!("SET lock:tokens {FIRST}"))
    }

    /// Runs this script, with these arguments and commands, separated by `;`.
    fn run(self, script: &str, args: &str, commands: &str) -> Self {
        let script =
            scripts::of_queue(Topology::Single).get(script).expect("a script of the protocol");
        let call = format!("EVALSHA {} 1 LOCK {args}", script.digest);
        self.feed((&Source::Client("c".to_owned()), &call), (&Source::Lua, commands))
    }

    /// Runs these commands as a transaction.
    fn transaction(self, commands: &str) -> Self {
        let client = Source::Client("c".to_owned());
        self.feed((&client, "MULTI"), (&client, &format!("{commands}; EXEC")))
    }

    /// Tries to acquire the lock for `member`, if it is free.
    fn tries(self, member: &str) -> Self {
        self.transaction(&format!("SET LOCK {member} NX PX 1000; INCR lock:tokens; GET LOCK"))
    }

    /// Runs a command, and then commands of another source, separated by `;`.
    fn feed(mut self, (source, first): (&Source, &str), (of, commands): (&Source, &str)) -> Self {
        self.now += self.pace;
        let name = "torture-0";
        let patience = |node: &str| crate::patience_key(name, &node.repeat(22));
        let aside = |node: &str| crate::aside_key(name, &node.repeat(22));
        let mut line = |source: &Source, text: &str| {
            let text = text
                .replace("LOCK", &lock_key(name))
                .replace("QUEUE", &queue_key(name))
                .replace("HELD", &holds_key(name))
                .replace("WEIGHTS", &format!("{}:reduced", lock_key(name)))
                .replace("TOMBSTONES", &tombstones_key(name))
                .replace("PATIENCE-A", &patience("A"))
                .replace("PATIENCE-B", &patience("B"))
                .replace("ASIDE-A", &aside("A"))
                .replace("ASIDE-B", &aside("B"))
                .replace("LEASE", &((self.now / 1_000) + 1_000).to_string())
                .replace("KEPT", &(START / 1_000 + 1_020).to_string())
                .replace("LATER", &((self.now / 1_000) + 90_000).to_string());
            // Messages contain spaces.
            let words = text.split_whitespace().map(|word| word.replace('_', " "));
            let args = words.map(String::into_bytes).collect();
            let time_us = self.now;
            let source = source.clone();
            self.trace.feed(&MonitorLine { time_us, database: 0, source, args });
        };
        line(source, first);
        for command in commands.split(';').filter(|command| !command.trim().is_empty()) {
            line(of, command);
        }
        self
    }

    fn wait(mut self, ms: u64) -> Self {
        self.now += ms * 1_000;
        self
    }

    /// Waits for the end of a lease granted in the last step: the next steps come when it is
    /// uncertain whether the lease has ended.
    fn until_doubt(mut self) -> Self {
        self.now += 999_000;
        self.pace = 100;
        self
    }

    /// Grants the free lock to `member`.
    fn takes(self, member: &str) -> Self {
        self.run("lock", member, &format!("INCR lock:tokens; PSETEX LOCK 1000 {member}"))
    }

    fn queues(mut self, member: &str) -> Self {
        let node = member.chars().nth(2).unwrap_or_default();
        // The position is the counter's next value.
        self.trace.finish();
        self.score = self.trace.counter + 1;
        let score = self.score;
        let commands = format!(
            "INCR lock:tokens; ZADD QUEUE NX {score} {member};
             PSETEX PATIENCE-{node} 15000 1; PEXPIRE QUEUE 75000"
        );
        self.run("lock", member, &commands)
    }

    /// Releases the whole hold of `member` to `next`, at the head, which gets a claim.
    fn gives(self, member: &str, next: &str) -> Self {
        let commands = format!("INCR lock:tokens; ZREM QUEUE {next}; PSETEX LOCK 60333 +{next}");
        self.run("unlock", member, &commands)
    }

    /// Grants `member` its demand, so that `used` are in use, all with this token.
    fn joins(mut self, member: &str, used: u64, number: u64) -> Self {
        self.trace.finish();
        let drawn = if self.trace.counter < token(number) { "INCR lock:tokens;" } else { "" };
        let token = token(number);
        let commands =
            format!("{drawn} ZADD HELD NX LEASE {member}; SET LOCK *{used}:{token} PXAT LATER");
        self.run("acquire", member, &commands)
    }

    /// Releases the hold of `member`, and grants to the waiting members of `others`.
    fn hands(mut self, member: &str, others: &[&str], used: u64, number: u64) -> Self {
        self.trace.finish();
        let drawn = if self.trace.counter < token(number) { "INCR lock:tokens;" } else { "" };
        let granted: String = others
            .iter()
            .map(|other| format!("ZADD HELD LEASE {other}; ZREM QUEUE {other};"))
            .collect();
        let lock_key = format!("SET LOCK *{used}:{} PXAT LATER", token(number));
        self.run("release", member, &format!("{drawn} {granted} ZREM HELD {member}; {lock_key}"))
    }

    /// Checks who was granted the lock, with which tokens.
    #[track_caller]
    fn grants(self, expected: &[(u64, &str)]) -> Trace {
        let trace = self.finds(&[]);
        let known: Vec<_> = trace.grants.iter().map(|grant| (grant.token, grant.who)).collect();
        let of = |(number, member): &(u64, &str)| (token(*number), who(member));
        assert_eq!(known, expected.iter().map(of).collect::<Vec<_>>());
        trace
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
    let scene = calm().takes(ANN).queues(BEN).queues(CAT).gives(ANN, BEN).gives(BEN, CAT);
    let trace = scene.finds(&[]);
    let who: Vec<_> = trace.grants.iter().map(|grant| (grant.token, grant.who)).collect();
    // Positions are counter values as well.
    let expected = [(1, (1, 1)), (4, (1, 2)), (5, (2, 1))];
    assert_eq!(who, expected.map(|(number, who)| (token(number), Some(who))));
    let ends = START as i64 + 60_000 + 333_000;
    assert!((ends..=ends + 2_000).contains(&trace.grants[2].ends), "{}", trace.grants[2].ends);
}

#[test]
fn a_renewal_moves_the_end_of_the_hold_it_is_of() {
    let trace = calm().takes(ANN).run("extend", ANN, "PEXPIRE LOCK 1000").finds(&[]);
    assert_eq!(trace.grants[0].ends, START as i64 + 30_000 + 1_000_000 + 2_000);
    // With a flag the lock key outlives the lease.
    let marked = || calm().takes(ANN).run("lock", BEN, &format!("PSETEX LOCK 60990 +{ANN}"));
    let trace = marked().run("extend", ANN, "PEXPIRE LOCK 61000").finds(&[]);
    assert_eq!(trace.grants[0].ends, START as i64 + 40_000 + 1_000_000 + 2_000);
    marked().run("extend", ANN, "PEXPIRE LOCK 61001").finds(&[What::Law(Law::T2)]);
    marked().wait(1_000).run("extend", ANN, "PEXPIRE LOCK 61000").finds(&[What::Law(Law::T2)]);
}

#[test]
fn a_mark_that_changes_the_holder_s_time_is_found() {
    // Half a second of the lease has passed.
    for (ms, found) in
        [(61_000, &[What::Law(Law::S4)][..]), (60_490, &[]), (60_300, &[What::Law(Law::S4)])]
    {
        let scene = calm().takes(ANN).wait(500);
        scene.run("lock", BEN, &format!("PSETEX LOCK {ms} +{ANN}")).finds(found);
    }
}

#[test]
fn a_lease_that_another_s_command_changes_is_found() {
    let shared = || calm().joins(REN, 1, 1).joins(RON, 2, 1).wait(100);
    let ends = |ms: u64, member: &str| format!("ZADD HELD {} {member}", START / 1_000 + ms);
    // They end 1 020 and 1 030 ms after the start.
    shared().run("touch", REN, &ends(1_030, RON)).finds(&[]);
    for ms in [900, 1_100] {
        shared().run("renew", REN, &ends(ms, REN)).finds(&[]);
        shared().run("renew", REN, &ends(ms, RON)).finds(&[What::Law(Law::S4)]);
    }
    let extends = |member| calm().takes(ANN).wait(500).run("extend", member, "PEXPIRE LOCK 1000");
    extends(ANN).finds(&[]);
    extends(BEN).finds(&[What::Law(Law::S4)]);
}

#[test]
fn a_downgrade_that_changes_the_lease_is_found() {
    let reduce = |ends: &str| {
        let lock_key = format!("SET LOCK *1:{} PXAT LATER", token(2));
        let commands = format!("INCR lock:tokens; ZADD HELD {ends} {CAT}; ZADD WEIGHTS 1 {CAT}");
        calm().takes(CAT).wait(500).run("reduce", CAT, &format!("{commands}; {lock_key}"))
    };
    reduce("KEPT").finds(&[]);
    reduce("LEASE").finds(&[What::Law(Law::S4)]);
}

#[test]
fn a_grant_within_another_s_lease_is_found_and_one_after_it_is_not() {
    calm().takes(ANN).wait(900).takes(BEN).finds(&[What::Law(Law::S4), What::Law(Law::S1)]);
    calm().takes(ANN).wait(1_000).takes(BEN).finds(&[]);
}

#[test]
fn an_overtaken_waiter_is_found() {
    let scene = calm().takes(ANN).queues(BEN);
    let scene = scene.run("unlock", ANN, "DEL LOCK").takes(CAT);
    scene.finds(&[What::Law(Law::F5), What::Law(Law::F1)]);
}

#[test]
fn passing_over_is_allowed_only_where_connections_may_be_gone() {
    let scene = |allowed| {
        let scene = Scene::new(allowed).takes(ANN).queues(CAT).queues(BEN);
        let score = token(2);
        scene.run(
            "unlock",
            ANN,
            &format!(
                "SET lock:tokens {}; ZREM QUEUE {CAT} {BEN}; ZADD ASIDE-B LT {score} {CAT};
                 PEXPIRE ASIDE-B 15000; PSETEX LOCK 60333 +{BEN}",
                token(4)
            ),
        )
    };
    assert_eq!(scene(true).finds(&[]).skipped, 1);
    scene(false).finds(&[What::Skipped]);
    // The member returns to its position, and to no other.
    let back = |score: u64| format!("ZADD QUEUE {} {CAT}; ZREM ASIDE-B {CAT}", token(score));
    scene(true).run("touch", CAT, &back(2)).gives(BEN, CAT).finds(&[]);
    scene(true).run("touch", CAT, &back(5)).finds(&[What::Law(Law::F2)]);
    // The same if a late request has queued it at the end meanwhile, and it is skipped again.
    let late = format!("ZADD ASIDE-B LT {} {CAT}", token(5));
    scene(true).run("touch", BEN, &late).run("touch", CAT, &back(2)).finds(&[]);
    let late = format!("ZADD QUEUE {} {CAT}", token(5));
    let scene = || scene(true).run("acquire", CAT, &late);
    scene().run("touch", CAT, &back(2)).gives(BEN, CAT).finds(&[]);
    scene().run("touch", CAT, &back(3)).finds(&[What::QueuedTwice]);
}

#[test]
fn a_live_waiter_that_is_dropped_is_found_and_a_dead_one_may_be() {
    let sweep = format!("ZREM QUEUE {BEN}");
    let scene = || calm().takes(ANN).queues(BEN);
    scene().run("acquire", CAT, &sweep).finds(&[What::Law(Law::F2)]);
    scene().wait(15_000).run("acquire", CAT, &sweep).finds(&[]);
    scene().run("leave", BEN, &sweep).finds(&[]);
}

#[test]
fn an_attempt_that_is_queued_anew_is_found() {
    let again = format!("ZADD QUEUE {} {BEN}", token(9));
    calm().takes(ANN).queues(BEN).run("acquire", BEN, &again).finds(&[What::QueuedTwice]);
    // A repetition changes nothing.
    calm().takes(ANN).queues(BEN).queues(BEN).finds(&[]);
    let scene = calm().takes(ANN).queues(BEN);
    let low = format!("ZADD QUEUE {} {CAT}", token(1));
    scene.run("acquire", CAT, &low).finds(&[What::Law(Law::F1)]);
}

#[test]
fn a_token_that_does_not_rise_is_found() {
    let scene = || calm().takes(ANN).queues(BEN);
    let give = |count: &str| format!("{count}; ZREM QUEUE {BEN}; PSETEX LOCK 60333 +{BEN}");
    scene().run("unlock", ANN, &give("GET lock:tokens")).finds(&[What::Law(Law::S3)]);
    let lower = format!("SET lock:tokens {}", token(0));
    scene().run("unlock", ANN, &give(&lower)).finds(&[What::Law(Law::S3)]);
    scene().run("unlock", ANN, &give("INCR lock:tokens")).finds(&[]);
}

#[test]
fn the_scores_of_members_that_came_together_are_no_tokens() {
    let (first, second) = (token(2), token(3));
    let both = format!("INCRBY lock:tokens 2; ZADD QUEUE {first} {BEN} {second} {CAT}");
    let scene = || calm().takes(ANN).run("acquire_all", BEN, &both);
    let give = |number| format!("{number} lock:tokens; ZREM QUEUE {BEN}; PSETEX LOCK 60333 +{BEN}");
    scene().run("unlock", ANN, &give("INCR")).finds(&[]);
    scene().run("unlock", ANN, &give("GET")).finds(&[What::Law(Law::S3)]);
    // Values drawn in vain are returned.
    let back = "INCRBY lock:tokens 2; DECRBY lock:tokens 2";
    let drawn = calm().takes(ANN).run("acquire_all", BEN, back).run("unlock", ANN, "DEL LOCK");
    assert_eq!(drawn.finds(&[]).counter, token(1));
}

#[test]
fn a_message_that_tells_another_token_is_found() {
    let give = |number| {
        let token = token(number);
        format!(
            "INCR lock:tokens; ZREM QUEUE {CAT}; PSETEX LOCK 60333 +{CAT};
             PUBLISH lockcore:grants:B p_{token}_1_333"
        )
    };
    let scene = || calm().takes(ANN).queues(CAT);
    scene().run("unlock", ANN, &give(3)).finds(&[]);
    scene().run("unlock", ANN, &give(2)).finds(&[What::Law(Law::S3)]);
}

#[test]
fn the_tokens_of_a_lock_that_is_asked_for_again_are_known() {
    let confirmed = format!("SET lock:tokens {}; PSETEX LOCK 1000 {ANN}", token(3));
    let trace = calm()
        .takes(ANN)
        .run("acquire", ANN, &format!("GET LOCK; SET lock:tokens {}", token(2)))
        .run("confirm", ANN, &confirmed)
        .finds(&[]);
    assert_eq!(trace.grants.len(), 1);
    assert_eq!(trace.grants[0].again, [token(2), token(3)]);
}

#[test]
fn a_hold_ended_by_somebody_else_is_found() {
    calm().takes(ANN).run("unlock", BEN, "DEL LOCK").finds(&[What::Law(Law::S4)]);
    calm().takes(ANN).run("unlock", ANN, "DEL LOCK").finds(&[]);
}

#[test]
fn a_hold_without_an_end_or_with_too_late_a_one_is_found() {
    let take = |ms| format!("INCR lock:tokens; PSETEX LOCK {ms} {ANN}");
    calm().run("lock", ANN, &take(1_001)).finds(&[What::Law(Law::T2)]);
    calm().takes(ANN).run("extend", ANN, "PERSIST LOCK").finds(&[What::Law(Law::T2)]);
    let lock_key = format!("INCR lock:tokens; ZADD HELD LEASE {REN}; SET LOCK *1:{}", token(1));
    calm().run("acquire", REN, &lock_key).finds(&[What::Law(Law::T2)]);
}

#[test]
fn a_member_that_comes_back_after_its_hold_or_its_tombstone_is_found() {
    let ended = || calm().takes(ANN).run("unlock", ANN, "DEL LOCK");
    ended().takes(ANN).finds(&[What::Law(Law::S5)]);
    ended().queues(ANN).finds(&[What::Law(Law::S5), What::Law(Law::F5)]);
    // The lease ended before the member was notified: it may repeat the request.
    let trace = calm().takes(ANN).wait(1_000).takes(ANN).finds(&[]);
    assert_eq!(trace.grants.iter().map(|grant| grant.ran_out).collect::<Vec<_>>(), [true, false]);
    let gone = format!("ZADD TOMBSTONES 5 {BEN}");
    calm().run("leave", BEN, &gone).takes(BEN).finds(&[What::Law(Law::S5)]);
}

#[test]
fn reads_locks_and_permits_that_go_together_are_accepted_and_known() {
    let scene = calm().joins(REN, 1, 1).joins(RON, 2, 1).queues(CAT).queues(TWO);
    let trace = scene
        .hands(REN, &[], 1, 1)
        .run(
            "release",
            RON,
            &format!(
                "INCR lock:tokens; ZREM HELD {RON}; ZREM QUEUE {CAT}; PSETEX LOCK 60333 +{CAT}"
            ),
        )
        .hands(CAT, &[TWO], 2, 5)
        .finds(&[]);
    let who: Vec<_> = trace.grants.iter().map(|grant| (grant.token, grant.who)).collect();
    let expected = [(1, (1, 3)), (1, (2, 2)), (4, (2, 1)), (5, (1, 4))];
    assert_eq!(who, expected.map(|(number, who)| (token(number), Some(who))));
    assert_eq!(trace.grants[3].ends, START as i64 + 80_000 + 1_000_000);
}

#[test]
fn more_than_fits_beside_what_is_held_is_found() {
    let beside = calm().joins(REN, 1, 1).takes(CAT);
    beside.finds(&[What::Law(Law::S4), What::Law(Law::S1)]);
    let beside = calm().takes(CAT).joins(REN, 1, 2);
    beside.finds(&[What::Law(Law::S4), What::Law(Law::S1)]);
    calm().joins(TWO, 2, 1).joins(DUO, 4, 1).finds(&[What::Law(Law::S1)]);
    calm().joins(TWO, 2, 1).joins(REN, 3, 1).finds(&[]);
}

#[test]
fn a_lapsed_hold_makes_room_and_another_s_live_one_does_not() {
    let take = format!(
        "INCR lock:tokens; ZADD HELD LEASE {RON}; ZREM HELD {REN}; SET LOCK *1:{} PXAT LATER",
        token(2)
    );
    let trace = calm().joins(REN, 1, 1).wait(1_000).run("acquire", RON, &take).finds(&[]);
    assert_eq!(trace.grants.iter().map(|grant| grant.ran_out).collect::<Vec<_>>(), [true, false]);
    calm().joins(REN, 1, 1).wait(900).run("acquire", RON, &take).finds(&[What::Law(Law::S4)]);
}

#[test]
fn a_newcomer_that_fits_does_not_pass_a_waiting_head_that_does_not() {
    let scene = calm().joins(REN, 1, 1).queues(CAT).joins(RON, 2, 1);
    scene.finds(&[What::Law(Law::F1)]);
}

#[test]
fn a_waiter_that_fits_and_is_left_is_found_unless_it_is_skipped() {
    let scene = |allowed| Scene::new(allowed).takes(CAT).queues(REN).queues(RON);
    scene(false).hands(CAT, &[REN, RON], 2, 4).finds(&[]);
    scene(false).hands(CAT, &[REN], 1, 4).finds(&[What::Law(Law::F5)]);
    let passing = format!(
        "INCR lock:tokens; ZADD HELD LEASE {RON}; ZREM QUEUE {REN} {RON};
         ZADD ASIDE-A {} {REN}; SET LOCK *1:{} PXAT LATER",
        token(2),
        token(4)
    );
    let scene = scene(true).run("unlock", CAT, &passing);
    // A renewal hands nothing off.
    let trace = scene.run("renew", RON, &format!("ZADD HELD LEASE {RON}")).finds(&[]);
    assert_eq!(trace.skipped, 1);
}

#[test]
fn a_sum_that_is_not_that_of_the_holds_is_found() {
    calm().joins(TWO, 2, 1).joins(REN, 2, 1).finds(&[What::Law(Law::S7)]);
    let gone = format!("ZREM HELD {TWO}");
    calm().joins(TWO, 2, 1).run("release", TWO, &gone).finds(&[What::Law(Law::S7)]);
}

#[test]
fn tokens_are_the_same_for_those_who_share_and_new_once_nobody_holds() {
    calm().joins(REN, 1, 1).joins(RON, 2, 2).finds(&[What::Law(Law::S3)]);
    let free = || {
        let gone = format!("ZREM HELD {REN}; DEL LOCK");
        calm().joins(REN, 1, 1).run("release", REN, &gone)
    };
    free().joins(RON, 1, 1).finds(&[What::Law(Law::S3)]);
    free().joins(RON, 1, 2).finds(&[]);
}

#[test]
fn a_lock_that_is_reduced_has_a_new_token_and_a_weight_that_does_not_rise() {
    let reduce = |number: u64| {
        let count = if number > 2 { "INCR lock:tokens;" } else { "" };
        format!(
            "{count} ZADD HELD KEPT {CAT}; ZADD WEIGHTS 1 {CAT}; ZADD HELD LEASE {REN};
             ZREM QUEUE {REN}; SET LOCK *2:{} PXAT LATER",
            token(number)
        )
    };
    let scene = || calm().takes(CAT).queues(REN);
    let trace = scene().run("reduce", CAT, &reduce(3)).joins(RON, 3, 3).finds(&[]);
    assert_eq!(trace.grants[0].reduced, Some(token(3)));
    scene().run("reduce", CAT, &reduce(1)).finds(&[What::Law(Law::S3)]);
    let alone = format!(
        "INCR lock:tokens; ZADD HELD KEPT {CAT}; ZADD WEIGHTS 1 {CAT}; SET LOCK *1:{} PXAT LATER",
        token(3)
    );
    scene().run("reduce", CAT, &alone).finds(&[What::Law(Law::F5)]);
    let raise = format!("ZADD WEIGHTS 2 {CAT}; SET LOCK *3:{} KEEPTTL", token(3));
    let raised = scene().run("reduce", CAT, &reduce(3)).run("reduce", CAT, &raise);
    raised.finds(&[What::Law(Law::S4)]);
}

#[test]
fn a_renewal_beyond_the_lease_or_after_its_end_is_found() {
    let renewal = format!("ZADD HELD LEASE {REN}");
    let trace = calm().joins(REN, 1, 1).run("renew", REN, &renewal).finds(&[]);
    assert_eq!(trace.grants[0].ends, START as i64 + 30_000 + 1_000_000);
    let long = format!("ZADD HELD LATER {REN}");
    calm().joins(REN, 1, 1).run("renew", REN, &long).finds(&[What::Law(Law::T2)]);
    let late = || calm().joins(REN, 1, 1).wait(1_000);
    let found = [Law::T2, Law::S4, Law::S3].map(What::Law);
    late().run("renew", REN, &renewal).finds(&found);
    // The member may repeat the request.
    let again =
        format!("INCR lock:tokens; ZADD HELD LEASE {REN}; SET LOCK *1:{} PXAT LATER", token(2));
    late().run("acquire", REN, &again).finds(&[]);
}

#[test]
fn one_that_shares_and_comes_back_after_its_end_is_found() {
    let ended = || {
        let gone = format!("ZREM HELD {REN}; DEL LOCK");
        calm().joins(REN, 1, 1).run("release", REN, &gone)
    };
    ended().joins(REN, 1, 2).finds(&[What::Law(Law::S5)]);
    ended().takes(CAT).queues(REN).finds(&[What::Law(Law::S5)]);
    let left = || calm().run("leave", REN, &format!("ZADD TOMBSTONES 5 {REN}"));
    left().joins(REN, 1, 1).finds(&[What::Law(Law::S5)]);
}

#[test]
fn a_transaction_takes_a_lock_without_a_lock_key_and_else_draws_a_number_only() {
    let scene = calm().tries(ANN).tries(BEN).run("unlock", ANN, "DEL LOCK").tries(CAT);
    let trace = scene.grants(&[(1, ANN), (3, CAT)]);
    assert_eq!(trace.grants[1].ends, START as i64 + 50_000 + 1_000_000 + 2_000);
    assert_eq!((trace.named, trace.counter), (2, token(3)));
    // A flagged lock key outlives the lease, and a lock key of parts outlives the last part.
    let marked = calm().takes(ANN).run("lock", BEN, &format!("PSETEX LOCK 60990 +{ANN}"));
    let late = marked.wait(1_000).tries(CAT).run("acquire", BEN, "DEL LOCK");
    late.tries(CAT).grants(&[(1, ANN), (3, CAT)]);
    calm().joins(REN, 1, 1).wait(1_000).tries(CAT).grants(&[(1, REN)]);
    calm().takes(ANN).wait(1_000).tries(CAT).grants(&[(1, ANN), (2, CAT)]);
}

#[test]
fn a_transaction_is_judged_as_the_script_in_its_place() {
    let free = |scene: Scene| scene.run("unlock", ANN, "DEL LOCK");
    let overtaken = free(calm().takes(ANN).queues(BEN)).tries(CAT);
    overtaken.finds(&[What::Law(Law::F5), What::Law(Law::F1)]);
    free(calm().tries(ANN)).tries(ANN).finds(&[What::Law(Law::S5)]);
    calm().takes(ANN).wait(1_000).tries(ANN).grants(&[(1, ANN), (2, ANN)]);
    let set = |ms: u32| format!("SET LOCK {ANN} NX PX {ms}");
    let drawn = |set: String| calm().transaction(&format!("{set}; INCR lock:tokens"));
    drawn(set(1_000)).finds(&[]);
    drawn(set(1_001)).finds(&[What::Law(Law::T2)]);
    calm().transaction(&set(1_000)).finds(&[What::Law(Law::S3)]);
    calm().tries(ANN).wait(900).takes(BEN).finds(&[What::Law(Law::S4), What::Law(Law::S1)]);
    calm().tries(ANN).run("unlock", BEN, "DEL LOCK").finds(&[What::Law(Law::S4)]);
    // The value is the server's next, even if it is not used.
    let lower = format!("SET lock:tokens {}", token(1));
    let give = format!("{lower}; ZREM QUEUE {CAT}; PSETEX LOCK 60333 +{CAT}");
    let scene = calm().takes(ANN).queues(CAT).tries(BEN);
    scene.run("unlock", ANN, &give).finds(&[What::Law(Law::S3)]);
}

#[test]
fn a_release_without_a_script_ends_the_hold_of_its_member_where_nobody_waits() {
    let client = Source::Client("c".to_owned());
    for deletion in ["DELIFEQ LOCK", "DELEX LOCK IFEQ"] {
        let deletes = |scene: Scene, member: &str| {
            scene.feed((&client, &format!("{deletion} {member}")), (&client, "PING"))
        };
        deletes(calm().tries(ANN), ANN).tries(BEN).grants(&[(1, ANN), (2, BEN)]);
        deletes(calm().tries(ANN), BEN).tries(CAT).grants(&[(1, ANN)]);
        let marked = calm().tries(ANN).run("lock", BEN, &format!("PSETEX LOCK 60990 +{ANN}"));
        deletes(marked, ANN).tries(CAT).grants(&[(1, ANN)]);
        deletes(calm().joins(REN, 1, 1), REN).joins(RON, 2, 1).finds(&[]);
    }
}

#[test]
fn the_commands_of_others_are_no_part_of_a_transaction() {
    let alone = calm().transaction("INCR lock:tokens");
    assert_eq!(alone.finds(&[]).counter, token(1));
    let both = format!("SET LOCK {ANN} NX PX 1000; INCR lock:tokens; GET LOCK; EXEC; MULTI;");
    let again = format!("SET LOCK {BEN} NX PX 1000; INCR lock:tokens");
    calm().transaction(&format!("{both} {again}")).grants(&[(1, ANN)]);
    let scene = calm().takes(ANN).transaction("INCR lock:tokens");
    scene.run("unlock", ANN, "DEL LOCK").tries(BEN).grants(&[(1, ANN), (3, BEN)]);
}

#[test]
fn the_next_to_write_a_lock_key_that_may_have_ended_shows_whether_it_was_set_anew() {
    let doubt = || calm().takes(ANN).until_doubt().tries(BEN);
    let marked = |member: &str, ms: u32| format!("PSETEX LOCK {ms} +{member}");
    let taken = &[(1, ANN), (2, BEN)];
    // The lease went on.
    doubt().run("lock", BEN, &marked(ANN, 60_001)).grants(&[(1, ANN)]);
    doubt().run("extend", ANN, "PEXPIRE LOCK 1000").grants(&[(1, ANN)]);
    doubt().run("unlock", ANN, "DEL LOCK").tries(CAT).grants(&[(1, ANN), (3, CAT)]);
    doubt().run("leave", BEN, &format!("PSETEX LOCK 60001 -{ANN}")).grants(&[(1, ANN)]);
    doubt().takes(CAT).grants(&[(1, ANN), (3, CAT)]);
    let other = doubt().tries(CAT).run("lock", BEN, &marked(CAT, 60_999));
    other.grants(&[(1, ANN), (3, CAT)]);
    // It had ended.
    doubt().run("lock", CAT, &marked(BEN, 60_999)).grants(taken);
    doubt().run("extend", BEN, "PEXPIRE LOCK 1000").grants(taken);
    doubt().run("unlock", BEN, "DEL LOCK").tries(CAT).grants(&[(1, ANN), (2, BEN), (3, CAT)]);
    doubt().run("confirm", BEN, &format!("PSETEX LOCK 1000 {BEN}")).grants(taken);
    // Steps that only read, and attempts, show nothing.
    doubt().run("lock", BEN, "GET LOCK").tries(CAT).tries(BEN).grants(taken);
    let scene = doubt().tries(CAT).run("lock", BEN, "GET LOCK");
    scene.run("extend", CAT, "PEXPIRE LOCK 1000").grants(&[(1, ANN), (3, CAT)]);
    // Steps that come after the lease would be over show nothing either.
    doubt().wait(1_100).takes(CAT).grants(&[(1, ANN), (2, BEN), (3, CAT)]);
}
