//! `lock-simulate`: runs seeds until a law is broken, and prints the seed.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod options;

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lock_simulate::{Fault, Law, Outcome, Pairs, Plan, Size, reduce, run, trace};

use options::Options;

/// The time between two progress reports.
const NEWS: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.peek().is_some_and(|argument| argument == "--help") {
        print!("{}", options::help());
        return ExitCode::SUCCESS;
    }
    let options = match Options::from(arguments) {
        Ok(options) => options,
        Err(argument) => {
            eprintln!("what is '{argument}'? lock-simulate --help tells");
            return ExitCode::from(64);
        }
    };
    let begun = Instant::now();
    let progress = Mutex::new(Progress::of(&options));
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| work(&options, &progress));
        }
    });
    let progress = progress.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(broken) = progress.broken {
        eprintln!("{broken}");
        return ExitCode::FAILURE;
    }
    progress.report(begun.elapsed());
    match options.pairs && !print_pairs(&progress.total.pairs) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// Prints the table of pairs, the rarest pairs, and how many pairs never met. Returns whether all
/// met.
fn print_pairs(pairs: &Pairs) -> bool {
    println!("{pairs}");
    let mut all: Vec<_> = pairs.all().collect();
    all.sort_by_key(|(.., count)| *count);
    for (one, other, count) in all.iter().take(20) {
        println!("{} and {}: {count}", one.name(), other.name());
    }
    let never = all.iter().filter(|(.., count)| *count == 0).count();
    if never > 0 {
        eprintln!("{never} pairs never met");
    }
    never == 0
}

/// The results of all threads so far.
struct Progress {
    /// The next seed: all earlier seeds have been taken, and are done at the end.
    next: u64,
    left: u64,
    total: Outcome,
    broken: Option<String>,
    printed_at: Instant,
}

impl Progress {
    fn of(options: &Options) -> Self {
        let left = if options.total.is_some() { u64::MAX } else { options.runs };
        let total = Outcome::default();
        let printed_at = Instant::now();
        Self { next: options.seed, left, total, broken: None, printed_at }
    }

    fn take(&mut self, options: &Options) -> Option<u64> {
        let is_enough = options.total.is_some_and(|total| self.total.size.events >= total);
        if self.left == 0 || is_enough || self.broken.is_some() {
            return None;
        }
        if self.printed_at.elapsed() > NEWS {
            self.printed_at = Instant::now();
            let sure = self.next.saturating_sub(options.jobs).max(options.seed);
            let events = self.total.size.events;
            let holds = self.total.holds;
            eprintln!("{events} events, {holds} lock cycles; to go on: --seed {sure}");
        }
        self.left -= 1;
        self.next += 1;
        Some(self.next - 1)
    }

    fn report(&self, took: Duration) {
        let Outcome {
            size,
            holds,
            parts,
            in_batches,
            works,
            long_works,
            superseded,
            lost,
            messages,
            given_up,
            lasted_ms,
            counted,
            ..
        } = &self.total;
        let Size { events, faults, .. } = size;
        let hours = lasted_ms / 3_600_000;
        println!(
            "{events} events, {holds} lock cycles ({parts} of parts, {in_batches} in batches, {long_works} of {works} sections for longer than a lease, {superseded} superseded, {lost} lost), {messages} messages, {faults} faults, {given_up} members given up, {hours} virtual hours, no law broken, {took:.1?}; next seed {}",
            self.next
        );
        for law in Law::ALL {
            if counted[law as usize] > 0 {
                println!("{law:?} where it does not hold: {} times", counted[law as usize]);
            }
        }
    }
}

/// Returns the smallest run found to break the same law.
fn smaller((kind, draw): (&str, u64), plan: Plan, law: Law, seconds: u64) -> String {
    let breach = |plan| run(plan).err().filter(|breach| breach.broken.law == law);
    let plan = reduce(plan, Duration::from_secs(seconds), |plan| Some(breach(plan)?.size));
    match breach(plan) {
        Some(breach) => format!("{breach}\nsmaller: {}", options::command(kind, draw, &plan)),
        None => "it does not break the law once more".into(),
    }
}

fn work(options: &Options, progress: &Mutex<Progress>) {
    let lock = || progress.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        // The mutex is not held while a seed runs.
        let Some(seed) = lock().take(options) else { return };
        for (kind, plan) in options.plans(seed) {
            let outcome = match &options.trace {
                Some(text) => trace(plan, text.clone()),
                None => run(plan),
            };
            match outcome {
                Ok(outcome) => lock().total.add(&outcome),
                Err(breach) => {
                    let draw = options.draws(seed);
                    let again = options::command(kind, draw, &plan);
                    let faults: Vec<_> = plan.faults.all().map(Fault::name).collect();
                    let faults = faults.join(", ");
                    eprintln!("{kind}, seed {seed}: {breach}\nfaults: {faults}\nagain: {again}");
                    let small = smaller((kind, draw), plan, breach.broken.law, options.reduce);
                    lock().broken.get_or_insert(small);
                    return;
                }
            }
        }
    }
}
