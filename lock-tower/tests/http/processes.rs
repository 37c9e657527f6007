//! Two server processes on one Redis.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response};
use lock_tests::http::{get, serve, text};
use lock_tests::{Leash, Monitor, Raw, RedisServer, Source, lock_key, queue_key};
use lock_tower::{ByPath, HttpLockLayer, LockHandle};
use lockcore::Locks;
use redis::cmd;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;
use tower::{ServiceBuilder, service_fn};

const URL: &str = "LOCK_TOWER_TEST_URL";
const ITSELF: &str = "processes::two_server_processes_serve_one_at_a_time_in_the_order_of_redis";
const REQUESTS: usize = 200;
const KEYS: usize = 5;

/// Serves requests in a separate process, for which the test below starts this program again.
async fn serve_for_ever(url: &str) {
    let locks = Locks::connect(url).await.unwrap();
    let redis = Arc::new(Mutex::new(Raw::connect(url).await));
    let layer = HttpLockLayer::new(locks, ByPath::new()).wait(Duration::from_secs(60));
    let service =
        ServiceBuilder::new().layer(layer).service(service_fn(move |request: Request<_>| {
            let redis = Arc::clone(&redis);
            async move {
                let lock = request.extensions().get::<LockHandle>().unwrap();
                let key = lock.key().into_owned();
                let token = lock.fencing_token().get();
                let record = async |command: &str, value: u64| {
                    let mut redis = redis.lock().await;
                    redis.ask::<i64>(cmd(command).arg(format!("test:{key}")).arg(value)).await;
                };
                record("RPUSH", token).await;
                tokio::task::yield_now().await;
                record("RPUSH", token).await;
                Ok::<_, Infallible>(Response::new(text("served")))
            }
        }));
    let address = serve(service).await;
    writeln!(std::io::stdout().lock(), "\nlistening on {address}").unwrap();
    std::future::pending::<()>().await;
}

struct Process {
    child: Child,
    _leash: Leash,
    address: SocketAddr,
}

impl Process {
    fn start(url: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", ITSELF])
            .env(URL, url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let leash = Leash::new(child.id(), None);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("listening on ")?.parse().ok())
            .expect("the process says where it listens");
        Self { child, _leash: leash, address }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the members that hold the lock, from the value of its lock key. A member is a request as
/// the store knows it. The value contains one member, or a batch whose member ids differ.
fn members(text: &str) -> Vec<String> {
    let Some((name, numbers)) = text.split_once('\n') else { return vec![text.to_owned()] };
    let mut parts = name.splitn(3, ':');
    let (node, _, rest) = (parts.next().unwrap(), parts.next(), parts.next().unwrap());
    numbers.split(' ').map(|number| format!("{node}:{number}:{rest}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_server_processes_serve_one_at_a_time_in_the_order_of_redis() {
    if let Ok(url) = std::env::var(URL) {
        return serve_for_ever(&url).await;
    }
    let server = RedisServer::start();
    let processes = [(); 2].map(|()| Process::start(&server.url()));
    let monitor = Monitor::start(server.address());
    let calls = (0..REQUESTS).map(|number| {
        let address = processes[number % 2].address;
        tokio::spawn(async move { get(address, &format!("/{}", number / 2 % KEYS), "").await })
    });
    for answer in join_all(calls.collect::<Vec<_>>()).await {
        let answer = answer.unwrap();
        assert_eq!(answer.status, 200, "{} {}", answer.head, answer.body);
    }
    let lines = monitor.stop();

    let mut nodes = HashSet::new();
    let mut waited = 0;
    for key in 0..KEYS {
        let hold = format!("/{key}");
        let queue = queue_key(&hold);
        let lock_key = lock_key(&hold);
        // `came` has the members in the order of arrival, `granted` in the order of grants, both
        // from the order of their commands in Redis.
        let mut came = Vec::new();
        let mut granted = Vec::new();
        let mut is_free = true;
        for line in &lines {
            if line.source != Source::Lua {
                // `SET` acquires a free lock without a script. If the lock is held, the script
                // decides.
                if is_free && line.is("SET") && line.text(1) == lock_key {
                    is_free = false;
                    came.push(line.text(2));
                    granted.push(line.text(2));
                }
                continue;
            }
            // The value of the lock key may have a flag in front.
            let text = line.text(line.args.len() - 1);
            let members = members(text.trim_start_matches(['+', '-']));
            if line.is("DEL") && line.text(1) == lock_key {
                is_free = true;
            } else if line.is("ZADD") && line.text(1) == queue {
                let first = if line.text(2) == "NX" { 4 } else { 3 };
                for member in (first..line.args.len()).step_by(2) {
                    waited += 1;
                    came.push(line.text(member));
                }
            } else if line.is("PSETEX") && line.text(1) == lock_key {
                is_free = false;
                for member in members {
                    if granted.contains(&member) {
                        continue; // another flag, or a batch that others have left
                    }
                    if !came.contains(&member) {
                        came.push(member.clone()); // free: it did not have to queue
                    }
                    nodes.insert(member.split(':').next().unwrap().to_owned());
                    granted.push(member);
                }
            }
        }
        assert_eq!(granted.len(), REQUESTS / KEYS);
        assert_eq!(granted, came, "the order of the grants is the order of arrival");

        // The handlers report when they enter and leave: each left before the next entered, in the
        // order of tokens.
        let tokens: Vec<u64> = lines
            .iter()
            .filter(|line| line.is("RPUSH") && line.text(1) == format!("test:{hold}"))
            .map(|line| line.text(2).parse().unwrap())
            .collect();
        let turns: Vec<_> = tokens.chunks(2).collect();
        assert_eq!(turns.len(), REQUESTS / KEYS);
        assert!(turns.iter().all(|turn| turn[0] == turn[1]), "two at once: {tokens:?}");
        assert!(turns.windows(2).all(|pair| pair[0][0] < pair[1][0]), "out of order: {tokens:?}");
    }
    assert_eq!(nodes.len(), 2, "both processes took part");
    assert!(waited > REQUESTS / 4, "there was contention: {waited} waited");
}

/// Many requests arrive for one key, and a request for another key is served at once, although both
/// keys share the two slots of the concurrency limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_key_with_a_concurrency_limit_inside_does_not_delay_another_key() {
    let server = RedisServer::start();
    let locks = Locks::connect(server.url()).await.unwrap();
    let served = Arc::new(Mutex::new(HashMap::<String, Instant>::new()));
    let open = Arc::new(Semaphore::new(0));
    let at = Arc::clone(&served);
    let gate = Arc::clone(&open);
    let service = ServiceBuilder::new()
        .layer(HttpLockLayer::new(locks.clone(), ByPath::new()).wait(Duration::from_secs(60)))
        .concurrency_limit(2)
        .service(service_fn(move |request: Request<_>| {
            let served = Arc::clone(&at);
            let open = Arc::clone(&gate);
            async move {
                let path = request.uri().path().to_owned();
                if path == "/hot" {
                    open.acquire().await.unwrap().forget();
                }
                served.lock().await.insert(path, Instant::now());
                Ok::<_, Infallible>(Response::new(text("served")))
            }
        }));
    let address = serve(service).await;
    let hot: Vec<_> = (0..10).map(|_| tokio::spawn(get(address, "/hot", ""))).collect();
    lock_tests::queued(&locks, "/hot", 9).await;
    // The nine waiting requests cannot proceed, and the other key is still served, because waiting
    // requests occupy no slot.
    assert_eq!(get(address, "/cold", "").await.status, 200);
    assert!(!served.lock().await.contains_key("/hot"));
    open.add_permits(10);
    for answer in hot {
        assert_eq!(answer.await.unwrap().status, 200);
    }
}
