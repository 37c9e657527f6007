//! Extractors that set how their keys are locked: exclusively, for reading, or with permits.

use lockcore::Demand;

use crate::key::{ExtractKey, KeyError, Keys};

/// An extractor whose keys are locked for reading or exclusively; made by
/// [`reads`](crate::ExtractKeyExt::reads) and [`writes`](crate::ExtractKeyExt::writes).
#[derive(Debug, Clone)]
#[must_use = "an extractor does nothing until it is given to a layer"]
pub struct WithDemand<E> {
    demand: Demand,
    extractor: E,
}

impl<E> WithDemand<E> {
    pub(crate) fn new(demand: Demand, extractor: E) -> Self {
        Self { demand, extractor }
    }
}

impl<Req, E: ExtractKey<Req>> ExtractKey<Req> for WithDemand<E> {
    fn extract_key(&self, request: &Req) -> Result<Option<Keys>, KeyError> {
        Ok(self.extractor.extract_key(request)?.map(|keys| keys.demand(self.demand)))
    }
}

/// The number of permits that requests for a key share: a `u32`, or a closure
/// `Fn(&Request) -> u32`.
///
/// ```
/// use lock_tower::PermitLimit;
///
/// struct Call { is_paid: bool }
///
/// let by_plan = |call: &Call| if call.is_paid { 20 } else { 2 };
/// assert_eq!(by_plan.permit_limit(&Call { is_paid: true }), 20);
/// assert_eq!(5_u32.permit_limit(&Call { is_paid: true }), 5);
/// ```
///
/// A request is granted its permits if, with these permits, no more permits are in use than the
/// request's own limit allows. So requests for the same key should have equal limits.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limit of permits",
    label = "not a limit",
    note = "a limit is a `u32`, or a closure that reads it from the request: `|request: &Request<_>| -> u32 {{ .. }}`"
)]
pub trait PermitLimit<Req> {
    /// Returns the limit for the keys of this request: 1 to 2^30 - 1. Other values refuse the
    /// request as [`Misconfigured`](crate::Cause::Misconfigured).
    fn permit_limit(&self, request: &Req) -> u32;
}

impl<Req> PermitLimit<Req> for u32 {
    fn permit_limit(&self, _: &Req) -> u32 {
        *self
    }
}

impl<Req, F> PermitLimit<Req> for F
where
    F: Fn(&Req) -> u32,
{
    fn permit_limit(&self, request: &Req) -> u32 {
        self(request)
    }
}

/// An extractor whose keys are locked with permits; made by
/// [`permits`](crate::ExtractKeyExt::permits).
#[derive(Debug, Clone)]
#[must_use = "an extractor does nothing until it is given to a layer"]
pub struct WithPermits<E, L> {
    count: u32,
    limit: L,
    extractor: E,
}

impl<E, L> WithPermits<E, L> {
    pub(crate) fn new(count: u32, limit: L, extractor: E) -> Self {
        Self { count, limit, extractor }
    }
}

impl<Req, E: ExtractKey<Req>, L: PermitLimit<Req>> ExtractKey<Req> for WithPermits<E, L> {
    fn extract_key(&self, request: &Req) -> Result<Option<Keys>, KeyError> {
        let Some(keys) = self.extractor.extract_key(request)? else { return Ok(None) };
        let limit = self.limit.permit_limit(request);
        Ok(Some(keys.permits(self.count, limit)))
    }
}
