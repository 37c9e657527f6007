//! `cargo run -p lock-examples --bin tower_service`: a service without HTTP; transfers lock both
//! accounts.
//!
//! With a Redis URL as the argument, several processes share the accounts.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use lock_tower::{LockHandle, LockLayer};
use lockcore::Locks;
use tower::{BoxError, Service as _, ServiceBuilder, ServiceExt as _, service_fn};

struct Transfer {
    from: u32,
    to: u32,
    lock: Option<LockHandle>,
}

async fn transfer(transfer: Transfer) -> Result<String, BoxError> {
    let lock = transfer.lock.ok_or("the layer gives every transfer its lock")?;
    tokio::time::sleep(Duration::from_millis(100)).await; // the work
    let Transfer { from, to, .. } = transfer;
    Ok(format!("{from} → {to} under token {}", lock.fencing_token()))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let locks = Locks::builder().namespace("example");
    let locks = match std::env::args().nth(1) {
        Some(url) => locks.connect(url).await?,
        None => locks.in_memory()?,
    };
    let accounts = (
        |transfer: &Transfer| format!("account:{}", transfer.from),
        |transfer: &Transfer| format!("account:{}", transfer.to),
    );
    let layer = LockLayer::new(locks.clone(), accounts)
        .carry(|transfer: &mut Transfer, lock| transfer.lock = Some(lock))
        .wait(Duration::from_secs(5));
    let mut service =
        ServiceBuilder::new().layer(layer).concurrency_limit(2).service(service_fn(transfer));

    // The first three share account 1 and run in sequence; the last runs at once.
    let pairs = [(1, 2), (2, 1), (1, 3), (4, 5)];
    let mut running = Vec::new();
    for (from, to) in pairs {
        let call = service.ready().await?.call(Transfer { from, to, lock: None });
        running.push(tokio::spawn(async move {
            println!("{}", call.await?);
            Ok::<_, BoxError>(())
        }));
    }
    for call in running {
        call.await??;
    }
    locks.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
