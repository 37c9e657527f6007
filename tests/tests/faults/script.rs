//! The scripts by their digests: which of them a request runs.

use std::fs;
use std::path::Path;

use lock_tests::Request;

/// A script of the product.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    digest: String,
    source: String,
}

impl Script {
    /// As the product assembles it.
    pub(crate) fn named(name: &str) -> Self {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lockcore/src/redis/lua");
        let read = |name: &str| {
            let path = directory.join(format!("{name}.lua"));
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let source = read(name).replace("--#include common\n", &read("common"));
        let digest = redis::Script::new(&source).get_hash().to_owned();
        Self { digest, source }
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Whether the request runs it, by digest or by source.
    pub(crate) fn runs_in(&self, request: &Request) -> bool {
        self.runs(request.args())
    }

    /// The same of a command's arguments.
    pub(crate) fn runs(&self, args: &[Vec<u8>]) -> bool {
        let Some([name, script]) = args.get(..2) else { return false };
        name.eq_ignore_ascii_case(b"EVALSHA") && script == self.digest.as_bytes()
            || name.eq_ignore_ascii_case(b"EVAL") && script == self.source.as_bytes()
    }
}

/// For the faults of a proxy: the requests that run the script of this name.
pub(crate) fn runs(name: &str) -> impl Fn(&Request) -> bool + Send + 'static {
    let script = Script::named(name);
    move |request| script.runs_in(request)
}
