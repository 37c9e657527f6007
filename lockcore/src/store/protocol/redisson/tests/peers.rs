//! What differs in a queue that is shared with JVMs.

use super::*;
use crate::store::protocol::redisson::peers::{JVM_STEP_MS, SHORT_SCORE_MS, SLACK_MS};

/// A lock whose queue is shared with JVMs, of which no thread hears but those of `heard`.
struct Shared {
    state: LockState,
    now_us: u64,
    heard: Vec<Party>,
}

impl Shared {
    fn new() -> Self {
        Self { state: LockState::default(), now_us: START * 1_000, heard: Vec::new() }
    }

    fn pass(&mut self, ms: u64) {
        self.now_us += ms * 1_000;
    }

    fn run<T>(&mut self, by: char, command: impl FnOnce(&mut LockState, &mut Call<'_>) -> T) -> T {
        let (node, heard) = (node(by), self.heard.clone());
        let listens = |thread: &str| heard.iter().any(|member| member.as_str() == thread);
        let mut call = Call::new(&node, &|_| true, self.now_us);
        call.peers = Some(Peers { listens: &listens });
        command(&mut self.state, &mut call)
    }

    fn acquire(&mut self, member: &Party) -> Acquired {
        self.run(letter(member), |state, call| state.acquire(call, &ours(member), Mode::Wait, MANY))
            .outcome
    }

    fn release(&mut self, member: &Party) {
        self.run(letter(member), |state, call| state.release(call, &ours(member)));
    }

    fn touch(&mut self, members: &[&Party]) -> Vec<Presence> {
        let by = letter(members[0]);
        let members: Vec<Member> = members.iter().map(|member| ours(member)).collect();
        self.run(by, |state, call| state.touch(call, &members)).outcome.members
    }

    /// A thread of a JVM queues, with five minutes of patience.
    fn queue_foreign(&mut self, member: &Party) {
        let last = self.state.queue.back().and_then(|last| self.state.deadlines.get(last));
        let score_ms = last.unwrap_or(self.now_us / 1_000) + 300_000;
        self.state.queue.push_back(member.clone());
        self.state.deadlines.set(member, score_ms);
    }

    fn waiting(&self) -> Vec<Party> {
        self.state.queue.iter().cloned().collect()
    }
}

#[test]
fn threads_of_a_jvm_that_is_gone_cost_one_grace_and_a_late_one_has_its_own() {
    let mut lock = Shared::new();
    let (holder, ours) = (member('a', 1), member('b', 1));
    lock.acquire(&holder);
    lock.queue_foreign(&jvm(1));
    lock.queue_foreign(&jvm(2));
    lock.release(&holder);
    lock.pass(5_000);
    lock.queue_foreign(&jvm(3));
    lock.acquire(&ours);
    lock.pass(2_999);
    lock.touch(&[&ours]);
    assert_eq!(lock.state.queue.len(), 4);
    lock.pass(1);
    lock.touch(&[&ours]);
    assert_eq!(lock.waiting(), [jvm(3), ours.clone()]);
    lock.pass(5_000);
    lock.touch(&[&ours]);
    assert_eq!(lock.state.hold.expect("none is before it").member, ours);
}

#[test]
fn a_thread_that_hears_keeps_its_place_and_ends_all_suspicion() {
    let mut lock = Shared::new();
    let (holder, ours) = (member('a', 1), member('b', 1));
    lock.acquire(&holder);
    lock.queue_foreign(&jvm(1));
    lock.acquire(&ours);
    lock.release(&holder);
    lock.heard.push(jvm(1));
    lock.pass(8_000);
    lock.touch(&[&ours]);
    assert_eq!(lock.waiting(), [jvm(1), ours.clone()]);
    lock.heard.clear();
    lock.touch(&[&ours]);
    lock.pass(7_999);
    lock.touch(&[&ours]);
    assert_eq!(lock.waiting(), [jvm(1), ours]);
}

#[test]
fn all_whom_a_jvm_threw_out_come_back_with_the_first_touch_in_the_order_in_which_they_came() {
    let mut lock = Shared::new();
    lock.acquire(&member('c', 9));
    let ours = [member('a', 1), member('b', 1), member('a', 2), member('b', 2)];
    for waiting in &ours {
        lock.acquire(waiting);
    }
    lock.queue_foreign(&jvm(1));
    for _ in &ours {
        let head = lock.state.queue.pop_front().expect("queued");
        lock.state.deadlines.remove(&head);
    }
    assert_eq!(lock.touch(&[&ours[1], &ours[3]]), [Presence::Waiting; 2]);
    assert_eq!(lock.waiting()[..4], ours);
    assert_eq!(lock.waiting()[4], jvm(1));
    // Not who has left, or has not been heard of for too long.
    lock.state.queue.clear();
    lock.state.deadlines.clear();
    lock.run('a', |state, call| {
        state.leave(call, &[Leaving { member: super::ours(&ours[0]), ambiguous: false }])
    });
    lock.pass(PATIENCE_MS - 1);
    lock.touch(&[&ours[1]]);
    assert_eq!(lock.waiting(), ours[1..]);
    lock.state.queue.clear();
    lock.state.deadlines.clear();
    lock.pass(1);
    lock.touch(&[&ours[1]]);
    assert_eq!(lock.waiting(), ours[1..2]);
}

#[test]
fn a_newcomer_builds_no_more_than_an_hour_on_the_score_of_the_last() {
    let mut lock = Shared::new();
    lock.acquire(&member('a', 1));
    lock.queue_foreign(&jvm(1));
    let enough_ms = START + LEASE + 2 * JVM_STEP_MS;
    for (last_ms, expected_ms) in [
        (START + 1_000, enough_ms),
        (enough_ms + 7, enough_ms + 7),
        (START + 90_000_000, enough_ms + SLACK_MS),
    ] {
        let newcomer = member('b', last_ms);
        lock.state.deadlines.set(&jvm(1), last_ms);
        lock.acquire(&newcomer);
        assert_eq!(lock.state.deadlines.get(&newcomer), Some(expected_ms));
        lock.state.drop_waiting(&newcomer);
    }
}

#[test]
fn a_score_is_short_where_no_jvm_stands_before_us_and_the_next_jvm_s_does_not_run_out() {
    let mut lock = Shared::new();
    lock.acquire(&member('a', 1));
    let (first, second, third) = (member('b', 1), member('b', 2), member('b', 3));
    lock.acquire(&first);
    lock.acquire(&second);
    for (number, score_ms) in [(1, 90_000), (2, 100_000)] {
        lock.queue_foreign(&jvm(number));
        lock.state.deadlines.set(&jvm(number), START + score_ms);
    }
    lock.acquire(&third);
    lock.touch(&[&first, &second, &third]);
    let score = |member: &Party| lock.state.deadlines.get(member).expect("it waits") - START;
    assert_eq!([score(&first), score(&second)], [SHORT_SCORE_MS; 2]);
    assert_eq!([score(&jvm(1)), score(&jvm(2))], [JVM_STEP_MS, 100_000]);
    assert!(score(&third) > 2 * JVM_STEP_MS);
}
