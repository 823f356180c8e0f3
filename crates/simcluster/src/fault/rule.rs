//! What can go wrong, to which requests, and how often: the words of a script.

use std::time::Duration;

use crate::server::{Intent, Verb};
use crate::store::ResourceName;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// The connection breaks before the server acts.
    FailBefore,
    /// The server acts, and the connection breaks before the answer is through.
    FailAfter,
    /// 409: somebody else wrote first.
    Conflict,
    /// 429, with the time after which to come back.
    TooManyRequests {
        /// Seconds in `Retry-After`.
        retry_after_secs: u32,
    },
    /// 500.
    Internal,
    /// 504 after the API server's minute.
    Timeout {
        /// Whether the write was done all the same.
        written: bool,
    },
    /// No answer at all; the client has to give up by itself.
    NoReply {
        /// Whether the write was done all the same.
        written: bool,
    },
    /// The answer comes later.
    Slow(Duration),
    /// A get or a list shows the state of so many revisions ago, as far as the history goes back.
    Stale {
        /// How many revisions.
        revisions: u64,
    },
    /// 403: the namespace's quota is used up.
    QuotaFull,
}

impl RequestFault {
    /// Whether a request of this kind can meet this fault at all.
    fn fits(self, intent: &Intent) -> bool {
        match self {
            RequestFault::Stale { .. } => matches!(intent.verb, Verb::Get | Verb::List),
            RequestFault::Conflict => matches!(intent.verb, Verb::Update | Verb::Patch | Verb::Delete),
            RequestFault::QuotaFull => intent.verb == Verb::Create && intent.subresource.is_empty(),
            _ => true,
        }
    }
}

/// What happens to an event of a watch, or to an open watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFault {
    /// The event, and with it all that follow on this watch, comes later.
    Delay(Duration),
    /// The event comes twice.
    Duplicate,
    /// The event does not come, and the watch ends: whoever resumes will see it.
    Drop,
    /// The watch ends after the event.
    Cut,
    /// Instead of the event comes 410 Gone, and the watch ends: whoever goes on has to list again.
    Gone,
    /// The watch stays open and says nothing more.
    Freeze,
}

/// Which requests a rule is about; what is not said does not matter.
#[derive(Clone, Debug, Default)]
pub struct Match {
    verb: Option<Verb>,
    resource: Option<ResourceName>,
    subresource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    user: Option<String>,
}

impl Match {
    /// Every request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Only this verb.
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verb = Some(verb);
        self
    }

    /// Only this resource, by group and plural name.
    pub fn resource(mut self, group: &str, plural: &str) -> Self {
        self.resource = Some(ResourceName::new(group, plural));
        self
    }

    /// Only this subresource; empty is the object itself.
    pub fn subresource(mut self, path: &str) -> Self {
        self.subresource = Some(path.to_owned());
        self
    }

    /// Only this namespace.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Only the object of this name.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Only this user.
    pub fn user(mut self, user: &str) -> Self {
        self.user = Some(user.to_owned());
        self
    }

    /// Whether the intent is one of those.
    pub(crate) fn matches(&self, intent: &Intent) -> bool {
        let is = |wanted: &Option<String>, actual: &str| wanted.as_deref().is_none_or(|wanted| wanted == actual);
        self.verb.is_none_or(|verb| verb == intent.verb)
            && self
                .resource
                .as_ref()
                .is_none_or(|resource| *resource == intent.resource)
            && is(&self.subresource, &intent.subresource)
            && is(&self.namespace, &intent.namespace)
            && is(&self.name, &intent.name)
            && is(&self.user, &intent.user)
    }
}

#[derive(Clone, Copy, Debug)]
enum Effect {
    Request(RequestFault),
    Watch(WatchFault),
}

/// One line of a script: which requests or events, which of them, and what happens.
#[derive(Clone, Debug)]
pub struct Rule {
    matching: Match,
    effect: Effect,
    /// How many matches pass before the first one that is hit.
    skip: u64,
    /// How many are hit; `None` is all that follow.
    times: Option<u64>,
}

impl Rule {
    /// Hits the first matching request.
    pub fn request(matching: Match, fault: RequestFault) -> Self {
        Self::new(matching, Effect::Request(fault))
    }

    /// Hits the first event that a matching watch is about to tell. Namespace and name are those of the object.
    pub fn event(matching: Match, fault: WatchFault) -> Self {
        Self::new(matching, Effect::Watch(fault))
    }

    fn new(matching: Match, effect: Effect) -> Self {
        Self {
            matching,
            effect,
            skip: 0,
            times: Some(1),
        }
    }

    /// Begins with the n-th match, counted from 1.
    pub fn nth(mut self, n: u64) -> Self {
        self.skip = n.saturating_sub(1);
        self
    }

    /// Hits so many matches in a row.
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Hits every match from the first one on.
    pub fn always(mut self) -> Self {
        self.times = None;
        self
    }

    /// Counts a match; whether it is one that is hit.
    fn is_due(&mut self) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        match &mut self.times {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }
}

/// The fault that the script has for a request. Of several rules that are due, the first one counts.
pub(super) fn scripted_request(rules: &mut [Rule], intent: &Intent) -> Option<RequestFault> {
    rules.iter_mut().find_map(|rule| match rule.effect {
        Effect::Request(fault) if fault.fits(intent) && rule.matching.matches(intent) => rule.is_due().then_some(fault),
        _ => None,
    })
}

/// The fault that the script has for an event.
pub(super) fn scripted_event(rules: &mut [Rule], intent: &Intent) -> Option<WatchFault> {
    rules.iter_mut().find_map(|rule| match rule.effect {
        Effect::Watch(fault) if rule.matching.matches(intent) => rule.is_due().then_some(fault),
        _ => None,
    })
}

/// Faults by chance: how likely each one is. Durations and revisions are upper bounds, drawn evenly.
#[derive(Clone, Debug, Default)]
pub struct Mix {
    pub(super) matching: Match,
    pub(super) requests: Vec<(f64, RequestFault)>,
    pub(super) events: Vec<(f64, WatchFault)>,
    pub(super) lag_max: Duration,
    pub(super) webhook_down: f64,
}

impl Mix {
    /// No fault yet, on the requests and watches that match.
    pub fn on(matching: Match) -> Self {
        Self {
            matching,
            ..Self::default()
        }
    }

    /// Every kind of fault that a client must survive, each with this probability.
    pub fn of_everything(matching: Match, probability: f64) -> Self {
        use RequestFault::*;
        let second = Duration::from_secs(1);
        let requests = [
            FailBefore,
            FailAfter,
            Conflict,
            TooManyRequests { retry_after_secs: 1 },
            Internal,
            Timeout { written: false },
            Timeout { written: true },
            Slow(5 * second),
            Stale { revisions: 50 },
            QuotaFull,
        ];
        let events = [
            WatchFault::Delay(10 * second),
            WatchFault::Duplicate,
            WatchFault::Drop,
            WatchFault::Cut,
            WatchFault::Gone,
            WatchFault::Freeze,
        ];
        let mut mix = Self::on(matching).lag(2 * second).webhook_down(probability);
        mix.requests = requests.map(|fault| (probability, fault)).to_vec();
        mix.events = events.map(|fault| (probability, fault)).to_vec();
        mix
    }

    /// Adds a fault of requests.
    pub fn request(mut self, probability: f64, fault: RequestFault) -> Self {
        self.requests.push((probability, fault));
        self
    }

    /// Adds a fault of watch events.
    pub fn event(mut self, probability: f64, fault: WatchFault) -> Self {
        self.events.push((probability, fault));
        self
    }

    /// Gives every watch a delay of its own, so that events of different kinds arrive out of order.
    pub fn lag(mut self, max: Duration) -> Self {
        self.lag_max = max;
        self
    }

    /// How likely a webhook does not answer a call.
    pub fn webhook_down(mut self, probability: f64) -> Self {
        self.webhook_down = probability;
        self
    }

    /// The faults that this request can meet.
    pub(super) fn requests_for(&self, intent: &Intent) -> Vec<(f64, RequestFault)> {
        let fitting = self.requests.iter().filter(|(_, fault)| fault.fits(intent));
        fitting.copied().collect()
    }
}
