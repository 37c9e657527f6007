//! `HttpLockLayer`, `DetachLayer`, and what all layers for HTTP share: request and response bodies,
//! responses, and `RequestLocks`.

pub(crate) mod body;
pub(crate) mod caller;
pub(crate) mod connection;
pub(crate) mod deadline;
pub(crate) mod detach;
pub(crate) mod extensions;
pub(crate) mod future;
pub(crate) mod layer;
pub(crate) mod read_ahead;
pub(crate) mod request_body;
pub(crate) mod request_locks;
pub(crate) mod respond;
pub(crate) mod response_options;
pub(crate) mod service;

pub use body::LockBody;
pub use connection::{Connection, InConnection, PerConnection};
pub use deadline::{Deadline, DeadlineSource};
pub use detach::{Detach, DetachFuture, DetachLayer};
pub use extensions::InExtensions;
pub use future::HttpLockFuture;
pub use layer::HttpLockLayer;
pub use request_body::RequestBody;
pub use request_locks::RequestLocks;
pub use service::HttpLock;
