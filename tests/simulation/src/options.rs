//! The command line of `lock-simulate`.

use lock_simulate::{DRAWN, Fault, Faults, Plan, kinds};

/// The help text.
const HELP: &str = "\
Usage: lock-simulate [OPTION]... [KIND]...

Runs many nodes and a server in virtual time, one seed after the other and each kind of run with each,
until a law is broken: then it says which, with the command that replays the run, and exits with 1.

  --seed N        the first seed (default: 1)
  --runs N        how many seeds (default: 100)
  --total N       as many seeds as it takes for so many events; the end names the next seed
  --jobs N        threads (default: 1)
  --pairs         print how often each two mechanisms met in the life of one hold; a pair that
                  never did, and could, is a failure
  --reduce N      seconds to look for a smaller run that breaks the same law (default: 60)
  --trace TEXT    print all requests and answers that have TEXT in them

One run, instead of what the seed says:
  --events N      calls of a table or of the server before it comes to rest (default: 100000)
  --nodes N, --callers N, --locks N, --primaries N
                  processes, callers of each, locks of all, servers that they are parted over
  --operations N  at most so many attempts
  --without FAULT leave out a kind of fault
  --draw N        the seed that draws the faults of 'drawn' (default: that of the run)
  --first N, --last N
                  of all faults let only these happen, counted from 1

";

/// The command line options.
pub(crate) struct Options {
    pub(crate) seed: u64,
    pub(crate) runs: u64,
    pub(crate) total: Option<u64>,
    pub(crate) jobs: u64,
    pub(crate) trace: Option<String>,
    pub(crate) pairs: bool,
    /// The time for reducing a run, in seconds.
    pub(crate) reduce: u64,
    kinds: Vec<String>,
    events: u64,
    nodes: Option<u64>,
    callers: Option<u64>,
    locks: Option<u64>,
    primaries: Option<u64>,
    operations: Option<u64>,
    first: Option<u64>,
    last: Option<u64>,
    draw: Option<u64>,
    without: Vec<Fault>,
}

/// Returns the complete help text.
pub(crate) fn help() -> String {
    let mut help = String::from(HELP);
    help.push_str("Kinds (default: all), with their faults:\n");
    for (kind, faults) in kinds(0).filter(|(kind, _)| *kind != DRAWN) {
        let names: Vec<_> = faults.all().map(Fault::name).collect();
        help.push_str(&format!("  {kind:<15} {}\n", names.join(", ")));
    }
    help.push_str(&format!("  {DRAWN:<15} three to six of all these, drawn by the seed\n"));
    help
}

impl Options {
    /// Parses the arguments. On error returns the invalid argument.
    pub(crate) fn from(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            seed: 1,
            runs: 100,
            total: None,
            jobs: 1,
            trace: None,
            pairs: false,
            reduce: 60,
            kinds: Vec::new(),
            events: 100_000,
            nodes: None,
            callers: None,
            locks: None,
            primaries: None,
            operations: None,
            first: None,
            last: None,
            draw: None,
            without: Vec::new(),
        };
        while let Some(argument) = arguments.next() {
            if kinds(0).any(|(name, _)| name == argument) {
                options.kinds.push(argument);
                continue;
            }
            if argument == "--pairs" {
                options.pairs = true;
                continue;
            }
            let value = arguments.next().ok_or_else(|| argument.clone())?;
            let number = value.parse();
            let bad = |_| format!("{argument} {value}");
            match argument.as_str() {
                "--seed" => options.seed = number.map_err(bad)?,
                "--runs" => options.runs = number.map_err(bad)?,
                "--total" => options.total = Some(number.map_err(bad)?),
                "--jobs" => options.jobs = number.map_err(bad)?,
                "--events" => options.events = number.map_err(bad)?,
                "--nodes" => options.nodes = Some(number.map_err(bad)?),
                "--callers" => options.callers = Some(number.map_err(bad)?),
                "--locks" => options.locks = Some(number.map_err(bad)?),
                "--primaries" => options.primaries = Some(number.map_err(bad)?),
                "--operations" => options.operations = Some(number.map_err(bad)?),
                "--first" => options.first = Some(number.map_err(bad)?),
                "--last" => options.last = Some(number.map_err(bad)?),
                "--draw" => options.draw = Some(number.map_err(bad)?),
                "--reduce" => options.reduce = number.map_err(bad)?,
                "--trace" => options.trace = Some(value),
                "--without" => match Fault::named(&value) {
                    Some(fault) => options.without.push(fault),
                    None => return Err(format!("{argument} {value}")),
                },
                _ => return Err(argument),
            }
        }
        let Self { nodes, callers, locks, primaries, .. } = options;
        let sizes = [nodes, callers, locks, primaries, Some(options.jobs)];
        match sizes.contains(&Some(0)) {
            true => Err("0".into()),
            false => Ok(options),
        }
    }

    /// Returns the seed that draws the faults of a run with this seed.
    pub(crate) fn draws(&self, seed: u64) -> u64 {
        self.draw.unwrap_or(seed)
    }

    /// Returns a seed's runs, with their kinds.
    pub(crate) fn plans(&self, seed: u64) -> impl Iterator<Item = (&'static str, Plan)> {
        let kinds = kinds(self.draws(seed))
            .filter(|(kind, _)| self.kinds.is_empty() || self.kinds.iter().any(|of| of == kind));
        kinds.map(move |(kind, faults)| {
            let faults =
                self.without.iter().fold(faults, |faults, one| Faults::without(faults, *one));
            let usual = Plan::of(seed, self.events, faults);
            let plan = Plan {
                nodes: self.nodes.unwrap_or(usual.nodes),
                callers: self.callers.unwrap_or(usual.callers),
                locks: self.locks.unwrap_or(usual.locks),
                primaries: self.primaries.unwrap_or(usual.primaries),
                operations: self.operations.unwrap_or(usual.operations),
                first: self.first.unwrap_or(usual.first),
                last: self.last.unwrap_or(usual.last),
                ..usual
            };
            (kind, plan)
        })
    }
}

/// Returns the command line for a single run, whose faults were drawn by the seed `draw`.
pub(crate) fn command(kind: &str, draw: u64, plan: &Plan) -> String {
    let usual = Plan::of(plan.seed, plan.events, plan.faults);
    let mut command =
        format!("lock-simulate {kind} --seed {} --runs 1 --events {}", plan.seed, plan.events);
    for (name, value, usual) in [
        ("nodes", plan.nodes, usual.nodes),
        ("callers", plan.callers, usual.callers),
        ("locks", plan.locks, usual.locks),
        ("primaries", plan.primaries, usual.primaries),
        ("operations", plan.operations, usual.operations),
        ("first", plan.first, usual.first),
        ("last", plan.last, usual.last),
    ] {
        if value != usual {
            command.push_str(&format!(" --{name} {value}"));
        }
    }
    if kind == DRAWN && draw != plan.seed {
        command.push_str(&format!(" --draw {draw}"));
    }
    let all = kinds(draw).find(|(name, _)| *name == kind).map(|(_, faults)| faults);
    for fault in all.unwrap_or_default().all() {
        if plan.faults.rate(fault) == 0 {
            command.push_str(&format!(" --without {}", fault.name()));
        }
    }
    command
}
