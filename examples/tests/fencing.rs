//! The fencing statements in the documentation work: run on a real database, in every order
//! possible for two holders with overlapping leases.
#![allow(clippy::unwrap_used, reason = "tests")]

use deadpool_sqlite::rusqlite::Connection;

const SHOWN: [(&str, &str); 9] = [
    ("README.md", include_str!("../../README.md")),
    ("README.md of lock-axum", include_str!("../../lock-axum/README.md")),
    ("lock-axum", include_str!("../../lock-axum/src/lib.rs")),
    ("Locked", include_str!("../../lock-axum/src/locked.rs")),
    ("lock-tower", include_str!("../../lock-tower/src/lib.rs")),
    ("LockHandle", include_str!("../../lock-tower/src/hold/handle.rs")),
    ("FencingToken", include_str!("../../lockcore/proto/src/token.rs")),
    ("guide::fencing", include_str!("../../lockcore/src/guide/fencing.md")),
    ("migrating.md", include_str!("../../docs/recipes/migrating.md")),
];

/// An earlier version in the documentation, which checks the token at the write but not at the
/// read.
const WRITE_ALONE: &str = "UPDATE orders SET paid = true, token = $1 WHERE id = $2 AND token < $1";

const ORDER: i64 = 42;
const EARLIER: i64 = 5;
const LATER: i64 = 9;

/// Returns all statements on the orders table, in pairs: one raises the token, the other writes.
fn pairs(place: &str, text: &'static str) -> Vec<[&'static str; 2]> {
    let found: Vec<_> = text
        .match_indices("UPDATE orders")
        .map(|(at, _)| &text[at..])
        .map(|text| &text[..text.find(['"', ';']).expect("a statement ends")])
        .collect();
    assert!(!found.is_empty() && found.len() % 2 == 0, "{place} shows how to fence: {found:?}");
    found.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect()
}

/// A table with one order, and the number of writes to its row.
struct Orders(Connection);

impl Orders {
    fn new() -> Self {
        let database = Connection::open_in_memory().unwrap();
        let schema = "
            CREATE TABLE orders (id INTEGER PRIMARY KEY, paid BOOLEAN, token INTEGER NOT NULL DEFAULT 0);
            INSERT INTO orders (id) VALUES (42);
            CREATE TABLE writes (version INTEGER);
            INSERT INTO writes VALUES (0);
            CREATE TRIGGER counts AFTER UPDATE OF paid ON orders
            BEGIN UPDATE writes SET version = version + 1; END;";
        database.execute_batch(schema).unwrap();
        Self(database)
    }

    /// Whether the statement changed the row.
    fn run(&self, sql: &str, token: i64) -> bool {
        // Bound by name: SQLite numbers `$1` and `$2` in order of occurrence.
        self.0.execute(sql, &[("$1", &token), ("$2", &ORDER)]).expect(sql) == 1
    }

    fn version(&self) -> i64 {
        self.0.query_row("SELECT version FROM writes", [], |row| row.get(0)).unwrap()
    }
}

/// A hold that reads the row, and writes a value derived from it.
struct Hold {
    token: i64,
    step: usize,
    /// The number of writes at the time of the read.
    read: Option<i64>,
    /// Whether a statement has reported a later holder.
    is_stopped: bool,
}

impl Hold {
    fn new(token: i64) -> Self {
        Self { token, step: 0, read: None, is_stopped: false }
    }

    /// Takes the next step of: raise, read, write. Returns whether a stale write was accepted,
    /// based on a row that another hold has written since.
    fn next(&mut self, orders: &Orders, raise: Option<&str>, write: &str) -> bool {
        self.step += 1;
        match self.step {
            _ if self.is_stopped => {}
            1 => self.is_stopped = raise.is_some_and(|raise| !orders.run(raise, self.token)),
            2 => self.read = Some(orders.version()),
            _ => {
                let before = Some(orders.version());
                return orders.run(write, self.token) && self.read != before;
            }
        }
        false
    }
}

/// Returns all interleavings of three steps for each of two holds: `true` is a step of the later
/// hold.
fn orders_of_steps() -> impl Iterator<Item = [bool; 6]> {
    (0..1_u32 << 6)
        .filter(|bits| bits.count_ones() == 3)
        .map(|bits| std::array::from_fn(|step| bits & (1 << step) != 0))
}

/// Returns the interleavings with a lost update.
fn lost(raise: Option<&str>, write: &str) -> Vec<[bool; 6]> {
    let loses = |steps: &[bool; 6]| {
        let orders = Orders::new();
        let mut earlier = Hold::new(EARLIER);
        let mut later = Hold::new(LATER);
        let lost = steps.map(|is_later| {
            let hold = if is_later { &mut later } else { &mut earlier };
            hold.next(&orders, raise, write)
        });
        assert!(orders.version() > 0, "none of the two could write: {steps:?}");
        lost.contains(&true)
    };
    orders_of_steps().filter(loses).collect()
}

#[test]
fn no_update_is_lost_by_the_statements_that_are_shown_in_whatever_order_two_holders_run_them() {
    assert_eq!(orders_of_steps().count(), 20);
    for (place, text) in SHOWN {
        for [raise, write] in pairs(place, text) {
            assert_eq!(lost(Some(raise), write), <[[bool; 6]; 0]>::default(), "{place}: {write}");
        }
    }
}

#[test]
fn an_update_is_lost_where_the_token_is_checked_at_the_write_alone() {
    // The steps are read, read, write, write: the raise does nothing.
    let steps = [false, true, false, true, false, true];
    assert!(lost(None, WRITE_ALONE).contains(&steps));
}

#[test]
fn a_holder_whose_lease_has_ended_can_do_nothing_after_a_later_one_began() {
    for (place, text) in SHOWN {
        for [raise, write] in pairs(place, text) {
            let orders = Orders::new();
            assert!(orders.run(raise, EARLIER), "{place}: {raise}");
            assert!(orders.run(raise, LATER), "{place}: {raise}");
            assert!(!orders.run(write, EARLIER), "{place}: the earlier holder comes late: {write}");
            assert!(!orders.run(raise, EARLIER), "{place}: and again: {raise}");
            assert!(orders.run(write, LATER), "{place}: {write}");
        }
    }
}
