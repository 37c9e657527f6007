//! Many processes lose their connections at the same time, and the server is slow to accept each
//! new one.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockcore::Locks;
use tokio::time::{interval, timeout};

use crate::{Front, RedisServer};

/// The interval between two checks.
const LOOK: Duration = Duration::from_millis(20);
/// How much longer than the bound a slow machine may take.
const SPARE: Duration = Duration::from_secs(60);

/// How the nodes reconnected after a storm.
#[derive(Clone, Copy, Debug)]
pub struct Storm {
    /// The time until all nodes were connected, or until the test stopped waiting.
    pub took: Duration,
    /// The number of nodes that were not connected by then.
    pub missing: usize,
    /// The maximum number of connections that waited for the server.
    pub longest_line: usize,
    /// When all nodes must be connected: four times the duration of their handshakes, and 5 s.
    pub bound: Duration,
}

/// Cuts all connections of `nodes` nodes, two each, to a server that takes `each` per connection.
///
/// # Panics
///
/// If there is no server, or it refuses a node before the storm.
pub async fn storm(nodes: usize, each: Duration) -> Storm {
    let server = RedisServer::start();
    let front = Front::start(server.address()).await;
    let url = front.url_with_login();
    let nodes = join_all((0..nodes).map(|_| Locks::connect(&url))).await;
    let nodes: Vec<Locks> =
        nodes.into_iter().collect::<Result<_, _>>().expect("the server accepts all");
    front.costs(each);
    front.cut();
    let bound = 4 * each * 2 * nodes.len() as u32 + Duration::from_secs(5);
    let began = Instant::now();
    let mut longest_line = 0;
    let away = || nodes.iter().filter(|locks| !locks.status().is_connected()).count();
    let all_back = async {
        let mut looks = interval(LOOK);
        let mut has_begun = false;
        loop {
            looks.tick().await;
            longest_line = longest_line.max(front.in_line());
            has_begun |= longest_line > 0;
            if has_begun && away() == 0 {
                return;
            }
        }
    };
    let _ = timeout(bound + SPARE, all_back).await; // `missing` shows the result
    Storm { took: began.elapsed(), missing: away(), longest_line, bound }
}
