//! The commands of a mutex, as they are written to a server.

use redis::Cmd;

use super::keys::{Key, Tombstone};
use super::scripts::{Script, Scripts};
use crate::key::LockName;
use crate::member::{Member, NodeId};
use crate::store::{Command, Mode};

/// The parts that all commands of a node have in common.
pub(super) struct Writer<'a> {
    pub(super) node: &'a NodeId,
    pub(super) prefix: &'a str,
    /// Whether queues are shared with JVMs.
    pub(super) peers: bool,
    pub(super) scripts: &'static Scripts,
}

impl Writer<'_> {
    /// The script of a command, and its call; nothing if a mutex has no such command.
    pub(super) fn write(
        &self,
        lock: &LockName,
        command: &Command,
    ) -> Option<(&'static Script, Cmd)> {
        let scripts = self.scripts;
        Some(match command {
            Command::Acquire { member, mode, queue_limit } => {
                let mode = match mode {
                    Mode::Try => "try",
                    Mode::Wait => "wait",
                };
                let mut call = self.call(&scripts.acquire, lock, &[member]);
                call.arg(member.as_str()).arg(member.lease_ms()).arg(mode).arg(queue_limit);
                (&scripts.acquire, call)
            }
            Command::Release { member } => {
                let mut call = self.call(&scripts.release, lock, &[]);
                call.arg(member.as_str());
                (&scripts.release, call)
            }
            Command::Leave { leaving } => {
                let ambiguous = leaving.iter().filter(|leaving| leaving.ambiguous);
                let tombstones: Vec<_> = ambiguous.map(|leaving| &leaving.member).collect();
                let mut call = self.call(&scripts.leave, lock, &tombstones);
                for one in leaving {
                    call.arg(one.member.as_str()).arg(u8::from(one.ambiguous));
                }
                (&scripts.leave, call)
            }
            Command::ForceRelease { member: None } => {
                (&scripts.force_release, self.call(&scripts.force_release, lock, &[]))
            }
            Command::Inspect => (&scripts.inspect, self.call(&scripts.inspect, lock, &[])),
            Command::ForceRelease { member: Some(_) }
            | Command::Renew { .. }
            | Command::Reduce { .. }
            | Command::Touch { .. } => return None,
        })
    }

    /// The same of several renewals, or of several touches.
    pub(super) fn write_several(
        &self,
        commands: &[(&LockName, &Command)],
    ) -> Option<(&'static Script, Cmd)> {
        match commands.first()?.1 {
            Command::Renew { .. } => Some((&self.scripts.renew, self.renewals(commands)?)),
            Command::Touch { .. } => Some((&self.scripts.touch, self.touches(commands)?)),
            _ => None,
        }
    }

    fn renewals(&self, commands: &[(&LockName, &Command)]) -> Option<Cmd> {
        let mut call = self.scripts.renew.command(2 * commands.len());
        for (lock, _) in commands {
            call.arg(lock.as_str()).arg(Key::token(lock));
        }
        call.arg(self.node.as_str()).arg(self.prefix);
        for (_, command) in commands {
            let Command::Renew { members } = command else { return None };
            // A mutex has one holder.
            let [member] = members.as_slice() else { return None };
            call.arg(member.as_str()).arg(member.lease_ms());
        }
        Some(call)
    }

    fn touches(&self, commands: &[(&LockName, &Command)]) -> Option<Cmd> {
        let mut call = self.scripts.touch.command(self.keys_each() * commands.len());
        for (lock, _) in commands {
            self.add_keys(&mut call, lock, &[]);
        }
        call.arg(self.node.as_str()).arg(self.prefix);
        for (_, command) in commands {
            let Command::Touch { members } = command else { return None };
            call.arg(members.len());
            for member in members {
                call.arg(member.as_str());
            }
        }
        Some(call)
    }

    /// `script` with the keys of `lock`, then what every script knows of the caller.
    fn call(&self, script: &Script, lock: &LockName, tombstones: &[&Member]) -> Cmd {
        let mut call = script.command(self.keys_each() + tombstones.len());
        self.add_keys(&mut call, lock, tombstones);
        call.arg(self.node.as_str()).arg(self.prefix);
        call
    }

    /// How many keys of a lock most scripts are given.
    fn keys_each(&self) -> usize {
        4 + 3 * usize::from(self.peers)
    }

    fn add_keys(&self, call: &mut Cmd, lock: &LockName, tombstones: &[&Member]) {
        call.arg(lock.as_str());
        call.arg(Key::queue(lock)).arg(Key::deadlines(lock)).arg(Key::token(lock));
        for member in tombstones {
            call.arg(Tombstone { lock, member: member.as_str() });
        }
        if self.peers {
            call.arg(&Key::of_peers(lock));
        }
    }
}
