//! Log lines on stderr, in the level and format of the configuration. The environment has no say: a forgotten
//! `RUST_LOG` would otherwise decide what is logged, against what the configuration states.

use grove_api::config::{LogFormat, LogLevel};
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

/// Call once, before the first line.
pub(crate) fn init(level: LogLevel, format: LogFormat) {
    let lines = match format {
        LogFormat::Json => fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(std::io::stderr)
            .boxed(),
        LogFormat::Text => fmt::layer().with_ansi(false).with_writer(std::io::stderr).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter(level)))
        .init();
    if std::env::var_os("RUST_LOG").is_some() {
        tracing::warn!("RUST_LOG is set but has no effect; set logLevel in the configuration");
    }
}

/// `debug` is about Grove: the libraries below it would drown that out with every frame they send.
fn filter(level: LogLevel) -> Targets {
    let lines = match level {
        LogLevel::Debug => Targets::new()
            .with_default(LevelFilter::INFO)
            .with_target("grove", Level::DEBUG),
        LogLevel::Info => Targets::new().with_default(LevelFilter::INFO),
        LogLevel::Error => Targets::new().with_default(LevelFilter::ERROR),
    };
    // The client calls every failed request an error, even one that is retried or expected. Whoever sent the request
    // knows what its failure means, and says so.
    lines.with_target("kube_client::client::builder", LevelFilter::OFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_lets_through_what_its_name_says() {
        let passes = |level, target: &str, event: Level| filter(level).would_enable(target, &event);
        assert!(passes(LogLevel::Debug, "grove::lease", Level::DEBUG));
        assert!(passes(LogLevel::Debug, "grove_controllers", Level::DEBUG));
        assert!(!passes(LogLevel::Debug, "hyper", Level::DEBUG));
        assert!(passes(LogLevel::Info, "hyper", Level::INFO) && !passes(LogLevel::Info, "grove", Level::DEBUG));
        assert!(!passes(LogLevel::Info, "kube_client::client::builder", Level::ERROR));
        assert!(passes(LogLevel::Error, "grove", Level::ERROR) && !passes(LogLevel::Error, "grove", Level::WARN));
    }
}
