//! The queue layout: locks, reads and permits of a name in one queue.

use super::{Circumstances, Decide, Fast, Layout, NewMember, Rights};
use crate::error::StoreError;
use crate::member::{MARKER, Member};
use crate::name::LockName;
use crate::queue::{Call, Message, QueueState};
use crate::wire::call::{Begin, Commands, Context, Reading};
use crate::wire::queue::{self, FreeAcquire, FreeRelease};
use crate::wire::scripts::{self, Script};
use crate::wire::value::Value;
use crate::{Answer, Answers, Command, Topology};

/// The key layout of this crate, with locks, reads and permits of a name in one queue. It is
/// described in `docs/protocol.md`.
pub const QUEUE: &dyn Layout = &QueueLayout;

/// The type of the queue layout [`QUEUE`].
#[derive(Debug, Clone, Copy)]
pub struct QueueLayout;

impl Layout for QueueLayout {
    fn marker(&self) -> &'static str {
        MARKER
    }

    fn member(&self, new: NewMember<'_>) -> Member {
        let NewMember { node, number, lease_ms, demand, service, label } = new;
        Member::served(node, number, lease_ms, (demand, service), label)
    }

    fn state(&self) -> Box<dyn Decide> {
        Box::new(QueueState::default())
    }

    fn usual_scripts(&self, topology: Topology) -> Vec<&'static Script> {
        scripts::usual(topology)
    }

    fn goes_together(&self, command: &Command) -> bool {
        !matches!(command, Command::Touch { .. })
    }

    fn write(
        &self,
        commands: &Commands<'_>,
        context: Context<'_>,
        to: &mut dyn Begin,
    ) -> Option<()> {
        match commands {
            [(lock, command)] => queue::command(lock, context, command, to),
            renewals => queue::renewals(renewals, context.topology, to),
        }
        Some(())
    }

    fn answer(
        &self,
        reading: Reading<'_>,
        command: (&LockName, &Command),
        answer: &Value<'_>,
    ) -> Result<Answer, StoreError> {
        queue::reply::answer(command, reading.node, answer)
    }

    fn answers(
        &self,
        _: Reading<'_>,
        commands: &Commands<'_>,
        answer: &Value<'_>,
    ) -> Result<Answers, StoreError> {
        queue::reply::renewals(commands, answer)
    }

    fn fast<'a>(&self, lock: &'a LockName, command: &'a Command) -> Option<Fast<'a>> {
        let acquire = FreeAcquire::of(lock, command).map(Fast::Acquire);
        acquire.or_else(|| FreeRelease::of(lock, command).map(Fast::Release))
    }

    fn has_fast_acquire(&self, member: &Member) -> bool {
        FreeAcquire::may_serve(member)
    }

    fn preflight(&self, probe: &LockName, context: Context<'_>) -> (&'static Script, Vec<String>) {
        let preflight = &scripts::of_queue(context.topology).preflight;
        (preflight, queue::keys_to_try(probe, context.topology))
    }

    fn rights(&self) -> Rights {
        Rights {
            keys: "~lock:{NAME}* for the lock's name, and ~lock:tokens (in a Redis Cluster \
                ~lock:tokens:*, on a quorum ~lockcore:quorum*)",
            channels: "the grants channels",
        }
    }

    fn key_rule(&self, _key: &str, _probe: &LockName, namespace: &str) -> String {
        format!("~lock:{{{namespace}:*")
    }

    fn foreign_key(&self, which: &str, type_of: &str) -> Option<String> {
        if which == "lock:tokens" {
            let key = "the key lock:tokens holds a";
            return Some(format!("{key} {type_of} that is not a token counter"));
        }
        let of = which.strip_prefix("lock")?;
        Some(format!("the key lock:{{…}}{of} holds a {type_of} that does not belong to a lock"))
    }
}

impl Decide for QueueState {
    fn step(&mut self, of: &mut Circumstances<'_>, command: &Command) -> Answer {
        with_call(of, |call| QueueState::step(self, call, command))
    }

    fn full(&mut self, of: &mut Circumstances<'_>, members: usize) -> Answer {
        with_call(of, |call| Answer::Acquired(QueueState::full(self, call, members)))
    }

    fn expire(&mut self, now_ms: u64) {
        QueueState::expire(self, now_ms);
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Calls `run`, which runs a command of the queue layout, with a [`Call`] that has the values of
/// `of`. Afterwards copies the call's token counter and messages back into `of`.
fn with_call(of: &mut Circumstances<'_>, run: impl FnOnce(&mut Call<'_>) -> Answer) -> Answer {
    let mut call = Call::new(of.node, of.connected, of.now_us);
    // The counter starts at the time, as on a server, so the tokens are above those of an earlier
    // store.
    call.counter = Some(*of.counter.get_or_insert(of.now_us));
    (call.floor_us, call.topology) = (of.floor_us, of.topology);
    let answer = run(&mut call);
    *of.counter = call.counter;
    of.events.extend(call.messages.into_iter().map(Message::event));
    answer
}
