//! A client of Redis: errors by kind, and the pace of connecting again.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acl_error;
mod call;
mod error;
pub mod failure;
mod hello;
mod pace;
mod task;

pub use acl_error::{AclError, MissingRight};
pub use call::{Packed, ScriptCall, is_unknown, load};
pub use error::{ClientError, ClientErrorKind};
pub use hello::{Hello, connection_name};
pub use pace::{ConnectAttempt, Pace, Step, Timeouts};
pub use task::{Begin, Taker, answer_to};
