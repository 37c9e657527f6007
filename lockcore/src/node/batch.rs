//! Which requests go out together: renewals in one script, touches in one script.
//!
//! # Implementation notes
//!
//! - A renewal that is due takes along the renewals that follow within a hundredth of their lease,
//!   and a touch the touches that follow within a fortieth of their period. So none is later than
//!   it would be alone.
//! - What went out together does not stay together: the next renewal of each hold is due earlier by
//!   a random time, up to a thirtieth of the lease.
//! - One script renews at most 128 holds, or touches at most 64 locks with 256 members.
//! - If a key of one lock is another program's, that is the answer for that lock alone.

use std::collections::BTreeMap;

use super::calling::call;
use super::effect::Ask;
use super::sharing;
use crate::error::{LockErrorKind, StoreError};
use crate::key::LockName;
use crate::member::Member;
use crate::store::protocol::{Answer, Command, permits};
use crate::store::{Each, MAX_BATCH, MAX_LINES, MAX_RENEWALS, Reply, Store};

/// Requests that go out together, each with an answer of its own.
pub(super) type Batch = Vec<Ask>;

/// Puts together what one script can do, in order. What can go with what is decided here and
/// nowhere else: for a Redis Cluster, names of different nodes would part here.
pub(super) fn batches(asks: Vec<Ask>) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    let (mut renewals, mut touches) = (Open::default(), Open::default());
    // A script of a resource with permits knows no other.
    let mut shared: BTreeMap<LockName, Open> = BTreeMap::new();
    for ask in asks {
        let (open, max, members) = match &ask.command {
            Command::Renew { .. } if ask.lock.is_shared() => {
                (shared.entry(ask.lock.clone()).or_default(), MAX_RENEWALS, 1)
            }
            Command::Touch { .. } if ask.lock.is_shared() => {
                batches.push(vec![ask]);
                continue;
            }
            Command::Renew { .. } => (&mut renewals, MAX_RENEWALS, 1),
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

/// The batch to which the next request of its kind is added.
#[derive(Default)]
struct Open {
    at: usize,
    asks: usize,
    members: usize,
}

/// Whether one of several may be the reason for this error of all: then each is asked for alone.
pub(super) fn is_of_one(error: &StoreError) -> bool {
    matches!(error.kind, LockErrorKind::Denied | LockErrorKind::WrongType | LockErrorKind::Protocol)
}

/// Asks for a batch. The outer error is that of all.
pub(super) async fn ask_each(
    store: &dyn Store,
    batch: &[Ask],
) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
    match batch {
        [Ask { command: Command::Renew { .. }, lock, .. }, ..] if lock.is_shared() => {
            let command = sharing::renewal(members(batch))?;
            shared(&command, store.permits(lock, command.clone()).await?)
        }
        [Ask { command: Command::Touch { .. }, lock, .. }] if lock.is_shared() => {
            Ok(vec![call(store, &batch[0]).await])
        }
        [Ask { command: Command::Renew { .. }, .. }, ..] => {
            Ok(typed(store.renew(holds(batch)).await?, Answer::Renewed))
        }
        [Ask { command: Command::Touch { .. }, .. }, ..] => {
            let lines = batch.iter().filter_map(|ask| match &ask.command {
                Command::Touch { members } => Some((ask.lock.clone(), members.clone())),
                _ => None,
            });
            Ok(typed(store.touch(lines.collect()).await?, Answer::Touched))
        }
        alone => {
            let mut answers = Vec::with_capacity(alone.len());
            for ask in alone {
                answers.push(call(store, ask).await);
            }
            Ok(answers)
        }
    }
}

/// As [`ask_each`], for renewals that replicas are to have. Says how many have all of them.
pub(super) async fn confirm_each(
    store: &dyn Store,
    batch: &[Ask],
) -> Result<(Vec<Result<Answer, StoreError>>, u32), StoreError> {
    let lock = &batch.first().ok_or_else(sharing::nonsense)?.lock;
    if lock.is_shared() {
        let command = sharing::renewal(members(batch))?;
        let (answer, replicas) = store.confirm_permits(lock, command.clone()).await?;
        return Ok((shared(&command, answer)?, replicas));
    }
    let (each, replicas) = store.confirm(holds(batch)).await?;
    Ok((typed(each, Answer::Renewed), replicas))
}

fn members(renewals: &[Ask]) -> impl Iterator<Item = &Member> {
    renewals.iter().filter_map(|ask| match &ask.command {
        Command::Renew { member } => Some(member),
        _ => None,
    })
}

fn holds(renewals: &[Ask]) -> Vec<(LockName, Member)> {
    let locks = renewals.iter().map(|ask| ask.lock.clone());
    locks.zip(members(renewals).cloned()).collect()
}

/// The answers to a renewal of a resource with permits.
fn shared(
    command: &permits::Command,
    answer: permits::Answer,
) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
    let permits::Answer::Renewed(reply) = answer else { return Err(sharing::nonsense()) };
    let answers = sharing::renewed(command, reply);
    // One for each, or none.
    if answers.is_empty() {
        return Err(sharing::nonsense());
    }
    Ok(answers.into_iter().map(Ok).collect())
}

fn typed<T>(each: Each<T>, answer: fn(Reply<T>) -> Answer) -> Vec<Result<Answer, StoreError>> {
    each.into_iter().map(|one| one.map(answer)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::LockName;
    use crate::member::{Label, Member, NodeId};
    use crate::node::moment::Moment;

    fn ask(lock: usize, command: Command) -> Ask {
        let lock = LockName::from(&*format!("lock {lock}"));
        Ask { lock, command, sent: Moment::default(), background: true }
    }

    fn member(number: usize) -> Member {
        Member::new(&NodeId::of("AAAAAAAAAAAAAAAAAAAAAA"), number as u64, 30_000, &Label::new("x"))
    }

    fn renewal(lock: usize) -> Ask {
        ask(lock, Command::Renew { member: member(lock) })
    }

    fn touch(lock: usize, members: usize) -> Ask {
        ask(lock, Command::Touch { members: (0..members).map(member).collect() })
    }

    fn sizes(asks: Vec<Ask>) -> Vec<usize> {
        batches(asks).iter().map(Vec::len).collect()
    }

    #[test]
    fn renewals_go_together_up_to_a_bound() {
        assert_eq!(sizes((0..300).map(renewal).collect()), [128, 128, 44]);
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
        let release = |lock| ask(lock, Command::Release { member: member(lock) });
        let asks = vec![renewal(0), release(1), touch(2, 3), renewal(3), release(4), touch(5, 1)];
        let locks: Vec<Vec<String>> = batches(asks)
            .iter()
            .map(|batch| batch.iter().map(|ask| ask.lock.as_str().replace("lock ", "")).collect())
            .collect();
        assert_eq!(locks, [vec!["0", "3"], vec!["1"], vec!["2", "5"], vec!["4"]]);
    }
}
