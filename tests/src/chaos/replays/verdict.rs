//! The laws of replays, judged by the responses received by clients and the records kept by the
//! server.

use lock_idempotency::{Answer as Kept, Outcome, RecordKey, Scope};
use redis::cmd;

use super::Replays;
use super::client::Said;
use super::keeper::Struck;
use super::process::{PREFIX, SCOPE};
use crate::Raw;
use crate::http::Answer;

/// A step of an attempt, as recorded on the server.
#[derive(Debug)]
struct Step {
    /// Whether the attempt committed, or began.
    is_commit: bool,
    token: u64,
    attempt: String,
    /// Whether the record had a response then.
    was_answered: bool,
}

/// Judges each key, and sums up.
pub(super) async fn judge(redis: &mut Raw, said: &[Said], struck: &Struck) -> Replays {
    let mut all = Replays { faults: struck.faults.clone(), ..Replays::default() };
    for said in said {
        all.keys += 1;
        all.answers += said.answers.len() as u64;
        all.replayed += said.answers.iter().filter(|answer| is_replayed(answer)).count() as u64;
        all.hung_up += said.hung_up;
        all.cut_off += said.cut_off;
        all.overtaken += said.overtaken;
        all.not_stored += said.not_stored.len() as u64;
        all.violations.extend(said.violations.iter().cloned());
        let record = RecordKey::new(&Scope::new(SCOPE), &said.key);
        let steps = redis.list(&format!("work:{record}")).await;
        let steps: Vec<Step> = steps.iter().map(|step| Step::read(step)).collect();
        let commits = steps.iter().filter(|step| step.is_commit).count();
        all.committed += commits as u64;
        all.began += (steps.len() - commits) as u64;
        let name = format!("{PREFIX}:{record}");
        let stored: (Option<u64>, Option<Vec<u8>>) =
            redis.ask(cmd("HMGET").arg(&name).arg("token").arg("outcome")).await;
        let outcome = stored.1.and_then(|form| Outcome::decode(form.into()).ok());
        let (Some(token), Some(Outcome::Kept(kept))) = (stored.0, outcome) else {
            all.violations.push(format!("{}: no answer is stored: {steps:?}", said.key));
            continue;
        };
        let found = laws(&kept, token, &steps, said, struck);
        all.violations.extend(found.iter().map(|law| format!("{}: {law}: {steps:?}", said.key)));
    }
    all
}

/// Returns the laws broken by a key.
fn laws(
    kept: &Kept,
    token: u64,
    steps: &[Step],
    said: &Said,
    struck: &Struck,
) -> Vec<&'static str> {
    let body = String::from_utf8_lossy(kept.body());
    let winner = body.split(' ').next().unwrap_or_default();
    let commits = || steps.iter().filter(|step| step.is_commit);
    let of_winner: Vec<_> = commits().filter(|step| step.attempt == winner).collect();
    let is_alike = |answer: &Answer| {
        answer.bytes[..] == kept.body()[..]
            && answer.header("etag").map(str::as_bytes)
                == kept.headers().get("etag").map(|etag| etag.as_bytes())
    };
    let was_struck = |step: &Step| {
        let process = step.attempt.split('-').next().unwrap_or_default();
        struck.processes.contains(process)
    };
    let firsts = said.answers.iter().filter(|answer| !is_replayed(answer)).count();
    let laws = [
        (of_winner.len() == 1, "the attempt whose answer is stored has committed once"),
        (of_winner.iter().all(|step| step.token == token), "its token is that of the record"),
        (said.answers.iter().all(is_alike), "all answers are alike"),
        (firsts <= 1, "one answer at most is no replay"),
        (commits().all(|step| !step.was_answered), "nothing is committed once it is answered"),
        (
            steps.iter().all(|step| !step.was_answered || step.token < token),
            "no attempt begins once it is answered, but for one that was overtaken",
        ),
        (
            commits().all(|step| step.attempt == winner || was_struck(step)),
            "the work is committed again only where a process was killed or paused",
        ),
    ];
    laws.into_iter().filter(|(is_kept, _)| !is_kept).map(|(_, law)| law).collect()
}

fn is_replayed(answer: &Answer) -> bool {
    answer.header("idempotency-replayed").is_some()
}

impl Step {
    fn read(text: &str) -> Self {
        let mut words = text.split(' ');
        let mut next = || words.next().expect("a step has four words");
        Self {
            is_commit: next() == "committed",
            token: next().parse().expect("a token"),
            attempt: next().to_owned(),
            was_answered: next() == "1",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a key served once by an attempt of process `0.0`; a client has the response.
    fn served() -> (Kept, Vec<Step>, Said) {
        let (parts, ()) =
            http::Response::builder().header("etag", "\"0.0-a\"").body(()).unwrap().into_parts();
        let kept = Kept::new(&parts, "0.0-a bytes".into());
        let steps = vec![Step::read("began 5 0.0-a 0"), Step::read("committed 5 0.0-a 0")];
        let text = "HTTP/1.1 200 OK\r\netag: \"0.0-a\"\r\ncontent-length: 11\r\n\r\n0.0-a bytes";
        let answers = vec![Answer::parse(text.as_bytes())];
        (kept, steps, Said { answers, ..Said::default() })
    }

    fn broken(change: impl FnOnce(&mut Vec<Step>, &mut Said), token: u64) -> Vec<&'static str> {
        let (kept, mut steps, mut said) = served();
        change(&mut steps, &mut said);
        let struck = Struck { processes: ["0.1".to_owned()].into(), ..Struck::default() };
        laws(&kept, token, &steps, &said, &struck)
    }

    #[test]
    fn each_law_is_broken_by_what_it_forbids() {
        assert_eq!(broken(|_, _| {}, 5), Vec::<&str>::new());
        let is_broken = |law: &str, found: Vec<&str>| {
            assert!(found.iter().any(|found| found.contains(law)), "{law}: {found:?}");
        };
        is_broken("has committed once", broken(|steps, _| drop(steps.pop()), 5));
        is_broken("that of the record", broken(|_, _| {}, 6));
        let other = |said: &mut Said| said.answers[0].bytes[0] = b'1';
        is_broken("alike", broken(|_, said| other(said), 5));
        let text = "HTTP/1.1 200 OK\r\netag: \"0.0-a\"\r\ncontent-length: 11\r\n\r\n0.0-a bytes";
        let twice = |said: &mut Said| said.answers.push(Answer::parse(text.as_bytes()));
        is_broken("no replay", broken(|_, said| twice(said), 5));
        let late = |step: &'static str| broken(|steps, _| steps.push(Step::read(step)), 5);
        is_broken("once it is answered", late("committed 6 0.1-b 1"));
        is_broken("no attempt begins", late("began 6 0.1-b 1"));
        assert_eq!(late("began 4 0.1-b 1"), Vec::<&str>::new(), "it was overtaken");
        is_broken("killed or paused", late("committed 4 0.0-b 0"));
        assert_eq!(late("committed 4 0.1-b 0"), Vec::<&str>::new());
    }
}
