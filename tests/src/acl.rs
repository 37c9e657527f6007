//! The Redis user of the manual: the one place with the least rights.

use redis::{Cmd, cmd};

const MANUAL: &str = include_str!("../../lockcore/src/guide/redis.md");

/// The line as the manual has it.
///
/// # Panics
///
/// If the manual has none, or several.
#[must_use]
pub fn manual_acl() -> &'static str {
    let lines: Vec<_> = MANUAL.lines().filter(|line| line.starts_with("ACL SETUSER ")).collect();
    let [line] = lines[..] else { panic!("the manual has {} such lines", lines.len()) };
    line
}

/// Its rules, without `ACL SETUSER` and the user's name.
fn rules() -> impl Iterator<Item = &'static str> {
    manual_acl().split(' ').skip(3)
}

/// The commands that it allows.
pub fn manual_commands() -> impl Iterator<Item = &'static str> {
    rules().filter_map(|rule| rule.strip_prefix('+'))
}

/// Sets a user to the line's rules without those that `without` selects; the password is
/// `PASSWORD`.
pub fn set_user(name: &str, without: impl Fn(&str) -> bool) -> Cmd {
    let mut set = cmd("ACL");
    set.arg("SETUSER").arg(name).arg("reset");
    for rule in rules().filter(|rule| !without(rule)) {
        set.arg(rule);
    }
    set
}

/// The rules of the manual for queues that JVMs share.
///
/// # Panics
///
/// If the manual does not say.
pub fn peers_rules() -> impl Iterator<Item = &'static str> {
    let is_rules = |line: &&str| line.contains("~redisson_lock_*:{shop:*");
    let line = MANUAL.lines().find(is_rules);
    line.expect("the manual says it").split(' ')
}
