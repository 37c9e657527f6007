//! Tests for the in-memory store: clock, messages, nodes, sweeps.

use std::sync::{Weak, mpsc};
use std::time::Duration;

use futures_util::FutureExt as _;
use proto::node::{Moment, StoreRequest, Way};
use proto::{
    Acquired, Answer, Command, Demand, Event, Label, LockName, Member, Mode, Released, Reply,
    StoreError,
};
use smallvec::smallvec;
use tokio::time::advance;

use super::*;
use crate::store::{Replies, Then};
use crate::types::key::LockKey;

/// A listener that runs a reaction to each event, and then records the event.
#[derive(Default)]
struct Ear {
    heard: Mutex<Vec<Event>>,
    then: Mutex<Option<Reaction>>,
}

type Reaction = Box<dyn FnMut(&Event) + Send>;

impl Listener for Ear {
    fn hear(&self, event: Event) {
        if let Some(then) = self.then.lock().expect("no panic").as_mut() {
            then(&event);
        }
        self.heard.lock().expect("no panic").push(event);
    }
}

/// A simulated process with a connection to the store.
struct Process {
    node: NodeId,
    store: Arc<dyn Store>,
    ear: Arc<Ear>,
}

impl Process {
    fn on(memory: &MemoryStore) -> Self {
        let (node, ear) = (crate::api::builder::new_node(), Arc::new(Ear::default()));
        let store = memory.connect(node.clone(), ear.clone());
        Self { node, store, ear }
    }

    fn member(&self, number: u64) -> Member {
        Member::new(&self.node, number, 30_000, Demand::EXCLUSIVE, &Label::new("test"))
    }

    fn acquire(&self, lock: &LockName, number: u64) -> Result<Reply<Vec<Acquired>>, StoreError> {
        let (members, mode) = (vec![self.member(number)], Mode::Wait);
        match run(&self.store, lock, Command::Acquire { members, mode, queue_limit: 100 })? {
            Answer::Acquired(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    fn acquired(&self, lock: &LockName, number: u64) -> Acquired {
        self.acquire(lock, number).expect("the store answers").outcome[0]
    }

    fn release(&self, lock: &LockName, number: u64) -> Released {
        released(&self.store, lock, &self.member(number))
    }

    fn heard(&self) -> Vec<Event> {
        std::mem::take(&mut *self.ear.heard.lock().expect("no panic"))
    }
}

/// Runs a command and returns the reply, which an in-memory store gives at once.
fn run(store: &Arc<dyn Store>, lock: &LockName, command: Command) -> Result<Answer, StoreError> {
    let (lock, sent) = (lock.clone(), Moment::default());
    let request =
        StoreRequest { lock, command, sent, background: false, lane: 0, way: Way::Script };
    let (then, replied) = mpsc::channel();
    store.send(smallvec![request], Then::call(move |_, reply| drop(then.send(reply))));
    replied.try_recv().expect("answered at once").and_then(Replies::only)
}

fn released(store: &Arc<dyn Store>, lock: &LockName, member: &Member) -> Released {
    match run(store, lock, Command::Release { member: member.clone() }) {
        Ok(Answer::Released(reply)) => reply.outcome,
        other => panic!("{other:?}"),
    }
}

fn force_release(store: &Arc<dyn Store>, lock: &LockName) {
    run(store, lock, Command::ForceRelease { member: None }).expect("the store answers");
}

fn lock_named(name: &str) -> LockName {
    LockKey::new(name).expect("a good name").resolve(None)
}

fn kind<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> LockErrorKind {
    answer.expect_err("refused").kind
}

const QUEUED: Acquired = Acquired::Queued { position: 0 };

#[test]
fn a_release_hands_over_to_another_node_and_tells_it() {
    let memory = MemoryStore::new();
    let (a, b, lock) = (Process::on(&memory), Process::on(&memory), lock_named("x"));
    assert_eq!((a.acquired(&lock, 1), b.acquired(&lock, 1)), (Acquired::Granted, QUEUED));
    assert_eq!(a.release(&lock, 1), Released::Released);
    let heard = b.heard();
    let [Event::Granted { token, grants }] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!((grants, a.heard()), (&vec![(1, 10_000)], vec![]));
    let again = b.acquire(&lock, 1).expect("the store answers");
    assert!(again.grants[0].token > *token, "a lock that is asked for again has a new token");
}

#[test]
fn a_forced_off_holder_hears_of_it() {
    let memory = MemoryStore::new();
    let (a, b, lock) = (Process::on(&memory), Process::on(&memory), lock_named("x"));
    a.acquired(&lock, 1);
    force_release(&b.store, &lock);
    assert_eq!(a.heard(), [Event::Revoked { numbers: vec![1] }]);
}

#[test]
fn a_listener_may_call_back_and_messages_keep_their_order() {
    let memory = MemoryStore::new();
    let (a, b, lock) = (Process::on(&memory), Process::on(&memory), lock_named("x"));
    a.acquired(&lock, 1);
    b.acquired(&lock, 1);
    let (store, name, member) = (Arc::downgrade(&b.store), lock.clone(), b.member(1));
    let react = move |event: &Event| {
        if matches!(event, Event::Granted { .. }) {
            let store: Arc<dyn Store> = Weak::upgrade(&store).expect("still there");
            force_release(&store, &name);
            assert_eq!(released(&store, &name, &member), Released::NotHeld);
        }
    };
    *b.ear.then.lock().expect("no panic") = Some(Box::new(react));
    a.release(&lock, 1);
    let heard = b.heard();
    assert!(matches!(heard[..], [Event::Granted { .. }, Event::Revoked { .. }]), "{heard:?}");
}

#[test]
fn a_listener_that_panics_does_not_silence_the_others() {
    let memory = MemoryStore::new();
    let (a, b, lock) = (Process::on(&memory), Process::on(&memory), lock_named("x"));
    a.acquired(&lock, 1);
    b.acquired(&lock, 1);
    a.acquired(&lock, 2);
    *b.ear.then.lock().expect("no panic") = Some(Box::new(|_| panic!("on purpose")));
    let release = std::panic::AssertUnwindSafe(|| a.release(&lock, 1));
    assert!(std::panic::catch_unwind(release).is_err());
    assert_eq!(b.release(&lock, 1), Released::Released);
    assert_eq!(a.heard().len(), 1);
}

#[test]
fn a_closed_node_is_answered_closed_and_skipped() {
    let memory = MemoryStore::new();
    let (a, b, lock) = (Process::on(&memory), Process::on(&memory), lock_named("x"));
    a.acquired(&lock, 1);
    b.acquired(&lock, 1);
    let links = [b.store.commands(), b.store.subscription()];
    assert!(links.iter().all(|link| link.borrow().is_up()));
    b.store.close();
    assert!(links.iter().all(|link| !link.borrow().is_up()));
    assert_eq!(kind(b.acquire(&lock, 2)), LockErrorKind::Closed);
    assert_eq!(
        kind(b.store.ping().now_or_never().expect("answered at once")),
        LockErrorKind::Closed
    );
    a.release(&lock, 1);
    assert_eq!(a.acquired(&lock, 2), Acquired::Granted);
}

#[test]
fn a_dropped_node_is_not_connected_and_its_listener_is_let_go() {
    let memory = MemoryStore::new();
    let (a, b, lock) = (Process::on(&memory), Process::on(&memory), lock_named("x"));
    a.acquired(&lock, 1);
    b.acquired(&lock, 1);
    let ear = Arc::downgrade(&b.ear);
    drop(b);
    assert!(ear.upgrade().is_none());
    a.release(&lock, 1);
    assert_eq!(a.acquired(&lock, 2), Acquired::Granted);
}

#[test]
fn a_deaf_node_is_skipped_and_told_so_by_touch() {
    let memory = MemoryStore::new();
    let (a, b, lock) = (Process::on(&memory), Process::on(&memory), lock_named("x"));
    let listeners = || match run(&b.store, &lock, Command::Touch { members: vec![b.member(1)] }) {
        Ok(Answer::Touched(reply)) => reply.outcome.listeners,
        other => panic!("{other:?}"),
    };
    a.acquired(&lock, 1);
    b.acquired(&lock, 1);
    assert_eq!(listeners(), 1);
    memory.set_deaf(&b.node, true);
    assert_eq!(listeners(), 0);
    b.store.reopen_subscription();
    a.release(&lock, 1);
    assert_eq!((b.heard(), a.acquired(&lock, 2)), (vec![], Acquired::Granted));
    memory.set_deaf(&b.node, false);
    b.store.reopen_subscription();
    assert_eq!(b.heard(), [Event::Resubscribed]);
    // The next touch also restores the position of the skipped waiter.
    assert_eq!(listeners(), 1);
    a.release(&lock, 2);
    assert_eq!(b.heard().len(), 1);
}

#[test]
fn a_lossy_node_is_granted_the_lock_but_hears_nothing() {
    let memory = MemoryStore::new();
    let (a, b, lock) = (Process::on(&memory), Process::on(&memory), lock_named("x"));
    a.acquired(&lock, 1);
    b.acquired(&lock, 1);
    memory.set_lossy(&b.node, true);
    a.release(&lock, 1);
    assert_eq!((b.heard(), b.acquired(&lock, 1)), (vec![], Acquired::Granted));
}

#[test]
fn refused_acquires_fail_with_the_kind_and_everything_else_goes_on() {
    let memory = MemoryStore::new();
    let (a, b, lock) = (Process::on(&memory), Process::on(&memory), lock_named("x"));
    a.acquired(&lock, 1);
    b.acquired(&lock, 1);
    for refused in [LockErrorKind::Unavailable, LockErrorKind::OutOfMemory, LockErrorKind::Timeout]
    {
        memory.refuse(Some(refused));
        let error = b.acquire(&lock, 2).expect_err("refused");
        assert_eq!((error.kind, error.may_have_run), (refused, false));
    }
    memory.refuse(Some(LockErrorKind::QueueFull));
    assert_eq!(b.acquired(&lock_named("free"), 2), Acquired::Full { waiting: 0 });
    a.release(&lock, 1);
    assert_eq!(b.heard().len(), 1);
    memory.refuse(None);
    assert_eq!(b.acquired(&lock, 1), Acquired::Granted);
}

#[tokio::test(start_paused = true)]
async fn leases_end_by_the_paused_clock() {
    let memory = MemoryStore::new();
    let (a, lock) = (Process::on(&memory), lock_named("x"));
    a.acquired(&lock, 1);
    advance(Duration::from_millis(29_999)).await;
    assert_eq!(a.acquired(&lock, 2), QUEUED);
    advance(Duration::from_millis(1)).await;
    assert_eq!(a.acquired(&lock, 2), Acquired::Granted);
}

#[test]
fn the_clock_runs_outside_a_runtime_from_the_wall_clocks_time() {
    let (memory, lock) = (MemoryStore::new(), lock_named("x"));
    let reply = Process::on(&memory).acquire(&lock, 1).expect("the store answers");
    let now_us = reply.now_us.expect("it tells the time");
    let wall_us = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_micros() as u64;
    assert!(now_us.abs_diff(wall_us) < 60_000_000, "{now_us} {wall_us}");
}

#[tokio::test(start_paused = true)]
async fn locks_of_which_nothing_is_left_are_forgotten() {
    let memory = MemoryStore::new();
    let a = Process::on(&memory);
    let held = lock_named("held");
    let mut most = 0;
    for number in 0..100_000 {
        if number % 100 == 0 {
            advance(Duration::from_secs(1)).await;
            a.acquired(&held, 0);
            let renewal = Command::Renew { members: vec![a.member(0)] };
            run(&a.store, &held, renewal).expect("the store answers");
        }
        let lock = lock_named(&number.to_string());
        assert_eq!(a.acquired(&lock, number + 1), Acquired::Granted);
        assert_eq!(a.release(&lock, number + 1), Released::Released);
        most = most.max(memory.shared.state().locks.len());
    }
    assert!(most <= state::MIN_SWEEP, "{most}");
    assert_eq!(a.release(&held, 0), Released::Released);
}

#[tokio::test(start_paused = true)]
async fn locks_of_a_burst_are_forgotten_although_only_few_follow() {
    let memory = MemoryStore::new();
    let a = Process::on(&memory);
    for number in 0..10_000 {
        let lock = lock_named(&number.to_string());
        assert_eq!(a.acquired(&lock, number), Acquired::Granted);
        assert_eq!(a.release(&lock, number), Released::Released);
    }
    advance(Duration::from_secs(121)).await;
    assert_eq!(a.acquired(&lock_named("later"), 10_000), Acquired::Granted);
    assert_eq!(memory.shared.state().locks.len(), 1);
}

#[cfg(feature = "redisson")]
#[tokio::test]
async fn the_locks_of_one_name_in_two_layouts_are_different_locks() {
    let store = MemoryStore::new();
    let locks = |peers| {
        let builder = crate::Locks::builder().redisson_peers(peers);
        builder.on_memory(&store).expect("valid options")
    };
    for peers in [false, true] {
        let _held = locks(peers).try_lock("a").await.expect("answered").expect("it is free");
        assert!(locks(peers).try_lock("a").await.expect("answered").is_none());
        assert!(locks(!peers).try_lock("a").await.expect("answered").is_some());
    }
}

#[test]
fn looking_at_a_lock_does_not_make_it_remembered() {
    let memory = MemoryStore::new();
    let (a, lock) = (Process::on(&memory), lock_named("x"));
    run(&a.store, &lock, Command::INSPECT).expect("the store answers");
    a.release(&lock, 1);
    assert!(memory.shared.state().locks.is_empty());
}

#[test]
fn a_position_in_line_is_kept_under_many_threads() {
    let (memory, lock) = (MemoryStore::new(), lock_named("x"));
    let holders = Arc::new(Mutex::new((0, 0)));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let process = Process::on(&memory);
                for number in 0..300 {
                    while process.acquired(&lock, number) != Acquired::Granted {
                        std::thread::yield_now();
                    }
                    let mut seen = holders.lock().expect("no panic");
                    seen.0 += 1;
                    assert_eq!(seen.0, 1, "one holder at a time");
                    seen.1 += 1;
                    seen.0 -= 1;
                    drop(seen);
                    assert_eq!(process.release(&lock, number), Released::Released);
                }
            });
        }
    });
    assert_eq!(holders.lock().expect("no panic").1, 1_200);
}
