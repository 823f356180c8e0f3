//! What controllers tell about their work: how much of it is due, and how long a look takes.
//!
//! The controllers of one process tell together, because a metric has one place in a registry. Labels come from closed
//! sets; no object has a series of its own. What waits is counted when somebody asks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::{Outcome, Queue};

/// From a tenth of a millisecond to twenty seconds.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 3.0, 12))
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Look {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByController {
    controller: &'static str,
}

/// The looks of all controllers of a process. Clones count together.
#[derive(Clone, Debug)]
pub struct Looks {
    waiting: Waiting,
    took: Family<Look, Histogram, fn() -> Histogram>,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            waiting: Waiting::default(),
            took: Family::new_with_constructor(seconds),
        }
    }
}

impl Looks {
    /// Puts them where they are asked for.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.waiting.clone()));
        registry.register_with_unit(
            "grove_reconcile_duration",
            "One look at one thing, its writes included: settled, to be looked at again later, or failed",
            Unit::Seconds,
            self.took.clone(),
        );
    }

    /// Counts what is due in a queue from now on, for these controllers. `of` says whose a key is.
    pub fn follow<K>(&self, queue: &Arc<Queue<K>>, controllers: &'static [&'static str], of: fn(&K) -> &'static str)
    where
        K: Clone + Ord + fmt::Debug + Send + 'static,
    {
        let queue = queue.clone();
        let depths: Depths = Box::new(move || {
            let due = queue.depths(of);
            let depth = |controller: &&'static str| (*controller, due.get(controller).copied().unwrap_or(0));
            controllers.iter().map(depth).collect()
        });
        // The queue of a controller that begins anew takes the place of the one before.
        self.waiting.queues().insert(controllers, depths);
    }

    /// One look has ended.
    pub fn looked(&self, controller: &'static str, outcome: &Outcome, took: Duration) {
        let result = match outcome {
            Outcome::Settled => "settled",
            Outcome::LookAgain(_) => "again",
            Outcome::Failed(_) => "failed",
        };
        let series = self.took.get_or_create(&Look { controller, result });
        series.observe(took.as_secs_f64());
    }
}

/// How much is due, by controller.
type Depths = Box<dyn Fn() -> Vec<(&'static str, usize)> + Send>;
type Queues = BTreeMap<&'static [&'static str], Depths>;

/// The queues that there are: a replica that does not lead has none.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<Queues>>);

impl Waiting {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}

impl Collector for Waiting {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let depths: Vec<_> = self.queues().values().flat_map(|depths| depths()).collect();
        if depths.is_empty() {
            return Ok(());
        }
        let help = "Things that are due to be looked at and have to wait for a worker";
        let mut metric = encoder.encode_descriptor("grove_queue_depth", help, None, MetricType::Gauge)?;
        for (controller, depth) in depths {
            metric
                .encode_family(&ByController { controller })?
                .encode_gauge(&(depth as u64))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn controllers_of_one_process_are_told_under_one_name() {
        let (looks, mut registry) = (Looks::default(), Registry::default());
        looks.register(&mut registry);
        let scrape = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        assert!(!scrape().contains("grove_queue_depth"), "nobody leads yet");
        let (numbers, words) = (Arc::new(Queue::default()), Arc::new(Queue::default()));
        looks.follow(&numbers, &["even", "odd"], |number: &u8| {
            if number.is_multiple_of(2) { "even" } else { "odd" }
        });
        looks.follow(&words, &["word"], |_| "word");
        for number in [2_u8, 4] {
            numbers.add(number);
        }
        words.add("one");
        looks.looked("word", &Outcome::Failed("x".to_owned()), Duration::from_millis(3));
        looks.looked("odd", &Outcome::Settled, Duration::from_millis(3));
        let text = scrape();
        for line in [
            "grove_queue_depth{controller=\"even\"} 2",
            "grove_queue_depth{controller=\"odd\"} 0",
            "grove_queue_depth{controller=\"word\"} 1",
            "grove_reconcile_duration_seconds_count{controller=\"word\",result=\"failed\"} 1",
            "grove_reconcile_duration_seconds_count{controller=\"odd\",result=\"settled\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert_eq!(text.matches("# TYPE grove_queue_depth").count(), 1, "{text}");
        let anew = Arc::new(Queue::<&str>::default());
        looks.follow(&anew, &["word"], |_| "word");
        assert!(scrape().contains("grove_queue_depth{controller=\"word\"} 0"));
    }
}
