//! The Redis user of the manual, with the fewest rights that lockcore needs.

use redis::{Cmd, cmd};

const MANUAL: &str = include_str!("../../lockcore/src/guide/redis.md");

/// Returns the ACL line for lockcore's user, as printed in the manual.
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

/// Returns the rules of the ACL line, without `ACL SETUSER` and the user name.
fn rules() -> impl Iterator<Item = &'static str> {
    manual_acl().split(' ').skip(3)
}

/// Returns the commands allowed by the ACL line in the manual.
pub fn manual_commands() -> impl Iterator<Item = &'static str> {
    rules().filter_map(|rule| rule.strip_prefix('+'))
}

/// Creates the command that gives a user the rules of the ACL line in the manual, except the rules
/// for which `without` returns true. The password is `PASSWORD`.
pub fn set_user(name: &str, without: impl Fn(&str) -> bool) -> Cmd {
    let mut set = cmd("ACL");
    set.arg("SETUSER").arg(name).arg("reset");
    for rule in rules().filter(|rule| !without(rule)) {
        set.arg(rule);
    }
    set
}

/// Returns the additional rules in the manual for queues shared with JVMs.
///
/// # Panics
///
/// If the manual has no such rules.
pub fn peers_rules() -> impl Iterator<Item = &'static str> {
    let is_rules = |line: &&str| line.contains("~redisson_lock_*:{shop:*");
    let line = MANUAL.lines().find(is_rules);
    line.expect("the manual says it").split(' ')
}
