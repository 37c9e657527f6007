//! The queue commands as written to a server.

pub(crate) mod reply;

use super::call::{Begin, Call, Context};
use super::keys::{COUNTER, Counter};
use super::scripts::{self, Script, USUAL_LEASE_MS, USUAL_LIMIT, USUAL_PREFIX};
use crate::demand::Demand;
use crate::member::Member;
use crate::name::LockName;
use crate::token::FencingToken;
use crate::{Acquired, Answer, Command, Mode, Released, Reply, Topology};

/// The number of keys passed to a script: the names of all others derive from the lock key.
const KEYS: usize = 2;

/// Whether the command concerns a single exclusive hold: then its script reads only the lock key.
fn is_whole(command: &Command) -> bool {
    match command {
        Command::Release { member } => member.demand() == Demand::EXCLUSIVE,
        Command::Acquire { members, .. } => {
            matches!(&**members, [one] if FreeAcquire::may_serve(one))
        }
        Command::Renew { members, .. } => {
            matches!(&**members, [one] if one.demand() == Demand::EXCLUSIVE)
        }
        _ => false,
    }
}

/// Whether the acquire is for a newest-only member, never acquired together with others.
fn keeps_newest(members: &[Member]) -> bool {
    matches!(members, [one] if one.keeps_newest())
}

/// Returns the script that runs the command.
pub fn script(command: &Command, topology: Topology) -> &'static Script {
    let scripts = scripts::of_queue(topology);
    match (command, is_whole(command)) {
        (Command::Acquire { .. }, true) => &scripts.lock,
        (Command::Acquire { members, .. }, _) if keeps_newest(members) => &scripts.acquire_newest,
        (Command::Acquire { members, .. }, false) if members.len() == 1 => &scripts.acquire,
        (Command::Acquire { .. }, false) => &scripts.acquire_all,
        (Command::Release { .. }, true) => &scripts.unlock,
        (Command::Release { .. }, false) => &scripts.release,
        (Command::Renew { .. }, true) => &scripts.extend,
        (Command::Renew { .. }, false) => &scripts.renew,
        (Command::Confirm { .. }, _) => &scripts.confirm,
        (Command::Reduce { .. }, _) => &scripts.reduce,
        (Command::Touch { .. }, _) => &scripts.touch,
        (Command::Leave { .. }, _) => &scripts.leave,
        (Command::ForceRelease { .. }, _) => &scripts.force_release,
        (Command::Inspect { .. }, _) => &scripts.inspect,
    }
}

/// An acquire without a script: the lock is free if the lock key is absent, and then `SET NX` on
/// the lock key and a token are enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeAcquire<'a> {
    /// The key to set, if absent.
    pub lock_key: &'a str,
    /// The value, which expires with the lease.
    pub member: &'a Member,
    /// The counter whose next number is the token.
    pub counter: &'static str,
}

impl<'a> FreeAcquire<'a> {
    /// Whether a member may be acquired so, if the lock is free.
    pub(crate) fn may_serve(member: &Member) -> bool {
        member.demand() == Demand::EXCLUSIVE && !member.keeps_newest()
    }

    pub(crate) fn of(lock: &'a LockName, command: &'a Command) -> Option<Self> {
        let Command::Acquire { members, .. } = command else { return None };
        let member = members.first().filter(|_| is_whole(command))?;
        Some(Self { lock_key: lock.lock_key(), member, counter: COUNTER })
    }

    /// Returns the response the script would give, after the lock key was set. If the token is not
    /// valid with this token floor, the script has to issue another token.
    pub fn answer(&self, token: i64, floor_us: u64) -> Answer {
        let token = u64::try_from(token).ok().and_then(|token| FencingToken::try_from(token).ok());
        let Some(token) = token.filter(|token| token.get() > floor_us) else {
            return Self::not_served(true);
        };
        let outcome = vec![Acquired::Granted];
        Answer::Acquired(reply::held(self.member.clone(), token, outcome))
    }

    /// Returns the response of a fast acquire that only the script can decide. The member
    /// `may_hold` the lock.
    pub fn not_served(may_hold: bool) -> Answer {
        Answer::Acquired(Reply::short(vec![Acquired::NotServed { may_hold }]))
    }
}

/// A release without a script: the lock has no waiters if the lock key contains only the member,
/// and then the lock key is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeRelease<'a> {
    /// The key to delete, if it has this value.
    pub lock_key: &'a str,
    /// The value.
    pub member: &'a Member,
}

impl<'a> FreeRelease<'a> {
    pub(crate) fn of(lock: &'a LockName, command: &'a Command) -> Option<Self> {
        let Command::Release { member } = command else { return None };
        is_whole(command).then(|| Self { lock_key: lock.lock_key(), member })
    }

    /// Returns the answer the script would give, once the lock key was deleted.
    pub fn answer() -> Answer {
        Answer::Released(Reply::short(Released::Released))
    }
}

/// Writes the script call for a command.
pub(crate) fn command(
    lock: &LockName,
    context: Context<'_>,
    command: &Command,
    to: &mut dyn Begin,
) {
    if let (Command::Renew { .. }, true) = (command, is_whole(command)) {
        return renewals(&[(lock, command)], context.topology, to);
    }
    // A renewal draws no number, and during a slot migration the counter may be elsewhere.
    let draws = !matches!(command, Command::Renew { .. });
    let call = to.begin(script(command, context.topology), if draws { KEYS } else { 1 });
    call.text(lock.lock_key());
    if draws {
        add_counter(call, lock, context);
    }
    match command {
        Command::Acquire { members, mode, queue_limit } if is_whole(command) => {
            let member = &members[0];
            call.text(member.as_str()).number(context.floors.floor_us);
            let acquire = (member.lease_ms(), limit_of(*mode, *queue_limit));
            return add_unusual(call, Some(acquire), context);
        }
        Command::Release { member } if is_whole(command) => {
            call.text(member.as_str()).number(context.floors.floor_us);
            return add_unusual(call, None, context);
        }
        Command::Inspect { from, most } => {
            call.number((*from).into()).number(most.get().into());
            return;
        }
        _ => {}
    }
    call.text(context.node.as_str())
        .number(context.floors.floor_us)
        .number(context.floors.elsewhere_us)
        .text(context.prefix);
    add_members(call, command);
}

fn add_counter(call: &mut dyn Call, lock: &LockName, context: Context<'_>) {
    match Counter::of(lock, context.topology, context.floors.epoch_us) {
        Counter::Server => call.text(COUNTER),
        counter => call.display(&counter),
    };
}

/// Returns the keys to try the rights to a lock on. Never a primary's own counter: its value proves
/// that no data was lost.
pub(crate) fn keys_to_try(lock: &LockName, topology: Topology) -> Vec<String> {
    let counter = match topology {
        Topology::Cluster => Counter::Slot(lock.slot()),
        Topology::Single | Topology::Quorum => Counter::Server,
    };
    vec![lock.lock_key().to_owned(), counter.to_string()]
}

/// Writes a single call for renewals of several locks.
pub(crate) fn renewals(commands: &[(&LockName, &Command)], topology: Topology, to: &mut dyn Begin) {
    let call = to.begin(&scripts::of_queue(topology).extend, commands.len());
    for (lock, _) in commands {
        call.text(lock.lock_key());
    }
    for member in commands.iter().flat_map(|(_, command)| command.renews()) {
        call.text(member.as_str()).number(member.lease_ms());
    }
}

/// Returns the queue limit as sent: 0 means that the member does not wait.
fn limit_of(mode: Mode, queue_limit: u32) -> u32 {
    match mode {
        Mode::Try => 0,
        Mode::Wait => queue_limit.max(1),
    }
}

/// Adds the hot scripts' last arguments, up to the last unusual one: each argument costs the server
/// as much as half a command.
fn add_unusual(call: &mut dyn Call, acquire: Option<(u64, u32)>, context: Context<'_>) {
    let has_prefix = context.prefix != USUAL_PREFIX;
    let has_elsewhere = has_prefix || context.floors.elsewhere_us > 0;
    if let Some((lease_ms, limit)) = acquire {
        let has_limit = has_elsewhere || limit != USUAL_LIMIT;
        if has_limit || lease_ms != USUAL_LEASE_MS {
            call.number(lease_ms);
        }
        if has_limit {
            call.number(limit.into());
        }
    }
    if has_elsewhere {
        call.number(context.floors.elsewhere_us);
    }
    if has_prefix {
        call.text(context.prefix);
    }
}

/// Adds a command's members with their numbers: the last arguments for most scripts.
fn add_members(call: &mut dyn Call, command: &Command) {
    match command {
        Command::Acquire { members, mode, queue_limit } => {
            let limit = limit_of(*mode, *queue_limit).into();
            if let [member] = members.as_slice() {
                let demand = member.demand();
                call.text(member.as_str()).number(member.lease_ms());
                call.number(demand.weight()).number(demand.limit()).number(limit);
            } else {
                call.number(limit);
                for member in members {
                    call.text(member.as_str());
                }
            }
        }
        Command::Release { member } => {
            call.text(member.as_str()).number(member.demand().weight());
        }
        Command::Renew { .. } | Command::Confirm { .. } => {
            for member in command.renews() {
                call.text(member.as_str()).number(member.lease_ms());
            }
        }
        Command::Reduce { member, served, weight, back } => {
            call.text(member.as_str()).number(weight.get().into()).number(*served);
            for number in back {
                call.number(*number);
            }
        }
        Command::Touch { members } => {
            for member in members {
                call.text(member.as_str());
            }
        }
        Command::Leave { leaving } => {
            for one in leaving {
                let flags = u64::from(one.ambiguous) + 2 * u64::from(one.served);
                call.text(one.member.as_str()).number(flags);
            }
        }
        Command::ForceRelease { member } => {
            if let Some(member) = member {
                call.text(member.as_str());
            }
        }
        Command::Inspect { .. } => {}
    }
}
