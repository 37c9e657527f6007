//! Facts about `Monitor`.

use lock_tests::{Monitor, Raw, RedisServer, Source};
use redis::cmd;

#[tokio::test]
async fn what_a_script_calls_is_seen_in_order_and_told_from_what_clients_send() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let monitor = Monitor::start(server.address());
    let member = "f1:0123456789abcdef:7:30000:host%3A1 \"x\"\r\n\u{1F512}";
    let push = "return redis.call('RPUSH', KEYS[1], ARGV[1])";
    for suffix in ["a", "b"] {
        let member = format!("{member}{suffix}");
        let key = "lock:{order:42}:queue";
        let _: usize = redis.ask(cmd("EVAL").arg(push).arg(1).arg(key).arg(member)).await;
    }
    let lines = monitor.stop();
    let pushed: Vec<_> = lines
        .iter()
        .filter(|line| line.source == Source::Lua && line.is("RPUSH"))
        .map(|line| (line.text(1), line.text(2)))
        .collect();
    let expected =
        ["a", "b"].map(|suffix| ("lock:{order:42}:queue".to_owned(), format!("{member}{suffix}")));
    assert_eq!(pushed, expected);
    assert!(lines.iter().any(|line| line.is("eval") && matches!(line.source, Source::Client(_))));
}

#[tokio::test]
async fn every_byte_of_an_argument_survives() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let monitor = Monitor::start(server.address());
    let all: Vec<u8> = (0..=255).collect();
    let _: () = redis.ask(cmd("SET").arg("key").arg(&all)).await;
    let lines = monitor.stop();
    let set = lines.iter().find(|line| line.is("SET")).expect("a SET was seen");
    assert_eq!(set.args[2], all);
}

#[tokio::test]
async fn a_hundred_thousand_commands_are_all_seen_in_order() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let monitor = Monitor::start(server.address());
    // One script that calls 100 000 commands: the server writes them faster than any client could.
    let script = "for i = 1, 100000 do redis.call('RPUSH', KEYS[1], i) end";
    let _: () = redis.ask(cmd("EVAL").arg(script).arg(1).arg("list")).await;
    let lines = monitor.stop();
    let pushed = lines.iter().filter(|line| line.is("RPUSH")).map(|line| line.text(2));
    assert!(pushed.eq((1..=100_000).map(|number| number.to_string())));
}

#[tokio::test]
async fn of_a_server_that_dies_what_it_said_before_is_kept() {
    let mut server = RedisServer::start();
    let monitor = Monitor::start(server.address());
    let mut redis = Raw::connect(&server.url()).await;
    // Its reply comes after its line was written, in one turn of the server's event loop or later;
    // the second command's reply shows that the first one's turn is over.
    redis.get("first").await;
    redis.get("second").await;
    server.kill();
    assert!(monitor.stop().iter().any(|line| line.is("GET") && line.text(1) == "first"));
}

#[tokio::test]
async fn two_monitors_do_not_end_each_other() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let first = Monitor::start(server.address());
    let second = Monitor::start(server.address());
    drop(first.stop());
    redis.get("key").await;
    assert!(second.stop().iter().any(|line| line.is("GET")));
}
