//! Rules of `docs/protocol.md` as facts, on a lock with a clock that the test moves.

use std::num::NonZeroU32;

use super::*;
use crate::demand::Demand;
use crate::member::Label;
use crate::store::protocol::{
    Acquired, Leaving, Left, Mode, PATIENCE_MS, Presence, Released, Renewed, Reply, TOMBSTONE_MS,
    Touched,
};

/// The time at which each test begins, ms since the epoch.
const START: u64 = 1_700_000_000_000;
const LEASE: u64 = 30_000;
const CLAIM: u64 = 10_000;

fn node(letter: char) -> NodeId {
    NodeId::of(letter.to_string().repeat(22).as_str())
}

fn member(letter: char, number: u64, demand: Demand) -> Member {
    Member::new(&node(letter), number, LEASE, demand, &Label::new("test"))
}

fn lock(letter: char, number: u64) -> Member {
    member(letter, number, Demand::ALONE)
}

fn read(letter: char, number: u64) -> Member {
    member(letter, number, Demand::READ)
}

fn permit(letter: char, number: u64, limit: u32) -> Member {
    member(letter, number, Demand::permits(1, limit).unwrap())
}

fn letter(member: &Member) -> char {
    member.node().chars().next().unwrap()
}

fn queued(position: u64) -> Acquired {
    Acquired::Queued { position }
}

/// One lock on a server.
struct Bench {
    state: QueueState,
    now_us: u64,
    counter: Option<u64>,
    floor_us: u64,
    elsewhere_us: u64,
    bounds: Bounds,
    /// The letters of the nodes that are not connected.
    away: String,
    said: Vec<Message>,
}

impl Bench {
    fn new() -> Self {
        Self {
            state: QueueState::default(),
            now_us: START * 1_000,
            counter: None,
            floor_us: START * 1_000,
            elsewhere_us: 0,
            bounds: Bounds::default(),
            away: String::new(),
            said: Vec::new(),
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now_us += ms * 1_000;
    }

    fn now(&self) -> u64 {
        self.now_us / 1_000
    }

    fn run(&mut self, by: char, command: &Command) -> Answer {
        let (away, id) = (self.away.clone(), node(by));
        let connected = move |node: &str| !away.contains(&node[..1]);
        let mut call = Call::new(&id, &connected, self.now_us);
        (call.bounds, call.counter) = (self.bounds, self.counter);
        (call.floor_us, call.elsewhere_us) = (self.floor_us, self.elsewhere_us);
        let answer = self.state.step(&mut call, command);
        self.counter = call.counter;
        self.said.extend(call.messages);
        self.check_door();
        answer
    }

    /// L1 and L2 of the page, after every command.
    fn check_door(&self) {
        let door = self.state.door.as_ref();
        let is_waited_for = !self.state.queue.is_empty();
        assert!(door.is_some() || !is_waited_for && self.state.holds.is_empty(), "L1");
        let mark = door.map_or(Mark::None, |door| door.mark);
        assert!(!is_waited_for || mark != Mark::None, "L2");
        assert!(self.state.gone.is_empty() || mark == Mark::Gone, "L2");
    }

    fn acquire_as(&mut self, member: &Member, mode: Mode, queue_limit: u32) -> Reply<Acquired> {
        let command = Command::Acquire { member: member.clone(), mode, queue_limit };
        let Answer::Acquired(reply) = self.run(letter(member), &command) else { unreachable!() };
        reply
    }

    fn acquire(&mut self, member: &Member) -> Reply<Acquired> {
        self.acquire_as(member, Mode::Wait, 1_000_000)
    }

    fn acquire_all(&mut self, members: &[&Member]) {
        for member in members {
            self.acquire(member);
        }
    }

    fn release(&mut self, member: &Member) -> Reply<Released> {
        let command = Command::Release { member: member.clone() };
        let Answer::Released(reply) = self.run(letter(member), &command) else { unreachable!() };
        reply
    }

    fn renew(&mut self, member: &Member) -> Renewed {
        let command = Command::Renew { members: vec![member.clone()] };
        let Answer::Renewed(reply) = self.run(letter(member), &command) else { unreachable!() };
        reply.outcome[0]
    }

    fn reduce(&mut self, member: &Member) -> Reply<Vec<Renewed>> {
        let command = Command::Reduce { member: member.clone(), weight: NonZeroU32::MIN };
        let Answer::Renewed(reply) = self.run(letter(member), &command) else { unreachable!() };
        reply
    }

    fn touch(&mut self, member: &Member) -> Reply<Touched> {
        let command = Command::Touch { members: vec![member.clone()] };
        let Answer::Touched(reply) = self.run(letter(member), &command) else { unreachable!() };
        reply
    }

    fn leave(&mut self, member: &Member, ambiguous: bool) -> Left {
        let leaving = vec![Leaving { member: member.clone(), ambiguous }];
        let command = Command::Leave { leaving };
        let Answer::Left(reply) = self.run(letter(member), &command) else { unreachable!() };
        reply.outcome[0]
    }

    fn force_release(&mut self) -> Released {
        let command = Command::ForceRelease { member: None };
        let Answer::Released(reply) = self.run('z', &command) else { unreachable!() };
        reply.outcome
    }

    /// Every member that holds, in the order of their texts.
    fn holders(&self) -> Vec<Member> {
        match self.state.whole(self.now()) {
            Some((member, _)) => vec![member.clone()],
            None => self.state.holds.iter().map(|(_, member)| member.clone()).collect(),
        }
    }

    fn waiting(&self) -> Vec<Member> {
        self.state.queue.iter().map(|(_, member)| member.clone()).collect()
    }

    /// The lease of the member that holds everything ends now.
    fn end_lease(&mut self) {
        let now_ms = self.now();
        let door = self.state.door.as_mut().unwrap();
        let margin_ms = if door.mark == Mark::None { 0 } else { MARGIN_MS };
        door.ends_ms = Some(now_ms + margin_ms);
    }
}

#[test]
fn a_free_lock_leaves_nothing_but_the_counter() {
    let mut bench = Bench::new();
    let reply = bench.acquire(&lock('a', 1));
    assert_eq!((reply.outcome, reply.grants[0].left_ms), (Acquired::Granted, LEASE));
    assert_eq!(bench.release(&lock('a', 1)).outcome, Released::Released);
    assert_eq!(bench.state, QueueState::default());
}

#[test]
fn locks_reads_and_permits_of_a_name_exclude_each_other() {
    let mut bench = Bench::new();
    bench.acquire(&lock('a', 1));
    assert_eq!(bench.acquire(&read('b', 1)).outcome, queued(0));
    assert_eq!(bench.acquire(&permit('b', 2, 3)).outcome, queued(1));
    assert_eq!(bench.acquire(&lock('c', 1)).outcome, queued(2));
    bench.release(&lock('a', 1));
    assert_eq!(bench.holders(), [read('b', 1), permit('b', 2, 3)]);
    bench.release(&read('b', 1));
    bench.release(&permit('b', 2, 3));
    assert_eq!(bench.holders(), [lock('c', 1)]);
}

#[test]
fn a_lease_that_has_ended_behind_a_mark_is_never_revived() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('b', 1)]);
    bench.end_lease();
    assert_eq!(bench.renew(&lock('a', 1)), Renewed::NotHeld);
    let command = Command::Inspect;
    let Answer::Inspected(found) = bench.run('z', &command) else { unreachable!() };
    assert_eq!(found.holds, []);
    assert_eq!(bench.force_release(), Released::NotHeld);
    assert_eq!(bench.holders(), [lock('b', 1)]);
}

#[test]
fn a_release_and_a_leave_of_an_ended_lease_find_nothing_and_hand_on() {
    for is_leave in [false, true] {
        let mut bench = Bench::new();
        bench.acquire_all(&[&lock('a', 1), &lock('b', 1)]);
        bench.end_lease();
        if is_leave {
            assert_eq!(bench.leave(&lock('a', 1), false), Left::Absent);
        } else {
            assert_eq!(bench.release(&lock('a', 1)).outcome, Released::NotHeld);
        }
        assert_eq!(bench.holders(), [lock('b', 1)]);
    }
}

#[test]
fn an_ended_door_is_free_for_one_that_does_not_wait_if_no_connected_one_waits() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('b', 1)]);
    bench.end_lease();
    let mut with_live = Bench { state: bench.state.clone(), ..Bench::new() };
    let reply = with_live.acquire_as(&lock('c', 1), Mode::Try, 1);
    assert_eq!((reply.outcome, with_live.holders()), (Acquired::Busy, vec![lock('b', 1)]));
    bench.away = "b".to_owned();
    let reply = bench.acquire_as(&lock('c', 1), Mode::Try, 1);
    assert_eq!((reply.outcome, bench.holders()), (Acquired::Granted, vec![lock('c', 1)]));
}

#[test]
fn a_door_without_an_end_gets_one() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('b', 1)]);
    bench.state.door.as_mut().unwrap().ends_ms = None;
    bench.touch(&lock('b', 1));
    let ends_ms = bench.state.door.as_ref().unwrap().ends_ms;
    assert_eq!(ends_ms, Some(bench.now() + LEASE + MARGIN_MS));
}

#[test]
fn tokens_rise_above_the_floor_when_the_counter_is_lost_or_set_back() {
    let mut bench = Bench::new();
    bench.counter = Some(START * 1_000 + 77);
    let token = |bench: &mut Bench| {
        let token = bench.acquire(&lock('a', 1)).grants[0].token.get();
        bench.release(&lock('a', 1));
        token
    };
    assert_eq!(token(&mut bench), START * 1_000 + 78);
    bench.floor_us = START * 1_000 + 5_000_000;
    for counter in [None, Some(5), Some(bench.floor_us - 1), Some(1 << 53)] {
        bench.counter = counter;
        assert_eq!(token(&mut bench), bench.floor_us + 1, "{counter:?}");
    }
    bench.counter = Some(bench.floor_us);
    assert_eq!(token(&mut bench), bench.floor_us + 1);
}

#[test]
fn reads_that_are_held_together_share_a_token_and_later_ones_have_a_new_one() {
    let mut bench = Bench::new();
    let first = bench.acquire(&read('a', 1)).grants[0].token;
    assert_eq!(bench.acquire(&read('b', 1)).grants[0].token, first);
    bench.release(&read('a', 1));
    assert_eq!(bench.acquire(&read('a', 2)).grants[0].token, first);
    bench.release(&read('a', 2));
    bench.release(&read('b', 1));
    assert!(bench.acquire(&read('a', 3)).grants[0].token > first);
}

#[test]
fn a_read_does_not_share_a_token_from_before_a_failover() {
    let mut bench = Bench::new();
    let first = bench.acquire(&read('a', 1)).grants[0].token;
    bench.elsewhere_us = first.get();
    assert!(bench.acquire(&read('b', 1)).grants[0].token > first);
}

#[test]
fn a_lock_that_becomes_a_read_has_a_new_token_and_lets_readers_in() {
    let mut bench = Bench::new();
    let first = bench.acquire(&lock('a', 1)).grants[0].token;
    bench.acquire_all(&[&read('b', 1), &lock('c', 1)]);
    let reply = bench.reduce(&lock('a', 1));
    assert_eq!(reply.outcome, [Renewed::Held]);
    assert!(reply.grants[0].token > first);
    assert_eq!(bench.holders(), [read('b', 1), lock('a', 1)]);
    assert_eq!(bench.reduce(&lock('a', 1)).grants[0].token, reply.grants[0].token);
    assert_eq!(bench.renew(&lock('a', 1)), Renewed::Held);
}

#[test]
fn the_dead_are_passed_over_once() {
    let mut bench = Bench::new();
    bench.acquire(&lock('a', 1));
    for number in 1..=40 {
        bench.acquire(&lock('d', number));
    }
    bench.acquire_all(&[&lock('b', 1), &lock('b', 2)]);
    bench.away = "d".to_owned();
    assert_eq!(bench.release(&lock('a', 1)).passed_over, 40);
    assert_eq!((bench.holders(), bench.waiting()), (vec![lock('b', 1)], vec![lock('b', 2)]));
    assert_eq!(bench.release(&lock('b', 1)).passed_over, 0);
}

#[test]
fn a_member_that_was_passed_over_comes_back_into_its_place() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('d', 1), &lock('b', 1), &lock('d', 2), &lock('c', 1)]);
    bench.away = "d".to_owned();
    bench.release(&lock('a', 1));
    bench.release(&lock('b', 1));
    assert_eq!((bench.holders(), bench.waiting()), (vec![lock('c', 1)], vec![]));
    bench.acquire(&lock('a', 2));
    bench.away.clear();
    for number in [2, 1] {
        assert_eq!(bench.touch(&lock('d', number)).outcome.members, [Presence::Waiting]);
    }
    assert_eq!(bench.waiting(), [lock('d', 1), lock('d', 2), lock('a', 2)]);
    bench.release(&lock('c', 1));
    assert_eq!(bench.holders(), [lock('d', 1)]);
}

#[test]
fn a_late_acquire_of_one_that_was_passed_over_does_not_cost_its_place() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('d', 1)]);
    bench.away = "d".to_owned();
    bench.release(&lock('a', 1));
    bench.acquire_all(&[&lock('a', 2), &lock('d', 2), &lock('d', 1)]);
    bench.release(&lock('a', 2));
    bench.acquire(&lock('a', 3));
    bench.away.clear();
    for number in [2, 1] {
        assert_eq!(bench.touch(&lock('d', number)).outcome.members, [Presence::Waiting]);
    }
    assert_eq!(bench.waiting(), [lock('d', 1), lock('d', 2)]);
}

#[test]
fn a_member_comes_back_to_a_lock_that_is_held_without_waiters_and_marks_its_door() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('d', 1)]);
    bench.away = "d".to_owned();
    bench.release(&lock('a', 1));
    bench.acquire(&lock('b', 1));
    assert_eq!(bench.state.door.as_ref().unwrap().mark, Mark::None);
    bench.away.clear();
    assert_eq!(bench.touch(&lock('d', 1)).outcome.members, [Presence::Waiting]);
    bench.release(&lock('b', 1));
    assert_eq!(bench.holders(), [lock('d', 1)]);
}

#[test]
fn a_place_that_was_passed_over_ends_with_its_time() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('d', 1)]);
    bench.away = "d".to_owned();
    bench.release(&lock('a', 1));
    bench.pass(PASSED_MS);
    assert_eq!(bench.touch(&lock('d', 1)).outcome.members, [Presence::Gone]);
}

#[test]
fn more_than_a_command_looks_at_is_left_to_the_next() {
    let mut bench = Bench::new();
    bench.acquire(&lock('a', 1));
    for number in 0..2 * LOOKED_AT as u64 + 5 {
        bench.acquire(&lock('d', number));
    }
    bench.acquire(&lock('b', 1));
    bench.away = "d".to_owned();
    let reply = bench.release(&lock('a', 1));
    assert_eq!((reply.passed_over, reply.more), (LOOKED_AT as u64, true));
    assert!(bench.touch(&lock('b', 1)).more);
    assert!(!bench.touch(&lock('b', 1)).more);
    assert_eq!(bench.holders(), [lock('b', 1)]);
}

#[test]
fn a_waiter_of_a_silent_node_is_dropped_when_it_is_reached() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('d', 1)]);
    bench.pass(PATIENCE_MS);
    bench.acquire(&lock('b', 1));
    bench.release(&lock('a', 1));
    assert_eq!((bench.holders(), bench.waiting()), (vec![lock('b', 1)], vec![]));
}

#[test]
fn a_queue_that_is_full_of_the_silent_takes_newcomers() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('d', 1), &lock('d', 2)]);
    assert_eq!(bench.acquire_as(&lock('b', 1), Mode::Wait, 2).outcome, Acquired::Full);
    bench.pass(PATIENCE_MS);
    assert_eq!(bench.acquire_as(&lock('b', 1), Mode::Wait, 2).outcome, queued(0));
}

#[test]
fn an_attempt_that_was_given_up_is_never_granted() {
    let mut bench = Bench::new();
    bench.leave(&lock('a', 1), true);
    assert_eq!(bench.acquire(&lock('a', 1)).outcome, Acquired::Refused);
    assert_eq!(bench.acquire(&lock('b', 1)).outcome, Acquired::Granted);
    bench.leave(&lock('c', 1), true);
    bench.release(&lock('b', 1));
    assert_eq!(bench.acquire(&lock('c', 1)).outcome, Acquired::Refused);
    bench.pass(TOMBSTONE_MS);
    bench.touch(&lock('c', 1));
    assert_eq!(bench.state.gone, SortedSet::default());
}

#[test]
fn what_fits_behind_a_permit_with_a_smaller_limit_is_granted_in_the_same_step() {
    let mut bench = Bench::new();
    bench.acquire(&lock('a', 1));
    bench.acquire_all(&[&permit('b', 1, 1), &permit('b', 2, 2), &read('b', 3)]);
    bench.release(&lock('a', 1));
    assert_eq!(bench.holders(), [permit('b', 1, 1), permit('b', 2, 2), read('b', 3)]);
}

#[test]
fn parts_whose_door_was_lost_are_counted_again() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&permit('a', 1, 2), &permit('a', 2, 2)]);
    bench.state.door = None;
    assert_eq!(bench.acquire(&permit('b', 1, 2)).outcome, queued(0));
    assert_eq!(bench.state.used(), 2);
}

#[test]
fn the_same_attempt_is_the_same_hold_or_place() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('b', 1), &lock('c', 1)]);
    bench.pass(1_000);
    let again = bench.acquire(&lock('a', 1));
    assert_eq!((again.outcome, again.grants[0].left_ms), (Acquired::Granted, LEASE - 1_000));
    assert_eq!(bench.acquire(&lock('b', 1)).outcome, queued(0));
    assert_eq!(bench.waiting(), [lock('b', 1), lock('c', 1)]);
}

#[test]
fn a_hand_over_grants_a_claim_and_tells_the_other_node() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('b', 7)]);
    bench.release(&lock('a', 1));
    let [Message::Grants { node: to, grants, .. }] = &bench.said[..] else { unreachable!() };
    assert_eq!((to, grants), (&node('b'), &vec![(7, CLAIM)]));
    assert_eq!(bench.state.whole(bench.now()).unwrap().1, bench.now() + CLAIM);
}
