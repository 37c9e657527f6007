//! Keys of other programs at the names of a queue: each command that would use one is refused with
//! its type, and nothing changes.

use lockcore::LockErrorKind;
use lockcore::internals::{Command, Demand, Mode};
use redis::{Cmd, cmd};

use crate::asking::{acquire, leave, touch};
use crate::bench::{Bench, COUNTER, DOOR};

fn strange(key: &str, content: &str) -> Cmd {
    let mut words = content.split(' ');
    let mut command = cmd(words.next().expect("a command"));
    command.arg(key);
    words.for_each(|word| drop(command.arg(word)));
    command
}

const CONTENTS: [(&str, &str); 6] = [
    ("SET text", "string"),
    ("RPUSH a b", "list"),
    ("SADD a b", "set"),
    ("HSET name Ada", "hash"),
    ("ZADD 1 name", "zset"),
    ("XADD * field text", "stream"),
];

#[tokio::test]
async fn a_strange_key_at_any_name_is_refused_or_left_alone() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let mut faults = Vec::new();
    let kinds = ["queue", "holds", "reduced", "gone"];
    let keys: Vec<_> =
        [DOOR, COUNTER].map(str::to_owned).into_iter().chain(kinds.map(|k| bench.key(k))).collect();
    for key in &keys {
        for (content, type_of) in CONTENTS {
            for is_held in [false, true] {
                for which in 0..9 {
                    bench.redis.flush_all().await;
                    let (mut holder, mut waiting) = (a.member(30_000), a.member(30_000));
                    if is_held {
                        (holder, waiting) = (a.hold(30_000).await, a.queue(30_000).await);
                    }
                    let () = bench.redis.ask(cmd("DEL").arg(key)).await;
                    let command = strange(key, content);
                    let _: redis::Value = bench.redis.ask(&command).await;
                    let before = bench.everything().await;
                    let read = a.member_for(Demand::READ, 30_000);
                    let command = match which {
                        0 => acquire(&a.member(30_000), Mode::Try, 10),
                        1 => acquire(&a.member(30_000), Mode::Wait, 10),
                        2 => acquire(&read, Mode::Wait, 10),
                        3 => Command::Release { member: holder },
                        4 => Command::Renew { members: vec![holder] },
                        5 => touch(&[&waiting]),
                        6 => leave(&[(&waiting, true)]),
                        7 => Command::ForceRelease { member: None },
                        _ => Command::Inspect,
                    };
                    let told = format!("{command:?} with {content} at {key}, held: {is_held}");
                    let answer = a.run(command).await;
                    let after = bench.everything().await;
                    let of = |all: &[(String, Vec<u8>, i64)]| {
                        all.iter().find(|(name, ..)| name == key).cloned()
                    };
                    match answer {
                        Ok(_) if key == DOOR => faults.push(format!("{told}: answered")),
                        // It did not need the key; then it left it alone.
                        Ok(_) if of(&before) == of(&after) => {}
                        // The short ways look at no more than the types of what they write.
                        Ok(_)
                            if which == 1
                                && is_held
                                && *key == bench.key("queue")
                                && type_of == "zset" => {}
                        Ok(_) => faults.push(format!("{told}: answered, and changed it")),
                        Err(error) if error.kind != LockErrorKind::WrongType => {
                            faults.push(format!("{told}: {error:?}"));
                        }
                        Err(error) if which != 4 && !error.detail.contains(type_of) => {
                            faults.push(format!("{told}: does not name the type: {error:?}"));
                        }
                        Err(_) if before == after => {}
                        Err(_) => faults.push(format!("{told}: refused, and changed something")),
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
