//! The driver of `scripts/bench`: measures all locks against one server in turns, and writes the
//! results.
#![allow(clippy::print_stderr, reason = "it reports its progress")]

mod chart;
mod clock;
mod etcd;
mod fleet;
mod http;
mod keys;
mod machine;
mod page;
mod peer;
mod plot;
mod program;
mod programs;
mod ready;
mod redis_server;
mod report;
mod results;
mod run;
mod sample;
mod servers;
mod sessions;
mod summary;
mod turns;
mod workload;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use fleet::Plan;
use page::Page;
use programs::Programs;
use results::Results;
use run::Run;
use servers::Servers;
use summary::Summary;
use workload::WORKLOADS;

/// Measures locks against one server in turns. `scripts/bench` builds the programs and starts it.
#[derive(Debug, Parser)]
struct Options {
    /// The file with the command that starts each program.
    #[arg(long)]
    programs: PathBuf,
    /// The directory for the results, and for files that live as long as the run.
    #[arg(long)]
    directory: PathBuf,
    /// The page of tables; figures and plots are written beside it.
    #[arg(long)]
    page: PathBuf,
    /// The revision that was built.
    #[arg(long, default_value = "unknown")]
    revision: String,
    /// The other revision of the program `against`.
    #[arg(long)]
    against: Option<String>,
    /// The date of the run.
    #[arg(long, default_value = "unknown")]
    date: String,
    /// Runs some workloads only, and short ones.
    #[arg(long)]
    quick: bool,
    /// The number of repetitions of each lock in each workload.
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    /// The time that a repetition counts, in ms (default: 1000, short: 200).
    #[arg(long)]
    window_ms: Option<u64>,
    /// Measures only these workloads.
    #[arg(long, value_delimiter = ',')]
    workloads: Option<Vec<String>>,
    /// Measures only these locks.
    #[arg(long, value_delimiter = ',')]
    locks: Option<Vec<String>>,
    /// Measures nothing: writes the page from the results of an earlier run.
    #[arg(long)]
    render: Option<PathBuf>,
    /// Measures nothing: draws the plots from the figures beside the page.
    #[arg(long)]
    draw: bool,
    /// Measures nothing: writes the figures beside the page, with plots, into this HTML file.
    #[arg(long)]
    report: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("lock-bench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    if options.draw {
        return page::draw(&figures(&options.page)?, &options.page);
    }
    if let Some(path) = &options.report {
        return write(path, &report::html(&figures(&options.page)?));
    }
    let results = match &options.render {
        Some(path) => {
            serde_json::from_str(&read(path)?).map_err(|error| format!("{path:?}: {error}"))?
        }
        None => measure(options)?,
    };
    Page::new(&results).write(&options.page)
}

/// The figures stored beside the page.
fn figures(page: &Path) -> Result<Summary, String> {
    let path = page.with_extension("json");
    serde_json::from_str(&read(&path)?).map_err(|error| format!("{path:?}: {error}"))
}

fn measure(options: &Options) -> Result<Results, String> {
    let programs = Programs::read(&options.programs)?;
    if let Some(unknown) = options
        .workloads
        .iter()
        .flatten()
        .find(|id| WORKLOADS.iter().all(|workload| workload.id != **id))
    {
        return Err(format!("there is no workload '{unknown}'"));
    }
    let scratch = options.directory.join("scratch");
    fs::create_dir_all(&scratch).map_err(|error| format!("{scratch:?}: {error}"))?;
    let window = options.window_ms.unwrap_or(if options.quick { 200 } else { 1_000 });
    let plan = Plan {
        repetitions: options.repetitions,
        window: Duration::from_millis(window),
        hand_offs: if options.quick { 20 } else { 200 },
        holding: Duration::from_secs(30),
    };
    let mut run = Run {
        servers: Servers::start(
            programs.command("postgres-server"),
            programs.command("etcd-server"),
        ),
        programs: &programs,
        plan,
        scratch: &scratch,
        results: Results {
            date: options.date.clone(),
            revision: options.revision.clone(),
            against: options.against.clone(),
            machine: format!(
                "{} cores of {}, {}",
                machine::cores(),
                machine::processor(),
                machine::system()
            ),
            repetitions: options.repetitions,
            quick: options.quick,
            missing: programs.missing(),
            ..Results::default()
        },
    };
    run.results.server = run.servers.redis.version();
    for (server, why) in run.servers.missing() {
        run.results.missing.insert(server.to_owned(), why.clone());
    }
    run.results.before = run.condition();
    let path = options.directory.join("results.json");
    for workload in WORKLOADS {
        let asked = match &options.workloads {
            Some(ids) => ids.iter().any(|id| id == workload.id),
            None => workload.quick || !options.quick,
        };
        if asked {
            run.workload(workload, options.locks.as_deref());
            keep(&path, &run.results)?;
        }
    }
    run.results.after = run.condition();
    keep(&path, &run.results)?;
    eprintln!("{} has every repetition", path.display());
    Ok(run.results)
}

/// Writes the results after each workload: an aborted run keeps all earlier workloads.
fn keep(path: &Path, results: &Results) -> Result<(), String> {
    write(path, &serde_json::to_string_pretty(results).map_err(|error| error.to_string())?)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
