//! `lockctl`: runs a command while holding a fair lock on Redis; also shows such locks and releases
//! them by force.
//!
//! The counterpart of `flock(1)` for several machines. For the manual, use `lockctl --help`.

mod arguments;
mod become_command;
mod busy;
mod child;
mod connect;
mod exec;
mod exit;
mod holders;
mod inspect;
mod meant;
mod participant;
mod process_tree;
mod progress;
mod quorum;
mod release;
mod signals;
mod status;
mod stdout;
mod text;
mod top;

use std::process::ExitCode;

use arguments::{Arguments, Command, Quorum};
use exit::Failure;

fn main() -> ExitCode {
    let arguments = match Arguments::read() {
        Ok(arguments) => arguments,
        Err(error) => return error.report(),
    };
    // Must run before a second thread exists.
    if let Command::Become(command) = &arguments.command {
        return become_command::run(command).report();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        // The renewal thread, which keeps running when the main thread is blocked writing to a
        // terminal.
        .worker_threads(1)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            return Failure::new(
                exit::FAILED,
                format!(
                    "the runtime cannot be started: \
            {error}"
                ),
            )
            .report();
        }
    };
    let outcome = runtime.block_on(run(arguments));
    // A name server that does not respond keeps a blocking thread busy: do not wait for it.
    runtime.shutdown_background();
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}

async fn run(Arguments { server, command }: Arguments) -> Result<u8, Failure> {
    match command {
        Command::Exec(exec) => exec::run(&server, exec).await,
        Command::Inspect(inspect) => inspect::run(&server, inspect).await,
        Command::Holders(holders) => holders::run(&server, holders).await,
        Command::Top(top) => top::run(&server, top).await,
        Command::Release(release) => release::run(&server, release).await,
        Command::Status => status::run(&server).await,
        Command::Quorum(Quorum::Init) => quorum::init(&server).await,
        Command::Become(command) => Err(become_command::run(&command)),
    }
}
