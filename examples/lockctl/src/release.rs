//! `lockctl release --force`: releases all holds on a name.

use crate::arguments::{Release, Server};
use crate::connect;
use crate::exit::{self, Failure};
use crate::meant;

pub(crate) async fn run(server: &Server, release: Release) -> Result<u8, Failure> {
    let Release { force, key } = release;
    if !force {
        let reason = "release needs --force: the holder is not stopped and may still be at work";
        return Err(Failure::new(exit::USAGE, reason));
    }
    let locks = connect::once(server).await?;
    match locks.force_release(key.as_str()).await {
        Ok(true) => Ok(exit::OK),
        Ok(false) => {
            let question = meant::question(server, &locks, &key).await;
            let question = question.map_or(String::new(), |question| format!("; {question}"));
            Err(Failure::new(exit::FAILED, format!("{key}: not held{question}")))
        }
        Err(error) => Err(Failure::new(exit::code(error.kind()), format!("{key}: {error}"))),
    }
}
