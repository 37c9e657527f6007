//! What operators ask of a `Locks`: who holds and waits, on this node and on the servers, and how
//! the connections are.
//!
//! | question | answered by | asks the server |
//! |---|---|---|
//! | Who holds and waits for this lock? | [`Locks::inspect`](crate::Locks::inspect): [`LockInspection`] | yes |
//! | Which locks are held or waited for? | [`Locks::survey`](crate::Locks::survey): [`BusyLock`] | yes |
//! | What does this process hold and wait for? | [`Locks::activity`](crate::Locks::activity), [`Locks::status_by_class`](crate::Locks::status_by_class): [`Activity`], [`ClassStatus`] | no |
//! | Which names were hot? | [`Locks::hottest`](crate::Locks::hottest): [`HotHour`] | no |
//! | Are the servers there? | [`Locks::status`](crate::Locks::status), [`Locks::ping`](crate::Locks::ping): [`Status`] | `ping` alone |
//! | In which process is a holder? | [`Locks::processes`](crate::Locks::processes) | yes |

pub(crate) mod activity;
pub(crate) mod hottest;
pub(crate) mod inspection;
mod questions;
pub(crate) mod status;
mod survey;

pub use activity::{Activities, Activity, ActivityState, ClassStatus};
pub use hottest::{HotHour, RefusedLock, WaitedLock};
pub use inspection::{HeldPrimaries, LockInspection, Participant};
pub use status::{Connection, ServerStatus, Status};
pub use survey::{BusyLock, Survey};
