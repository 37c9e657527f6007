//! The protocol with a single error: shows that the laws detect the error.

use proto::queue::{Call, Held, LockKeyValue, MARGIN_MS, Mark, Message, QueueState};
use proto::{Answer, Command, Mode};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// The correct protocol.
    Right,
    /// A client counts the deadline from the reply instead of the request.
    CountsFromTheReply,
    /// A client counts the deadline from a message's arrival.
    CountsFromTheMessage,
    /// An attempt continues under the same member after losing the position.
    KeepsItsMember,
    NoTombstone,
    ForgetsToLeave,
    /// No waiter ever requests again.
    NeverAsksAgain,
    /// A node ignores that a reply reports work left over.
    ForgetsMore,
    /// The server does not compare the holder before a release.
    ReleasesAnybody,
    /// The server renews an ended hold.
    RevivesHolds,
    /// The server does not remember the tokens that it issues.
    ForgetsTokens,
    /// The server ignores the queue when a new member requests the lock.
    LetsBarge,
    /// The server grants a part without checking the weight in use.
    OverlooksWeights,
    /// The server treats every node as disconnected.
    PassesOverTheLiving,
    /// The server does not restore skipped members.
    LeavesThemAside,
    /// The server restores skipped members at the end of the queue.
    BringsThemBackLast,
    /// A touch does not renew the liveness deadline.
    IgnoresTouches,
    /// The server keeps a released lock free.
    KeepsItFree,
    /// The server reports a longer lease than it granted.
    Exaggerates,
    /// The server keeps a lock key without an expiry.
    KeepsForEver,
    /// The server removes an expired part, and leaves the weight in the sum.
    LeavesTheLapsedInTheSum,
    /// The server grants only one of several members that fit together, and does not report the
    /// rest.
    GrantsOneOnly,
    /// The server downgrades a lock and keeps the token.
    DowngradesUnderTheOldToken,
    /// A late copy of an acquire restores a superseded member.
    BringsBackTheSuperseded,
    /// The server lets an older member wait beside a newer member of the same kind, in
    /// keep-the-newest mode.
    KeepsTheOlder,
}

impl Variant {
    /// Runs a command on the server, with the error of the variant.
    pub(crate) fn step(
        self,
        state: &mut QueueState,
        call: &mut Call<'_>,
        command: &Command,
    ) -> Answer {
        if self == Self::Right {
            return state.step(call, command);
        }
        let before = state.clone();
        let now_ms = call.now_ms();
        let counter = call.counter;
        match (self, command) {
            (Self::ReleasesAnybody, Command::Release { .. }) => {
                let answer = state.step(call, &Command::ForceRelease { member: None });
                call.messages.retain(|message| !matches!(message, Message::Revoked { .. }));
                answer
            }
            (Self::RevivesHolds, Command::Renew { members, .. }) => {
                for member in members {
                    let is_whole =
                        state.stored_holder().is_some_and(|(holder, _)| holder == member);
                    if let Some(lock_key) = state.lock_key.as_mut().filter(|_| is_whole) {
                        lock_key.ends_ms =
                            lock_key.ends_ms.map(|at_ms| at_ms.max(now_ms + MARGIN_MS + 1));
                    } else if state.holds.get(member).is_some() {
                        state.holds.set(member, now_ms + 1);
                    }
                }
                state.step(call, command)
            }
            (Self::ForgetsTokens, _) => {
                let answer = state.step(call, command);
                call.counter = counter;
                answer
            }
            (Self::LetsBarge, Command::Acquire { .. }) => {
                state.queue.clear();
                let answer = state.step(call, command);
                let newcomers: Vec<_> =
                    state.queue.iter().map(|(score, member)| (score, member.clone())).collect();
                state.queue = before.queue;
                for (score, member) in newcomers {
                    state.queue.set(&member, state.queue.get(&member).unwrap_or(score));
                }
                state.queue_ends_ms = before.queue_ends_ms.max(state.queue_ends_ms);
                mark(state, now_ms);
                answer
            }
            (Self::OverlooksWeights, Command::Acquire { .. }) => {
                let holds = std::mem::take(&mut state.holds);
                if let Some(LockKeyValue { held: Held::Parts { used, .. }, .. }) =
                    &mut state.lock_key
                {
                    *used = 0;
                }
                let answer = state.step(call, command);
                for (ends_ms, member) in holds.iter() {
                    state.holds.set(member, ends_ms);
                }
                let sum = state.holds.iter().map(|(_, member)| state.weight(member)).sum();
                if let Some(LockKeyValue { held: Held::Parts { used, .. }, .. }) =
                    &mut state.lock_key
                {
                    *used = sum;
                }
                answer
            }
            (Self::PassesOverTheLiving, _) => {
                let mut deaf = Call::new(call.node, &|_| false, call.now_us);
                (deaf.bounds, deaf.counter) = (call.bounds, call.counter);
                deaf.floor_us = call.floor_us;
                let answer = state.step(&mut deaf, command);
                (call.counter, call.messages) = (deaf.counter, deaf.messages);
                answer
            }
            (Self::LeavesThemAside, Command::Touch { .. }) => {
                state.set_aside.clear();
                state.step(call, command)
            }
            (Self::BringsThemBackLast, Command::Touch { members }) => {
                let was_aside = |node: &str| before.set_aside.get(node);
                let last = state.queue.greatest().map_or(0, |(score, _)| score);
                for member in members {
                    let aside = was_aside(member.node());
                    if aside.is_some_and(|aside| aside.members.get(member).is_some())
                        && let Some(aside) = state.set_aside.get_mut(member.node())
                    {
                        aside.members.set(member, last + 1);
                    }
                }
                state.step(call, command)
            }
            (Self::IgnoresTouches, Command::Touch { .. }) => {
                let answer = state.step(call, command);
                state.patience = before.patience;
                answer
            }
            (Self::KeepsItFree, Command::Release { .. }) => {
                let answer = state.step(call, command);
                let is_waited_for = !before.queue.is_empty();
                *state = before;
                state.lock_key.take_if(|_| !is_waited_for);
                if let Some(lock_key) = &mut state.lock_key {
                    lock_key.held = Held::Parts { used: 0, token: None };
                }
                call.messages.clear();
                answer
            }
            (Self::Exaggerates, _) => {
                let mut answer = state.step(call, command);
                if let Answer::Acquired(reply) = &mut answer {
                    let ends = reply.grants.iter_mut().map(|grant| &mut grant.left_ms);
                    ends.chain(&mut reply.first_end_ms).for_each(|left_ms| *left_ms += 1_000);
                }
                answer
            }
            (Self::KeepsForEver, Command::Acquire { mode: Mode::Wait, .. }) => {
                let answer = state.step(call, command);
                if let Some(lock_key) = &mut state.lock_key {
                    lock_key.ends_ms = None;
                }
                answer
            }
            (Self::LeavesTheLapsedInTheSum, _) => {
                let answer = state.step(call, command);
                let lapsed = before.holds.passed(now_ms);
                let taken_out = lapsed.filter(|member| state.holds.get(member).is_none());
                let weight: u64 = taken_out.map(|member| before.weight(member)).sum();
                if let Some(LockKeyValue { held: Held::Parts { used, .. }, .. }) =
                    &mut state.lock_key
                {
                    *used += weight;
                }
                answer
            }
            (Self::GrantsOneOnly, _) => {
                call.bounds.granted = 1;
                let mut answer = state.step(call, command);
                if let Answer::Released(reply) = &mut answer {
                    reply.more = false;
                }
                answer
            }
            (Self::DowngradesUnderTheOldToken, Command::Reduce { .. }) => {
                call.counter = counter.map(|counter| counter - 1);
                state.step(call, command)
            }
            (Self::BringsBackTheSuperseded, Command::Acquire { members, .. }) => {
                for member in members {
                    state.tombstones.remove(member);
                }
                state.step(call, command)
            }
            (Self::KeepsTheOlder, Command::Acquire { .. }) => {
                call.bounds.looked_at = 0;
                state.step(call, command)
            }
            _ => state.step(call, command),
        }
    }
}

/// Sets the lock key's flag if others wait.
fn mark(state: &mut QueueState, now_ms: u64) {
    let is_waited_for = !state.queue.is_empty();
    let lock_key = state.lock_key.get_or_insert(LockKeyValue {
        held: Held::Parts { used: 0, token: None },
        mark: Mark::Waited,
        ends_ms: Some(now_ms + 2 * MARGIN_MS),
    });
    if is_waited_for && lock_key.mark == Mark::None {
        lock_key.mark = Mark::Waited;
        if let Held::Whole { .. } = lock_key.held {
            lock_key.ends_ms = lock_key.ends_ms.map(|at_ms| at_ms + MARGIN_MS);
        }
    }
}
