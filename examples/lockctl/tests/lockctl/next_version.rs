//! Keys of processes with the next version of the protocol: `lockctl` refuses to read them, says
//! so, shows all other locks, and changes nothing.

use lock_tests::{Proxy, Raw, RedisServer, queue_key};
use lockcore::{LockOptions, Locks};
use redis::cmd;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::timeout;

use crate::common::{Running, SOON, lockctl, run};

const VERSION: &str = "another version of lockcore";

/// The content of every key.
async fn everything(redis: &mut Raw) -> Vec<(String, Vec<u8>)> {
    let mut keys: Vec<String> = redis.ask(cmd("KEYS").arg("lock:{*")).await;
    keys.retain(|key| key.contains("{next}") || key.contains("{mixed}"));
    keys.sort();
    let mut all = Vec::new();
    for key in keys {
        let content = redis.ask(cmd("DUMP").arg(&key)).await;
        all.push((key, content));
    }
    all
}

#[tokio::test]
async fn locks_of_a_newer_version_are_refused_named_and_never_changed() {
    let server = RedisServer::start();
    let proxy = Proxy::start_next_version(server.address());
    let url = server.url();
    let mut redis = Raw::connect(&url).await;
    let newer = Locks::connect(proxy.url()).await.expect("a newer node");
    let lease = LockOptions::MAX_LEASE;
    let _held = newer.key("next").lease(lease).lock().await.expect("it is free");
    // A lock of this version, with a waiter of the next version at the head of the queue.
    let ours = Locks::connect(&url).await.expect("a node");
    let _mixed = ours.key("mixed").lease(lease).lock().await.expect("it is free");
    let waiter = "~3AAAAAAAAAAAAAAAAAAAAAA:1:30000:w:a label";
    let () = redis.ask(cmd("ZADD").arg(queue_key("mixed")).arg(1).arg(waiter)).await;
    let own = Running::start(&url, &["--label", "mine"], "own", "echo; exec cat").await;

    let before = everything(&mut redis).await;
    assert_eq!(before.len(), 3, "{before:?}");
    for key in ["next", "mixed"] {
        for arguments in [
            &["inspect", key][..],
            &["inspect", "--json", key],
            &["holders", key],
            &["release", "--force", key],
            &["exec", key, "--", "true"],
            &["exec", "--wait", "0", key, "--", "true"],
            &["exec", "--read", key, "--", "true"],
        ] {
            if key == "mixed" && arguments[0] == "exec" {
                continue; // it waits behind the others, for the lease of the holder
            }
            let ended = run(&url, arguments).await;
            ended.says(69, VERSION);
            assert!(ended.stderr.contains(key) && ended.stdout.is_empty(), "{ended:?}");
        }
    }
    let ended = run(&url, ["holders", "--all"]).await;
    ended.says(0, &format!("2 lock keys of another program or {VERSION}"));
    assert!(
        ended.stdout.starts_with("own  mine") && ended.stdout.lines().count() == 1,
        "{ended:?}"
    );

    let mut top = lockctl(&url, ["top", "--json"]).spawn().expect("lockctl starts");
    let mut lines = BufReader::new(top.stdout.take().expect("it is piped")).lines();
    let line = timeout(SOON, lines.next_line()).await.expect("a line").expect("text");
    let line: Value = serde_json::from_str(&line.expect("top goes on")).expect("it is JSON");
    assert_eq!((&line["busy"], &line["unreadable"]), (&1.into(), &2.into()), "{line}");
    assert_eq!((&line["locks"][0]["lock"], &line["error"]), (&"own".into(), &Value::Null));
    assert_eq!(everything(&mut redis).await, before);
    own.finish().await.is(0);
}
