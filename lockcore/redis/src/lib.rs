//! The Redis client of lockcore: connections that reconnect, and errors by kind. No lock logic.
//!
//! The API is not stable: lockcore depends on an exact version of this crate. To talk to a server
//! use `redis`, to lock something `lockcore`.
//!
//! # The parts
//!
//! - [`Connector`] opens connections to one server: from a URL, from the application's client,
//!   configuration or pool, or to the primary behind [`Sentinels`]. It applies [`Tls`], and the
//!   [`Credentials`] that a [`Provider`] returns for each connection.
//! - [`Connection`] sends commands and receives their replies. For servers named by a URL it is a
//!   multiplexed connection of this crate, otherwise a redis-rs connection. A private trait hides
//!   the difference.
//! - [`CommandLink`] keeps a command connection open. It replaces a failed connection, with pauses
//!   and timeouts suited to slow servers and many clients at once, and numbers the servers that it
//!   connects to. [`Subscription`] does the same for messages.
//! - [`topology`] reads the primaries and slots of a Redis Cluster, as reported by a node.
//! - [`failure`] reads the errors of servers and sockets: a [`ClientError`] has a kind, a readable
//!   sentence with the remedy where there is one, and whether the command may have run.
//!
//! # What the caller provides
//!
//! - The script sources to load into each server.
//! - A [`LinkListener`], notified of the connection state, and of each server and server time
//!   before a command is sent there; a [`Listener`] for messages.
//! - The meaning of server errors: the link returns each server reply, error or not, and only the
//!   caller knows the script errors.
//! - A function that [begins](Begin) a task, because each request on a redis-rs connection needs
//!   one.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acl_error;
mod call;
mod certificates;
mod cluster;
mod connection;
mod connector;
mod credentials;
mod error;
pub mod failure;
mod foreign;
mod hello;
mod link;
mod link_state;
mod pace;
mod provider;
mod same_server;
mod sentinel_primary;
mod sentinels;
mod server_url;
mod servers_url;
mod setup;
mod subscription;
mod task;
mod tls;
pub mod topology;

pub use acl_error::{AclError, MissingRight};
pub use call::{Packed, ScriptCall, is_unknown};
#[cfg(feature = "tls")]
pub use certificates::Certificates;
pub use cluster::{Cluster, nodes_of, read_cluster};
pub use connection::{Answered, Connection, Recipient};
pub use connector::{Connector, Opened};
pub use credentials::Credentials;
pub use error::{ClientError, ClientErrorKind};
pub use hello::Hello;
pub use link::{CommandLink, Judged, LinkListener, Sender};
pub use link_state::Outage;
pub use pace::{ConnectAttempt, Pace, Timeouts};
pub use provider::{Provided, Provider};
pub use same_server::check_same_server;
pub use sentinels::Sentinels;
pub use server_url::read as read_url;
pub use servers_url::{ServersUrl, invalid as invalid_url};
pub use setup::{Compare, Extras, time};
pub use subscription::{Channels, Listener, Subscription};
pub use task::{Begin, Taker, answer_to};
pub use tls::Tls;
