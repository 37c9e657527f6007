//! Writes the commands of the queue layout as script calls, and builds their forms without a
//! script.

pub(crate) mod reply;

use super::call::{Begin, Call, Context};
use super::keys::{COUNTER, Counter};
use super::scripts::{self, Script, USUAL_LEASE_MS, USUAL_LIMIT, USUAL_PREFIX};
use crate::demand::Demand;
use crate::member::Member;
use crate::name::LockName;
use crate::token::FencingToken;
use crate::{Acquired, Answer, Command, Mode, Released, Reply, Topology};

/// The number of keys passed to a script that may issue a token: the lock key and the token
/// counter. Scripts derive the names of all other keys from the lock key.
const KEYS: usize = 2;

/// Returns true if the command acquires, renews or releases a single exclusive hold. A shorter
/// script is then enough, and usually reads only the lock key.
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

/// Returns true if `members` is a single member with [`KeepNewest`](crate::WhenBusy::KeepNewest).
/// It needs a separate script, because it replaces older waiters of the same kind. It is never
/// acquired together with others.
fn keeps_newest(members: &[Member]) -> bool {
    matches!(members, [one] if one.keeps_newest())
}

/// Returns the script that runs the command in this topology.
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

/// An acquire in plain Redis commands, for a free lock. `SET NX` on the lock key succeeds only if
/// the lock is free, and the next number of the token counter becomes the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeAcquire<'a> {
    /// The lock key, which is set if it does not exist.
    pub lock_key: &'a str,
    /// The lock key's value, which expires with the member's lease.
    pub member: &'a Member,
    /// The key of the token counter whose next number is the token.
    pub counter: &'static str,
}

impl<'a> FreeAcquire<'a> {
    /// Returns true if this member can acquire a free lock without a script. It must request an
    /// exclusive lock, without `KeepNewest`.
    pub(crate) fn may_serve(member: &Member) -> bool {
        member.demand() == Demand::EXCLUSIVE && !member.keeps_newest()
    }

    pub(crate) fn of(lock: &'a LockName, command: &'a Command) -> Option<Self> {
        let Command::Acquire { members, .. } = command else { return None };
        let member = members.first().filter(|_| is_whole(command))?;
        Some(Self { lock_key: lock.lock_key(), member, counter: COUNTER })
    }

    /// Returns the response after the lock key was set and `token` was drawn: the same as from the
    /// script. If `token` is not above the token floor `floor_us`, the response is
    /// [`not_served`](Self::not_served), so that the script runs and issues another token.
    pub fn answer(&self, token: i64, floor_us: u64) -> Answer {
        let token = u64::try_from(token).ok().and_then(|token| FencingToken::try_from(token).ok());
        let Some(token) = token.filter(|token| token.get() > floor_us) else {
            return Self::not_served(true);
        };
        let outcome = vec![Acquired::Granted];
        Answer::Acquired(reply::held(self.member.clone(), token, outcome))
    }

    /// Returns the response to an acquire that must be sent again as a script. `may_hold` is true
    /// if the member may hold the lock already, without a usable token.
    pub fn not_served(may_hold: bool) -> Answer {
        Answer::Acquired(Reply::short(vec![Acquired::NotServed { may_hold }]))
    }
}

/// A release in plain Redis commands, for a lock without waiters. The lock key is deleted if it
/// contains only the member; with waiters it also contains a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeRelease<'a> {
    /// The lock key, which is deleted if its value is `member`.
    pub lock_key: &'a str,
    /// The holder, and the expected value of the lock key.
    pub member: &'a Member,
}

impl<'a> FreeRelease<'a> {
    pub(crate) fn of(lock: &'a LockName, command: &'a Command) -> Option<Self> {
        let Command::Release { member } = command else { return None };
        is_whole(command).then(|| Self { lock_key: lock.lock_key(), member })
    }

    /// Returns the response after the lock key was deleted, the same as from the script.
    pub fn answer() -> Answer {
        Answer::Released(Reply::short(Released::Released))
    }
}

/// Writes the script call for a command on `lock` into `to`.
pub(crate) fn command(
    lock: &LockName,
    context: Context<'_>,
    command: &Command,
    to: &mut dyn Begin,
) {
    if let (Command::Renew { .. }, true) = (command, is_whole(command)) {
        return renewals(&[(lock, command)], context.topology, to);
    }
    // A renewal draws no token, and during a slot migration the token counter may be on another
    // server.
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

/// Returns the keys on which the preflight script tries the user's rights: a lock key and a token
/// counter. The script may create the counter. So on a quorum primary it is another counter than
/// the epoch's, which is created only when the epoch begins, as proof that no data was lost since.
pub(crate) fn keys_to_try(lock: &LockName, topology: Topology) -> Vec<String> {
    let counter = match topology {
        Topology::Cluster => Counter::Slot(lock.slot()),
        Topology::Single | Topology::Quorum => Counter::Server,
    };
    vec![lock.lock_key().to_owned(), counter.to_string()]
}

/// Writes a single script call that renews the holds of several locks, one for each command.
pub(crate) fn renewals(commands: &[(&LockName, &Command)], topology: Topology, to: &mut dyn Begin) {
    let call = to.begin(&scripts::of_queue(topology).extend, commands.len());
    for (lock, _) in commands {
        call.text(lock.lock_key());
    }
    for member in commands.iter().flat_map(|(_, command)| command.renews()) {
        call.text(member.as_str()).number(member.lease_ms());
    }
}

/// Returns the queue limit in the form of the scripts: 0 if the members do not wait, otherwise at
/// least 1.
fn limit_of(mode: Mode, queue_limit: u32) -> u32 {
    match mode {
        Mode::Try => 0,
        Mode::Wait => queue_limit.max(1),
    }
}

/// Adds the last arguments of the `lock` and `unlock` scripts. Trailing arguments with default
/// values are left out, because each argument costs the server half as much as a whole command.
/// `acquire` contains the lease in ms and the queue limit; `None` for a release.
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

/// Adds the members of a command, each with its lease or other numbers. They are the last arguments
/// of most scripts.
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
