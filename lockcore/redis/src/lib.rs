//! A client of Redis: errors by kind, and the pace of connecting again.
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

pub use acl_error::{AclError, MissingRight};
pub use call::{Packed, ScriptCall, is_unknown};
pub use error::{ClientError, ClientErrorKind};
pub use hello::{Hello, connection_name};
pub use pace::{ConnectAttempt, Pace, Step, Timeouts};
pub use task::{Begin, Taker, answer_to};

#[cfg(feature = "tls")]
pub use certificates::Certificates;
pub use cluster::{Cluster, nodes_of, read_cluster};
pub use connection::{Answered, Connection, Recipient};
pub use connector::{Connector, Opened};
pub use credentials::Credentials;
pub use link::{CommandLink, Judged, LinkListener, Sender};
pub use link_state::Outage;
pub use provider::{Provided, Provider};
pub use same_server::check_same_server;
pub use sentinels::Sentinels;
pub use server_url::read as read_url;
pub use servers_url::{ServersUrl, invalid as invalid_url};
pub use setup::{Extras, time};
pub use subscription::{Channels, Listener, Subscription};
pub use tls::Tls;
