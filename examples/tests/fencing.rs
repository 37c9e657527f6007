//! The statements that the documentation shows do fence: run on a real database.
#![allow(clippy::unwrap_used, reason = "tests")]

use deadpool_sqlite::rusqlite::Connection;

const SHOWN: [(&str, &str); 6] = [
    ("README.md", include_str!("../../README.md")),
    ("README.md of lock-axum", include_str!("../../lock-axum/README.md")),
    ("lock-axum", include_str!("../../lock-axum/src/lib.rs")),
    ("Locked", include_str!("../../lock-axum/src/locked.rs")),
    ("lock-tower", include_str!("../../lock-tower/src/lib.rs")),
    ("LockHandle", include_str!("../../lock-tower/src/hold/handle.rs")),
];

/// Every statement on the table of orders.
fn statements(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("UPDATE orders")
        .map(|(at, _)| &text[at..at + text[at..].find('"').expect("a string ends")])
}

#[test]
fn a_holder_whose_lease_has_ended_cannot_write_after_a_later_one() {
    for (place, text) in SHOWN {
        assert!(statements(text).count() > 0, "{place} shows how to fence");
        for sql in statements(text) {
            let database = Connection::open_in_memory().unwrap();
            database
                .execute_batch(
                    "CREATE TABLE orders (id INTEGER PRIMARY KEY, paid BOOLEAN, token INTEGER NOT NULL DEFAULT 0);
                     INSERT INTO orders (id) VALUES (42);",
                )
                .unwrap();
            let write = |token: i64| database.execute(sql, [token, 42]).expect(sql);
            assert_eq!(write(7), 1, "{place}: {sql}");
            assert_eq!(write(6), 0, "{place}: the earlier holder comes late: {sql}");
            assert_eq!(write(8), 1, "{place}: {sql}");
        }
    }
}
