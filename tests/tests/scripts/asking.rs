//! What a test asks of a node, in few words; a test whose command may fail asks the store itself.

use lockcore::internals::{
    Acquired, Leaving, Left, Member, Mode, Released, Renewed, Reply, Touched, renew_one, touch_one,
};

use crate::node::Node;

impl Node {
    pub(crate) async fn acquire(&self, member: &Member, mode: Mode, limit: u32) -> Reply<Acquired> {
        self.store.acquire(&self.lock, member, mode, limit).await.expect("acquire is answered")
    }

    pub(crate) async fn wait(&self, member: &Member) -> Reply<Acquired> {
        self.acquire(member, Mode::Wait, 1_000).await
    }

    pub(crate) async fn try_now(&self, member: &Member) -> Reply<Acquired> {
        self.acquire(member, Mode::Try, 1_000).await
    }

    /// Takes a free lock.
    pub(crate) async fn hold(&self, lease_ms: u64) -> Member {
        let member = self.member(lease_ms);
        assert_eq!(self.wait(&member).await.outcome, Acquired::Granted);
        member
    }

    /// Queues for a lock that is held.
    pub(crate) async fn queue(&self, lease_ms: u64) -> Member {
        let member = self.member(lease_ms);
        let outcome = self.wait(&member).await.outcome;
        assert!(matches!(outcome, Acquired::Queued { .. }), "{outcome:?}");
        member
    }

    pub(crate) async fn release(&self, member: &Member) -> Reply<Released> {
        self.store.release(&self.lock, member).await.expect("release is answered")
    }

    pub(crate) async fn renew(&self, member: &Member) -> Reply<Renewed> {
        renew_one(&*self.store, &self.lock, member).await.expect("renew is answered")
    }

    pub(crate) async fn touch(&self, members: &[&Member]) -> Reply<Touched> {
        let members = members.iter().map(|member| (*member).clone()).collect();
        touch_one(&*self.store, &self.lock, members).await.expect("touch is answered")
    }

    pub(crate) async fn leave(&self, member: &Member) -> Reply<Vec<Left>> {
        self.leave_all(&[(member, false)]).await
    }

    pub(crate) async fn leave_ambiguous(&self, member: &Member) -> Reply<Vec<Left>> {
        self.leave_all(&[(member, true)]).await
    }

    pub(crate) async fn leave_all(&self, leaving: &[(&Member, bool)]) -> Reply<Vec<Left>> {
        let leaving = leaving
            .iter()
            .map(|(member, ambiguous)| Leaving { member: (*member).clone(), ambiguous: *ambiguous })
            .collect();
        self.store.leave(&self.lock, leaving).await.expect("leave is answered")
    }

    pub(crate) async fn force_release(&self) -> Reply<Released> {
        self.store.force_release(&self.lock).await.expect("force release is answered")
    }
}
