//! `ticket-office`: sells numbered seats over HTTP, each under a fair lock, in order of arrival; as
//! a single process, or as several processes that share a Redis and a database.
//!
//! Run with `cargo run -p lock-examples --bin ticket-office` and open the printed URL. For the
//! manual, use `--help`.

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
mod progress;
mod repeats;
mod routes;
mod sale;
mod say;
mod seat;
mod seats;
mod shutdown;
mod start;
mod status;
mod waiting;

use std::process::ExitCode;

use clap::Parser as _;
use flags::Flags;

fn main() -> ExitCode {
    let flags = Flags::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return start::Failure::new(format!(
                "the runtime cannot be started: \
            {error}"
            ))
            .report();
        }
    };
    let outcome = runtime.block_on(start::run(flags));
    // A name server that does not respond keeps a blocking thread busy: do not wait for it.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
