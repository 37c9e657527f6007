//! A process that dies while its handler runs, and a process that is paused while its handler runs,
//! and overtaken by another.

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use lock_idempotency::{Attempt, IdempotencyLayer, ReadBody, Scope};
use lock_tests::{Leash, RedisServer, signal};
use lockcore::Locks;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::support::{payment, replays_at, text};

const URL: &str = "LOCK_IDEMPOTENCY_TEST_URL";
const ITSELF: &str =
    "processes::a_process_that_dies_or_is_paused_in_its_handler_is_followed_by_the_next";

type Asked = Request<ReadBody<Full<Bytes>>>;

async fn layer(url: &str) -> IdempotencyLayer {
    let locks = Locks::builder().lease(Duration::from_secs(1)).connect(url).await.unwrap();
    IdempotencyLayer::new(locks, replays_at(url), |_| Ok(Scope::new("ada")))
        .locking(|locks| locks.wait(Duration::from_secs(30)))
}

/// Serves one payment, in a separate process. The handler prints `runs`, and waits for a line on
/// standard input.
async fn serve_one(url: &str) {
    let service = layer(url).await.layer(service_fn(async |_: Asked| {
        writeln!(std::io::stdout().lock(), "\nruns").unwrap();
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("first")))
    }));
    let (status, body, _) = text(service.oneshot(payment("a1")).await.unwrap()).await;
    writeln!(std::io::stdout().lock(), "\nanswered {status} {body}").unwrap();
}

struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
    _leash: Leash,
}

impl Process {
    /// Starts a process that serves one payment, and returns once its handler runs.
    fn start(url: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", ITSELF])
            .env(URL, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let leash = Leash::new(child.id(), None);
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut process = Self { child, output, _leash: leash };
        process.says("runs");
        process
    }

    /// Reads the output of the process until a line with this prefix, and returns the line.
    fn says(&mut self, start: &str) -> String {
        let lines = self.output.by_ref().lines().map_while(Result::ok);
        let mut lines = lines.skip_while(|line| !line.starts_with(start));
        lines.next().expect("the process says it")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_or_is_paused_in_its_handler_is_followed_by_the_next() {
    if let Ok(url) = std::env::var(URL) {
        return serve_one(&url).await;
    }
    for is_killed in [true, false] {
        let server = RedisServer::start();
        let mut process = Process::start(&server.url());
        match is_killed {
            true => signal::kill(process.child.id()),
            false => signal::stop(process.child.id()),
        }
        let remembering = layer(&server.url()).await.remember_starts(true);
        let never = service_fn(async |_: Asked| -> Result<Response<Full<Bytes>>, Infallible> {
            panic!("its outcome is unknown")
        });
        let refused = remembering.layer(never).oneshot(payment("a1")).await.unwrap();
        let (status, body, _) = text(refused).await;
        assert!(status == 409 && body.contains("idempotency-outcome-unknown"), "{body}");

        let service = layer(&server.url()).await.layer(service_fn(async |request: Asked| {
            assert!(request.extensions().get::<Attempt>().unwrap().is_again());
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("second")))
        }));
        let second = text(service.clone().oneshot(payment("a1")).await.unwrap()).await;
        assert_eq!(second, (200, "second".to_owned(), false));
        if !is_killed {
            signal::resume(process.child.id());
            process.child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
            let answered = process.says("answered");
            assert!(answered.starts_with("answered 500") && answered.contains("lock-lost"));
        }
        let third = text(service.oneshot(payment("a1")).await.unwrap()).await;
        assert_eq!(third, (200, "second".to_owned(), true), "the answer stays");
    }
}
