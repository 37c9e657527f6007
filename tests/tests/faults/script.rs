//! The scripts by their digests: the script that a request runs.

use lock_tests::Request;
use lockcore::internals::wire;

/// A script of the product.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    digest: String,
    source: &'static str,
}

impl Script {
    pub(crate) fn named(name: &str) -> Self {
        let source =
            wire::queue::script(name).unwrap_or_else(|| panic!("there is no script {name}"));
        let digest = redis::Script::new(source).get_hash().to_owned();
        Self { digest, source }
    }

    pub(crate) fn source(&self) -> &str {
        self.source
    }

    /// Whether the request runs it, by digest or by source.
    pub(crate) fn runs_in(&self, request: &Request) -> bool {
        self.runs(request.args())
    }

    /// Whether a command with these arguments runs the script.
    pub(crate) fn runs(&self, args: &[Vec<u8>]) -> bool {
        let Some([name, script]) = args.get(..2) else { return false };
        name.eq_ignore_ascii_case(b"EVALSHA") && script == self.digest.as_bytes()
            || name.eq_ignore_ascii_case(b"EVAL") && script == self.source.as_bytes()
    }
}

/// Matches, for the faults of a proxy, the requests that run the script of this name.
pub(crate) fn runs(name: &str) -> impl Fn(&Request) -> bool + Send + 'static {
    let script = Script::named(name);
    move |request| script.runs_in(request)
}
