//! The client of Redis under lockcore: connections that come back, and errors by kind. It knows no
//! lock.
//!
//! For lockcore; no stable API. lockcore asks for exactly its own version of this crate. To speak
//! to a server use `redis`, to lock something `lockcore`.
//!
//! # The parts
//!
//! - [`Connector`] opens connections to one server: from a URL, from the user's client,
//!   configuration or pool, or to the primary that [`Sentinels`] name. With [`Tls`], and with
//!   [`Credentials`] that a [`Provider`] returns for each connection.
//! - [`Connection`] sends commands and takes their answers. Servers that a URL names have our own,
//!   many requests on one socket; else it is one of redis-rs. Both are behind one trait, which the
//!   rest of the crate sees nothing of.
//! - [`CommandLink`] keeps a connection for commands: it replaces a failed connection, at a pace
//!   that a crowd of processes and a slow server can live with, and counts the servers to which
//!   connections have led. [`Subscription`] does the same for messages.
//! - [`topology`] reads the primaries of a Redis Cluster and their slots, as one of its nodes tells
//!   them.
//! - [`failure`] reads the errors of servers and sockets: a [`ClientError`] has a kind, a sentence
//!   for people with the remedy where there is one, and whether the command may have run.
//!
//! # What its user gives
//!
//! - The texts of the scripts that each server is to know.
//! - A [`LinkListener`], which is told of the state of the connection, and of each server and its
//!   time before a command goes there; a [`Listener`], which hears messages.
//! - The meaning of a server's error: an answer of the link is the server's own, error or not, and
//!   only its user knows what its scripts say.
//! - The way to [begin](Begin) a task, where a connection of redis-rs needs one.
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
mod hello;
mod link;
mod link_state;
mod pace;
mod provider;
mod same_server;
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
pub use pace::{ConnectAttempt, Timeouts};
pub use provider::{Provided, Provider};
pub use same_server::check_same_server;
pub use sentinels::Sentinels;
pub use server_url::read as read_url;
pub use servers_url::{ServersUrl, invalid as invalid_url};
pub use setup::{Compare, Extras, time};
pub use subscription::{Channels, Listener, Subscription};
pub use task::{Begin, Taker, answer_to};
pub use tls::Tls;
