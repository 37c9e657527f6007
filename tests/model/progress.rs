//! `Progress`: reports of a long check, once a minute.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use stateright::report::{ReportData, ReportDiscovery, Reporter};

use crate::model::Locking;

const PERIOD: Duration = Duration::from_secs(60);

pub(crate) struct Progress<'a> {
    what: &'a str,
    said: Instant,
}

impl<'a> Progress<'a> {
    pub(crate) fn of(what: &'a str) -> Self {
        Self { what, said: Instant::now() }
    }
}

impl Reporter<Locking> for Progress<'_> {
    fn report_checking(&mut self, data: ReportData) {
        if !data.done && self.said.elapsed() >= PERIOD {
            self.said = Instant::now();
            let ReportData { unique_states, max_depth, duration, .. } = data;
            let what = self.what;
            crate::report(&format!(
                "{what}: {unique_states} so far, {max_depth} deep, {duration:.0?}"
            ));
        }
    }

    /// Does nothing, because the assertions report what was discovered.
    fn report_discoveries(
        &mut self,
        _: &Locking,
        _: BTreeMap<&'static str, ReportDiscovery<Locking>>,
    ) {
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(100)
    }
}
