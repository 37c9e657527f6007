//! The history: the records of all clients of a run, read back from their files.

use std::collections::HashMap;
use std::path::Path;

use super::record::{End, Pair, Record};

/// An attempt of a client, as far as it is recorded.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempt {
    pub(super) child: u32,
    pub(super) number: u32,
    pub(super) lock: u32,
    /// The requested weight: permits, or the whole lock.
    pub(super) weight: u32,
    pub(super) limit: u32,
    pub(super) invoked: i64,
    pub(super) bound: i64,
    /// When the acquisition was refused, cancelled or granted.
    pub(super) answered: Option<i64>,
    pub(super) grant: Option<Grant>,
    /// The downgrade of its write to a read.
    pub(super) reduction: Option<Reduction>,
    pub(super) ending: Option<Ending>,
    pub(super) released: Option<(i64, End)>,
    /// Whether the fenced register has accepted its write, if there was a write.
    pub(super) wrote: Option<bool>,
    /// The observed states of the fenced and of the unfenced pair of registers.
    pub(super) read: Option<[Pair; 2]>,
    /// The weight held including its own: of clients with valid holds, and of all clients that had
    /// not left.
    pub(super) counted: Option<[u64; 2]>,
}

/// A hold, as reported to its client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) at: i64,
    pub(super) token: u64,
    pub(super) until: i64,
}

/// A write downgraded to a read: from `at` on the holder relies only on a read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reduction {
    pub(super) at: i64,
    pub(super) until: i64,
    pub(super) bound: i64,
    pub(super) answered: Option<(i64, End)>,
    /// The read's token.
    pub(super) token: Option<u64>,
}

/// The end of a hold, as intended by the holder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) at: i64,
    pub(super) until: i64,
    pub(super) bound: i64,
}

/// Reads all records of one child.
pub(super) fn read(file: &Path, child: u32) -> Result<Vec<Attempt>, String> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        // The child was killed before it began.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: {error}", file.display())),
    };
    // An unfinished line of a killed child does not count.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut attempts: HashMap<u32, Attempt> = HashMap::new();
    for line in whole.lines() {
        add(&mut attempts, child, line.parse()?);
    }
    Ok(attempts.into_values().collect())
}

fn add(attempts: &mut HashMap<u32, Attempt>, child: u32, record: Record) {
    let number = record.attempt();
    let attempt =
        attempts.entry(number).or_insert_with(|| Attempt { child, number, ..Attempt::default() });
    match record {
        Record::Invoked { at, lock, weight, limit, bound, .. } => {
            (attempt.invoked, attempt.lock, attempt.bound) = (at, lock, bound);
            (attempt.weight, attempt.limit) = (weight, limit);
        }
        Record::Granted { at, token, until, .. } => {
            attempt.answered = Some(at);
            attempt.grant = Some(Grant { at, token, until });
        }
        Record::Failed { at, .. } | Record::Dropped { at, .. } => attempt.answered = Some(at),
        Record::Ending { at, until, bound, .. } => {
            attempt.ending = Some(Ending { at, until, bound });
        }
        Record::Released { at, end, .. } => attempt.released = Some((at, end)),
        Record::Reducing { at, until, bound, .. } => {
            attempt.reduction = Some(Reduction { at, until, bound, answered: None, token: None });
        }
        Record::Reduced { at, end, token, .. } => {
            if let Some(reduction) = &mut attempt.reduction {
                reduction.answered = Some((at, end));
                reduction.token = (end == End::Ok).then_some(token);
            }
        }
        Record::Wrote { accepted, .. } => attempt.wrote = Some(accepted),
        Record::Read { fenced, plain, .. } => attempt.read = Some([fenced, plain]),
        Record::Counted { valid, all, .. } => attempt.counted = Some([valid, all]),
    }
}
