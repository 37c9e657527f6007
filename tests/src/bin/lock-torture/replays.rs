//! Requests sent more than once, to processes killed and paused, and the verdict on the responses.

use std::process::ExitCode;

use lock_tests::chaos;

use crate::{MOST_SAID, say, this_program};

pub(crate) async fn replays(keys: &str, seed: &str) -> ExitCode {
    let number = |text: &str| text.parse().expect("KEYS and SEED are numbers");
    let outcome = chaos::replays(&this_program(), number(seed), number(keys)).await;
    say(&outcome.to_string());
    for violation in outcome.violations.iter().take(MOST_SAID) {
        say(&format!("  {violation}"));
    }
    if outcome.violations.is_empty() {
        return ExitCode::SUCCESS;
    }
    say(&format!("  again: lock-torture replays {keys} {seed}"));
    ExitCode::FAILURE
}
