//! Batches, against the server as a pure function.

use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::queue::{Call, Message, QueueState};
use crate::terms::Renewal;

/// The outcomes reported to guards that were released in mid-batch.
#[derive(Debug, Clone, Default)]
struct Outcomes(Rc<RefCell<Vec<Result<Released, StoreError>>>>);

impl Mirror for Outcomes {
    fn certain_until(&self, _until: Moment, _is_answered: bool) {}

    fn lose(&self) {}

    fn queued(&self, _ahead: u64) {}

    fn returned(&self, outcome: Result<Released, StoreError>) {
        self.0.borrow_mut().push(outcome);
    }
}

/// A server with one lock, and a node that forms batches.
struct World {
    lock: QueueState,
    counter: Option<u64>,
    core: Core<Outcomes>,
    said: Vec<Message>,
}

const HERE: &str = "AAAAAAAAAAAAAAAAAAAAAA";
const START_MS: u64 = 1_700_000_000_000;

impl World {
    fn new() -> Self {
        let rules = Rules { batch_limit: 8, seed: 7, ..Rules::default() };
        let (lock, said) = (QueueState::default(), Vec::new());
        let core = Core::new(NodeId::from(HERE), rules);
        Self { lock, counter: Some(START_MS * 1_000), core, said }
    }

    /// Runs a node's command at this time.
    fn serve(&mut self, node: &str, now: Moment, command: &Command) -> Answer {
        let (node, connected) = (NodeId::from(node), |_: &str| true);
        let mut call = Call::new(&node, &connected, START_MS * 1_000 + now.as_micros());
        call.counter = self.counter;
        call.floor_us = START_MS * 1_000;
        let answer = self.lock.step(&mut call, command);
        self.counter = call.counter;
        self.said.extend(call.messages);
        answer
    }

    /// Runs the node's request and returns the response to the node.
    fn answer(&mut self, now: Moment, request: &StoreRequest) {
        let answer = self.serve(HERE, now, &request.command);
        self.core.event(now).replied(request, &answer);
    }

    /// Makes the node send this request: it accepts responses to its own requests only.
    fn sends(&mut self, request: &StoreRequest) {
        self.core.background(request.clone());
        let sent = self.core.drain().into_iter().filter_map(|effect| match effect {
            Effect::Send(sent) => Some(sent),
            _ => None,
        });
        assert!(sent.eq([request.clone()]));
    }

    /// Delivers the messages to the node.
    fn hear(&mut self, now: Moment) {
        for message in std::mem::take(&mut self.said) {
            let (_, event) = message.event();
            self.core.event(now).heard(event);
        }
    }

    /// Returns the due requests.
    fn due(&mut self, now: Moment) -> Vec<StoreRequest> {
        while self.core.event(now).tick() {}
        self.sent()
    }

    /// Returns the requests sent by the last events, without a tick.
    fn sent(&mut self) -> Vec<StoreRequest> {
        let send = |effect| match effect {
            Effect::Send(request) | Effect::Confirm(request) => Some(request),
            _ => None,
        };
        self.core.drain().into_iter().filter_map(send).collect()
    }

    /// Answers all due requests, and all that follow from them.
    fn run(&mut self, now: Moment) -> Vec<Command> {
        let mut commands = Vec::new();
        loop {
            let due = self.due(now);
            if due.is_empty() {
                return commands;
            }
            for request in due {
                self.answer(now, &request);
                commands.push(request.command);
                assert!(commands.len() < 1_000, "no end: {:?}", &commands[..20]);
            }
        }
    }

    /// Answers all requests that become due from `from` to `until`, each 1 ms after it was sent.
    fn run_from(&mut self, from: u64, until: u64) -> Vec<Command> {
        let mut commands = Vec::new();
        for ms in from..until {
            for request in self.due(at(ms)) {
                self.answer(at(ms + 1), &request);
                commands.push(request.command);
            }
        }
        commands
    }

    /// Queues attempts behind another node's lock; returns the attempts and that node's member.
    fn waiting(&mut self, count: usize) -> (Vec<u64>, Member) {
        let other = Member::parse("~2BBBBBBBBBBBBBBBBBBBBBB:1:30000:w:x").expect("a member");
        let members = vec![other.clone()];
        let acquire = Command::Acquire { members, mode: Mode::Wait, queue_limit: 9 };
        self.serve(other.node(), at(0), &acquire);
        let begin = |world: &mut Self| world.begin(at(0), wish("a"));
        ((0..count).map(|_| begin(self)).collect(), other)
    }

    fn begin(&mut self, now: Moment, wish: Request) -> u64 {
        self.begin_with(now, wish, Outcomes::default())
    }

    fn begin_with(&mut self, now: Moment, wish: Request, mirror: Outcomes) -> u64 {
        let begun = self.core.event(now).begin(wish, mirror);
        let (attempt, request) = begun.expect("it is open");
        match request {
            Some(request) => self.answer(now, &request),
            None => drop(self.run(now)),
        }
        attempt
    }

    /// Hands the lock off to the node, which is not notified yet.
    fn hand_over(&mut self, now: Moment, from: &Member) {
        self.serve(from.node(), now, &Command::Release { member: from.clone() });
    }

    /// Returns attempts to which the lock was handed off as a batch.
    fn granted(count: usize) -> (Self, Vec<u64>) {
        let mut world = Self::new();
        let (attempts, other) = world.waiting(count);
        world.hand_over(at(1), &other);
        world.hear(at(1));
        world.due(at(1));
        (world, attempts)
    }

    /// Queues another node's member; returns its id.
    fn queue_other(&mut self, now: Moment) -> u64 {
        let number = 1_000 + self.lock.queue.len() as u64;
        let members = vec![other(number)];
        let acquire = Command::Acquire { members, mode: Mode::Wait, queue_limit: 9 };
        self.serve(other(number).node(), now, &acquire);
        number
    }

    fn touch_other(&mut self, now: Moment) {
        let touch = Command::Touch { members: vec![other(1_000)] };
        self.serve(other(1_000).node(), now, &touch);
    }

    fn release_other(&mut self, now: Moment, number: u64) {
        let release = Command::Release { member: other(number) };
        self.serve(other(number).node(), now, &release);
    }

    /// Returns the ids of the queued members.
    fn waiting_numbers(&self) -> Vec<u64> {
        self.lock.queue.iter().map(|(_, member)| member.number()).collect()
    }

    fn take(&mut self, now: Moment, attempt: u64) -> Option<(u64, u64)> {
        match self.core.event(now).take(attempt) {
            Outcome::Granted { number, token, .. } => Some((number, token.get())),
            _ => None,
        }
    }

    fn holder(&self) -> Option<u64> {
        self.lock.stored_holder().map(|(member, _)| member.number())
    }
}

/// Returns a member of another node.
fn other(number: u64) -> Member {
    let text = format!("~2BBBBBBBBBBBBBBBBBBBBBB:{number}:30000:w:x");
    Member::parse(&text).expect("a member")
}

fn released(request: &StoreRequest) -> Option<u64> {
    match &request.command {
        Command::Release { member } => Some(member.number()),
        _ => None,
    }
}

/// Returns a background request for the lock.
fn background(command: Command) -> StoreRequest {
    let lock = LockName::from("a");
    StoreRequest { lock, command, sent: at(2), background: true, lane: 0, way: Way::Script }
}

#[test]
fn a_batch_is_served_in_order_with_rising_tokens_and_released_once_by_its_name() {
    let (mut world, attempts) = World::granted(3);
    let first = attempts[0] << ROUND_BITS;
    assert_eq!(world.holder(), Some(first));
    let mut tokens = Vec::new();
    for (index, attempt) in attempts.iter().enumerate() {
        for later in &attempts[index + 1..] {
            assert_eq!(world.take(at(2), *later), None, "the one before has not given it back");
        }
        let (number, token) = world.take(at(2), *attempt).expect("its turn");
        tokens.push(token);
        match world.core.event(at(2)).release(number) {
            GivenBack::InBatch if index < 2 => {}
            GivenBack::By(request) if index == 2 => {
                assert_eq!(released(&request), Some(first));
                world.answer(at(2), &request);
            }
            other => panic!("{index}: {other:?}"),
        }
    }
    assert_eq!(tokens, [tokens[0], tokens[0] + 1, tokens[0] + 2]);
    assert_eq!(world.counter, Some(tokens[2]), "as many as there are members are reserved");
    assert_eq!((world.holder(), world.core.counts()), (None, Counts::default()));
    let asked = world.run(at(2));
    assert!(matches!(&asked[..], [Command::Renew { .. }]), "of the first release: {asked:?}");
    assert!(world.core.table.entries().is_empty() && world.core.batches.is_empty());
}

/// Returns two attempts to which the lock was handed off as a batch. One acquire was lost and sent
/// again, or is not answered yet.
fn granted_with_an_open(index: usize, is_lost: bool) -> (World, Vec<u64>, Command) {
    let mut world = World::new();
    let (_, other) = world.waiting(0);
    let mut attempts = Vec::new();
    let mut open = None;
    for turn in 0..2 {
        if turn != index {
            attempts.push(world.begin(at(0), wish("a")));
            continue;
        }
        let begun = world.core.event(at(0)).begin(wish("a"), Outcomes::default());
        let (attempt, request) = begun.expect("it is open");
        let request = request.expect("none of this lock is on its way");
        attempts.push(attempt);
        world.serve(HERE, at(0), &request.command);
        if is_lost {
            world.core.event(at(0)).unanswered(&request, &StoreError::ambiguous("cut"));
            world.run(at(150));
        }
        open = Some(request.command);
    }
    world.hand_over(at(200), &other);
    world.hear(at(200));
    world.due(at(200));
    (world, attempts, open.expect("one of them is open"))
}

#[test]
fn a_batch_leaves_as_a_whole_where_a_copy_of_an_acquire_may_still_run() {
    for (ambiguous, is_lost) in [(0, true), (1, true), (0, false), (1, false)] {
        let (mut world, attempts, open) = granted_with_an_open(ambiguous, is_lost);
        let (number, _) = world.take(at(201), attempts[0]).expect("its turn");
        assert_eq!(world.core.event(at(201)).release(number), GivenBack::InBatch);
        world.run(at(201));
        let (number, _) = world.take(at(201), attempts[1]).expect("its turn");
        let request = world.core.event(at(202)).release(number).request().expect("it is the last");
        let Command::Leave { leaving } = &request.command else { panic!("{request:?}") };
        let marks = leaving.iter().map(|one| (one.member.number(), one.ambiguous));
        let expected = [0, 1].map(|index| (attempts[index] << ROUND_BITS, index == ambiguous));
        assert!(marks.eq(expected), "{leaving:?}");
        world.answer(at(202), &request);
        assert_eq!((world.holder(), world.core.counts()), (None, Counts::default()));
        let late = world.serve(HERE, at(203), &open);
        let Answer::Acquired(reply) = late else { panic!("{late:?}") };
        assert_eq!(reply.outcome, [Acquired::Refused], "{ambiguous}, {is_lost}");
        assert_eq!(world.run(at(203)), []);
        assert!(world.core.table.entries().is_empty() && world.core.batches.is_empty());
    }
}

/// The caller sends the returned release after the event's own requests.
#[test]
fn no_leave_of_its_last_member_overtakes_the_release_of_a_batch() {
    let mut world = World::new();
    let (_, other) = world.waiting(0);
    let outcomes = Outcomes::default();
    let cancelled = world.begin(at(0), wish("a"));
    let mut open = Vec::new();
    let [second, third] = [outcomes.clone(), Outcomes::default()].map(|mirror| {
        let (attempt, request) =
            world.core.event(at(0)).begin(wish("a"), mirror).expect("it is open");
        let request = request.unwrap_or_else(|| world.due(at(0)).pop().expect("its acquire"));
        let answer = world.serve(HERE, at(0), &request.command);
        open.push((request, answer));
        attempt
    });
    world.hand_over(at(1), &other);
    // In flight to the server while the message is in flight to the node.
    world.core.event(at(1)).cancel(cancelled);
    let leave = world.due(at(1));
    world.hear(at(1));
    leave.iter().for_each(|request| world.answer(at(1), request));
    // They were granted before they were answered: a copy may have queued them again.
    for (request, answer) in &open {
        world.core.event(at(2)).replied(request, answer);
    }
    let (number, _) = world.take(at(3), second).expect("its turn");
    assert_eq!(world.core.event(at(3)).release(number), GivenBack::InBatch);
    let (number, _) = world.take(at(4), third).expect("its turn");
    let release = world.core.event(at(4)).release(number).request().expect("it is the last");
    world.run(at(4));
    world.answer(at(4), &release);
    assert_eq!(*outcomes.0.borrow(), [Ok(Released::Released)]);
    world.run(at(1_000));
    assert!(world.core.table.entries().is_empty() && world.core.batches.is_empty());
}

#[test]
fn a_leave_of_a_whole_batch_that_fails_is_repeated_as_such() {
    let (mut world, attempts, _) = granted_with_an_open(0, true);
    world.core.event(at(201)).cancel(attempts[0]);
    let (number, _) = world.take(at(201), attempts[1]).expect("its turn");
    let request = world.core.event(at(202)).release(number).request().expect("it is the last");
    world.core.event(at(203)).unanswered(&request, &StoreError::ambiguous("cut"));
    let again = world.run(at(500));
    assert_eq!(again, [request.command]);
    assert_eq!((world.holder(), world.core.counts()), (None, Counts::default()));
    assert!(world.core.table.entries().is_empty() && world.core.batches.is_empty());
}

/// An inspection shows the first remaining member of a batch.
#[test]
fn with_a_renewal_the_server_is_told_which_members_were_served() {
    for ambiguous in [false, true] {
        let (mut world, attempts) = match ambiguous {
            false => World::granted(2),
            true => {
                let (world, attempts, _) = granted_with_an_open(0, true);
                (world, attempts)
            }
        };
        let (number, _) = world.take(at(201), attempts[0]).expect("its turn");
        world.core.event(at(202)).dropped(number);
        let (number, _) = world.take(at(203), attempts[1]).expect("its turn");
        let commands = world.run(at(5_300));
        let leaving = commands.iter().find_map(|command| match command {
            Command::Leave { leaving } => Some(leaving.as_slice()),
            _ => None,
        });
        let [Leaving { member, ambiguous: is_buried, served: true }] = leaving.expect("one leaves")
        else {
            panic!("{commands:?}")
        };
        let [first, second] = [0, 1].map(|index| attempts[index] << ROUND_BITS);
        assert_eq!((member.number(), *is_buried), (first, ambiguous));
        assert_eq!(world.lock.batch(), [second]);
        assert_eq!(world.run(at(5_301)), [], "once is enough");
        assert!(world.core.event(at(5_400)).until(number).is_some_and(|until| until > at(10_000)));
        let request =
            world.core.event(at(5_400)).release(number).request().expect("it is the last");
        world.answer(at(5_400), &request);
        assert_eq!((world.holder(), world.core.counts()), (None, Counts::default()));
        assert!(world.core.table.entries().is_empty() && world.core.batches.is_empty());
    }
}

// Found by the simulation: the server had lost the batch grant and everything before it.
#[test]
fn a_member_that_the_release_of_its_batch_is_granted_to_leaves() {
    let (mut world, attempts) = World::granted(2);
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    world.core.event(at(3)).dropped(number);
    let (number, _) = world.take(at(4), attempts[1]).expect("its turn");
    let request = world.core.event(at(5)).release(number).request().expect("it is the last");
    let Command::Release { member } = &request.command else { panic!("{request:?}") };
    let last = member.renumbered(attempts[1] << ROUND_BITS);
    let released = reply(Released::Released, Duration::ZERO, Some(&last));
    world.core.event(at(6)).replied(&request, &Answer::Released(released));
    let asked = world.run(at(6));
    let leaving = vec![Leaving::new(last, false)];
    assert_eq!(asked, [Command::Leave { leaving }]);
    assert!(world.core.table.entries().is_empty() && world.core.batches.is_empty());
}

#[test]
fn members_that_are_cancelled_are_skipped_without_a_command() {
    let (mut world, attempts) = World::granted(4);
    world.core.event(at(2)).cancel(attempts[1]);
    let (number, token) = world.take(at(2), attempts[0]).expect("its turn");
    world.core.event(at(2)).cancel(attempts[2]);
    world.core.event(at(2)).dropped(number);
    assert_eq!(world.take(at(2), attempts[3]).map(|(_, token)| token), Some(token + 3));
    assert_eq!(world.run(at(2)), []);
}

#[test]
fn a_batch_whose_members_all_leave_is_released() {
    let (mut world, attempts) = World::granted(3);
    for attempt in attempts {
        world.core.event(at(2)).cancel(attempt);
    }
    let asked = world.run(at(2));
    assert!(matches!(&asked[..], [Command::Release { .. }]), "{asked:?}");
    assert_eq!((world.holder(), world.core.counts()), (None, Counts::default()));
}

#[test]
fn an_offer_that_lapses_is_skipped_and_its_attempt_goes_on_in_the_next_round() {
    let (mut world, attempts) = World::granted(2);
    // The claim is 10 s, and renewed meanwhile.
    world.run(at(4_990));
    assert_eq!(world.run(at(10_100)), []);
    assert!(world.take(at(10_101), attempts[1]).is_some(), "the offer to the first has lapsed");
    assert_eq!(world.take(at(10_101), attempts[0]), None);
    let asked = world.run(at(10_101));
    assert!(
        matches!(&asked[..], [Command::Acquire { members, .. }]
        if members[0].number() == (attempts[0] << ROUND_BITS) + 2),
        "{asked:?}"
    );
}

#[test]
fn with_less_than_half_a_claim_left_the_hold_is_renewed_before_the_next_is_served() {
    let (mut world, attempts) = World::granted(2);
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    // The renewal that is due soon after the hand-off is in flight for long.
    let late = world.due(at(4_960));
    assert!(matches!(&late[..], [StoreRequest { command: Command::Renew { .. }, .. }]), "{late:?}");
    world.core.event(at(5_200)).dropped(number);
    assert_eq!(world.take(at(5_200), attempts[1]), None);
    world.answer(at(5_300), &late[0]);
    assert!(world.take(at(5_300), attempts[1]).is_some());
}

/// A moment is not later than itself: if it were, the repeated renewal would be doubted for ever.
#[test]
fn after_a_new_connection_the_hold_is_renewed_once_before_the_next_is_served() {
    let (mut world, attempts) = World::granted(2);
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    world.core.event(at(3)).linked(Link::Up, Link::Up);
    world.core.event(at(3)).dropped(number);
    assert_eq!(world.take(at(3), attempts[1]), None, "it may have been force-released meanwhile");
    let renewal = world.due(at(3));
    assert!(
        matches!(&renewal[..], [StoreRequest { command: Command::Renew { .. }, .. }]),
        "{renewal:?}"
    );
    world.answer(at(3), &renewal[0]);
    assert!(world.take(at(3), attempts[1]).is_some());
}

#[test]
fn a_new_connection_has_the_hold_of_a_batch_renewed_at_once() {
    let (mut world, attempts) = World::granted(2);
    world.take(at(2), attempts[0]).expect("its turn");
    world.run(at(5_000));
    world.core.event(at(6_000)).linked(Link::Up, Link::Up);
    let renewal = world.due(at(6_000));
    assert!(
        matches!(&renewal[..], [StoreRequest { command: Command::Renew { .. }, .. }]),
        "{renewal:?}"
    );
}

#[test]
fn a_lost_batch_tells_its_guard_and_serves_nobody_else() {
    let (mut world, attempts) = World::granted(3);
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    world.serve("BBBBBBBBBBBBBBBBBBBBBB", at(3), &Command::ForceRelease { member: None });
    world.hear(at(3));
    assert_eq!(world.core.phase(number), Some(Phase::Lost));
    world.run(at(3));
    assert_eq!(world.core.round(attempts[1]), Some(attempts[1] << ROUND_BITS));
    // The lock is free again, and both are granted anew once a later response reports it.
    assert_eq!(world.take(at(3), attempts[1]), None);
    world.run(at(10));
    assert!(world.take(at(10), attempts[1]).is_some());
    world.core.event(at(10)).dropped(number);
    world.run(at(10));
    assert_eq!(world.core.counts().given_back, 0);
}

#[test]
fn a_reply_that_tells_of_the_batch_again_does_not_begin_it_anew() {
    let (mut world, attempts) = World::granted(3);
    let (number, token) = world.take(at(2), attempts[0]).expect("its turn");
    // An earlier touch that the server runs late.
    let first = world.core.member(attempts[0] << ROUND_BITS).expect("the batch's").clone();
    let members = vec![first.renumbered(attempts[1] << ROUND_BITS), first];
    let command = Command::Touch { members };
    let touch = background(command);
    world.sends(&touch);
    world.core.event(at(2)).dropped(number);
    world.answer(at(2), &touch);
    let (_, next) = world.take(at(2), attempts[1]).expect("its turn");
    assert_eq!(next, token + 1);
    assert_eq!(world.take(at(2), attempts[0]), None);
    assert_eq!(world.run(at(2)), [], "nothing is given back");
}

#[test]
fn a_leave_of_the_first_that_is_on_its_way_takes_it_out_of_the_batch_alone() {
    for is_heard_first in [true, false] {
        let mut world = World::new();
        let (attempts, other) = world.waiting(3);
        world.core.event(at(1)).cancel(attempts[0]);
        let leaves = world.due(at(1));
        world.hand_over(at(1), &other);
        if is_heard_first {
            world.hear(at(1));
        }
        world.answer(at(1), &leaves[0]);
        world.hear(at(1));
        assert_eq!(world.holder(), Some(attempts[1] << ROUND_BITS), "the hold is the others'");
        for attempt in &attempts[1..] {
            let (number, _) = world.take(at(2), *attempt).expect("its turn");
            world.core.event(at(2)).dropped(number);
        }
        let asked = world.run(at(2));
        assert!(matches!(&asked[..], [Command::Release { .. }]), "{asked:?}");
        assert_eq!((world.holder(), world.core.counts()), (None, Counts::default()));
        assert!(world.core.table.entries().is_empty());
    }
}

/// The response to an acquire that its caller and its node have forgotten.
#[test]
fn a_batch_that_nobody_waits_for_is_released_once_by_its_name() {
    let mut world = World::new();
    let (attempts, other) = world.waiting(2);
    world.hand_over(at(1), &other);
    world.said.clear();
    let first = world.core.member(attempts[0] << ROUND_BITS).expect("it waits").clone();
    world.core = Core::new(NodeId::from(HERE), world.core.rules);
    let command =
        Command::Acquire { members: vec![first.clone()], mode: Mode::Wait, queue_limit: 9 };
    let request = background(command);
    world.sends(&request);
    world.answer(at(2), &request);
    assert_eq!(world.run(at(2)), [Command::Release { member: first }]);
    assert_eq!((world.holder(), world.core.counts()), (None, Counts::default()));
    assert!(world.core.table.entries().is_empty() && world.core.batches.is_empty());
}

#[test]
fn a_release_in_mid_batch_is_proven_by_what_was_sent_after_it() {
    let (mut world, attempts) = World::granted(3);
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    let outcomes = world.core.table.entries()[&number].mirror.clone();
    let early = world.due(at(4_960));
    assert_eq!(world.core.event(at(4_961)).release(number), GivenBack::InBatch);
    world.answer(at(4_962), &early[0]);
    assert_eq!(outcomes.0.take(), [], "the renewal was sent before");
    let look = world.due(at(4_962));
    assert_eq!(look.len(), 1, "one look: {look:?}");
    world.answer(at(4_963), &look[0]);
    assert_eq!(outcomes.0.take(), [Ok(Released::Released)]);
}

#[test]
fn one_renewal_at_a_time_proves_all_that_came_before_and_is_sent_by_the_event_itself() {
    let (mut world, attempts) = World::granted(5);
    world.core.drain();
    let mut mirrors = Vec::new();
    for (turn, attempt) in (3..).zip(&attempts[..3]) {
        let (number, _) = world.take(at(turn), *attempt).expect("its turn");
        mirrors.push(world.core.table.entries()[&number].mirror.clone());
        assert_eq!(world.core.event(at(turn)).release(number), GivenBack::InBatch);
    }
    let notified = || mirrors.iter().filter(|mirror| !mirror.0.borrow().is_empty()).count();
    let first = world.sent();
    assert_eq!(first.len(), 1, "{first:?}");
    world.answer(at(6), &first[0]);
    assert_eq!(notified(), 1, "the others came after it was sent");
    let second = world.sent();
    assert_eq!(second.len(), 1, "{second:?}");
    world.answer(at(7), &second[0]);
    assert_eq!(notified(), 3);
    assert_eq!(world.sent(), [], "none waits for more");
    assert!(mirrors.iter().all(|mirror| mirror.0.take() == [Ok(Released::Released)]));
}

#[test]
fn a_release_in_mid_batch_is_proven_by_the_release_of_the_batch_or_is_lost_with_it() {
    for is_forced in [false, true] {
        let (mut world, attempts) = World::granted(2);
        let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
        let outcomes = world.core.table.entries()[&number].mirror.clone();
        assert_eq!(world.core.event(at(3)).release(number), GivenBack::InBatch);
        let (last, _) = world.take(at(3), attempts[1]).expect("its turn");
        let release = world.core.event(at(4)).release(last).request().expect("it is the last");
        if is_forced {
            let force = Command::ForceRelease { member: None };
            world.serve("BBBBBBBBBBBBBBBBBBBBBB", at(4), &force);
        }
        assert_eq!(outcomes.0.borrow().len(), 0);
        world.answer(at(5), &release);
        let outcome = if is_forced { Released::NotHeld } else { Released::Released };
        assert_eq!(outcomes.0.take(), [Ok(outcome)]);
    }
}

#[test]
fn a_release_in_mid_batch_ends_with_the_runtime_whatever_the_next_member_does() {
    for turn in ["waits", "holds", "has released"] {
        let (mut world, attempts) = World::granted(2);
        let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
        let outcomes = world.core.table.entries()[&number].mirror.clone();
        assert_eq!(world.core.event(at(3)).release(number), GivenBack::InBatch);
        if turn != "waits" {
            let (last, _) = world.take(at(3), attempts[1]).expect("its turn");
            if turn == "has released" {
                assert!(world.core.event(at(4)).release(last).request().is_some());
            }
        }
        world.core.event(at(5)).close();
        world.core.event(at(5)).end_attempts(0, LockErrorKind::Closed);
        world.core.drain();
        world.core.event(at(5)).lose_holds(0, "the runtime has ended");
        let ended = StoreError::refused(LockErrorKind::Closed, "the runtime has ended");
        assert_eq!(outcomes.0.take(), [Err(ended)], "the next member {turn}");
        let woken = |effect: &Effect<_>| matches!(effect, Effect::Wake(_));
        assert!(world.core.drain().iter().any(woken), "the next member {turn}");
    }
}

#[test]
fn a_look_that_fails_proves_nothing() {
    let (mut world, attempts) = World::granted(2);
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    let outcomes = world.core.table.entries()[&number].mirror.clone();
    assert_eq!(world.core.event(at(3)).release(number), GivenBack::InBatch);
    let look = world.due(at(3));
    let cut = StoreError::ambiguous("cut");
    world.core.event(at(4)).unanswered(&look[0], &cut);
    assert_eq!(outcomes.0.take(), [Err(cut)]);
    assert!(world.take(at(4), attempts[1]).is_some(), "the hold is certain all the same");
}

#[test]
fn a_shutdown_releases_a_batch_once_after_its_guard() {
    let (mut world, attempts) = World::granted(3);
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    world.core.event(at(2)).close();
    world.core.event(at(2)).end_attempts(0, LockErrorKind::Closed);
    assert_eq!(world.run(at(2)), [], "the guard has it");
    world.core.event(at(3)).take_holds(0, "closed");
    world.core.event(at(3)).dropped(number);
    let asked = world.run(at(3));
    assert!(matches!(&asked[..], [Command::Leave { .. }]), "{asked:?}");
    assert_eq!((world.holder(), world.core.counts()), (None, Counts::default()));
}

#[test]
fn a_hold_that_ends_by_itself_is_no_part_of_a_batch() {
    let mut world = World::new();
    let (_, other) = world.waiting(1);
    let fixed = Terms { renewal: Renewal::Fixed, ..wish("a").options };
    let longest = Terms { max_hold: Some(LEASE), ..wish("a").options };
    for options in [fixed, longest, wish("a").options] {
        world.begin(at(0), Request { options, ..wish("a") });
    }
    world.hand_over(at(1), &other);
    assert!(matches!(world.said[..], [Message::Grants { .. }]), "{:?}", world.said);
    assert_eq!((world.lock.batch(), world.lock.queue.len()), (&[][..], 3));
}

#[test]
fn a_batch_is_confirmed_once_where_a_message_may_be_forged_and_then_has_the_tokens_told_last() {
    let mut world = World::new();
    world.core.rules.confirm_grants = true;
    let (attempts, other) = world.waiting(2);
    world.hand_over(at(1), &other);
    let before = world.counter;
    world.hear(at(1));
    assert_eq!(world.take(at(1), attempts[0]), None);
    let asked = world.run(at(1));
    assert!(matches!(&asked[..], [Command::Confirm { .. }]), "{asked:?}");
    let (number, token) = world.take(at(2), attempts[0]).expect("its turn");
    assert_eq!(Some(token - 1), before);
    world.core.event(at(2)).dropped(number);
    assert_eq!(world.take(at(2), attempts[1]).map(|(_, token)| token), Some(token + 1));
    assert_eq!(world.run(at(2)), []);
}

#[test]
fn a_batch_whose_confirmation_fails_is_asked_for_by_a_touch() {
    let mut world = World::new();
    world.core.rules.confirm_grants = true;
    let (attempts, other) = world.waiting(2);
    world.hand_over(at(1), &other);
    world.hear(at(1));
    let confirm = world.due(at(1));
    world.core.event(at(2)).unanswered(&confirm[0], &StoreError::ambiguous("cut"));
    let asked = world.run(at(300));
    assert!(matches!(&asked[..], [Command::Touch { members }] if members.len() == 2), "{asked:?}");
    for attempt in attempts {
        let (number, _) = world.take(at(300), attempt).expect("its turn");
        world.core.event(at(300)).dropped(number);
    }
    let asked = world.run(at(300));
    assert!(matches!(&asked[..], [Command::Release { .. }]), "{asked:?}");
    assert!(world.core.table.entries().is_empty() && world.core.batches.is_empty());
}

/// Returns a batch of two whose hold the store must confirm on replicas, with the attempts, their
/// mirrors and the confirmation.
fn confirmed_on_replicas() -> (World, [u64; 2], [Outcomes; 2], StoreRequest) {
    let mut world = World::new();
    world.core.rules.confirms_writes = true;
    let (_, other) = world.waiting(0);
    let mirrors = [(); 2].map(|()| Outcomes::default());
    let attempts =
        mirrors.each_ref().map(|mirror| world.begin_with(at(0), wish("a"), mirror.clone()));
    world.hand_over(at(1), &other);
    world.hear(at(1));
    let confirm = world.due(at(1)).pop().expect("a confirmation");
    (world, attempts, mirrors, confirm)
}

#[test]
fn a_refusal_waits_for_its_caller_although_the_release_of_the_batch_finds_no_hold() {
    let (mut world, attempts, _, confirm) = confirmed_on_replicas();
    let few = StoreError::refused(LockErrorKind::Unavailable, "1 of 2 replicas");
    world.core.event(at(2)).unconfirmed(&confirm, None, &few);
    let confirm = world.due(at(2)).pop().expect("another for the second");
    world.core.event(at(3)).unconfirmed(&confirm, None, &few);
    // Another server has taken over, which knows nothing.
    world.lock = QueueState::default();
    let asked = world.run(at(4));
    let leaving = asked.iter().flat_map(|command| match command {
        Command::Leave { leaving } => leaving.as_slice(),
        _ => &[],
    });
    let leaving = leaving.map(|one| one.member.number());
    assert!(leaving.eq(attempts.map(|attempt| attempt << ROUND_BITS)), "{asked:?}");
    for attempt in attempts {
        let outcome = world.core.event(at(5)).take(attempt);
        assert!(matches!(outcome, Outcome::Refused(Refusal::Store(_))), "{outcome:?}");
    }
    assert!(world.core.table.entries().is_empty() && world.core.batches.is_empty());
}

#[test]
fn a_batch_that_is_not_confirmed_is_noted_as_the_refusal_of_the_member_whose_turn_it_was() {
    let (mut world, _, mirrors, confirm) = confirmed_on_replicas();
    let few = StoreError::refused(LockErrorKind::Unavailable, "1 of 2 replicas");
    world.core.event(at(2)).unconfirmed(&confirm, None, &few);
    let noted = |effect| match effect {
        Effect::Observe(Note::Refused { of, .. }) => Some(of),
        _ => None,
    };
    let noted: Vec<Outcomes> = world.core.drain().into_iter().filter_map(noted).collect();
    let [of] = &noted[..] else { panic!("{} are noted", noted.len()) };
    assert!(Rc::ptr_eq(&of.0, &mirrors[0].0));
}

#[test]
fn a_first_that_is_cancelled_while_its_batch_is_confirmed_leaves_nothing_behind() {
    let mut world = World::new();
    world.core.rules.confirm_grants = true;
    let (attempts, other) = world.waiting(2);
    world.hand_over(at(1), &other);
    world.hear(at(1));
    world.core.event(at(1)).cancel(attempts[0]);
    world.run(at(2));
    let (number, _) = world.take(at(3), attempts[1]).expect("its turn");
    world.core.event(at(3)).dropped(number);
    world.run(at(3));
    assert!(world.core.table.entries().is_empty() && world.core.batches.is_empty());
}

#[test]
fn the_first_of_a_batch_is_woken_at_its_turn_although_a_confirmation_has_failed() {
    let mut world = World::new();
    world.core.rules.confirm_grants = true;
    let (_, other) = world.waiting(0);
    let mirror = Outcomes::default();
    let attempt = world.begin_with(at(0), wish("a"), mirror.clone());
    world.begin(at(0), wish("a"));
    world.hand_over(at(1), &other);
    world.hear(at(1));
    let confirm = world.due(at(1));
    world.core.event(at(2)).unanswered(&confirm[0], &StoreError::ambiguous("cut"));
    for touch in world.due(at(300)) {
        world.answer(at(300), &touch);
    }
    let is_own = |of: &Outcomes| Rc::ptr_eq(&of.0, &mirror.0);
    let is_woken = |effect: Effect<Outcomes>| matches!(effect, Effect::Wake(of) if is_own(&of));
    assert!(world.core.drain().into_iter().any(is_woken));
    assert!(world.take(at(300), attempt).is_some());
}

#[test]
fn a_member_that_has_given_the_lock_back_is_forgotten_while_its_batch_goes_on() {
    let mut world = World::new();
    let (_, other) = world.waiting(0);
    let mirrors = [(); 3].map(|()| Outcomes::default());
    let attempts =
        mirrors.each_ref().map(|mirror| world.begin_with(at(0), wish("a"), mirror.clone()));
    world.hand_over(at(1), &other);
    world.hear(at(1));
    for (attempt, mirror) in attempts.iter().zip(&mirrors).take(2) {
        world.run(at(1));
        let (number, _) = world.take(at(2), *attempt).expect("its turn");
        world.core.event(at(2)).dropped(number);
        world.due(at(2));
        assert_eq!(Rc::strong_count(&mirror.0), 1);
    }
    assert!(world.take(at(2), attempts[2]).is_some());
}

/// The response reports finished members, and nothing about the hold.
#[test]
fn a_downgraded_hold_outlives_the_answer_to_a_list_of_served_members() {
    let (mut world, attempts) = World::granted(2);
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    world.core.event(at(2)).dropped(number);
    let (number, _) = world.take(at(2), attempts[1]).expect("its turn");
    let due = world.due(at(5_300));
    let answers: Vec<Answer> =
        due.iter().map(|request| world.serve(HERE, at(5_300), &request.command)).collect();
    let request = world.core.event(at(5_301)).downgrade(number).expect("it is held");
    world.answer(at(5_301), &request);
    for (request, answer) in due.iter().zip(&answers) {
        world.core.event(at(5_302)).replied(request, answer);
    }
    for seconds in 6..100 {
        world.run(at(seconds * 1_000));
        assert!(world.core.until(number).is_some_and(|until| until > at(seconds * 1_000)));
    }
}

#[test]
fn a_downgrade_in_mid_batch_puts_the_others_back_in_front() {
    let (mut world, attempts) = World::granted(3);
    let later = world.queue_other(at(2));
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    let request = world.core.event(at(2)).downgrade(number).expect("it is held");
    world.answer(at(2), &request);
    world.run(at(2));
    assert_eq!(world.core.phase(number), Some(Phase::Held));
    let [second, third] = [1, 2].map(|index| attempts[index] << ROUND_BITS);
    assert_eq!(world.waiting_numbers(), [second, third, later]);
    assert_eq!(world.core.counts().positions_lost, 0);
    let release = world.core.event(at(3)).release(number).request().expect("it is the last");
    world.answer(at(3), &release);
    assert!(world.take(at(3), attempts[1]).is_some());
    assert_eq!(world.holder(), Some(second), "the two are a batch again");
}

/// Dropped while the request is in flight; the release overtakes it.
#[test]
fn a_downgrade_that_comes_after_its_release_changes_nothing() {
    for index in 0..2 {
        let (mut world, attempts) = World::granted(3);
        for attempt in &attempts[..index] {
            let (number, _) = world.take(at(2), *attempt).expect("its turn");
            world.core.event(at(2)).dropped(number);
        }
        let (number, _) = world.take(at(2), attempts[index]).expect("its turn");
        let late = world.core.event(at(2)).downgrade(number).expect("it is held");
        let release = world.core.event(at(3)).release(number).request().expect("a request");
        world.answer(at(3), &release);
        world.answer(at(4), &late);
        world.run(at(4));
        world.run(at(5_000));
        assert!(world.take(at(5_000), attempts[index + 1]).is_some(), "guard {index}");
        assert!(world.lock.holds.is_empty(), "nothing is reduced");
        assert_eq!(world.core.counts().positions_lost, 0);
    }
}

#[test]
fn a_downgrade_that_failed_names_the_others_again() {
    let (mut world, attempts) = World::granted(3);
    let later = world.queue_other(at(2));
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    let lost = world.core.event(at(2)).downgrade(number).expect("it is held");
    world.core.event(at(3)).unanswered(&lost, &StoreError::ambiguous("cut"));
    let request = world.core.event(at(4)).downgrade(number).expect("it is held");
    assert_eq!(request.command, lost.command);
    world.answer(at(4), &request);
    let [second, third] = [1, 2].map(|index| attempts[index] << ROUND_BITS);
    assert_eq!(world.waiting_numbers(), [second, third, later]);
}

#[test]
fn a_member_that_is_cancelled_during_a_downgrade_does_not_come_back() {
    for is_first in [true, false] {
        let (mut world, attempts) = World::granted(3);
        let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
        let reduce = world.core.event(at(2)).downgrade(number).expect("it is held");
        world.core.event(at(2)).cancel(attempts[1]);
        let leaves = world.due(at(2));
        assert_eq!(leaves.len(), 1);
        let [one, other] = if is_first { [&leaves[0], &reduce] } else { [&reduce, &leaves[0]] };
        world.answer(at(3), one);
        world.answer(at(3), other);
        assert_eq!(world.waiting_numbers(), [attempts[2] << ROUND_BITS]);
    }
}

/// Returns a batch of three whose guard at `index` became a read: earlier members have released the
/// lock.
fn downgraded(index: usize) -> (World, Vec<u64>, u64) {
    let (mut world, attempts) = World::granted(3);
    for attempt in &attempts[..index] {
        let (number, _) = world.take(at(2), *attempt).expect("its turn");
        world.core.event(at(2)).dropped(number);
    }
    let (number, _) = world.take(at(2), attempts[index]).expect("its turn");
    let request = world.core.event(at(3)).downgrade(number).expect("it is held");
    world.answer(at(3), &request);
    (world, attempts, number)
}

#[test]
fn a_downgraded_guard_of_a_batch_keeps_its_hold_for_longer_than_a_lease() {
    for index in 0..3 {
        let (mut world, attempts, number) = downgraded(index);
        let hold = attempts[0] << ROUND_BITS;
        for seconds in 1..100 {
            let now = at(seconds * 1_000);
            world.run(now);
            let holders: Vec<u64> = world.lock.holds.iter().map(|(_, one)| one.number()).collect();
            assert_eq!(holders, [hold], "guard {index} after {seconds} s");
            assert!(world.core.until(number).is_some_and(|until| until > now), "{index}");
        }
        let release = world.core.event(at(100_000)).release(number).request();
        world.answer(at(100_000), &release.expect("it is the last"));
        assert!(world.lock.holds.is_empty());
    }
}

#[test]
fn a_guard_whose_downgrade_a_failover_undoes_leaves_the_hold_to_the_others() {
    let (mut world, attempts) = World::granted(3);
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    let replica = world.lock.clone();
    let request = world.core.event(at(3)).downgrade(number).expect("it is held");
    world.answer(at(3), &request);
    world.lock = replica;
    world.run(at(4_100));
    world.core.event(at(4_200)).dropped(number);
    world.run(at(4_200));
    for attempt in &attempts[1..] {
        let (number, _) = world.take(at(4_200), *attempt).expect("its turn");
        world.core.event(at(4_200)).dropped(number);
    }
    assert_eq!(world.core.counts().positions_lost, 0);
}

/// The two requests take different paths, so either may be served first.
#[test]
fn a_list_of_served_members_that_a_downgrade_has_overtaken_takes_nothing() {
    let (mut world, attempts) = World::granted(2);
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    world.core.event(at(2)).dropped(number);
    let (number, _) = world.take(at(2), attempts[1]).expect("its turn");
    // The claim is renewed, and the first member is reported as served.
    let due = world.due(at(5_300));
    assert!(due.iter().any(|request| matches!(request.command, Command::Leave { .. })), "{due:?}");
    let request = world.core.event(at(5_300)).downgrade(number).expect("it is held");
    world.answer(at(5_301), &request);
    for late in due {
        world.answer(at(5_302), &late);
    }
    assert_eq!(world.lock.holds.len(), 1);
    world.run(at(20_000));
    assert!(world.core.until(number).is_some_and(|until| until > at(30_000)));
}

#[test]
fn a_position_behind_a_downgraded_batch_counts_all_that_wait() {
    let (mut world, ..) = downgraded(0);
    world.run(at(3));
    world.core.drain();
    world.begin(at(4), wish("a"));
    let queued = world.core.drain().into_iter().find_map(|effect| match effect {
        Effect::Observe(Note::Queued { position, .. }) => Some(position),
        _ => None,
    });
    assert_eq!(queued, Some(2), "the rest of the batch");
}

#[test]
fn a_guard_in_mid_batch_that_leaks_keeps_the_lock_for_nobody() {
    let (mut world, attempts) = World::granted(2);
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    world.core.event(at(2)).leak(number);
    let asked = world.run(at(2));
    assert!(asked.iter().all(|command| !matches!(command, Command::Release { .. })), "{asked:?}");
    assert_eq!(world.holder(), Some(attempts[0] << ROUND_BITS));
    assert_eq!(world.take(at(3), attempts[1]), None);
    let second = attempts[1] << ROUND_BITS;
    assert_eq!(world.waiting_numbers(), [second], "in front, and with its own number");
    assert_eq!((world.lock.batch(), world.core.counts().positions_lost), (&[][..], 0));
    // The claim ends by itself.
    world.run(at(10_100));
    assert!(world.take(at(10_100), attempts[1]).is_some());
}

#[test]
fn a_leak_in_mid_batch_proves_the_releases_before_it() {
    for is_there in [true, false] {
        let mut world = World::new();
        let (_, other) = world.waiting(0);
        let mirrors = [(); 2].map(|()| Outcomes::default());
        let attempts =
            mirrors.each_ref().map(|mirror| world.begin_with(at(0), wish("a"), mirror.clone()));
        world.hand_over(at(1), &other);
        world.hear(at(1));
        let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
        assert_eq!(world.core.event(at(2)).release(number), GivenBack::InBatch);
        let (number, _) = world.take(at(2), attempts[1]).expect("its turn");
        if !is_there {
            world.lock = QueueState::default();
        }
        world.core.event(at(2)).leak(number);
        world.run(at(2));
        let expected = if is_there { Released::Released } else { Released::NotHeld };
        assert_eq!(*mirrors[0].0.borrow(), [Ok(expected)]);
        assert!(world.core.batches.is_empty());
    }
}

#[test]
fn the_rest_of_a_leaked_batch_comes_back_in_front_although_the_request_is_lost() {
    let (mut world, attempts) = World::granted(3);
    let later = world.queue_other(at(2));
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    world.core.event(at(2)).leak(number);
    for lost in world.due(at(2)) {
        world.core.event(at(3)).unanswered(&lost, &StoreError::ambiguous("cut"));
    }
    assert!(world.run(at(5_000)).iter().all(|one| matches!(one, Command::Touch { .. })));
    assert_eq!(world.waiting_numbers(), [later], "the leaked hold has the two");
    world.touch_other(at(10_100));
    world.run(at(10_200));
    assert_eq!(world.core.counts().positions_lost, 0);
    assert_eq!(world.waiting_numbers(), [1, 2].map(|index| attempts[index] << ROUND_BITS));
}

/// A guard of this node handed the lock off by its release; the response arrives long after the
/// batch has ended, when a batch member has the lock once more.
#[test]
fn an_answer_that_tells_of_a_leaked_batch_late_takes_no_later_hold() {
    let mut world = World::new();
    let own = world.begin(at(0), wish("a"));
    let (own, _) = world.take(at(0), own).expect("free");
    let first = world.begin(at(0), wish("a"));
    // The response to the second acquire comes last.
    let (second, open) =
        world.core.event(at(0)).begin(wish("a"), Outcomes::default()).expect("open");
    world.serve(HERE, at(0), &open.expect("none of this lock is on its way").command);
    let release = world.core.event(at(1)).release(own).request().expect("a hold of its own");
    let late = world.serve(HERE, at(1), &release.command);
    world.run(at(4_500));
    let (number, _) = world.take(at(4_500), first).expect("its turn");
    world.core.event(at(4_501)).leak(number);
    world.run(at(4_501));
    // The leaked lease ends there, and is forgotten here.
    world.run(at(45_000));
    let (number, _) = world.take(at(45_000), second).expect("its turn");
    for moment in [50_000, 58_000, 66_000] {
        world.run(at(moment));
    }
    assert!(world.core.batches.is_empty() && world.core.phase(first << ROUND_BITS).is_none());
    world.core.event(at(66_001)).replied(&release, &late);
    for moment in [66_001, 75_000, 85_000] {
        world.run(at(moment));
        assert_eq!(world.core.phase(number), Some(Phase::Held));
        assert_eq!(world.holder(), Some(number));
    }
}

#[test]
fn a_leaked_batch_is_forgotten_with_its_lease_although_the_answer_comes_later() {
    let (mut world, attempts) = World::granted(2);
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    world.core.event(at(2)).leak(number);
    let unanswered = world.due(at(2));
    world.run(at(70_000));
    assert!(world.core.batches.is_empty());
    for request in unanswered {
        world.answer(at(70_001), &request);
    }
    assert!(world.core.batches.is_empty());
}

/// The future of that release waits for it, and perhaps for nothing else.
#[test]
fn a_release_before_a_leak_has_its_outcome_once_the_leaked_lease_has_ended() {
    let (mut world, attempts) = World::granted(2);
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    let outcomes = world.core.table.entries()[&number].mirror.clone();
    assert_eq!(world.core.event(at(2)).release(number), GivenBack::InBatch);
    let (number, _) = world.take(at(2), attempts[1]).expect("its turn");
    world.core.event(at(2)).leak(number);
    let unanswered = world.due(at(2));
    world.run(at(70_000));
    let told = outcomes.0.take();
    assert!(matches!(told[..], [Err(_)]), "{told:?}");
    for request in unanswered {
        world.core.event(at(70_001)).unanswered(&request, &StoreError::ambiguous("cut"));
    }
    assert_eq!(outcomes.0.take(), [], "it is told once");
}

#[test]
fn the_rest_of_a_batch_that_was_force_released_comes_back_in_front() {
    for is_served in [true, false] {
        let (mut world, attempts) = World::granted(3);
        let [other, later] = [(); 2].map(|()| world.queue_other(at(2)));
        let guard = if is_served { world.take(at(2), attempts[0]) } else { None };
        world.serve("BBBBBBBBBBBBBBBBBBBBBB", at(3), &Command::ForceRelease { member: None });
        assert_eq!(world.holder(), Some(other), "the grant of that moment");
        world.hear(at(3));
        world.run(at(3));
        let rest = attempts[usize::from(is_served)..].iter().map(|attempt| attempt << ROUND_BITS);
        let offered = if is_served { None } else { Some(attempts[0] << ROUND_BITS) };
        let expected: Vec<u64> =
            rest.filter(|number| Some(*number) != offered).chain([later]).collect();
        assert_eq!(world.waiting_numbers(), expected, "{is_served}");
        if let Some((number, _)) = guard {
            assert_eq!(world.core.phase(number), Some(Phase::Lost));
            world.core.event(at(4)).dropped(number);
        }
        world.run(at(4));
        world.lock.expire(START_MS + 4);
        assert!(world.lock.set_aside.is_empty(), "the members that are done do not stand aside");
    }
}

#[test]
fn a_guard_that_leaks_as_the_last_of_its_batch_ends_the_batch_on_the_server() {
    let (mut world, attempts) = World::granted(2);
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    world.core.event(at(2)).dropped(number);
    let (number, _) = world.take(at(2), attempts[1]).expect("its turn");
    world.core.event(at(2)).leak(number);
    world.run(at(2));
    assert_eq!((world.holder(), world.lock.batch()), (Some(attempts[0] << ROUND_BITS), &[][..]));
    world.touch_other(at(10_100));
    assert!(world.lock.set_aside.is_empty());
}

/// The server may run the requests of a leak in any order.
#[test]
fn no_leave_of_the_guard_itself_ends_the_hold_that_it_leaks() {
    let (mut world, attempts, open) = granted_with_an_open(1, true);
    let (number, _) = world.take(at(201), attempts[0]).expect("its turn");
    world.core.event(at(202)).dropped(number);
    let (number, _) = world.take(at(203), attempts[1]).expect("its turn");
    world.run(at(5_300));
    assert_eq!(world.lock.batch(), [number], "the server lists the guard alone");
    world.core.event(at(5_301)).leak(number);
    let (leaves, others): (Vec<_>, Vec<_>) = world.due(at(5_301)).into_iter().partition(gives_back);
    for request in leaves.iter().chain(&others) {
        world.answer(at(5_302), request);
    }
    assert_eq!(world.holder(), Some(attempts[0] << ROUND_BITS));
    // Once the lease has ended, a late copy of the acquire is refused.
    world.run(at(66_000));
    let late = world.serve(HERE, at(66_001), &open);
    let Answer::Acquired(reply) = late else { panic!("{late:?}") };
    assert_eq!(reply.outcome, [Acquired::Refused]);
    assert!(world.core.table.entries().is_empty() && world.core.batches.is_empty());
}

#[test]
fn a_message_of_a_batch_that_was_cut_counts_for_no_member_that_waits_again() {
    for is_forced in [true, false] {
        let mut world = World::new();
        let (attempts, holder) = world.waiting(3);
        world.hand_over(at(1), &holder);
        let message = world.said.clone();
        world.hear(at(1));
        let other = world.queue_other(at(2));
        let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
        let mut now = at(3);
        if is_forced {
            let force = Command::ForceRelease { member: None };
            world.serve("BBBBBBBBBBBBBBBBBBBBBB", now, &force);
            world.hear(now);
        } else {
            // No renewal gets through, and the claim ends.
            for ms in (5_000..10_000).step_by(10) {
                for request in world.due(at(ms)) {
                    world.core.event(at(ms)).unanswered(&request, &StoreError::ambiguous("cut"));
                }
            }
            now = at(10_100);
            world.touch_other(now);
        }
        assert_eq!(world.holder(), Some(other), "the grant of that moment");
        world.core.event(now).dropped(number);
        world.run(now);
        // By then they are queued, as far as the node knows.
        world.run(now + Duration::from_millis(700));
        world.said = message;
        for later in [1_000, 2_000] {
            let now = now + Duration::from_millis(later);
            world.hear(now);
            assert_eq!(attempts[1..].iter().find_map(|one| world.take(now, *one)), None);
            world.run(now);
        }
        assert_eq!(world.holder(), Some(other));
        assert_eq!(world.core.counts().positions_lost, 0);
    }
}

// A stopped process reads the response to its touch first, and then the message.
#[test]
fn a_message_of_a_batch_that_lapsed_unheard_makes_no_guard_of_a_member_that_waits_again() {
    let mut world = World::new();
    let (attempts, holder) = world.waiting(3);
    world.hand_over(at(1), &holder);
    let message = std::mem::take(&mut world.said);
    let other = world.queue_other(at(2));
    world.touch_other(at(10_100));
    assert_eq!(world.holder(), Some(other), "the grant of that moment");
    world.run(at(10_200));
    assert_eq!(
        world.waiting_numbers(),
        attempts.iter().map(|one| one << ROUND_BITS).collect::<Vec<_>>()
    );
    world.said = message;
    world.hear(at(10_300));
    assert_eq!(attempts.iter().find_map(|one| world.take(at(10_300), *one)), None);
    world.run(at(10_300));
    assert_eq!(world.holder(), Some(other));
    world.release_other(at(10_400), other);
    world.hear(at(10_400));
    world.run(at(10_400));
    assert!(world.take(at(10_400), attempts[0]).is_some(), "none has lost its place");
}

#[test]
fn the_rest_of_a_batch_that_was_force_released_from_a_frozen_node_is_not_met_again() {
    let (mut world, _) = World::granted(3);
    let later = world.queue_other(at(2));
    world.serve("BBBBBBBBBBBBBBBBBBBBBB", at(3), &Command::ForceRelease { member: None });
    assert_eq!(world.holder(), Some(later));
    world.release_other(at(4), later);
    assert_eq!((world.holder(), world.waiting_numbers()), (None, Vec::new()));
}

#[test]
fn all_of_a_batch_leave_where_the_hold_was_force_released_and_their_callers_are_gone() {
    let (mut world, attempts) = World::granted(3);
    world.serve("BBBBBBBBBBBBBBBBBBBBBB", at(2), &Command::ForceRelease { member: None });
    for attempt in attempts {
        world.core.event(at(3)).cancel(attempt);
    }
    world.run(at(3));
    world.hear(at(4));
    world.run(at(4));
    let aside = world.lock.set_aside.values().flat_map(|aside| aside.members.iter());
    assert_eq!(aside.count(), 0);
    assert_eq!(world.core.counts(), Counts::default());
    assert!(world.core.table.entries().is_empty() && world.core.batches.is_empty());
}

#[test]
fn a_tombstone_keeps_a_member_from_coming_back_in_front() {
    let (mut world, attempts) = World::granted(3);
    let buried = attempts[1] << ROUND_BITS;
    let member = world.lock.stored_holder().map(|(first, _)| first.renumbered(buried));
    world.lock.tombstones.set(&member.expect("it is held"), START_MS + 60_000);
    if let Some(lock_key) = &mut world.lock.lock_key {
        lock_key.mark = crate::queue::Mark::Tombstones;
    }
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    let request = world.core.event(at(2)).downgrade(number).expect("it is held");
    world.answer(at(2), &request);
    assert_eq!(world.waiting_numbers(), [attempts[2] << ROUND_BITS]);
}

#[test]
fn an_answer_that_a_leave_of_the_first_has_overtaken_still_tells_of_the_batch() {
    let mut world = World::new();
    let attempts = [(); 3].map(|()| world.begin(at(0), wish("a")));
    let (number, _) = world.take(at(0), attempts[0]).expect("free");
    world.core.event(at(1)).cancel(attempts[1]);
    let leaves = world.due(at(1));
    let release = world.core.event(at(1)).release(number).request().expect("it is alone");
    let released = world.serve(HERE, at(1), &release.command);
    world.answer(at(2), &leaves[0]);
    world.core.event(at(2)).replied(&release, &released);
    let (number, _) = world.take(at(2), attempts[2]).expect("its turn");
    let release = world.core.event(at(3)).release(number).request().expect("it is the last");
    world.answer(at(3), &release);
    assert_eq!((world.holder(), world.core.counts()), (None, Counts::default()));
}

/// The server counts each batch member but one as waiting, even finished members.
#[test]
fn a_position_behind_our_own_batch_counts_those_that_are_still_to_be_served() {
    let (mut world, attempts) = World::granted(3);
    let position = |world: &mut World, now| {
        world.begin(now, wish("a"));
        let queued = world.core.drain().into_iter().find_map(|effect| match effect {
            Effect::Observe(Note::Queued { position, .. }) => Some(position),
            _ => None,
        });
        queued.expect("it is queued")
    };
    assert_eq!(position(&mut world, at(1)), 2, "two of the batch");
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    world.core.event(at(2)).dropped(number);
    world.take(at(2), attempts[1]).expect("its turn");
    assert_eq!(position(&mut world, at(2)), 2, "one of the batch, and the newcomer before it");
    // By now the server knows.
    world.run(at(5_300));
    assert_eq!(world.lock.batch().len(), 2);
    assert_eq!(position(&mut world, at(5_301)), 3, "one of the batch, and two newcomers");
}

/// A batch whose release was not answered may be gone from the server, and replaced by another
/// batch.
#[test]
fn a_batch_that_may_be_gone_takes_nothing_off_a_position() {
    let (mut world, attempts) = World::granted(3);
    for attempt in &attempts[..2] {
        let (number, _) = world.take(at(2), *attempt).expect("its turn");
        world.core.event(at(2)).dropped(number);
    }
    let (number, _) = world.take(at(2), attempts[2]).expect("its turn");
    let request = world.core.event(at(3)).release(number).request().expect("it is the last");
    let lock = request.lock.clone();
    assert_eq!(world.core.done_in_batch(&lock), 2);
    world.core.event(at(4)).unanswered(&request, &StoreError::ambiguous("cut"));
    assert_eq!(world.core.done_in_batch(&lock), 0);
}

/// The batch hold has the first member's id, so the first attempt continues under another id.
#[test]
fn the_first_of_a_batch_has_a_number_left_and_ends_where_it_misses_its_turn_by_it() {
    let mut world = World::new();
    let (attempts, other) = world.waiting(1);
    let first = attempts[0];
    let round = |world: &World| world.core.round(first).expect("it waits") % (1 << ROUND_BITS);
    while round(&world) + 2 < 1 << ROUND_BITS {
        let number = world.core.round(first).expect("it waits");
        world.core.position_lost(number);
        world.lock.queue.clear();
        world.run(at(0));
    }
    let second = world.begin(at(0), wish("a"));
    world.hand_over(at(1), &other);
    world.hear(at(1));
    world.due(at(1));
    assert_eq!(round(&world), (1 << ROUND_BITS) - 1);
    world.run(at(6_000));
    let outcome = world.core.event(at(12_000)).take(first);
    assert!(matches!(outcome, Outcome::Refused(Refusal::Store(_))), "{outcome:?}");
    assert!(world.take(at(12_000), second).is_some());
}

/// Returns the guard of a hold that a failover forgot, and three attempts: its own, which the new
/// server has queued again, and two later attempts, granted the lock there in a batch with it. The
/// guard is lost if its hold `is_renewed` in between. The message about the batch is not heard yet.
fn queued_again(is_renewed: bool) -> (World, Vec<u64>, u64) {
    let mut world = World::new();
    let (mut attempts, holder) = world.waiting(1);
    let replica = world.lock.clone();
    world.hand_over(at(1), &holder);
    world.hear(at(1));
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    // The primary dies before it has replicated the hand-off.
    world.lock = replica;
    let mut now = 50;
    if is_renewed {
        now = 5_300;
        world.run(at(now));
        assert_eq!(world.core.phase(number), Some(Phase::Lost));
    }
    attempts.extend([(); 2].map(|()| world.begin(at(now), wish("a"))));
    world.hand_over(at(now + 100), &holder);
    let batch = attempts.iter().map(|attempt| attempt << ROUND_BITS).collect::<Vec<_>>();
    assert_eq!(world.lock.batch(), batch);
    (world, attempts, number)
}

/// Drops the guard, and serves the two later attempts at once.
fn serve_the_others(
    mut world: World,
    attempts: &[u64],
    now: Moment,
    drop: impl FnOnce(&mut World),
) {
    drop(&mut world);
    world.run(now);
    for attempt in &attempts[1..] {
        let (number, _) = world.take(now, *attempt).expect("its turn");
        world.core.event(now).dropped(number);
    }
    world.run(now);
    assert_eq!((world.holder(), world.core.counts()), (None, Counts::default()));
    assert!(world.core.table.entries().is_empty() && world.core.batches.is_empty());
}

// Found by reading: the release ended the hold of all three.
#[test]
fn a_guard_that_was_lost_leaves_the_hold_to_the_others_of_a_later_batch() {
    let (world, attempts, number) = queued_again(true);
    serve_the_others(world, &attempts, at(5_500), |world| {
        world.hear(at(5_400));
        let request = world.core.event(at(5_500)).release(number).request();
        world.answer(at(5_500), &request.expect("a request"));
    });
    let (world, attempts, number) = queued_again(true);
    serve_the_others(world, &attempts, at(5_500), |world| {
        world.hear(at(5_400));
        world.core.event(at(5_500)).dropped(number);
    });
}

// The same if the new server granted the batch before the first renewal there.
#[test]
fn a_guard_whose_hold_has_become_a_batch_leaves_it_to_the_others() {
    for (is_downgraded, is_lost) in [(false, false), (true, false), (true, true)] {
        let (world, attempts, number) = queued_again(false);
        serve_the_others(world, &attempts, at(200), |world| {
            world.hear(at(150));
            if is_downgraded {
                let request = world.core.event(at(190)).downgrade(number).expect("it is held");
                match is_lost {
                    true => {
                        let cut = StoreError::ambiguous("cut");
                        world.core.event(at(195)).unanswered(&request, &cut);
                    }
                    false => world.answer(at(190), &request),
                }
            }
            world.core.event(at(200)).dropped(number);
        });
    }
}

// Found by reading: the next member was served beside another node's.
#[test]
fn a_batch_that_is_heard_of_after_the_release_of_its_first_member_is_served_to_nobody() {
    for is_answered in [true, false] {
        let (mut world, attempts, number) = queued_again(false);
        let message = std::mem::take(&mut world.said);
        let other = world.queue_other(at(160));
        world.core.event(at(200)).dropped(number);
        for request in world.due(at(200)) {
            let answer = world.serve(HERE, at(200), &request.command);
            match is_answered {
                true => world.core.event(at(200)).replied(&request, &answer),
                false => {
                    world.core.event(at(200)).unanswered(&request, &StoreError::ambiguous("cut"));
                }
            }
        }
        assert_eq!(world.holder(), Some(other), "the release has ended the hold of all");
        world.said = message;
        world.hear(at(201));
        assert_eq!(world.take(at(201), attempts[1]), None, "answered: {is_answered}");
        world.run(at(202));
        assert_eq!(world.take(at(202), attempts[1]), None, "answered: {is_answered}");
        assert_eq!(world.holder(), Some(other));
    }
}

#[test]
fn a_guard_that_was_lost_ends_the_hold_that_the_server_still_has() {
    let mut world = World::new();
    let (attempts, holder) = world.waiting(1);
    world.hand_over(at(1), &holder);
    world.hear(at(1));
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    world.core.lose_holds(0, "for the test");
    world.core.event(at(3)).dropped(number);
    world.run(at(3));
    assert_eq!((world.holder(), world.core.counts()), (None, Counts::default()));
    assert!(world.core.table.entries().is_empty());
}

/// Returns three attempts, of which one at `index` has its hold confirmed because of an early
/// message, and the confirmation.
fn confirming(index: usize) -> (World, Vec<u64>, Member, StoreRequest) {
    let mut world = World::new();
    world.core.rules.confirm_grants = true;
    let (attempts, holder) = world.waiting(3);
    let early = vec![(attempts[index] << ROUND_BITS, 10_000)];
    world.core.event(at(1)).heard(Event::Granted { token: token(), grants: early });
    let confirm = world.sent().pop().expect("a confirmation");
    (world, attempts, holder, confirm)
}

#[test]
fn a_hold_that_turns_out_to_be_a_batch_when_it_is_confirmed_serves_all_members() {
    for index in 0..3 {
        let (mut world, attempts, holder, confirm) = confirming(index);
        world.hand_over(at(2), &holder);
        world.hear(at(2));
        world.answer(at(3), &confirm);
        world.run(at(3));
        for attempt in &attempts {
            let (number, _) = world.take(at(3), *attempt).expect("its turn");
            world.core.event(at(3)).dropped(number);
        }
        world.run(at(3));
        assert_eq!((world.holder(), world.core.counts()), (None, Counts::default()), "{index}");
        assert!(world.core.table.entries().is_empty() && world.core.batches.is_empty());
    }
}

#[test]
fn a_confirmation_from_before_a_grant_does_not_end_the_hold_whatever_its_outcome() {
    for is_answered in [true, false] {
        let (mut world, attempts, holder, confirm) = confirming(1);
        let not_held = world.serve(HERE, at(1), &confirm.command);
        world.core.rules.confirm_grants = false;
        world.hand_over(at(2), &holder);
        world.hear(at(2));
        let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
        world.core.event(at(2)).dropped(number);
        let (number, _) = world.take(at(2), attempts[1]).expect("its turn");
        let events = world.core.event(at(3));
        match is_answered {
            true => events.replied(&confirm, &not_held),
            false => events.unanswered(&confirm, &StoreError::ambiguous("cut")),
        }
        world.run(at(1_100));
        assert_eq!(world.core.phase(number), Some(Phase::Held), "answered: {is_answered}");
    }
}

/// Requests take several connections, so an earlier request may get its response later.
#[test]
fn a_response_to_an_earlier_renewal_extends_no_later_hold_of_the_batch() {
    let (mut world, attempts) = World::granted(3);
    let replica = world.lock.clone();
    let last = attempts[2] << ROUND_BITS;
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    assert_eq!(world.core.event(at(2)).release(number), GivenBack::InBatch);
    let renewal = world.due(at(2)).pop().expect("a renewal");
    let held = world.serve(HERE, at(2), &renewal.command);
    world.serve("BBBBBBBBBBBBBBBBBBBBBB", at(3), &Command::ForceRelease { member: None });
    world.hear(at(3));
    for request in world.due(at(3)) {
        if gives_back(&request) {
            world.answer(at(3), &request);
        } else {
            world.core.event(at(3)).unanswered(&request, &StoreError::ambiguous("cut"));
        }
    }
    // A server takes over that knows of neither the renewal nor the force release.
    world.lock = replica;
    world.run(at(1_000));
    assert!(world.take(at(1_000), attempts[2]).is_some());
    assert_eq!(world.core.phase(last), Some(Phase::Serving), "the others have left");
    world.core.event(at(1_001)).replied(&renewal, &held);
    assert!(world.core.until(last).is_some_and(|until| until <= at(10_001)));
}

#[test]
fn after_a_downgrade_that_did_not_run_the_others_of_the_batch_are_soon_served() {
    let (mut world, attempts) = World::granted(2);
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    let lost = world.core.event(at(2)).downgrade(number).expect("it is held");
    world.core.event(at(3)).unanswered(&lost, &StoreError::ambiguous("cut"));
    world.core.event(at(4)).dropped(number);
    let leave = world.sent();
    leave.iter().for_each(|request| world.answer(at(5), request));
    world.run(at(6));
    assert!(world.take(at(6), attempts[1]).is_some());
}

// Once, the second member's read was stored under the first member's name, and this leave ended it.
#[test]
fn a_late_copy_of_a_first_member_s_leave_does_not_end_what_another_made_of_the_hold() {
    let (mut world, attempts) = World::granted(3);
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    let lost = world.core.event(at(2)).downgrade(number).expect("it is held");
    world.core.event(at(3)).unanswered(&lost, &StoreError::ambiguous("cut"));
    world.core.event(at(4)).dropped(number);
    let leave = world.sent();
    assert!(
        matches!(leave[..], [StoreRequest { command: Command::Leave { .. }, .. }]),
        "{leave:?}"
    );
    world.answer(at(5), &leave[0]);
    world.run(at(6));
    let (number, _) = world.take(at(6), attempts[1]).expect("its turn");
    let downgrade = world.core.event(at(6)).downgrade(number).expect("it is held");
    world.answer(at(6), &downgrade);
    world.serve(HERE, at(7), &leave[0].command);
    world.run(at(8));
    assert_eq!(world.take(at(8), attempts[2]), None, "the second member still reads");
    assert_eq!(world.core.phase(number), Some(Phase::Held));
    world.core.event(at(9)).dropped(number);
    world.run(at(9));
    assert!(world.take(at(9), attempts[2]).is_some());
}

/// Returns the attempts of a waiter and of another, whose acquire ran without a response; and the
/// holder.
fn second_unanswered() -> (World, [u64; 2], Member) {
    let mut world = World::new();
    let (attempts, other) = world.waiting(1);
    let begun = world.core.event(at(0)).begin(wish("a"), Outcomes::default());
    let (second, request) = begun.expect("it is open");
    let request = request.expect("the subscription stands");
    world.serve(HERE, at(0), &request.command);
    world.core.event(at(0)).unanswered(&request, &StoreError::ambiguous("cut"));
    (world, [attempts[0], second], other)
}

fn is_acquire(request: &StoreRequest) -> bool {
    matches!(request.command, Command::Acquire { .. })
}

/// Serves the repeated acquire, with the caller cancelled afterwards if `is_cancelled`. Returns the
/// other due requests, the acquire and its response.
fn again(
    world: &mut World,
    attempt: u64,
    is_cancelled: bool,
) -> (Vec<StoreRequest>, StoreRequest, Answer) {
    let (acquires, others): (Vec<_>, Vec<_>) =
        world.due(at(1_000)).into_iter().partition(is_acquire);
    let again = acquires.into_iter().next().expect("a retry");
    let answer = world.serve(HERE, at(1_000), &again.command);
    if is_cancelled {
        world.core.event(at(1_000)).cancel(attempt);
    }
    (others, again, answer)
}

/// Checks that this attempt is served, or that nothing is left of it if it was cancelled.
fn is_settled(mut world: World, attempt: u64, is_cancelled: bool, now: Moment) {
    world.run(now);
    if !is_cancelled {
        let (number, _) = world.take(now, attempt).expect("its turn");
        world.core.event(now).dropped(number);
    }
    world.run(now);
    assert_eq!((world.core.counts().attempts, world.core.counts().given_back), (0, 0));
    assert!(world.core.table.entries().is_empty() && world.core.batches.is_empty());
}

// Once, the member asked for ever, with no request in flight.
#[test]
fn a_member_waits_if_the_response_that_grants_its_batch_comes_after_the_claim() {
    for is_cancelled in [false, true] {
        let (mut world, [first, second], other) = second_unanswered();
        world.hand_over(at(1), &other);
        world.said.clear();
        let (_, again, answer) = again(&mut world, second, is_cancelled);
        world.core.event(at(11_500)).replied(&again, &answer);
        world.run(at(11_500));
        let (number, _) = world.take(at(11_500), first).expect("its turn");
        world.core.event(at(11_500)).dropped(number);
        is_settled(world, second, is_cancelled, at(11_500));
    }
}

#[test]
fn a_member_waits_if_its_batch_is_stored_under_a_member_that_leaves() {
    for is_cancelled in [false, true] {
        let (mut world, [first, second], other) = second_unanswered();
        world.core.event(at(1)).cancel(first);
        let cut = StoreError::ambiguous("cut");
        for leave in world.due(at(1)) {
            world.core.event(at(1)).unanswered(&leave, &cut);
        }
        world.hand_over(at(2), &other);
        world.said.clear();
        let (leaves, again, answer) = again(&mut world, second, is_cancelled);
        world.core.event(at(1_001)).replied(&again, &answer);
        for leave in &leaves {
            world.serve(HERE, at(1_001), &leave.command);
            world.core.event(at(1_002)).unanswered(leave, &cut);
        }
        world.run(at(1_500));
        is_settled(world, second, is_cancelled, at(1_500));
    }
}

#[test]
fn a_refusal_that_its_caller_has_not_taken_keeps_no_hold_from_the_others() {
    let mut world = World::new();
    world.core.rules.confirms_writes = true;
    let (attempts, other) = world.waiting(3);
    world.hand_over(at(1), &other);
    world.hear(at(1));
    let few = StoreError::refused(LockErrorKind::Unavailable, "1 of 2 replicas");
    for _ in 0..2 {
        let confirm = world.due(at(1)).pop().expect("a confirmation");
        world.core.event(at(2)).unconfirmed(&confirm, None, &few);
    }
    let confirm = world.due(at(2)).pop().expect("another for the third");
    world.core.event(at(3)).unanswered(&confirm, &StoreError::ambiguous("cut"));
    world.run(at(4));
    let (number, _) = world.take(at(4), attempts[2]).expect("its turn");
    for attempt in &attempts[..2] {
        let outcome = world.core.event(at(5)).take(*attempt);
        assert!(matches!(outcome, Outcome::Refused(Refusal::Store(_))), "{outcome:?}");
    }
    world.core.event(at(5)).dropped(number);
    world.run(at(5));
    assert!(world.core.table.entries().is_empty() && world.core.batches.is_empty());
}

#[test]
fn a_leave_of_the_first_that_is_to_be_repeated_later_is_repeated_at_once() {
    let mut world = World::new();
    let (attempts, other) = world.waiting(2);
    world.core.event(at(1)).cancel(attempts[0]);
    for ms in [1, 101, 301, 701] {
        for leave in world.due(at(ms)) {
            world.core.event(at(ms)).unanswered(&leave, &StoreError::ambiguous("cut"));
        }
    }
    world.hand_over(at(710), &other);
    world.hear(at(711));
    world.run_from(711, 715);
    assert!(world.take(at(715), attempts[1]).is_some());
}

// Once, the touch was due at once, and so was the next confirmation, again and again.
#[test]
fn the_members_of_a_batch_whose_confirmation_has_failed_are_touched_after_a_pause() {
    let mut world = World::new();
    world.core.rules.confirm_grants = true;
    let (_, other) = world.waiting(2);
    world.hand_over(at(9_000), &other);
    world.hear(at(9_000));
    let confirm = world.sent();
    world.core.event(at(9_001)).unanswered(&confirm[0], &StoreError::ambiguous("cut"));
    assert_eq!(world.due(at(9_002)), []);
    let touch = world.due(at(9_251));
    assert!(
        matches!(touch[..], [StoreRequest { command: Command::Touch { .. }, .. }]),
        "{touch:?}"
    );
}

// Once, each of them cost a round trip in which nobody had the lock.
#[test]
fn members_whose_turn_is_over_leave_a_dissolved_batch_together() {
    let (mut world, attempts) = World::granted(5);
    for (attempt, until) in attempts.iter().zip([2, 3, 6_000]) {
        let (number, _) = world.take(at(2), *attempt).expect("its turn");
        world.core.event(at(until)).dropped(number);
    }
    let renewal = world.sent().pop().expect("half of the claim is over");
    world.serve(HERE, at(6_000), &renewal.command);
    world.core.event(at(9_850)).unanswered(&renewal, &StoreError::ambiguous("cut"));
    let commands = world.run_from(9_850, 9_950);
    let leaves = commands.iter().filter(|command| matches!(command, Command::Leave { .. }));
    assert_eq!(leaves.count(), 2, "of the first, and of the two behind it: {commands:?}");
    assert!(world.take(at(9_950), attempts[3]).is_some());
}

#[test]
fn a_batch_is_served_although_a_round_trip_takes_more_than_half_of_its_claim() {
    let mut world = World::new();
    world.core.rules.confirm_grants = true;
    let (_, holder) = world.waiting(0);
    let options = Terms { lease: Duration::from_millis(100), ..wish("a").options };
    let request = Request { options, ..wish("a") };
    let first = world.begin(at(0), request.clone());
    world.begin(at(0), request);
    world.hand_over(at(1), &holder);
    world.hear(at(1));
    for request in world.sent() {
        let answer = world.serve(HERE, at(31), &request.command);
        world.core.event(at(61)).replied(&request, &answer);
    }
    assert!(world.take(at(61), first).is_some());
}

#[test]
fn a_release_of_a_downgraded_batch_is_repeated_without_an_end_of_the_others_hold() {
    let (mut world, attempts) = World::granted(2);
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    let late = world.core.event(at(2)).downgrade(number).expect("it is held");
    let release = world.core.event(at(3)).release(number).request().expect("a request");
    world.serve(HERE, at(3), &release.command);
    world.answer(at(4), &late);
    world.core.event(at(5)).unanswered(&release, &StoreError::ambiguous("cut"));
    let second = attempts[1] << ROUND_BITS;
    assert_eq!(world.lock.batch(), [second]);
    let again = world.sent();
    assert!(
        matches!(&again[..], [StoreRequest { command: Command::Leave { .. }, .. }]),
        "{again:?}"
    );
    again.iter().for_each(|request| world.answer(at(6), request));
    assert_eq!(world.lock.batch(), [second]);
}

/// Returns a batch of `count`, which was force-released while its second member had the turn. The
/// node has learned this by a renewal, not by the message. The later members hold again.
fn held_again(count: usize) -> (World, Vec<u64>) {
    let (mut world, attempts) = World::granted(count);
    let (number, _) = world.take(at(2), attempts[0]).expect("its turn");
    assert_eq!(world.core.event(at(2)).release(number), GivenBack::InBatch);
    let look = world.due(at(2));
    world.serve("BBBBBBBBBBBBBBBBBBBBBB", at(3), &Command::ForceRelease { member: None });
    world.said.clear();
    look.iter().for_each(|request| world.answer(at(4), request));
    for moment in [4, 5, 10, 15] {
        world.run(at(moment));
    }
    (world, attempts)
}

/// If the message is late, and about an earlier hold, the guard loses a hold that exists. Until a
/// renewal showed that, another guard could be valid as well.
// Found by the simulation, law S2, where such a message only made the renewal due.
#[test]
fn a_force_release_ends_a_guard_at_once_although_its_member_was_in_an_earlier_batch() {
    for count in [3, 4] {
        let (mut world, attempts) = held_again(count);
        let (number, _) = world.take(at(20), attempts[2]).expect("its turn");
        world.serve("BBBBBBBBBBBBBBBBBBBBBB", at(20), &Command::ForceRelease { member: None });
        world.hear(at(21));
        assert_eq!(world.core.phase(number), Some(Phase::Lost), "{count}");
    }
}
