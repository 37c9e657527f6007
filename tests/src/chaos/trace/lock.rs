//! One lock as the commands leave it: who holds it until when, and who waits in which order.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{Key, Line, Step, Violation, What};

/// The server's own rounding, to milliseconds each way.
const ROUNDING_US: i64 = 2_000;

#[derive(Debug, Default)]
pub(super) struct Lock {
    queue: VecDeque<String>,
    deadlines: HashMap<String, i64>,
    holder: Option<Holder>,
    /// Taken from its place in this script, to be granted by it: who was ahead has been looked at.
    chosen: Option<String>,
    /// What a script has set the token to; the next grant is with it.
    token: u64,
    last_token: u64,
    /// Members that have given the lock back, and those with a tombstone; by hash, to be small.
    spent: HashSet<u64>,
    gone: HashSet<u64>,
    /// Index of the last grant among those of all locks.
    pub(super) last_grant: Option<usize>,
}

#[derive(Debug)]
struct Holder {
    member: String,
    /// The lease's end is between these two, by the server's clock.
    ends_from: Option<i64>,
    ends_by: i64,
}

/// The label of a member of ours, `~1<node>:<number>:<lease>:<label>`.
pub(in crate::chaos) fn label(member: &str) -> Option<&str> {
    member.strip_prefix("~1")?.splitn(4, ':').nth(3)
}

fn lease_ms(member: &str) -> Option<i64> {
    member.split(':').nth(2)?.parse().ok()
}

fn hash(member: &str) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(member)
}

impl Lock {
    /// When the present hold has ended for certain, as far as the last command tells.
    pub(super) fn ends_at_last(&self) -> Option<i64> {
        self.holder
            .as_ref()
            .filter(|holder| holder.ends_from.is_some())
            .map(|holder| holder.ends_by)
    }

    /// Whether nobody has given it back since the last grant.
    pub(super) fn is_held(&self) -> bool {
        self.holder.is_some()
    }

    /// Follows one command. Returns member and token of a grant.
    pub(super) fn follow(
        &mut self,
        step: &Step<'_>,
        line: &Line,
        found: &mut Vec<Violation>,
    ) -> Option<(String, u64)> {
        let first = line.args.first().map_or("", String::as_str);
        match (line.key, line.command.as_str()) {
            (Key::Queue, "RPUSH") => self.enqueued(step, first, found),
            (Key::Queue, "LREM") => {
                let member = line.args.get(1).map_or("", String::as_str).to_owned();
                self.dropped(step, line, &member, found);
                if step.granted.contains(member.as_str()) {
                    self.overtaken(step, &member, found);
                    self.chosen = Some(member.clone());
                }
                self.queue.retain(|queued| *queued != member);
            }
            (Key::Queue, "LPOP") => {
                if let Some(member) = self.queue.front().cloned() {
                    self.dropped(step, line, &member, found);
                    self.queue.pop_front();
                }
            }
            (Key::Queue, "DEL") => {
                for member in std::mem::take(&mut self.queue) {
                    self.dropped(step, line, &member, found);
                }
            }
            (Key::Deadlines, "ZADD") => self.scored(&line.args),
            (Key::Deadlines, "ZREM") => {
                self.dropped(step, line, first, found);
                self.deadlines.remove(first);
            }
            (Key::Deadlines, "DEL") => self.deadlines.clear(),
            (Key::Token, "SET") => self.token = first.parse().unwrap_or(0),
            (Key::Tombstone, "SET") => {
                self.gone.insert(hash(first));
            }
            (Key::Hold, "HSET") => return Some(self.granted(step, first, found)),
            (Key::Hold, "HDEL") => self.ended(step, first, found),
            (Key::Hold, "DEL") => self.holder = None, // forced off
            (Key::Hold, "PEXPIRE") => self.lasts(step, line, first, found),
            (Key::Hold, "PERSIST") => {
                found.push(Violation::new(What::Endless, "a hold was made to last for ever"));
            }
            _ => {}
        }
        None
    }

    /// What must be true after a whole script.
    pub(super) fn finish_step(&mut self, step: &Step<'_>, found: &mut Vec<Violation>) {
        if let Some(holder) = self.holder.as_mut().filter(|holder| holder.ends_from.is_none()) {
            found.push(Violation::new(
                What::Endless,
                format!("{} was granted at {} without an end", holder.member, step.at),
            ));
            holder.ends_from = Some(i64::MAX); // said once
        }
    }

    fn enqueued(&mut self, step: &Step<'_>, member: &str, found: &mut Vec<Violation>) {
        if self.queue.iter().any(|queued| queued == member) {
            let detail = format!("{member} at {}", step.at);
            found.push(Violation::new(What::QueuedTwice, detail));
        }
        if self.spent.contains(&hash(member)) || self.gone.contains(&hash(member)) {
            let detail = format!("{member} queued at {} after its end", step.at);
            found.push(Violation::new(What::GrantedAgain, detail));
        }
        self.queue.push_back(member.to_owned());
    }

    /// `ZADD key [flags] score member ...`
    fn scored(&mut self, args: &[String]) {
        let flags =
            args.iter().take_while(|arg| ["XX", "GT", "LT", "NX"].contains(&&***arg)).count();
        let has = |flag: &str| args[..flags].iter().any(|arg| arg == flag);
        for pair in args[flags..].chunks_exact(2) {
            let Ok(score) = pair[0].parse::<f64>() else { continue };
            let score = score as i64;
            match self.deadlines.get_mut(&pair[1]) {
                Some(deadline) if has("GT") => *deadline = score.max(*deadline),
                Some(deadline) if has("LT") => *deadline = score.min(*deadline),
                Some(deadline) => *deadline = score,
                None if has("XX") => {}
                None => {
                    self.deadlines.insert(pair[1].clone(), score);
                }
            }
        }
    }

    /// A member leaves list or sorted set: granted, by its own request, or because its time is up.
    fn dropped(&self, step: &Step<'_>, line: &Line, member: &str, found: &mut Vec<Violation>) {
        let Some(until) = self.deadlines.get(member) else { return };
        let is_over = until * 1_000 <= line.at;
        if !is_over && !step.granted.contains(member) && !step.args.contains(member) {
            let detail = format!("{member}, alive until {until} ms, dropped at {}", line.at);
            found.push(Violation::new(What::PlaceLost, detail));
        }
    }

    /// Everybody ahead of who is granted was passed over; for who was not queued, that is
    /// everybody.
    fn overtaken(&self, step: &Step<'_>, member: &str, found: &mut Vec<Violation>) {
        let mut ahead = self.queue.iter().take_while(|queued| *queued != member);
        if let Some(overtaken) = ahead.find(|ahead| !step.lowered.contains(ahead.as_str())) {
            let detail = format!("{member} at {}: {overtaken} was there before", step.at);
            found.push(Violation::new(What::OutOfOrder, detail));
        }
    }

    fn granted(
        &mut self,
        step: &Step<'_>,
        member: &str,
        found: &mut Vec<Violation>,
    ) -> (String, u64) {
        if self.chosen.take().is_none_or(|chosen| chosen != member) {
            self.overtaken(step, member, found);
        }
        let mut say = |what, detail: String| {
            found.push(Violation::new(what, format!("{member} at {}: {detail}", step.at)));
        };
        if let Some(holder) = &self.holder
            && holder.ends_from.is_none_or(|ends| step.by < ends)
        {
            say(What::TwoHolds, format!("{} holds until {}", holder.member, holder.ends_by));
        }
        if self.token <= self.last_token {
            say(What::TokenNotRising, format!("{} after {}", self.token, self.last_token));
        }
        self.last_token = self.token;
        if self.spent.contains(&hash(member)) {
            say(What::GrantedAgain, "it has given the lock back".to_owned());
        }
        if self.gone.contains(&hash(member)) {
            say(What::GrantedAgain, "it was given up".to_owned());
        }
        self.holder =
            Some(Holder { member: member.to_owned(), ends_from: None, ends_by: i64::MAX });
        (member.to_owned(), self.token)
    }

    fn ended(&mut self, step: &Step<'_>, member: &str, found: &mut Vec<Violation>) {
        if self.holder.as_ref().is_none_or(|holder| holder.member != member) {
            return; // it has nothing to end
        }
        if !step.args.contains(member) {
            let detail = format!("the hold of {member} at {}", step.at);
            found.push(Violation::new(What::WrongRelease, detail));
        }
        self.spent.insert(hash(member));
        self.holder = None;
    }

    fn lasts(&mut self, step: &Step<'_>, line: &Line, ms: &str, found: &mut Vec<Violation>) {
        let Some(holder) = &mut self.holder else { return };
        let ms: i64 = ms.parse().unwrap_or(i64::MAX / 1_000_000);
        if lease_ms(&holder.member).is_some_and(|lease| ms > lease) {
            let detail = format!("{} is to last {ms} ms", holder.member);
            found.push(Violation::new(What::Endless, detail));
        }
        let is_new = holder.ends_from.is_none();
        if !is_new && step.at > holder.ends_by {
            return; // the key is gone
        }
        holder.ends_from = Some(step.at + ms * 1_000 - ROUNDING_US);
        holder.ends_by = line.at + ms * 1_000 + ROUNDING_US;
    }
}
