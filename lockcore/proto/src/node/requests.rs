//! Requests on their way, and the room for more of each kind.

use super::{Core, lines};
use crate::Command;
use crate::node::effect::{Ask, Effect};
use crate::node::entry::Mirror;

impl<P: Mirror> Core<P> {
    pub(super) fn is_up(&self) -> bool {
        self.commands.is_up() && self.subscription.is_up()
    }

    pub(super) fn has_room(&self) -> bool {
        self.on_their_way < self.rules.window
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
            _ => self.on_their_way += 1,
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
                self.on_their_way = self.on_their_way.saturating_sub(members.len());
            }
            _ if !ask.background => {}
            Command::Renew { .. } | Command::Confirm { .. } => {
                self.renewing = self.renewing.saturating_sub(ask.command.renews().len());
            }
            Command::Touch { members } => {
                self.touching = self.touching.saturating_sub(lines::weight(members));
            }
            _ => self.on_their_way = self.on_their_way.saturating_sub(1),
        }
    }
}
