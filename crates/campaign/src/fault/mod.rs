//! What goes wrong in a run, as plain data: it can be drawn from a seed, printed, shrunk, and played again.

mod draw;
mod install;

use std::time::Duration;

use grove_simcluster::fault::{RequestFault, WatchFault};
use serde::{Deserialize, Serialize};

use crate::process::Role;
pub use draw::{Dice, Points};
pub(crate) use install::install;

/// At which moment of a write a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moment {
    BeforeWrite,
    BeforeReply,
    AfterReply,
}

impl Moment {
    pub const ALL: [Self; 3] = [Self::BeforeWrite, Self::BeforeReply, Self::AfterReply];
}

impl From<Moment> for grove_simcluster::fault::Moment {
    fn from(moment: Moment) -> Self {
        match moment {
            Moment::BeforeWrite => Self::BeforeWrite,
            Moment::BeforeReply => Self::BeforeReply,
            Moment::AfterReply => Self::AfterReply,
        }
    }
}

/// What happens to an event of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    Late { seconds: u64 },
    Twice,
    Never,
    ThenClosed,
    Gone,
    ThenSilence,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    LostBefore,
    LostAfter,
    Conflict,
    TooMany,
    Internal,
    Timeout { written: bool },
    Slow { seconds: u64 },
}

impl From<Answer> for RequestFault {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::LostBefore => Self::FailBefore,
            Answer::LostAfter => Self::FailAfter,
            Answer::Conflict => Self::Conflict,
            Answer::TooMany => Self::TooManyRequests { retry_after_secs: 1 },
            Answer::Internal => Self::Internal,
            Answer::Timeout { written } => Self::Timeout { written },
            Answer::Slow { seconds } => Self::Slow(Duration::from_secs(seconds)),
        }
    }
}

impl From<Told> for WatchFault {
    fn from(told: Told) -> Self {
        match told {
            Told::Late { seconds } => Self::Delay(Duration::from_secs(seconds)),
            Told::Twice => Self::Duplicate,
            Told::Never => Self::Drop,
            Told::ThenClosed => Self::Cut,
            Told::Gone => Self::Gone,
            Told::ThenSilence => Self::Freeze,
        }
    }
}

/// One fault. Writes, requests and events are counted from the first act on, from 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The process dies at a write, and starts again.
    Kill { role: Role, write: u64, moment: Moment },
    /// Reads from the nth on show the state of so many revisions ago.
    Stale {
        role: Role,
        nth: u64,
        times: u64,
        revisions: u64,
    },
    /// Something happens to an event on its way to a process.
    Event { role: Role, nth: u64, told: Told },
    /// Something happens to requests from the nth on.
    Request {
        role: Role,
        nth: u64,
        times: u64,
        answer: Answer,
    },
    /// So many of a hundred requests of everybody end so.
    Chance { percent: u8, answer: Answer },
    /// So many of a hundred events of everybody are told so.
    ChanceOfEvent { percent: u8, told: Told },
    /// Another controller writes into everything that is owned, so many times in a second.
    Storm { per_second: u32, seconds: u64 },
    /// So many of a hundred calls of webhooks find nobody.
    Webhooks { percent: u8 },
    /// After so many seconds the clock of the cluster and of everybody jumps.
    Clock { after: u64, jump: i64 },
    /// A process's own clock is faster, or slower, by so many hundredths.
    Drift { role: Role, percent: i64 },
    /// After so many seconds a leader is frozen, another takes over, and the first one wakes up later.
    Freeze { role: Role, after: u64, seconds: u64 },
    /// No object can be created: the quota is used up.
    Quota { role: Role, nth: u64, times: u64 },
    /// Nothing can be written but deletions: the store is full.
    NoSpace { role: Role, nth: u64, times: u64 },
}

/// The rows of the table: sorts of faults that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    Kill,
    KillPair,
    Stale,
    Watch,
    Storm,
    Errors,
    Webhooks,
    Clock,
    Leader,
    Quota,
    Swarm,
}

impl Row {
    pub const ALL: [Self; 11] = [
        Self::Kill,
        Self::KillPair,
        Self::Stale,
        Self::Watch,
        Self::Storm,
        Self::Errors,
        Self::Webhooks,
        Self::Clock,
        Self::Leader,
        Self::Quota,
        Self::Swarm,
    ];

    /// What it is in a table, and on a command line in its first word.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Kill => ("kill", "killed before a write, before its reply, after it: every write"),
            Self::KillPair => ("kill-pair", "killed again while it recovers"),
            Self::Stale => ("stale", "lists and gets from the past, also after a restart"),
            Self::Watch => ("watch", "events dropped, doubled, late; 410, closed, silent"),
            Self::Storm => ("storm", "another controller writes 10–50 times a second"),
            Self::Errors => (
                "errors",
                "429, 500, conflicts, timeouts and lost answers, up to 25 % of calls",
            ),
            Self::Webhooks => ("webhooks", "webhooks that answer or not"),
            Self::Clock => ("clock", "clocks that jump an hour, or run 5 % wrong"),
            Self::Leader => ("leader", "a leader frozen for a minute, and its successor"),
            Self::Quota => ("quota", "quota used up, store full"),
            Self::Swarm => ("swarm", "a random mix of all of these"),
        }
    }

    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|row| row.words().0 == word)
    }
}
