//! The client side of the protocol: carries requests and replies between the state machine in
//! [`proto::node`] and a store.
//!
//! [`driver`] runs what the state machine decides. The other modules are the futures, the guards,
//! the settings and the logging around it.

mod attempt;
mod background;
pub(crate) mod class;
mod clock;
mod deadline;
mod driver;
mod guard;
mod handle;
mod hold_cell;
mod loss;
mod observe;
mod process_recording;
mod refusal_pace;
mod release;
mod settings;
#[cfg(test)]
mod tests;
mod unreachable_waiters;
mod wait_limit;
mod warning_pace;

pub(crate) use attempt::{Attempt, LocalOptions, SILENCE, SLOW};
pub(crate) use clock::{later, until};
pub(crate) use deadline::timer_outside;
use deadline::{TimedRequest, silent, timer};
pub(crate) use driver::{Driver, Inbox};
pub(crate) use guard::NodeGuard;
pub(crate) use handle::Node;
pub(crate) use hold_cell::HoldCell;
pub(crate) use loss::Loss;
use observe::cause_of;
#[cfg(feature = "metrics")]
pub(crate) use observe::gauges::set_primary;
pub(crate) use observe::{Observer, begin_class};
pub(crate) use refusal_pace::RefusalPace;
pub(crate) use release::NodeRelease;
pub(crate) use settings::Settings;
pub(crate) use wait_limit::WaitLimit;
