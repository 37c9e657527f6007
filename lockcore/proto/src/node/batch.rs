//! Which requests go out together: renewals in one script, touches in one script.
//!
//! # Implementation notes
//!
//! - A renewal that is due takes along the renewals that follow within a hundredth of their lease,
//!   and a touch the touches that follow within a fortieth of their period. So none is later than
//!   it would be alone.
//! - Renewals that went out together do not stay together: the next renewal of each hold is due
//!   earlier by a random time, up to a thirtieth of the lease.
//! - Locks are renewed many to a script, parts those of one lock to a script, at most 128 holds.
//! - At most 64 locks with 256 members are touched at once.
//! - If a key of one lock is another program's, that is the answer for that lock alone.

use std::collections::BTreeMap;

use crate::demand::Demand;
use crate::error::{LockErrorKind, StoreError};
use crate::member::Member;
use crate::name::LockName;
use crate::node::effect::Ask;
use crate::{Command, MAX_BATCH, MAX_LINES, MAX_RENEWALS};

/// Requests that go out together, each with an answer of its own.
pub type Batch = Vec<Ask>;

/// The locks and commands of a batch.
pub fn commands(batch: &[Ask]) -> Vec<(&LockName, &Command)> {
    batch.iter().map(|ask| (&ask.lock, &ask.command)).collect()
}

/// Joins the commands that one script can do, in order. Only this function decides which commands
/// go together: for a Redis Cluster it would part names of different nodes.
pub fn batches(asks: Vec<Ask>) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    let mut renewals = Open::default();
    let mut touches = Open::default();
    // Parts of one lock: the script of such renewals knows no other.
    let mut parts: BTreeMap<LockName, usize> = BTreeMap::new();
    for mut ask in asks {
        let (open, max, members) = match &mut ask.command {
            Command::Renew { members } if !are_alone(members) => {
                let together = parts.get(&ask.lock).map(|at| &mut batches[*at][0]);
                if let Some(Ask { command: Command::Renew { members: others }, sent, .. }) =
                    together
                    && *sent == ask.sent
                    && others.len() + members.len() <= MAX_RENEWALS
                {
                    others.append(members);
                } else {
                    parts.insert(ask.lock.clone(), batches.len());
                    batches.push(vec![ask]);
                }
                continue;
            }
            Command::Renew { members } => (&mut renewals, MAX_RENEWALS, members.len()),
            Command::Touch { members } => (&mut touches, MAX_LINES, members.len()),
            _ => {
                batches.push(vec![ask]);
                continue;
            }
        };
        let is_full = open.asks == max || open.members + members > MAX_BATCH;
        if open.asks == 0 || is_full {
            *open = Open { at: batches.len(), asks: 0, members: 0 };
            batches.push(Batch::new());
        }
        open.asks += 1;
        open.members += members;
        batches[open.at].push(ask);
    }
    batches
}

fn are_alone(members: &[Member]) -> bool {
    members.iter().all(|member| member.demand() == Demand::ALONE)
}

/// The batch to which the next request of its kind is added.
#[derive(Default)]
struct Open {
    at: usize,
    asks: usize,
    members: usize,
}

/// Whether one of several may be the reason for this error of all: then each is asked for alone.
pub fn is_of_one(error: &StoreError) -> bool {
    matches!(error.kind, LockErrorKind::Denied | LockErrorKind::WrongType | LockErrorKind::Protocol)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::{Label, NodeId};
    use crate::node::moment::Moment;

    fn ask(lock: usize, command: Command) -> Ask {
        let lock = LockName::from(&*format!("lock {lock}"));
        Ask { lock, command, sent: Moment::default(), background: true }
    }

    fn member(number: usize, demand: Demand) -> Member {
        let node = NodeId::from("AAAAAAAAAAAAAAAAAAAAAA");
        Member::new(&node, number as u64, 30_000, demand, &Label::new("x"))
    }

    fn renewal(lock: usize) -> Ask {
        ask(lock, Command::Renew { members: vec![member(lock, Demand::ALONE)] })
    }

    fn touch(lock: usize, members: usize) -> Ask {
        ask(
            lock,
            Command::Touch { members: (0..members).map(|one| member(one, Demand::READ)).collect() },
        )
    }

    fn sizes(asks: Vec<Ask>) -> Vec<usize> {
        batches(asks).iter().map(Vec::len).collect()
    }

    #[test]
    fn renewals_go_together_up_to_a_bound() {
        assert_eq!(sizes((0..300).map(renewal).collect()), [128, 128, 44]);
    }

    #[test]
    fn renewals_of_parts_of_one_lock_are_one_command_up_to_a_bound() {
        let part = |number| ask(0, Command::Renew { members: vec![member(number, Demand::READ)] });
        let batches = batches((0..300).map(part).collect());
        let members = batches.iter().map(|batch| match batch.as_slice() {
            [Ask { command: Command::Renew { members }, .. }] => members.len(),
            _ => 0,
        });
        assert_eq!(members.collect::<Vec<_>>(), [128, 128, 44]);
    }

    #[test]
    fn touches_go_together_up_to_a_bound_of_locks_and_one_of_members() {
        assert_eq!(sizes((0..100).map(|lock| touch(lock, 1)).collect()), [64, 36]);
        let lines = [100, 100, 100, 256, 1, 255, 1];
        let lines = lines.iter().enumerate().map(|(lock, members)| touch(lock, *members));
        assert_eq!(sizes(lines.collect()), [2, 1, 1, 2, 1]);
    }

    #[test]
    fn what_is_of_another_kind_goes_alone_and_nothing_is_left_out() {
        let release = |lock| ask(lock, Command::Release { member: member(lock, Demand::ALONE) });
        let asks = vec![renewal(0), release(1), touch(2, 3), renewal(3), release(4), touch(5, 1)];
        let locks: Vec<Vec<String>> = batches(asks)
            .iter()
            .map(|batch| batch.iter().map(|ask| ask.lock.as_str().replace("lock ", "")).collect())
            .collect();
        assert_eq!(locks, [vec!["0", "3"], vec!["1"], vec!["2", "5"], vec!["4"]]);
    }
}
