//! Information for operators: who holds and waits for locks, in this `Locks` and on the servers,
//! and which connections are up.
//!
//! | question | answered by | sends requests |
//! |---|---|---|
//! | Who holds this lock, and who waits? | [`Locks::inspect`](crate::Locks::inspect): [`LockInspection`] | yes |
//! | Which locks are held or waited for? | [`Locks::survey`](crate::Locks::survey): [`BusyLock`] | yes |
//! | What does this process hold and wait for? | [`Locks::activity`](crate::Locks::activity), [`Locks::status_by_class`](crate::Locks::status_by_class): [`Activity`], [`ClassStatus`] | no |
//! | Which names were hot? | [`Locks::hottest`](crate::Locks::hottest): [`HotHour`] | no |
//! | Are the servers up? | [`Locks::status`](crate::Locks::status), [`Locks::ping`](crate::Locks::ping): [`Status`] | only `ping` |
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
