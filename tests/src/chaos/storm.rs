//! A storm: many processes whose connections break at the same time, and a server that needs long
//! for each new one.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockcore::Locks;
use tokio::time::{interval, timeout};

use crate::{Front, RedisServer};

/// The time between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// The time that a slow machine is left beyond the bound.
const SPARE: Duration = Duration::from_secs(60);

/// The way back of all after a storm.
#[derive(Clone, Copy, Debug)]
pub struct Storm {
    /// The time until all were connected, or until that was given up.
    pub took: Duration,
    /// The number of nodes that were not connected then.
    pub missing: usize,
    /// The most connections that waited for the server.
    pub longest_line: usize,
    /// The time in which all have to be back: four times that of their handshakes, and 5 s.
    pub bound: Duration,
}

/// Cuts all connections of so many nodes, two each, to a server that needs so long for each.
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
    let _ = timeout(bound + SPARE, all_back).await; // `missing` tells
    Storm { took: began.elapsed(), missing: away(), longest_line, bound }
}
