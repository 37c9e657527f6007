//! `lockctl quorum init`: marks the new primaries of a quorum.

use lockcore::{Locks, Quorum};

use crate::connect;
use crate::exit::{self, Failure};

pub(crate) async fn init(redis: &str, namespace: Option<String>) -> Result<u8, Failure> {
    let quorum = Quorum::from_url(redis).map_err(|error| connect::failure(redis, &error))?;
    let builder = Locks::builder();
    let builder = match namespace {
        Some(namespace) => builder.namespace(namespace),
        None => builder,
    };
    let marked = builder.init_quorum(quorum).await;
    marked.map(|()| exit::OK).map_err(|error| connect::failure(redis, &error))
}
