//! Requests on their way, and the room for more of each kind.

use super::{Core, lines};
use crate::Command;
use crate::node::effect::{Ask, Effect};
use crate::node::entry::Mirror;

impl<P: Mirror> Core<P> {
    pub(super) fn is_up(&self) -> bool {
        self.commands.is_up() && self.subscription.is_up()
    }

    /// Whether one more acquire may be repeated.
    pub(super) fn may_repeat(&self) -> bool {
        self.repeating < self.rules.window
    }

    /// Whether one more leave may be sent. Each leave ends one acquire, and may go out beside twice
    /// as many: leaves never fall behind acquires, however these come.
    pub(super) fn may_leave(&self) -> bool {
        self.leaving < self.most_leaves()
    }

    pub(super) fn most_leaves(&self) -> usize {
        self.rules.acquires.saturating_mul(2)
    }

    /// Whether one more acquire may be sent for a caller.
    pub(super) fn may_ask(&self) -> bool {
        self.asking < self.rules.acquires
    }

    pub(super) fn may_touch(&self) -> bool {
        self.commands.is_up() && self.touching < lines::MAX_TOUCHING
    }

    pub(super) fn background(&mut self, ask: Ask) {
        match &ask.command {
            Command::Renew { .. } | Command::Confirm { .. } => {
                self.renewing += ask.command.renews().len();
            }
            Command::Touch { members } => self.touching += lines::weight(members),
            Command::Acquire { .. } => self.repeating += 1,
            _ => self.leaving += 1,
        }
        let ask = Ask { background: true, ..ask };
        // A failover takes back a renewal that replicas do not have: no guard is to rely on it.
        let is_confirmed = self.rules.replicas > 0 && !ask.command.renews().is_empty();
        self.push(if is_confirmed { Effect::Confirm(ask) } else { Effect::Send(ask) });
    }

    pub(super) fn arrived(&mut self, ask: &Ask) {
        match &ask.command {
            Command::Acquire { members, .. } if !ask.background => {
                self.asking = self.asking.saturating_sub(members.len());
            }
            Command::Acquire { members, .. } => {
                self.repeating = self.repeating.saturating_sub(members.len());
            }
            _ if !ask.background => {}
            Command::Renew { .. } | Command::Confirm { .. } => {
                self.renewing = self.renewing.saturating_sub(ask.command.renews().len());
            }
            Command::Touch { members } => {
                self.touching = self.touching.saturating_sub(lines::weight(members));
            }
            _ => self.leaving = self.leaving.saturating_sub(1),
        }
    }
}
