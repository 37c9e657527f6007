//! Locks held in parts: demands, and the weight in use.

use proto::queue::Held;
use proto::{Demand, FencingToken, Member};

use crate::bench::Bench;

/// A weight of `limit` permits.
pub(crate) fn permits(weight: u32, limit: u32) -> Demand {
    Demand::permits(weight, limit).expect("a demand")
}

impl Bench {
    /// Asserts that exactly these members hold: exclusively or in parts.
    pub(crate) async fn assert_held(&mut self, expected: &[&Member]) {
        let mut held = match self.holder().await {
            Some(holder) => vec![holder],
            None => self.parts().await.into_iter().map(|(member, _)| member).collect(),
        };
        let mut expected: Vec<Member> = expected.iter().copied().cloned().collect();
        held.sort();
        expected.sort();
        assert_eq!(held, expected);
    }

    /// The remaining lease of a member that holds a part, in ms.
    pub(crate) async fn left_of(&mut self, member: &Member) -> u64 {
        let parts = self.parts().await;
        parts.iter().find(|(part, _)| part == member).expect("it holds a part").1
    }

    /// The weight in use in parts, and their shared token; 0 without a token.
    pub(crate) async fn shared(&mut self) -> (u64, u64) {
        let (mut state, _) = self.state().await;
        match &state.of_queue().lock_key.as_ref().expect("it is held").held {
            Held::Parts { used, token } => (*used, token.map_or(0, FencingToken::get)),
            Held::Whole { member: holder, .. } => panic!("{holder} holds everything"),
        }
    }

    /// As if the lease of a part had ended.
    pub(crate) async fn lapse(&mut self, member: &Member) {
        self.change(|state, now_ms| state.of_queue().holds.set(member, now_ms)).await;
    }
}
