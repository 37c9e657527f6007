//! `ticket-office`: sells numbered seats over HTTP, each under its own fair lock, to people in the
//! order in which they came; one process on its own, or several that share a Redis and a database.
//!
//! Run with `cargo run -p lock-examples --bin ticket-office` and open the page that it names.
//! `--help` is its manual.

mod board;
mod buying;
mod database;
mod events;
mod faults;
mod flags;
mod metrics;
mod office;
mod order;
mod page;
mod problem;
mod repeats;
mod routes;
mod sale;
mod say;
mod seat;
mod seats;
mod shutdown;
mod start;
mod status;
mod told;
mod waiting;

use std::process::ExitCode;

use clap::Parser as _;
use flags::Flags;

fn main() -> ExitCode {
    let flags = Flags::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return start::Failure::new(format!("no runtime: {error}")).report(),
    };
    let outcome = runtime.block_on(start::run(flags));
    // A name server that does not answer keeps a blocking thread busy: nothing waits for it.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
