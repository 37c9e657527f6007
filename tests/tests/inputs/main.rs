//! Bad inputs: names, answers, messages and requests that no program should send. Nothing panics,
//! and nothing becomes what it is not.

mod checks;
mod long_run;
mod properties;
