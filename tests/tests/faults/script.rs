//! The scripts by digest: which script a request runs.

use lock_tests::Request;
use proto::Topology;
use proto::wire::scripts;

/// A script of the product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script(&'static proto::wire::Script);

impl Script {
    pub(crate) fn named(name: &str) -> Self {
        let script = scripts::of_queue(Topology::Single).get(name);
        Self(script.unwrap_or_else(|| panic!("there is no script {name}")))
    }

    pub(crate) fn source(&self) -> &str {
        &self.0.source
    }

    /// Whether the request runs this script, by digest or by source.
    pub(crate) fn runs_in(&self, request: &Request) -> bool {
        self.runs(request.args())
    }

    /// Whether a command with these arguments runs the script.
    pub(crate) fn runs(&self, args: &[Vec<u8>]) -> bool {
        let Some([name, script]) = args.get(..2) else { return false };
        name.eq_ignore_ascii_case(b"EVALSHA") && script == self.0.digest.as_bytes()
            || name.eq_ignore_ascii_case(b"EVAL") && script == self.0.source.as_bytes()
    }
}

/// Matches, for the faults of a proxy, the requests that run the script of this name.
pub(crate) fn runs(name: &str) -> impl Fn(&Request) -> bool + Send + 'static {
    let script = Script::named(name);
    move |request| script.runs_in(request)
}
