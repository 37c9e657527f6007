use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use redis::{Cmd, cmd};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::{JoinHandle, yield_now};

use super::*;
use crate::connection::Connection;
use crate::error::ClientErrorKind;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Returns a connection and the server's end, with a buffer of `room` bytes between.
fn pair(room: usize) -> (Connection, DuplexStream) {
    let (ours, theirs) = duplex(room);
    (connection(OwnConnection::start(ours, TIMEOUT)), theirs)
}

fn connection(own: OwnConnection) -> Connection {
    Connection(Arc::new(own))
}

fn give(connection: &Connection, command: &Packed, recipient: impl Recipient) {
    connection.give(|_, _| unreachable!("it needs no task"), command, Box::new(recipient));
}

fn echo(text: &str) -> Cmd {
    cmd("ECHO").arg(text).to_owned()
}

fn sent(connection: &Connection, text: &str) -> JoinHandle<Answered> {
    let (connection, command) = (connection.clone(), echo(text));
    tokio::spawn(async move { connection.send(&command).await })
}

/// Awaits `work`, and panics if it takes longer than any machine, however busy, needs for it.
async fn soon<T>(work: impl IntoFuture<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work).await.expect("it ends")
}

/// Lets all tasks run as far as they can.
async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

async fn reads(server: &mut DuplexStream, requests: &[&str]) {
    let expected: Vec<u8> =
        requests.iter().flat_map(|text| echo(text).get_packed_command()).collect();
    let mut bytes = vec![0; expected.len()];
    soon(server.read_exact(&mut bytes)).await.expect("the requests come");
    assert_eq!(String::from_utf8_lossy(&bytes), String::from_utf8_lossy(&expected));
}

fn text(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

#[tokio::test]
async fn each_request_gets_its_own_answer_wherever_the_answers_are_cut() {
    let answers = b"$1\r\na\r\n*2\r\n:1\r\n$-1\r\n-OOM full\r\n";
    for cut in 0..=answers.len() {
        let (connection, mut server) = pair(1 << 10);
        let [first, second, third] = ["1", "2", "3"].map(|text| sent(&connection, text));
        reads(&mut server, &["1", "2", "3"]).await;
        let (now, later) = answers.split_at(cut);
        server.write_all(now).await.expect("it is open");
        settle().await;
        server.write_all(later).await.expect("it is open");
        assert_eq!(soon(first).await.expect("no panic"), Ok(text("a")));
        let list = Value::Array(vec![Value::Int(1), Value::Nil]);
        assert_eq!(soon(second).await.expect("no panic"), Ok(list));
        let error = soon(third).await.expect("no panic").expect_err("the server's");
        assert_eq!((error.code(), error.detail()), (Some("OOM"), Some("full")));
    }
}

#[tokio::test]
async fn an_error_within_a_list_is_that_of_its_request_alone() {
    let (connection, mut server) = pair(1 << 10);
    let [first, second] = ["1", "2"].map(|text| sent(&connection, text));
    reads(&mut server, &["1", "2"]).await;
    server.write_all(b"*2\r\n*1\r\n-OOM full\r\n:1\r\n:2\r\n").await.expect("it is open");
    let error = soon(first).await.expect("no panic").expect_err("the server's");
    assert_eq!(error.code(), Some("OOM"));
    assert_eq!(soon(second).await.expect("no panic"), Ok(Value::Int(2)));
    assert!(connection.why_closed(Instant::now()).is_none());
}

#[tokio::test]
async fn a_transaction_gets_the_last_of_its_answers_wherever_they_are_cut() {
    let answers = b"+OK\r\n-READONLY no\r\n+QUEUED\r\n*1\r\n:7\r\n$1\r\na\r\n";
    for cut in 0..=answers.len() {
        let (connection, mut server) = pair(1 << 10);
        let mut transaction = Packed::whole(4, 100);
        transaction.append(b"*1\r\n$5\r\nMULTI\r\n*1\r\n$1\r\nA\r\n*1\r\n$1\r\nB\r\n");
        transaction.append(b"*1\r\n$4\r\nEXEC\r\n");
        let mut sent_bytes = Vec::new();
        transaction.write(&mut sent_bytes);
        let (sender, receiver) = oneshot::channel();
        let recipient = |answer: Answered| sender.send(answer).expect("the test listens");
        give(&connection, &transaction, recipient);
        let next = sent(&connection, "next");
        let mut bytes = vec![0; sent_bytes.len()];
        soon(server.read_exact(&mut bytes)).await.expect("the transaction comes");
        assert_eq!(bytes, sent_bytes);
        reads(&mut server, &["next"]).await;
        let (now, later) = answers.split_at(cut);
        server.write_all(now).await.expect("it is open");
        settle().await;
        server.write_all(later).await.expect("it is open");
        assert_eq!(soon(receiver).await.expect("told"), Ok(Value::Array(vec![Value::Int(7)])));
        assert_eq!(soon(next).await.expect("no panic"), Ok(text("a")));
    }
}

#[tokio::test]
async fn a_request_is_written_by_its_caller() {
    let (connection, mut server) = pair(1 << 10);
    settle().await;
    for round in ["1", "2"] {
        let command = echo(round);
        let mut sending = std::pin::pin!(connection.send(&command));
        assert!(sending.as_mut().now_or_never().is_none());
        // No other task has run since.
        assert!(reads(&mut server, &[round]).now_or_never().is_some(), "it is written");
        server.write_all(b":7\r\n").await.expect("it is open");
        assert_eq!(soon(sending).await, Ok(Value::Int(7)));
    }
}

// The caller may block the thread afterwards, and with it the reader task, if it was woken there.
#[tokio::test]
async fn a_request_is_written_by_its_caller_while_another_waits_for_its_reply() {
    let (connection, mut server) = pair(1 << 10);
    let waiting = sent(&connection, "waiting");
    reads(&mut server, &["waiting"]).await;
    let command = echo("1");
    let mut sending = std::pin::pin!(connection.send(&command));
    assert!(sending.as_mut().now_or_never().is_none());
    // No other task has run since.
    assert!(reads(&mut server, &["1"]).now_or_never().is_some(), "it is written");
    server.write_all(b":7\r\n:8\r\n").await.expect("it is open");
    assert_eq!(soon(sending).await, Ok(Value::Int(8)));
    assert_eq!(soon(waiting).await.expect("no panic"), Ok(Value::Int(7)));
}

#[tokio::test]
async fn a_request_is_written_by_a_caller_whose_task_has_used_up_its_budget() {
    let (connection, mut server) = pair(1 << 10);
    settle().await;
    while tokio::task::consume_budget().now_or_never().is_some() {}
    let command = echo("1");
    let mut sending = std::pin::pin!(connection.send(&command));
    assert!(sending.as_mut().now_or_never().is_none());
    let read = tokio::task::unconstrained(reads(&mut server, &["1"]));
    assert!(read.now_or_never().is_some(), "it is written");
}

// A waker of the caller, or a tracing subscriber, may panic.
#[tokio::test(start_paused = true)]
async fn a_recipient_that_panics_costs_no_other_request_its_answer() {
    let panics = |_: Answered| std::panic::resume_unwind(Box::new("told"));
    for end in ["a reply", "a timeout", "the end of the connection"] {
        let (connection, mut server) = pair(1 << 10);
        give(&connection, &(&echo("1")).into(), panics);
        let (sender, receiver) = oneshot::channel();
        let recipient = |answer: Answered| sender.send(answer).expect("the test listens");
        give(&connection, &(&echo("2")).into(), recipient);
        reads(&mut server, &["1", "2"]).await;
        match end {
            "a reply" => server.write_all(b":1\r\n:2\r\n").await.expect("it is open"),
            "a timeout" => tokio::time::sleep(TIMEOUT).await,
            _ => drop(server),
        }
        let answer = soon(receiver).await.expect("told");
        assert_eq!(answer.is_ok(), end == "a reply", "{end}: {answer:?}");
        connection.end();
        settle().await;
        // Called by the sender itself.
        give(&connection, &(&echo("3")).into(), panics);
    }
}

/// A socket that counts the attempts to write to it.
struct Counted(DuplexStream, Arc<AtomicUsize>);

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn tasks_that_are_answered_together_send_together() {
    let (ours, mut server) = duplex(1 << 16);
    let writes = Arc::new(AtomicUsize::new(0));
    let own = OwnConnection::start(Counted(ours, Arc::clone(&writes)), TIMEOUT);
    let connection = connection(own);
    let turns = |number: usize| {
        let connection = connection.clone();
        async move {
            for turn in 0..3 {
                let answer = connection.send(&echo(&format!("{number}:{turn}"))).await;
                assert_eq!(answer, Ok(Value::Int(1)));
            }
        }
    };
    let tasks: Vec<_> = (0..64).map(|number| tokio::spawn(turns(number))).collect();
    let mut of_first_turn = 0;
    for turn in 0..3 {
        let all: Vec<_> = (0..64).map(|number| format!("{number}:{turn}")).collect();
        let all: Vec<_> = all.iter().map(String::as_str).collect();
        reads(&mut server, &all).await;
        if turn == 0 {
            of_first_turn = writes.load(Ordering::Relaxed);
        }
        server.write_all(":1\r\n".repeat(64).as_bytes()).await.expect("it is open");
    }
    for done in soon(join_all(tasks)).await {
        done.expect("no panic");
    }
    assert_eq!(writes.load(Ordering::Relaxed) - of_first_turn, 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_too_late_is_dropped_in_its_order() {
    let (connection, mut server) = pair(1 << 10);
    let begun = Instant::now();
    let error = soon(connection.send(&echo("late"))).await.expect_err("no answer");
    assert!(error.is_timeout() && failure::of_command(&error).may_have_run, "{error}");
    let took = begun.elapsed();
    assert!(took >= TIMEOUT && took < TIMEOUT + Duration::from_millis(10), "{took:?}");
    assert!(connection.why_closed(Instant::now()).is_none(), "it may just be slow");
    let next = sent(&connection, "next");
    reads(&mut server, &["late", "next"]).await;
    server.write_all(b"$4\r\nlate\r\n$4\r\nnext\r\n").await.expect("it is open");
    assert_eq!(soon(next).await.expect("no panic"), Ok(text("next")));
}

#[tokio::test(start_paused = true)]
async fn each_request_has_its_own_time() {
    let (connection, _server) = pair(1 << 10);
    let after = |secs: u64| {
        let connection = connection.clone();
        async move {
            tokio::time::sleep(Duration::from_secs(secs)).await;
            let begun = Instant::now();
            let error = connection.send(&echo("1")).await.expect_err("no answer");
            assert!(error.is_timeout());
            let took = begun.elapsed();
            assert!(took >= TIMEOUT && took < TIMEOUT + Duration::from_millis(10), "{took:?}");
        }
    };
    soon(join_all([0, 2, 3, 4, 9, 12].map(after))).await;
}

#[tokio::test]
async fn a_dropped_request_leaves_its_answer_to_nobody() {
    let (connection, mut server) = pair(1 << 10);
    drop(connection.send(&echo("never polled")));
    for rounds in 1..4 {
        let command = echo("dropped");
        let mut sending = Box::pin(connection.send(&command));
        for _ in 0..rounds {
            assert!(sending.as_mut().now_or_never().is_none());
            settle().await;
        }
        drop(sending);
    }
    let kept = sent(&connection, "kept");
    reads(&mut server, &["dropped", "dropped", "dropped", "kept"]).await;
    server.write_all(b":1\r\n:2\r\n:3\r\n:4\r\n").await.expect("it is open");
    assert_eq!(soon(kept).await.expect("no panic"), Ok(Value::Int(4)));
}

#[tokio::test]
async fn a_request_is_sent_though_the_task_that_sends_it_ends() {
    let (connection, mut server) = pair(1);
    let first = sent(&connection, "first");
    settle().await;
    let second = sent(&connection, "second");
    settle().await;
    first.abort();
    second.abort();
    reads(&mut server, &["first", "second"]).await;
}

#[tokio::test]
async fn a_slow_reader_gets_all_requests_in_their_order() {
    for room in [1, 3, 64] {
        let (connection, mut server) = pair(room);
        let texts: Vec<_> = (0..50).map(|number| number.to_string().repeat(40)).collect();
        let sending: Vec<_> = texts.iter().map(|text| sent(&connection, text)).collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        reads(&mut server, &texts).await;
        for number in 0..50 {
            server.write_all(format!(":{number}\r\n").as_bytes()).await.expect("it is open");
        }
        for (number, answer) in soon(join_all(sending)).await.into_iter().enumerate() {
            assert_eq!(answer.expect("no panic"), Ok(Value::Int(number as i64)));
        }
    }
}

// On a runtime with a single thread, the reader cannot write while a caller has the thread.
#[tokio::test]
async fn a_burst_that_only_its_own_thread_keeps_unwritten_breaks_no_connection() {
    const REQUESTS: usize = 20;
    let (connection, mut server) = pair(1 << 16);
    settle().await;
    let command = Packed::from(&echo(&"x".repeat(1 << 20)));
    let mut answers = Vec::new();
    for _ in 0..REQUESTS {
        let (sender, mut receiver) = oneshot::channel();
        give(&connection, &command, move |answer: Answered| drop(sender.send(answer)));
        assert!(receiver.try_recv().is_err(), "it is refused");
        answers.push(receiver);
    }
    let mut request = Vec::new();
    command.write(&mut request);
    for answer in answers {
        let mut bytes = vec![0; request.len()];
        soon(server.read_exact(&mut bytes)).await.expect("the requests come");
        assert!(bytes == request, "another request");
        server.write_all(b":7\r\n").await.expect("it is open");
        assert_eq!(soon(answer).await.expect("told"), Ok(Value::Int(7)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_reads_costs_a_bounded_memory() {
    let (connection, _server) = pair(64);
    let command = echo(&"x".repeat(1 << 20));
    // Until then, our own thread may be the reason why nothing is written.
    assert!(soon(connection.send(&command)).await.expect_err("no answer").is_timeout());
    let mut sending = Vec::new();
    let refused = loop {
        let connection = connection.clone();
        let command = command.clone();
        let mut one = Box::pin(async move { connection.send(&command).await });
        match one.as_mut().now_or_never() {
            Some(ended) => break ended.expect_err("it is full"),
            None => sending.push(one),
        }
        assert!(sending.len() < 20, "without bound");
    };
    let (error, of_link) = (failure::of_command(&refused), failure::breaks_connection(&refused));
    assert_eq!(
        (error.kind, error.may_have_run),
        (ClientErrorKind::Unavailable, false),
        "{error:?}"
    );
    assert!(of_link, "it is replaced");
    for one in sending {
        assert!(soon(one).await.expect_err("no answer").is_timeout());
    }
}

#[tokio::test]
async fn whenever_the_server_closes_every_request_ends_and_no_more_are_sent() {
    let states: [(&[&str], &[u8]); 4] =
        [(&[], b""), (&["1"], b""), (&["1", "2"], b"$1\r\n1"), (&["1", "2"], b"*2\r\n:1\r\n")];
    for (requests, begun) in states {
        for room in [1, 1 << 10] {
            let (connection, mut server) = pair(room);
            let sending: Vec<_> = requests.iter().map(|text| sent(&connection, text)).collect();
            settle().await;
            for part in begun {
                server.write_all(&[*part]).await.expect("it is open");
            }
            drop(server);
            for sent in sending {
                let error = soon(sent).await.expect("no panic").expect_err("no answer");
                assert!(failure::of_command(&error).may_have_run && error.is_io_error());
            }
            settle().await;
            assert!(connection.why_closed(Instant::now()).is_some());
            let error = soon(connection.send(&echo("more"))).await.expect_err("closed");
            assert!(failure::breaks_connection(&error));
        }
    }
}

#[tokio::test]
async fn each_recipient_is_told_why_the_connection_ended() {
    let (connection, server) = pair(1 << 10);
    let receivers = ["1", "2"].map(|text| {
        let (sender, receiver) = oneshot::channel();
        let recipient = move |answer: Answered| drop(sender.send(answer));
        give(&connection, &Packed::from(&echo(text)), recipient);
        receiver
    });
    drop(server);
    for receiver in receivers {
        let error = soon(receiver).await.expect("it is told").expect_err("no answer");
        assert!(error.to_string().contains("closed by the server"), "{error}");
    }
}

#[tokio::test]
async fn a_request_behind_a_refusal_is_told_the_words_of_the_server() {
    // The refusal is the reply to the first request, unless it arrives before that request.
    for requests in 0..=2 {
        let (connection, mut server) = pair(1 << 10);
        let sending: Vec<_> = (0..requests).map(|_| sent(&connection, "earlier")).collect();
        settle().await;
        server.write_all(b"-ERR max number of clients reached\r\n").await.expect("it is open");
        drop(server);
        settle().await;
        for sent in sending {
            let error = soon(sent).await.expect("no panic").expect_err("refused");
            assert!(error.to_string().contains("max number of clients reached"), "{error}");
        }
        let error = soon(connection.send(&echo("later"))).await.expect_err("closed");
        assert!(error.to_string().contains("max number of clients reached"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_earlier_error_is_not_the_reason_why_the_server_closes() {
    let (connection, mut server) = pair(1 << 10);
    let refused = sent(&connection, "1");
    reads(&mut server, &["1"]).await;
    server.write_all(b"-OOM full\r\n").await.expect("it is open");
    soon(refused).await.expect("no panic").expect_err("refused");
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(server);
    settle().await;
    let why = connection.why_closed(Instant::now()).expect("it is closed").to_string();
    assert!(why.contains("closed by the server") && !why.contains("OOM"), "{why}");
}

#[tokio::test]
async fn a_connection_that_is_ended_here_ends_every_request_and_sends_no_more() {
    let (connection, mut server) = pair(1 << 10);
    let requests = ["1", "2"].map(|text| sent(&connection, text));
    reads(&mut server, &["1", "2"]).await;
    connection.end();
    for request in requests {
        let error = soon(request).await.expect("no panic").expect_err("it was ended");
        assert!(error.is_io_error(), "{error}");
    }
    soon(connection.send(&echo("3"))).await.expect_err("it was ended");
    assert!(connection.why_closed(Instant::now()).is_some());
}

#[tokio::test]
async fn answers_that_came_before_the_end_count() {
    let (connection, mut server) = pair(1 << 10);
    let [first, second] = ["1", "2"].map(|text| sent(&connection, text));
    reads(&mut server, &["1", "2"]).await;
    server.write_all(b":1\r\nHTTP/1.1\r\n").await.expect("it is open");
    assert_eq!(soon(first).await.expect("no panic"), Ok(Value::Int(1)));
    let error = soon(second).await.expect("no panic").expect_err("no answer");
    assert!(failure::breaks_connection(&error) && failure::of_command(&error).may_have_run);
}

#[tokio::test]
async fn an_answer_without_a_request_ends_the_connection() {
    let (connection, mut server) = pair(1 << 10);
    let first = sent(&connection, "1");
    reads(&mut server, &["1"]).await;
    server.write_all(b":1\r\n:2\r\n").await.expect("it is open");
    assert_eq!(soon(first).await.expect("no panic"), Ok(Value::Int(1)));
    settle().await;
    assert!(
        connection.why_closed(Instant::now()).is_some_and(|why| failure::breaks_connection(&why))
    );
    assert_eq!(soon(server.read(&mut [0])).await.expect("an end"), 0, "the socket is closed");
}

#[tokio::test]
async fn the_socket_is_closed_with_the_last_that_holds_the_connection() {
    let (connection, mut server) = pair(1 << 10);
    let sending = sent(&connection, "1");
    reads(&mut server, &["1"]).await;
    drop(connection);
    server.write_all(b":1\r\n").await.expect("the request holds it");
    assert_eq!(soon(sending).await.expect("no panic"), Ok(Value::Int(1)));
    assert_eq!(soon(server.read(&mut [0])).await.expect("an end"), 0);
}

#[test]
fn a_request_ends_with_the_runtime_of_its_connection() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (theirs, ours) = [runtime(), runtime()].map(|made| made.expect("a runtime")).into();
    let (connection, _server) = theirs.block_on(async { pair(1 << 10) });
    ours.block_on(async {
        let sending = sent(&connection, "1");
        settle().await;
        theirs.shutdown_background();
        let error = soon(sending).await.expect("no panic").expect_err("no answer");
        assert!(failure::breaks_connection(&error));
    });
}
