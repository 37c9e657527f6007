//! The Redis user of the manual, with the fewest rights that lockcore needs.

use redis::{Cmd, cmd};

const MANUAL: &str = include_str!("../../lockcore/src/guide/redis.md");

/// Returns the ACL line as printed in the manual.
///
/// # Panics
///
/// If the manual has no such line, or several.
#[must_use]
pub fn manual_acl() -> &'static str {
    let lines: Vec<_> = MANUAL.lines().filter(|line| line.starts_with("ACL SETUSER ")).collect();
    let [line] = lines[..] else { panic!("the manual has {} such lines", lines.len()) };
    line
}

/// The rules of the line, without `ACL SETUSER` and the user name.
fn rules() -> impl Iterator<Item = &'static str> {
    manual_acl().split(' ').skip(3)
}

/// The commands allowed by the line.
pub fn manual_commands() -> impl Iterator<Item = &'static str> {
    rules().filter_map(|rule| rule.strip_prefix('+'))
}

/// Sets a user to the line's rules except those selected by `without`; the password is `PASSWORD`.
pub fn set_user(name: &str, without: impl Fn(&str) -> bool) -> Cmd {
    let mut set = cmd("ACL");
    set.arg("SETUSER").arg(name).arg("reset");
    for rule in rules().filter(|rule| !without(rule)) {
        set.arg(rule);
    }
    set
}

/// The additional rules of the manual for queues shared with JVMs.
///
/// # Panics
///
/// If the manual has no such rules.
pub fn peers_rules() -> impl Iterator<Item = &'static str> {
    let is_rules = |line: &&str| line.contains("~redisson_lock_*:{shop:*");
    let line = MANUAL.lines().find(is_rules);
    line.expect("the manual says it").split(' ')
}
