//! The commands of a queue that JVMs share, as they are written to a server.

pub(super) mod reply;

use redis::Cmd;

use super::Terms;
use super::keys::{Key, Tombstone};
use super::scripts::{self, Script};
use crate::key::LockName;
use crate::member::Member;
use crate::store::{Command, Mode};

/// The keys of a lock that most scripts are given.
const KEYS_EACH: usize = 7;

/// The script of one command, and its call; nothing if such a queue has no such command.
pub(super) fn command(
    lock: &LockName,
    terms: Terms<'_>,
    command: &Command,
) -> Option<(&'static Script, Cmd)> {
    let scripts = scripts::of_redisson();
    let call = |script: &'static Script, tombstones: &[&Member]| {
        let mut call = script.command(KEYS_EACH + tombstones.len());
        add_keys(&mut call, lock, tombstones);
        call.arg(terms.node.as_str()).arg(terms.prefix);
        (script, call)
    };
    let (script, mut call) = match command {
        Command::Acquire { member, mode, queue_limit } => {
            let mode = match mode {
                Mode::Try => "try",
                Mode::Wait => "wait",
            };
            let (script, mut call) = call(&scripts.acquire, &[member]);
            call.arg(member.as_str()).arg(member.lease_ms()).arg(mode).arg(queue_limit);
            (script, call)
        }
        Command::Release { member } => {
            let (script, mut call) = call(&scripts.release, &[]);
            call.arg(member.as_str());
            (script, call)
        }
        Command::Leave { leaving } => {
            let ambiguous = leaving.iter().filter(|leaving| leaving.ambiguous);
            let tombstones: Vec<_> = ambiguous.map(|leaving| &leaving.member).collect();
            let (script, mut call) = call(&scripts.leave, &tombstones);
            for one in leaving {
                call.arg(one.member.as_str()).arg(u8::from(one.ambiguous));
            }
            (script, call)
        }
        Command::ForceRelease { member: None } => call(&scripts.force_release, &[]),
        Command::Inspect => call(&scripts.inspect, &[]),
        Command::Renew { .. } | Command::Confirm { .. } | Command::Touch { .. } => {
            return together(&[(lock, command)], terms);
        }
        Command::ForceRelease { member: Some(_) } | Command::Reduce { .. } => return None,
    };
    call.arg(terms.floors.latest_us);
    Some((script, call))
}

/// The same of several renewals, or of several touches.
pub(super) fn together(
    commands: &[(&LockName, &Command)],
    terms: Terms<'_>,
) -> Option<(&'static Script, Cmd)> {
    let (script, mut call) = match commands.first()?.1 {
        Command::Touch { .. } => touches(commands, terms)?,
        _ => renewals(commands, terms)?,
    };
    call.arg(terms.floors.latest_us);
    Some((script, call))
}

fn renewals(
    commands: &[(&LockName, &Command)],
    terms: Terms<'_>,
) -> Option<(&'static Script, Cmd)> {
    let script = &scripts::of_redisson().renew;
    let mut call = script.command(2 * commands.len());
    for (lock, _) in commands {
        call.arg(lock.as_str()).arg(Key::token(lock));
    }
    call.arg(terms.node.as_str()).arg(terms.prefix);
    for (_, command) in commands {
        // Such a lock has one holder.
        let [member] = command.renews() else { return None };
        call.arg(member.as_str()).arg(member.lease_ms());
    }
    Some((script, call))
}

fn touches(commands: &[(&LockName, &Command)], terms: Terms<'_>) -> Option<(&'static Script, Cmd)> {
    let script = &scripts::of_redisson().touch;
    let mut call = script.command(KEYS_EACH * commands.len());
    for (lock, _) in commands {
        add_keys(&mut call, lock, &[]);
    }
    call.arg(terms.node.as_str()).arg(terms.prefix);
    for (_, command) in commands {
        let Command::Touch { members } = command else { return None };
        call.arg(members.len());
        for member in members {
            call.arg(member.as_str());
        }
    }
    Some((script, call))
}

fn add_keys(call: &mut Cmd, lock: &LockName, tombstones: &[&Member]) {
    call.arg(lock.as_str());
    call.arg(Key::queue(lock)).arg(Key::deadlines(lock)).arg(Key::token(lock));
    for member in tombstones {
        call.arg(Tombstone { lock, member: member.as_str() });
    }
    call.arg(&Key::of_peers(lock));
}
