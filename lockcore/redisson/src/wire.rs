//! Writes the commands on a lock shared with JVMs as script calls.

pub(crate) mod keys;
pub(crate) mod reply;

use proto::wire::{Begin, Call, Context, Script};
use proto::{Command, LockName, Member, Mode};

use crate::scripts;

/// The number of keys that a script gets for each lock, besides the keys for tombstones. A script
/// that renews gets only two keys.
const KEYS: usize = 7;

/// Writes the script call for `command` on `lock` to `to`. `None` if the layout has no script for
/// the command, such as [`Command::Reduce`].
pub(crate) fn command(
    lock: &LockName,
    context: Context<'_>,
    command: &Command,
    to: &mut dyn Begin,
) -> Option<()> {
    let scripts = scripts::all();
    let (script, tombstones): (&'static Script, Vec<&str>) = match command {
        Command::Acquire { members, .. } => {
            let script = if members.len() == 1 { &scripts.acquire } else { &scripts.acquire_all };
            (script, members.iter().map(Member::as_str).collect())
        }
        Command::Release { .. } => (&scripts.release, Vec::new()),
        Command::Leave { leaving } => {
            let ambiguous = leaving.iter().filter(|leaving| leaving.ambiguous);
            (&scripts.leave, ambiguous.map(|leaving| leaving.member.as_str()).collect())
        }
        Command::ForceRelease { member: None } => (&scripts.force_release, Vec::new()),
        Command::Inspect { .. } => (&scripts.inspect, Vec::new()),
        Command::Renew { .. } | Command::Confirm { .. } | Command::Touch { .. } => {
            return together(&[(lock, command)], context, to);
        }
        Command::ForceRelease { member: Some(_) } | Command::Reduce { .. } => return None,
    };
    let call = to.begin(script, KEYS + tombstones.len());
    add_keys(call, lock, &tombstones);
    call.text(context.node.as_str()).text(context.prefix);
    match command {
        Command::Acquire { members, mode, queue_limit } => {
            let mode = match mode {
                Mode::Try => "try",
                Mode::Wait => "wait",
            };
            let limit = (*queue_limit).into();
            if let [member] = members.as_slice() {
                call.text(member.as_str()).number(member.lease_ms()).text(mode).number(limit);
            } else {
                call.text(mode).number(limit);
                for member in members {
                    call.text(member.as_str());
                }
            }
        }
        Command::Release { member } => {
            call.text(member.as_str());
        }
        Command::Leave { leaving } => {
            for one in leaving {
                call.text(one.member.as_str()).number(one.ambiguous.into());
            }
        }
        Command::Inspect { from, most } => {
            call.number((*from).into()).number(most.get().into());
        }
        _ => {}
    }
    call.number(context.floors.latest_us);
    Some(())
}

/// Writes a single script call for several renewals, or for several touches, to `to`. `None` if
/// `commands` is empty, or has other commands.
pub(crate) fn together(
    commands: &[(&LockName, &Command)],
    context: Context<'_>,
    to: &mut dyn Begin,
) -> Option<()> {
    let call = match commands.first()?.1 {
        Command::Touch { .. } => touches(commands, context, to)?,
        _ => renewals(commands, context, to)?,
    };
    call.number(context.floors.latest_us);
    Some(())
}

fn renewals<'a>(
    commands: &[(&LockName, &Command)],
    context: Context<'_>,
    to: &'a mut dyn Begin,
) -> Option<&'a mut dyn Call> {
    let call = to.begin(&scripts::all().renew, 2 * commands.len());
    for (lock, _) in commands {
        call.text(lock.as_str()).display(&keys::token(lock));
    }
    call.text(context.node.as_str()).text(context.prefix);
    for (_, command) in commands {
        // In this layout, a lock has a single holder.
        let [member] = command.renews() else { return None };
        call.text(member.as_str()).number(member.lease_ms());
    }
    Some(call)
}

fn touches<'a>(
    commands: &[(&LockName, &Command)],
    context: Context<'_>,
    to: &'a mut dyn Begin,
) -> Option<&'a mut dyn Call> {
    let call = to.begin(&scripts::all().touch, KEYS * commands.len());
    for (lock, _) in commands {
        add_keys(call, lock, &[]);
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

fn add_keys(call: &mut dyn Call, lock: &LockName, tombstones: &[&str]) {
    for key in keys::of(lock, tombstones) {
        call.text(&key);
    }
}
