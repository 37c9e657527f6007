//! The seats, and the two writes of a sale, each guarded by the fencing token.

use deadpool_sqlite::rusqlite::{OptionalExtension as _, TransactionBehavior};
use lockcore::FencingToken;
use serde::Serialize;

use crate::database::{Database, DatabaseError};

/// Begins a purchase: raises the token of a free seat, so that holders with lower tokens cannot
/// sell it any more. If only the sale raised the token, a holder without the lock could still sell
/// the seat after the new holder has seen that it is free.
const BEGIN: &str = "UPDATE seats SET token = ?2 WHERE seat = ?1 AND buyer IS NULL AND token < ?2";

const SALE: &str = "SELECT buyer, token, purchase FROM seats WHERE seat = ?1 AND buyer IS NOT NULL";

/// Sells the seat, unless a holder with a higher token has begun a purchase.
const SELL: &str = "UPDATE seats SET buyer = ?3, purchase = ?4 WHERE seat = ?1 AND token = ?2";

/// Frees the seat, if it was sold with this token.
const HAND_BACK: &str = "UPDATE seats SET buyer = NULL WHERE seat = ?1 AND token = ?2";

const ALL: &str = "SELECT seat, buyer, token FROM seats WHERE seat <= ?1 ORDER BY seat";

/// A seat, as every visitor may see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Seat {
    pub(crate) seat: u32,
    pub(crate) buyer: Option<String>,
    /// The fencing token of the sale; `None` if the seat is free.
    pub(crate) token: Option<i64>,
}

/// A completed sale.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sale {
    pub(crate) buyer: String,
    pub(crate) token: i64,
    /// The [purchase](crate::order::Order::purchase) that bought the seat.
    pub(crate) purchase: Option<String>,
}

/// The result of [`Seats::begin`]: whether the holder may sell the seat.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    Free,
    Sold(Sale),
    /// A later holder has begun, so this holder has lost the lock.
    Overtaken,
}

/// The seats in the database, with the numbers 1 to `count`. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Seats {
    database: Database,
    count: u32,
}

impl Seats {
    pub(crate) fn new(database: Database, count: u32) -> Self {
        Self { database, count }
    }

    pub(crate) fn contains(&self, seat: u32) -> bool {
        (1..=self.count).contains(&seat)
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    pub(crate) async fn all(&self) -> Result<Vec<Seat>, DatabaseError> {
        let count = self.count;
        self.database
            .run(move |connection| {
                let mut statement = connection.prepare_cached(ALL)?;
                let seats = statement.query_map([count], |row| {
                    let buyer: Option<String> = row.get(1)?;
                    let token: i64 = row.get(2)?;
                    Ok(Seat { seat: row.get(0)?, token: buyer.is_some().then_some(token), buyer })
                })?;
                seats.collect()
            })
            .await
    }

    /// Begins a purchase. If the seat is free, records the token, so that no earlier holder can
    /// sell the seat afterwards.
    pub(crate) async fn begin(
        &self,
        seat: u32,
        token: FencingToken,
    ) -> Result<Begun, DatabaseError> {
        self.database
            .run(move |connection| {
                // Immediate, because a read transaction that becomes a write would not wait.
                let write = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let begun = match write.execute(BEGIN, (seat, i64::from(token)))? {
                    0 => {
                        let sale = write.query_row(SALE, [seat], |row| {
                            Ok(Sale {
                                buyer: row.get(0)?,
                                token: row.get(1)?,
                                purchase: row.get(2)?,
                            })
                        });
                        sale.optional()?.map_or(Begun::Overtaken, Begun::Sold)
                    }
                    _ => Begun::Free,
                };
                write.commit()?;
                Ok(begun)
            })
            .await
    }

    /// Sells the seat to `buyer`. `purchase` is stored with the sale. Returns false, and writes
    /// nothing, if a later holder has begun.
    pub(crate) async fn sell(
        &self,
        seat: u32,
        token: FencingToken,
        buyer: String,
        purchase: Option<String>,
    ) -> Result<bool, DatabaseError> {
        let values = (seat, i64::from(token), buyer, purchase);
        Ok(self.database.run(move |connection| connection.execute(SELL, values)).await? == 1)
    }

    /// Frees a seat that was sold with this token, for a buyer of the fault panel who returns it.
    pub(crate) async fn hand_back(
        &self,
        seat: u32,
        token: FencingToken,
    ) -> Result<(), DatabaseError> {
        let values = (seat, i64::from(token));
        self.database.run(move |connection| connection.execute(HAND_BACK, values)).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn seats() -> Seats {
        Seats::new(Database::open(None, 3).await.unwrap(), 3)
    }

    fn token(token: u64) -> FencingToken {
        FencingToken::try_from(token).unwrap()
    }

    #[tokio::test]
    async fn a_free_seat_is_sold_once() {
        let seats = seats().await;
        assert_eq!(seats.begin(2, token(7)).await.unwrap(), Begun::Free);
        assert!(seats.sell(2, token(7), "Ann".into(), Some("p1".into())).await.unwrap());
        let sale = Sale { buyer: "Ann".into(), token: 7, purchase: Some("p1".into()) };
        assert_eq!(seats.begin(2, token(8)).await.unwrap(), Begun::Sold(sale));
        assert!(!seats.sell(2, token(8), "Bob".into(), None).await.unwrap());
        let all = seats.all().await.unwrap();
        let free = |seat| Seat { seat, buyer: None, token: None };
        assert_eq!(
            all,
            [free(1), Seat { seat: 2, buyer: Some("Ann".into()), token: Some(7) }, free(3)]
        );
    }

    #[tokio::test]
    async fn a_stale_holder_cannot_sell_once_the_newer_one_has_read() {
        let seats = seats().await;
        assert_eq!(seats.begin(1, token(10)).await.unwrap(), Begun::Free);
        assert_eq!(seats.begin(1, token(20)).await.unwrap(), Begun::Free);
        assert!(!seats.sell(1, token(10), "stale".into(), None).await.unwrap());
        assert!(seats.sell(1, token(20), "fresh".into(), None).await.unwrap());
        assert!(!seats.sell(1, token(10), "stale".into(), None).await.unwrap());
        assert_eq!(seats.all().await.unwrap()[0].buyer.as_deref(), Some("fresh"));
    }

    #[tokio::test]
    async fn a_seat_that_was_handed_back_is_free_for_newer_tokens_alone() {
        let seats = seats().await;
        assert_eq!(seats.begin(1, token(10)).await.unwrap(), Begun::Free);
        assert!(seats.sell(1, token(10), "Ann".into(), None).await.unwrap());
        seats.hand_back(1, token(9)).await.unwrap();
        assert_eq!(seats.all().await.unwrap()[0].buyer.as_deref(), Some("Ann"));
        seats.hand_back(1, token(10)).await.unwrap();
        assert_eq!(seats.all().await.unwrap()[0].buyer, None);
        assert_eq!(seats.begin(1, token(10)).await.unwrap(), Begun::Overtaken);
        assert_eq!(seats.begin(1, token(11)).await.unwrap(), Begun::Free);
    }

    #[tokio::test]
    async fn a_stale_holder_cannot_even_begin() {
        let seats = seats().await;
        assert_eq!(seats.begin(1, token(20)).await.unwrap(), Begun::Free);
        assert_eq!(seats.begin(1, token(10)).await.unwrap(), Begun::Overtaken);
        assert_eq!(seats.begin(1, token(20)).await.unwrap(), Begun::Overtaken);
    }
}
