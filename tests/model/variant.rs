//! The same protocol with one thing wrong: proof that the laws see it.

use lockcore::NodeId;
use lockcore::internals::Mode;
use lockcore::internals::protocol::{Answer, Command, Hold, LockState, Message, step};

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
    /// Nobody who waits ever asks again.
    NeverAsksAgain,
    /// The server does not compare the holder before it releases,
    ReleasesAnybody,
    /// renews a hold that has ended,
    RevivesHolds,
    /// forgets the last token,
    ForgetsTokens,
    /// overlooks the queue when somebody new comes,
    LetsBarge,
    /// believes nobody connected,
    PassesOverTheLiving,
    /// does not renew the patience of those who touch,
    IgnoresTouches,
    /// keeps a released lock free,
    KeepsItFree,
    /// tells of a longer lease than it gave,
    Exaggerates,
    /// or keeps what has no end.
    KeepsForEver,
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
                let (answer, mut messages) = right(state, &Command::ForceRelease);
                messages.retain(|message| !matches!(message, Message::Revoked { .. }));
                (answer, messages)
            }
            (Self::RevivesHolds, Command::Renew { member }) if state.hold.is_none() => {
                let expires_ms = Some(now_us / 1_000 + 1);
                state.hold = Some(Hold { member: member.clone(), expires_ms });
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
                    reply.left_ms += 1_000;
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
}
