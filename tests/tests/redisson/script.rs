//! The history of a queue, read from MONITOR.

use std::collections::VecDeque;

use lock_tests::{MonitorLine, Source};

use crate::bench::{KEY, QUEUE};

/// Plays the commands on the lock's keys through; returns the holders, in order.
///
/// # Panics
///
/// If a member was granted the lock that was not next, or while another held it.
pub(crate) fn turns(lines: &[MonitorLine]) -> Vec<String> {
    let mut waiting = VecDeque::new();
    let mut holder: Option<String> = None;
    let mut turns = Vec::new();
    for line in lines.iter().filter(|line| line.source == Source::Lua) {
        let key = line.text(1);
        let member = line.text(2);
        if line.is("RPUSH") && key == QUEUE {
            waiting.push_back(member);
        } else if line.is("LPUSH") && key == QUEUE {
            panic!("{member} had been thrown out of the queue");
        } else if line.is("HSET") && key == KEY {
            assert_eq!(holder, None, "{member} is granted the lock of another");
            if waiting.contains(&member) {
                assert_eq!(waiting.pop_front().as_ref(), Some(&member), "out of turn: {waiting:?}");
            } else {
                assert!(waiting.is_empty(), "{member} passes by {waiting:?}");
            }
            turns.push(member.clone());
            holder = Some(member);
        } else if key == KEY && (line.is("DEL") || line.is("HDEL") && !member.is_empty()) {
            holder = None;
        }
    }
    assert!(waiting.is_empty(), "still there: {waiting:?}");
    turns
}
