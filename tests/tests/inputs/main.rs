//! Bad inputs: names, answers, messages and requests that no program should send. Nothing panics,
//! and no input is taken for another thing.

mod checks;
mod long_run;
mod properties;
