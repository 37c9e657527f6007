//! The commands of a queue that JVMs share, as they are written to a server.

pub(super) mod reply;

use super::keys::{Key, Tombstone};
use super::scripts::{self, Script};
use super::{Call, Context};
use crate::member::Member;
use crate::name::LockName;
use crate::{Command, Mode};

/// The keys of a lock that most scripts are given.
pub(super) const KEYS: usize = 7;

/// The call of the script of one command; nothing if such a queue has no such command.
pub(super) fn command<C: Call>(
    lock: &LockName,
    context: Context<'_>,
    command: &Command,
) -> Option<C> {
    let scripts = scripts::of_redisson();
    let call = |script: &'static Script, tombstones: &[&str]| {
        let mut call = C::begin(script, KEYS + tombstones.len());
        add_keys(&mut call, lock, tombstones);
        call.text(context.node.as_str()).text(context.prefix);
        call
    };
    let mut call = match command {
        Command::Acquire { members, mode, queue_limit } => {
            let mode = match mode {
                Mode::Try => "try",
                Mode::Wait => "wait",
            };
            let tombstones: Vec<_> = members.iter().map(Member::as_str).collect();
            let limit = (*queue_limit).into();
            if let [member] = members.as_slice() {
                let mut call = call(&scripts.acquire, &tombstones);
                call.text(member.as_str()).number(member.lease_ms()).text(mode).number(limit);
                call
            } else {
                let mut call = call(&scripts.acquire_all, &tombstones);
                call.text(mode).number(limit);
                for member in tombstones {
                    call.text(member);
                }
                call
            }
        }
        Command::Release { member } => {
            let mut call = call(&scripts.release, &[]);
            call.text(member.as_str());
            call
        }
        Command::Leave { leaving } => {
            let ambiguous = leaving.iter().filter(|leaving| leaving.ambiguous);
            let tombstones: Vec<_> = ambiguous.map(|leaving| leaving.member.as_str()).collect();
            let mut call = call(&scripts.leave, &tombstones);
            for one in leaving {
                call.text(one.member.as_str()).number(one.ambiguous.into());
            }
            call
        }
        Command::ForceRelease { member: None } => call(&scripts.force_release, &[]),
        Command::Inspect { from, most } => {
            let mut call = call(&scripts.inspect, &[]);
            call.number((*from).into()).number(most.get().into());
            call
        }
        Command::Renew { .. } | Command::Confirm { .. } | Command::Touch { .. } => {
            return together(&[(lock, command)], context);
        }
        Command::ForceRelease { member: Some(_) } | Command::Reduce { .. } => return None,
    };
    call.number(context.floors.latest_us);
    Some(call)
}

/// The call for several renewals, or for several touches.
pub(super) fn together<C: Call>(
    commands: &[(&LockName, &Command)],
    context: Context<'_>,
) -> Option<C> {
    let mut call: C = match commands.first()?.1 {
        Command::Touch { .. } => touches(commands, context)?,
        _ => renewals(commands, context)?,
    };
    call.number(context.floors.latest_us);
    Some(call)
}

fn renewals<C: Call>(commands: &[(&LockName, &Command)], context: Context<'_>) -> Option<C> {
    let mut call = C::begin(&scripts::of_redisson().renew, 2 * commands.len());
    for (lock, _) in commands {
        call.text(lock.as_str()).display(Key::token(lock));
    }
    call.text(context.node.as_str()).text(context.prefix);
    for (_, command) in commands {
        // Such a lock has one holder.
        let [member] = command.renews() else { return None };
        call.text(member.as_str()).number(member.lease_ms());
    }
    Some(call)
}

fn touches<C: Call>(commands: &[(&LockName, &Command)], context: Context<'_>) -> Option<C> {
    let mut call = C::begin(&scripts::of_redisson().touch, KEYS * commands.len());
    for (lock, _) in commands {
        add_keys(&mut call, lock, &[]);
    }
    call.text(context.node.as_str()).text(context.prefix);
    for (_, command) in commands {
        let Command::Touch { members } = command else { return None };
        call.number(members.len() as u64);
        for member in members {
            call.text(member.as_str());
        }
    }
    Some(call)
}

pub(super) fn add_keys(call: &mut impl Call, lock: &LockName, tombstones: &[&str]) {
    call.text(lock.as_str());
    call.display(Key::queue(lock)).display(Key::deadlines(lock)).display(Key::token(lock));
    for member in tombstones {
        call.display(Tombstone { lock, member });
    }
    for key in Key::of_peers(lock) {
        call.display(key);
    }
}
