//! The metrics of a process: one registry as a value, without globals. What is about the process is read at each scrape,
//! so it cannot be stale.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::api_writes::ApiWrites;

/// What `/metrics` answers with.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Component {
    component: &'static str,
}

#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    registry: Arc<Registry>,
    /// The writes of this process; its client counts them.
    pub(crate) writes: ApiWrites,
    is_leader: Gauge<u64, AtomicU64>,
}

impl Metrics {
    /// Those of a component: its own beside those of every process.
    pub(crate) fn of(component: &'static str, register: impl FnOnce(&mut Registry)) -> Self {
        let mut registry = Registry::default();
        register(&mut registry);
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("grove_build", "The version of this binary", build);
        let leaders = Family::<Component, Gauge<u64, AtomicU64>>::default();
        let is_leader = leaders.get_or_create_owned(&Component { component });
        registry.register("grove_leader", "1 while this replica leads, else 0", leaders);
        let writes = ApiWrites::default();
        writes.register(&mut registry);
        #[cfg(target_os = "linux")]
        registry.register_collector(Box::new(process::ProcessCollector));
        Self {
            registry: Arc::new(registry),
            writes,
            is_leader,
        }
    }

    pub(crate) fn set_leader(&self, is_leader: bool) {
        self.is_leader.set(is_leader.into());
    }

    /// Metrics that have no series in what is rendered, and so are not in it at all. A registry tells of them only in its
    /// form for debugging.
    pub(crate) fn silent(&self, rendered: &str) -> Vec<String> {
        let told = |name: &str| {
            let mut heads = rendered.lines().filter_map(|line| line.strip_prefix("# TYPE "));
            heads.any(|head| head.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '_'])))
        };
        let shown = format!("{:?}", self.registry);
        let names = shown.split("Descriptor { name: \"").skip(1);
        let names = names.filter_map(|rest| rest.split('"').next());
        names.filter(|name| !told(name)).map(str::to_owned).collect()
    }

    pub(crate) fn render(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// The metrics that every Prometheus dashboard expects of a process, from the kernel's own account.
#[cfg(target_os = "linux")]
mod process {
    use procfs::WithCurrentSystemInfo as _;
    use procfs::process::Process;
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
    use prometheus_client::metrics::counter::ConstCounter;
    use prometheus_client::metrics::gauge::ConstGauge;

    #[derive(Debug)]
    pub(super) struct ProcessCollector;

    /// What one scrape reports.
    struct Usage {
        cpu_secs: f64,
        resident_bytes: u64,
        virtual_bytes: u64,
        open_fds: u64,
        threads: i64,
        started_at_secs: f64,
    }

    fn usage() -> procfs::ProcResult<Usage> {
        let process = Process::myself()?;
        let stat = process.stat()?;
        let ticks_per_sec = procfs::ticks_per_second() as f64;
        let boot_secs = procfs::boot_time_secs()? as f64;
        Ok(Usage {
            cpu_secs: (stat.utime + stat.stime) as f64 / ticks_per_sec,
            resident_bytes: stat.rss_bytes().get(),
            virtual_bytes: stat.vsize,
            open_fds: process.fd_count()? as u64,
            threads: stat.num_threads,
            started_at_secs: boot_secs + stat.starttime as f64 / ticks_per_sec,
        })
    }

    impl Collector for ProcessCollector {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
            // A kernel that does not tell is no reason to fail the scrape: the other metrics are still true.
            let Ok(usage) = usage() else { return Ok(()) };
            let cpu = ConstCounter::new(usage.cpu_secs);
            let help = "CPU time spent in user and system mode";
            cpu.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, cpu.metric_type())?)?;
            let mut gauge = |name, help, value: f64| {
                let gauge = ConstGauge::new(value);
                gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
            };
            gauge(
                "process_resident_memory_bytes",
                "Resident memory",
                usage.resident_bytes as f64,
            )?;
            gauge(
                "process_virtual_memory_bytes",
                "Virtual memory",
                usage.virtual_bytes as f64,
            )?;
            gauge("process_open_fds", "Open file descriptors", usage.open_fds as f64)?;
            gauge("process_threads", "Threads", usage.threads as f64)?;
            gauge(
                "process_start_time_seconds",
                "Start of the process since the epoch",
                usage.started_at_secs,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a series.
    fn value(text: &str, name: &str) -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is not in:\n{text}"))
            .parse()
            .unwrap()
    }

    #[test]
    fn leadership_and_version_are_told() {
        let metrics = Metrics::of("operator", |_| {});
        let leader = "grove_leader{component=\"operator\"}";
        assert_eq!(value(&metrics.render().unwrap(), leader), 0.0);
        metrics.set_leader(true);
        let text = metrics.render().unwrap();
        assert_eq!(value(&text, leader), 1.0);
        let version = format!("grove_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
        assert!(text.contains(&version), "{text}");
        assert!(text.ends_with("# EOF\n"), "OpenMetrics ends with a marker");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_process_metrics_are_true() {
        let metrics = Metrics::of("operator", |_| {});
        let before = metrics.render().unwrap();
        let ballast = vec![1_u8; 64 << 20];
        let files: Vec<_> = (0..10)
            .map(|_| std::fs::File::open("/proc/self/stat").unwrap())
            .collect();
        let after = metrics.render().unwrap();
        let growth = |name| value(&after, name) - value(&before, name);
        // Other tests run in this process at the same time, hence the slack.
        assert!(
            growth("process_resident_memory_bytes") > 48e6,
            "{} MiB are in use",
            ballast.len() >> 20
        );
        assert!(growth("process_open_fds") > 5.0, "{} files are open", files.len());
        let now_secs = jiff::Timestamp::now().as_second() as f64;
        let age_secs = now_secs - value(&after, "process_start_time_seconds");
        assert!((-5.0..600.0).contains(&age_secs), "started {age_secs} s ago");
        assert!(value(&after, "process_cpu_seconds_total") < 600.0);
    }
}
