//! Replies that reach other requests, like all later replies after a lost reply on a connection
//! that stays open.

use proto::wire::is_nonsense;
use proto::{Acquired, Answer, Answers, Command, Grant, Label, LockName, Member, Mode, Presence};

use crate::asking::{acquire, acquire_all, leave, reduce, touch};
use crate::bench::Bench;
use crate::facts;
use crate::node::{Exchange, Node};
use crate::parts::permits;

facts! {
    scripts: [no_answer_to_another_request_grants_renews_or_ends_anything],
}

const LEASE_MS: u64 = 30_000;

fn wait(member: &Member) -> Command {
    acquire(member, Mode::Wait, 1_000)
}

fn try_now(member: &Member) -> Command {
    acquire(member, Mode::Try, 1_000)
}

fn release(member: &Member) -> Command {
    Command::Release { member: member.clone() }
}

fn renew(members: &[&Member]) -> Command {
    Command::Renew { members: members.iter().copied().cloned().collect() }
}

fn confirm(member: &Member) -> Command {
    Command::Confirm { member: member.clone() }
}

async fn run(node: &Node, lock: &LockName, commands: impl IntoIterator<Item = Command>) {
    for command in commands {
        node.run_on(lock, command).await.expect("answered");
    }
}

/// Runs each command on a lock, with each form of its reply.
async fn of_lock(node: &Node, lock: &LockName, new: impl Fn() -> Member) {
    let [holder, second, third, fourth, fifth, unknown] = [(); 6].map(|()| new());
    let asked = [
        wait(&holder),
        try_now(&fifth),
        wait(&second),
        touch(&[&second]),
        acquire_all(&[&third, &fourth], Mode::Wait, 1_000),
        acquire(&fifth, Mode::Wait, 2),
        leave(&[(&fourth, false)]),
        leave(&[(&fifth, true)]),
        wait(&fifth),
    ];
    run(node, lock, asked).await;
    for member in [&second, &holder, &unknown] {
        run(node, lock, [renew(&[member]), touch(&[member]), confirm(member)]).await;
    }
    let ended = [
        release(&unknown),
        release(&holder),
        touch(&[&second]),
        release(&second),
        Command::INSPECT,
        Command::ForceRelease { member: None },
        release(&third),
    ];
    run(node, lock, ended).await;
}

/// Runs each command on parts.
async fn of_parts(node: &Node, lock: &LockName) {
    let [whole, other] = [(); 2].map(|()| node.member(LEASE_MS));
    run(node, lock, [wait(&whole), reduce(&whole), reduce(&other), release(&whole)]).await;
    let [first, second, third, fourth] = [(); 4].map(|()| node.member_for(permits(1, 2), LEASE_MS));
    run(node, lock, [wait(&first), wait(&second), try_now(&fourth), wait(&third)]).await;
    for member in [&first, &second, &third] {
        run(node, lock, [touch(&[member]), renew(&[member]), confirm(member)]).await;
    }
    let newest = Member::keeping_newest(&node.id, 1 << 40, LEASE_MS, &Label::new("newest"));
    let ended = [
        renew(&[&first, &second]),
        touch(&[&second, &third]),
        acquire_all(&[&fourth, &node.member(LEASE_MS)], Mode::Wait, 1_000),
        wait(&newest),
        release(&first),
        Command::INSPECT,
        Command::ForceRelease { member: Some(second) },
        release(&third),
    ];
    run(node, lock, ended).await;
}

/// The first lock and member of a request.
fn first(exchange: &Exchange) -> Option<(&LockName, Option<&Member>)> {
    exchange.commands.first().map(|(lock, command)| (lock, command.first()))
}

/// Whether it reports more about its members than that they wait or are released.
fn decides(answer: &Answer) -> bool {
    match answer {
        Answer::Acquired(reply) => {
            reply.outcome.iter().any(|outcome| !matches!(outcome, Acquired::Queued { .. }))
        }
        Answer::Touched(reply) => {
            reply.outcome.members.iter().any(|presence| *presence != Presence::Waiting)
        }
        Answer::Renewed(_) | Answer::Left(_) | Answer::Inspected(_) => true,
        Answer::Released(_) => false,
    }
}

fn grants(answers: &Answers) -> Vec<&Grant> {
    answers.iter().flatten().flat_map(Answer::grants).collect()
}

async fn no_answer_to_another_request_grants_renews_or_ends_anything(mut bench: Bench) {
    let node = bench.node().await;
    let locks = ["x", "y", "z"].map(LockName::from);
    let serial = || node.member(LEASE_MS);
    let in_batch = || {
        let number = serial().number();
        Member::in_batch(&node.id, number, LEASE_MS, 8, &Label::new("a label"))
    };
    for lock in &locks {
        of_lock(&node, lock, serial).await;
        if !node.peers {
            of_lock(&node, lock, in_batch).await;
            of_parts(&node, lock).await;
        }
    }
    let renewals = [&locks[0], &locks[1]].map(|lock| (lock, renew(&[&serial()])));
    let renewals: Vec<_> = renewals.iter().map(|(lock, command)| (*lock, command)).collect();
    node.run_together(&renewals).await.expect("answered");

    let exchanges = node.exchanges();
    let pairs = exchanges.iter().flat_map(|of| exchanges.iter().map(move |by| (of, by)));
    let mut refused = 0;
    for (of, by) in pairs {
        let own = node.read(of, of).expect("an answer of a known form");
        let what = format!("{:?} gets {of:?}", by.commands);
        let read = match node.read(of, by) {
            Ok(read) => read,
            Err(error) => {
                assert!(is_nonsense(&error), "{error:?}: {what}");
                refused += 1;
                continue;
            }
        };
        for grant in grants(&read) {
            let is_reported = |other: &&Grant| {
                let left_ms = grant.left_ms.min(other.left_ms);
                *grant == Grant { left_ms, ..(*other).clone() }
            };
            assert!(grants(&own).iter().any(is_reported), "{grant:?}, not of {own:?}: {what}");
        }
        let is_repeated = first(of) == first(by);
        for answer in read.iter().flatten().filter(|_| !is_repeated) {
            assert!(!decides(answer), "{answer:?}: {what}");
        }
    }
    assert!(refused > exchanges.len(), "{refused} of {} requests", exchanges.len());
}
