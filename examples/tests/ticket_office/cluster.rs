//! Two offices on a Redis Cluster.

use lock_tests::Clustered;

use crate::office::Office;
use crate::scratch::Scratch;

/// The number of buyers behind the first buyer of each of three seats.
const BUYERS: usize = 7;

#[tokio::test]
async fn seats_of_three_primaries_have_one_line_each_and_are_sold_once() {
    let mut clustered = Clustered::steady().await;
    let scratch = Scratch::new();
    let (url, database) = (clustered.url(), scratch.database());
    let arguments = ["--redis", &url, "--database", &database, "--max-wait", "60"];
    let offices = [Office::open(&arguments).await, Office::open(&arguments).await];
    let metrics = offices[0].get("/metrics").await.text;
    for primary in 0..3 {
        let server = clustered.server(primary).address();
        let line = format!("ticket_office_server_connected{{server=\"{server}\"}} 1");
        assert!(metrics.lines().any(|shown| shown == line), "no {line} in {metrics}");
    }
    let seats = [0, 1, 2].map(|primary| {
        let is_there =
            |seat: &u32| clustered.primary_of(&format!("ticket-office:seat:{seat}")) == primary;
        (1..=20).find(is_there).expect("among so many seats")
    });
    let mut first = Vec::new();
    for seat in seats {
        first.push(tokio::spawn(offices[0].buy(seat, "Ann", 15_000)));
        offices[1].until_line(seat, Some("Ann"), &[]).await;
    }
    let names: Vec<_> = (1..=BUYERS).map(|place| format!("buyer {place}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut others = Vec::new();
    for place in 1..=BUYERS {
        for seat in seats {
            let office = &offices[place % 2];
            others.push(tokio::spawn(office.buy(seat, names[place - 1], 0)));
            office.until_line(seat, Some("Ann"), &names[..place]).await;
        }
    }
    for (seat, first) in seats.into_iter().zip(first) {
        assert_eq!(first.await.expect("no panic").status, 200);
        assert_eq!(offices[1].buyer(seat).await, "Ann");
    }
    for other in others {
        other.await.expect("no panic").refuses(409, "seat-sold");
    }
    for seat in seats {
        offices[0].until_line(seat, None, &[]).await;
    }
}
