//! Redisson's layout in the form that nodes and stores use: as a [`Layout`].

use proto::layout::{Ability, Circumstances, Decide, Layout, NewMember, Rights};
use proto::wire::{Begin, Commands, Context, Reading, Script, Value};
use proto::{
    Answer, Answers, Command, Event, LockName, Member, NodeId, PLAIN_MARKER, StoreError, Topology,
};

use crate::function::{Call, LockState, Message};
use crate::scripts;
use crate::wire::{self, keys, reply};

/// The key layout of Redisson's fair lock: keys, members and scripts for locks that lockcore shares
/// with JVMs.
pub const REDISSON: &dyn Layout = &RedissonLayout;

/// Error text for a request for reads, permits or a downgrade, because JVMs do not support these.
const NOT_WITH_PEERS: &str = "the layout shared with JVMs does not support reads, permits and \
    downgrades: use a second Locks, built without redisson_peers, with other names";

/// Error text for `WhenBusy::KeepNewest`, because JVMs do not support waiters that leave the queue
/// for newer waiters.
const NEWEST_NOT_WITH_PEERS: &str = "the layout shared with JVMs does not support KeepNewest: \
    wait, or use a second Locks, built without redisson_peers, with other names";

/// Error text for listing all locks. It is not possible, because a JVM's keys look like those of
/// any other program unless the lock's name is known.
const NO_SURVEY: &str = "locks shared with JVMs cannot be listed: inspect them by name";

/// The type of [`REDISSON`]: the key layout of Redisson's fair lock. It has no state.
#[derive(Debug, Clone, Copy)]
pub struct RedissonLayout;

impl Layout for RedissonLayout {
    fn marker(&self) -> &'static str {
        PLAIN_MARKER
    }

    fn refuses(&self, ability: Ability) -> Option<&'static str> {
        Some(match ability {
            Ability::Parts => NOT_WITH_PEERS,
            Ability::KeepNewest => NEWEST_NOT_WITH_PEERS,
            Ability::Survey => NO_SURVEY,
        })
    }

    fn has_foreign_names(&self) -> bool {
        true
    }

    fn member(&self, new: NewMember<'_>) -> Member {
        Member::plain(new.node, new.number, new.lease_ms, new.label)
    }

    fn state(&self) -> Box<dyn Decide> {
        Box::new(LockState::default())
    }

    fn usual_scripts(&self, _: Topology) -> Vec<&'static Script> {
        let scripts::RedissonScripts { acquire, acquire_all, release, renew, touch, leave, .. } =
            scripts::all();
        vec![acquire, acquire_all, release, renew, touch, leave]
    }

    fn goes_together(&self, _command: &Command) -> bool {
        true
    }

    fn write(
        &self,
        commands: &Commands<'_>,
        context: Context<'_>,
        to: &mut dyn Begin,
    ) -> Option<()> {
        match commands {
            [(lock, command)] => wire::command(lock, context, command, to),
            several => wire::together(several, context, to),
        }
    }

    fn answer(
        &self,
        reading: Reading<'_>,
        command: (&LockName, &Command),
        answer: &Value<'_>,
    ) -> Result<Answer, StoreError> {
        reply::answer(command, reading.of_error, answer)
    }

    fn answers(
        &self,
        reading: Reading<'_>,
        commands: &Commands<'_>,
        answer: &Value<'_>,
    ) -> Result<Answers, StoreError> {
        reply::answers(commands, reading.of_error, answer)
    }

    fn preflight(&self, probe: &LockName, _context: Context<'_>) -> (&'static Script, Vec<String>) {
        (&scripts::all().preflight, keys::of(probe, &["preflight"]).collect())
    }

    fn rights(&self) -> Rights {
        Rights { keys: "~NAME and ~redisson_lock_*:{NAME}", channels: "allchannels" }
    }

    fn key_rule(&self, key: &str, probe: &LockName, namespace: &str) -> String {
        match key == probe.as_str() {
            true => format!("~{namespace}:*"),
            false => format!("~redisson_lock_*:{{{namespace}:*"),
        }
    }

    fn channel_rule(&self, channel: &str) -> Option<String> {
        let of_peers = keys::PEER_CHANNELS;
        // Each node subscribes to a pattern with its own id, so no fixed ACL rule fits.
        let rule = || format!("&{of_peers}* (redisson_peers subscribes to a pattern: allchannels)");
        channel.starts_with(of_peers).then(rule)
    }

    fn foreign_key(&self, which: &str, type_of: &str) -> Option<String> {
        let key = match which {
            "hold" => "the key with this name",
            "queue" => "the queue key redisson_lock_queue:{…}",
            "deadlines" => "the deadlines key redisson_lock_timeout:{…}",
            "token" => "the token key redisson_lock_token:{…}",
            "tombstone" => "a tombstone key redisson_lock_gone:{…}",
            "alive" => "the live waiters key redisson_lock_alive:{…}",
            "arrivals" => "the arrivals key redisson_lock_arrivals:{…}",
            "suspects" => "the suspects key redisson_lock_suspects:{…}",
            _ => return None,
        };
        Some(format!("{key} holds a {type_of} that does not belong to a lock"))
    }

    fn pattern(&self, node: &NodeId) -> Option<(String, &'static str)> {
        let all = "&* (allchannels), which redisson_peers needs to subscribe to a pattern";
        Some((keys::pokes_pattern(node), all))
    }

    fn called(&self, channel: &str, node: &NodeId) -> Option<Member> {
        keys::poked_member(channel, node)
    }
}

impl Decide for LockState {
    fn step(&mut self, of: &mut Circumstances<'_>, command: &Command) -> Answer {
        let mut call = Call::new(of.node, of.connected, of.now_us);
        let answer = LockState::step(self, &mut call, command);
        of.events.extend(call.messages.into_iter().filter_map(event));
        answer
    }

    fn full(&mut self, of: &mut Circumstances<'_>, members: usize) -> Answer {
        let call = Call::new(of.node, of.connected, of.now_us);
        Answer::Acquired(LockState::full(self, &call, members))
    }

    fn expire(&mut self, now_ms: u64) {
        LockState::expire(self, now_ms);
    }

    fn is_empty(&self) -> bool {
        LockState::is_empty(self)
    }
}

fn event(message: Message) -> Option<(NodeId, Event)> {
    match message {
        Message::Grant { node, member, token, left_ms } => {
            Some((node, Event::Granted { token, grants: vec![(member.number(), left_ms)] }))
        }
        Message::Revoked { node, member } => {
            Some((node, Event::Revoked { numbers: vec![member.number()] }))
        }
        // The in-memory store has no JVMs.
        Message::Poke { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_another_program_is_named_with_its_type() {
        assert_eq!(
            REDISSON.foreign_key("hold", "hash").as_deref(),
            Some("the key with this name holds a hash that does not belong to a lock")
        );
        assert_eq!(REDISSON.foreign_key("lock", "hash"), None);
    }

    #[test]
    fn a_new_member_is_plain_whatever_batch_it_is_for() {
        let (node, label) = (NodeId::from(7_u128), proto::Label::new("web"));
        let demand = proto::Demand::EXCLUSIVE;
        let service = proto::Service::in_batch(8);
        let (number, lease_ms) = (7, 30_000);
        let new = NewMember { node: &node, number, lease_ms, demand, service, label: &label };
        let member = REDISSON.member(new);
        assert_eq!(member, Member::plain(&node, 7, 30_000, &label));
        assert!(member.as_str().starts_with(REDISSON.marker()) && member.batch_limit() == 1);
    }
}
