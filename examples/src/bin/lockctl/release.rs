//! `lockctl release --force`: takes a lock away from whoever holds it.

use lockcore::Locks;

use crate::arguments::Release;
use crate::connect;
use crate::exit::{self, Failure};

pub(crate) async fn run(redis: &str, release: Release) -> Result<u8, Failure> {
    let Release { force, key } = release;
    if !force {
        let reason = "release needs --force: the holder may still be at work, and nothing stops it";
        return Err(Failure::new(exit::USAGE, reason));
    }
    let locks = connect::once(redis, Locks::builder()).await?;
    match locks.force_release(key.as_str()).await {
        Ok(true) => Ok(exit::OK),
        Ok(false) => Err(Failure::new(exit::FAILED, format!("{key}: nobody held it"))),
        Err(error) => Err(Failure::new(exit::code(error.kind()), format!("{key}: {error}"))),
    }
}
