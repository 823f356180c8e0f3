//! What admission tells about itself: how long answers take and what they say, and until when its certificate is good.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::certificates::Current;

/// From a fifth of a millisecond to thirteen seconds; the API server waits for ten.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0002, 4.0, 9))
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Answered {
    webhook: &'static str,
    result: &'static str,
}

/// The metrics of one webhook server. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    answers: Family<Answered, Histogram, fn() -> Histogram>,
    expiry: Expiry,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            answers: Family::new_with_constructor(seconds),
            expiry: Expiry::default(),
        }
    }
}

impl Metrics {
    /// With a series of each, for whoever lists what there is: labels are told by series only.
    pub fn with_a_series_each() -> Self {
        let metrics = Self::default();
        metrics.answered("validate-podcliqueset", "admitted", Duration::ZERO);
        metrics.expiry.read_from(|| Some(Timestamp::UNIX_EPOCH));
        metrics
    }

    /// Puts them where they are asked for.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "grove_webhook_duration",
            "One answer to the API server: admitted, refused, converted, unavailable (the rules could not be judged) or \
             malformed (no review that could be answered)",
            Unit::Seconds,
            self.answers.clone(),
        );
        registry.register_collector(Box::new(self.expiry.clone()));
    }

    pub(crate) fn answered(&self, path: &'static str, result: &'static str, took: Duration) {
        let webhook = path.rsplit('/').next().unwrap_or(path);
        let series = self.answers.get_or_create(&Answered { webhook, result });
        series.observe(took.as_secs_f64());
    }

    /// The certificates that are served from now on.
    pub(crate) fn follow(&self, certificates: Current) {
        self.expiry
            .read_from(move || certificates.borrow().as_ref()?.expires_at());
    }
}

/// Until when the certificate in force is good.
type ReadExpiry = dyn Fn() -> Option<Timestamp> + Send;

/// Reads the certificate in force when somebody asks.
#[derive(Clone, Default)]
struct Expiry(Arc<Mutex<Option<Box<ReadExpiry>>>>);

impl Expiry {
    fn read_from(&self, read: impl Fn() -> Option<Timestamp> + Send + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(read));
    }

    fn of_current(&self) -> Option<Timestamp> {
        let read = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        read.as_ref()?()
    }
}

impl fmt::Debug for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expiry").finish_non_exhaustive()
    }
}

impl Collector for Expiry {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(expires_at) = self.of_current() else {
            return Ok(());
        };
        let name = "grove_certificate_expiry_timestamp_seconds";
        let help = "When the certificate ends that the webhooks are served with, in seconds since the epoch";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        metric.encode_gauge(&expires_at.as_second())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use tokio::sync::watch;

    use super::*;
    use crate::certificates::Certificates;

    #[test]
    fn answers_and_the_end_of_the_certificate_are_what_a_scrape_reads() {
        let (metrics, mut registry) = (Metrics::default(), Registry::default());
        metrics.register(&mut registry);
        let scrape = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        let (sender, current) = watch::channel(None);
        metrics.follow(current);
        assert!(!scrape().contains("grove_certificate"), "there is none yet");
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(2031, 5, 6);
        let pem = params.self_signed(&key).unwrap().pem();
        let certificates = Certificates::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes(), None).unwrap();
        sender.send_replace(Some(certificates));
        metrics.answered("/webhooks/validate-podcliqueset", "refused", Duration::from_millis(1));
        let text = scrape();
        for line in [
            "grove_certificate_expiry_timestamp_seconds 1935792000",
            "grove_webhook_duration_seconds_count{webhook=\"validate-podcliqueset\",result=\"refused\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
