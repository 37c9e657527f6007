//! The same protocol with one thing wrong: proof that the laws see it.

use lockcore::NodeId;
use lockcore::internals::protocol::permits::{Call, PermitState};
use lockcore::internals::protocol::{Hold, LockState, Message, step};
use lockcore::internals::{Answer, Command, Mode, Party};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// Nothing is wrong.
    Right,
    /// A client counts its deadline from the reply, not from the request,
    CountsFromTheReply,
    /// or from the arrival of a message.
    CountsFromTheMessage,
    /// An attempt whose place was lost goes on under the same member.
    KeepsItsMember,
    NoTombstone,
    ForgetsToLeave,
    /// No waiter ever asks again.
    NeverAsksAgain,
    /// Who reads that there is more to be done does not ask for it.
    ForgetsMore,
    /// The server does not compare the holder before it releases,
    ReleasesAnybody,
    /// renews a hold that has ended,
    RevivesHolds,
    /// forgets the last token,
    ForgetsTokens,
    /// overlooks the queue when somebody new comes,
    LetsBarge,
    /// believes no node connected,
    PassesOverTheLiving,
    /// does not renew the patience of those who touch,
    IgnoresTouches,
    /// keeps a released lock free,
    KeepsItFree,
    /// tells of a longer lease than it gave,
    Exaggerates,
    /// or keeps what has no end.
    KeepsForEver,
    /// Of what is shared, it takes out a hold whose lease has ended, and leaves it in the sum,
    LeavesTheLapsedInTheSum,
    /// grants one of those who go together, and says nothing of the others,
    GrantsOneOnly,
    /// or makes a read of a write and keeps its token.
    DowngradesUnderTheOldToken,
}

impl Variant {
    /// A step of the server.
    pub(crate) fn step(
        self,
        state: &mut LockState,
        connected: &dyn Fn(&str) -> bool,
        node: &NodeId,
        command: &Command,
        now_us: u64,
    ) -> (Answer, Vec<Message>) {
        let before = (self != Self::Right).then(|| state.clone());
        let right = |state: &mut LockState, command: &Command| {
            step(state, connected, node, command, now_us)
        };
        let Some(mut before) = before else { return right(state, command) };
        match (self, command) {
            (Self::ReleasesAnybody, Command::Release { .. }) => {
                let (answer, mut messages) = right(state, &Command::ForceRelease { member: None });
                messages.retain(|message| !matches!(message, Message::Revoked { .. }));
                (answer, messages)
            }
            (Self::RevivesHolds, Command::Renew { members }) if state.hold.is_none() => {
                let expires_ms = Some(now_us / 1_000 + 1);
                let revived = |member| Hold { member: Party::from(member), expires_ms };
                state.hold = members.first().map(revived);
                right(state, command)
            }
            (Self::ForgetsTokens, _) if state.hold.is_none() => {
                state.token = None;
                right(state, command)
            }
            (Self::LetsBarge, Command::Acquire { .. }) if state.hold.is_none() => {
                let (queue, deadlines) = (state.queue.clone(), state.deadlines.clone());
                let ends = state.queue_expires_ms;
                (state.queue, state.deadlines) = Default::default();
                let said = right(state, command);
                (state.queue, state.deadlines, state.queue_expires_ms) = (queue, deadlines, ends);
                said
            }
            (Self::PassesOverTheLiving, _) => step(state, &|_| false, node, command, now_us),
            (Self::IgnoresTouches, Command::Touch { .. }) => {
                let said = right(state, command);
                for member in state.queue.clone() {
                    if let Some(deadline_ms) = before.deadlines.get(&member) {
                        state.deadlines.set(&member, deadline_ms);
                    }
                }
                said
            }
            (Self::KeepsItFree, Command::Release { .. }) => {
                let said = right(state, command);
                (before.hold, before.token) = (None, state.token.clone());
                *state = before;
                (said.0, Vec::new())
            }
            (Self::Exaggerates, _) => {
                let (mut answer, messages) = right(state, command);
                if let Answer::Acquired(reply) = &mut answer {
                    let ends = reply.grants.iter_mut().map(|grant| &mut grant.left_ms);
                    ends.chain(&mut reply.first_end_ms).for_each(|left_ms| *left_ms += 1_000);
                }
                (answer, messages)
            }
            (Self::KeepsForEver, Command::Acquire { mode: Mode::Wait, .. }) => {
                let said = right(state, command);
                if let Some(hold) = &mut state.hold {
                    hold.expires_ms = None;
                }
                said
            }
            _ => right(state, command),
        }
    }

    /// The same of what is shared.
    pub(crate) fn step_shared(
        self,
        state: &mut PermitState,
        call: &mut Call<'_>,
        command: &Command,
    ) -> Answer {
        let before = (self != Self::Right).then(|| state.clone());
        let Some(before) = before else { return state.step(call, command) };
        match (self, command) {
            (Self::LetsBarge, Command::Acquire { member, .. })
                if member.demand().fits(state.used.unwrap_or(0)) =>
            {
                (state.queue, state.deadlines) = Default::default();
                let answer = state.step(call, command);
                (state.queue, state.deadlines) = (before.queue, before.deadlines);
                answer
            }
            (Self::ForgetsTokens, _) => {
                let answer = state.step(call, command);
                state.token = before.token.or(state.token);
                answer
            }
            (Self::RevivesHolds, Command::Renew { members }) => {
                for member in members.iter().filter(|member| before.holds.get(member).is_some()) {
                    state.holds.set(member, call.now_ms() + 1);
                }
                state.step(call, command)
            }
            (Self::LeavesTheLapsedInTheSum, _) => {
                let answer = state.step(call, command);
                let lapsed = before.holds.passed(call.now_ms());
                let taken_out = lapsed.filter(|member| state.holds.get(member).is_none());
                let weight: u64 = taken_out.map(|member| before.weight(member)).sum();
                state.used = state.used.map(|used| used + weight);
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
                let answer = state.step(call, command);
                state.token = before.token;
                answer
            }
            _ => state.step(call, command),
        }
    }
}
