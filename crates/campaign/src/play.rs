//! One run: a scenario, a seed, and faults. What happened is handed back whole; nothing is judged here.
//!
//! ```text
//! begins ─ faults on ─ acts ─ a while ─ faults off ─ 10 minutes ─ end ─ 10 minutes ─ everything deleted ─ left
//! ```

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use grove_hostile::panics::heard;
use grove_simcluster::Cluster;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::fault::{Fault, Points, install};
use crate::process::{Role, is_ours};
use crate::scenario::{Scenario, named};
use crate::trace::{self, Change};
use crate::world::{NotTaken, World};

/// How long faults last after the last act.
const FAULTS_LAST: Duration = Duration::from_secs(30);
/// How long it may take until everything is as it would be without faults, and how long nothing is written then.
const CONVERGES: Duration = Duration::from_secs(600);
const RESTS: Duration = Duration::from_secs(600);
/// After this long nothing may be left of what was deleted.
const GOES: Duration = Duration::from_secs(300);

/// What to play: enough to play it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plot {
    pub scenario: String,
    pub seed: u64,
    #[serde(default)]
    pub faults: Vec<Fault>,
}

/// Somebody more who acts on the cluster from the first act on: a bug that is put in to see that it is found.
pub type Actor = Arc<dyn Fn(Arc<Cluster>) -> BoxFuture<'static, ()> + Send + Sync>;

/// What happened.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) changes: Vec<Change>,
    /// Which of the changes was the first after faults were put in force, after the time to converge, and after the time
    /// at rest.
    pub(crate) begun: usize,
    pub(crate) ended: usize,
    pub(crate) rested: usize,
    /// Writes that our processes asked for between beginning and end, carried out or not.
    pub(crate) points: Points,
    /// Lives that faults ended.
    pub(crate) kills: usize,
    pub(crate) panics: Vec<String>,
    /// What people could not do.
    pub(crate) not_taken: Option<String>,
    /// By how much clocks jumped in all: times of changes are off by so much.
    pub(crate) jumped: SignedDuration,
    /// One number for all writes and requests, in order.
    pub(crate) hash: u64,
}

impl Played {
    /// What was written while there were faults, and until it must have converged.
    pub(crate) fn acts(&self) -> &[Change] {
        &self.changes[self.begun..self.ended]
    }

    /// What was written when it should have been at rest.
    pub(crate) fn at_rest(&self) -> &[Change] {
        &self.changes[self.ended..self.rested]
    }
}

/// Why something cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    #[error("there is no scenario '{0}'; see --list")]
    NoSuchScenario(String),
    #[error("the runtime did not start")]
    Runtime(#[from] std::io::Error),
    #[error("the cluster did not start: {0}")]
    Start(String),
}

/// Plays it on a runtime of its own, in virtual time.
pub(crate) fn play(plot: &Plot, actor: Option<&Actor>) -> Result<Played, PlayError> {
    let scenario = named(&plot.scenario).ok_or_else(|| PlayError::NoSuchScenario(plot.scenario.clone()))?;
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build()?;
    let (played, panics) = heard(|| runtime.block_on(play_here(&scenario, plot, actor)));
    Ok(Played { panics, ..played? })
}

async fn play_here(scenario: &Scenario, plot: &Plot, actor: Option<&Actor>) -> Result<Played, PlayError> {
    let not_started = |error: NotTaken| PlayError::Start(error.to_string());
    let world = World::start(plot.seed).await.map_err(not_started)?;
    for step in &scenario.begins {
        world.take(step).await.map_err(not_started)?;
    }
    world.mark().await.map_err(not_started)?;
    let (begun, asked) = (world.cluster.store().revision(), writes_asked(&world));
    install(&world, &plot.faults);
    if let Some(actor) = actor {
        tokio::spawn(actor(world.cluster.clone()));
    }
    let mut not_taken = act(&world, scenario).await.err();
    tokio::time::sleep(FAULTS_LAST).await;
    world.cluster.faults().clear();

    tokio::time::sleep(CONVERGES).await;
    let (ended, asked_at_end) = (world.cluster.store().revision(), writes_asked(&world));
    tokio::time::sleep(RESTS).await;
    let rested = world.cluster.store().revision();
    if let Err(error) = world.clear().await {
        not_taken.get_or_insert(error);
    }
    tokio::time::sleep(GOES).await;

    let history = world.cluster.history();
    let changes = history.map(trace::read).unwrap_or_default();
    let index_of = |revision: u64| changes.partition_point(|change| change.revision <= revision);
    Ok(Played {
        begun: index_of(begun),
        ended: index_of(ended),
        rested: index_of(rested),
        changes,
        points: Points {
            operator: asked_at_end.operator - asked.operator,
            scheduler: asked_at_end.scheduler - asked.scheduler,
        },
        kills: world.kills(),
        panics: vec![],
        not_taken: not_taken.map(|error| error.to_string()),
        jumped: jumped(&plot.faults),
        hash: history.map(|history| history.hash()).unwrap_or_default(),
    })
}

fn jumped(faults: &[Fault]) -> SignedDuration {
    let jumps = faults.iter().map(|fault| match fault {
        Fault::Clock { jump, .. } => SignedDuration::from_secs(jump.saturating_abs()),
        _ => SignedDuration::ZERO,
    });
    jumps.fold(SignedDuration::ZERO, SignedDuration::saturating_add)
}

async fn act(world: &World, scenario: &Scenario) -> Result<(), NotTaken> {
    for step in &scenario.acts {
        world.take(step).await?;
    }
    Ok(())
}

/// How many requests to change something each process has made so far.
fn writes_asked(world: &World) -> Points {
    let requests = world
        .cluster
        .history()
        .map(|history| history.requests())
        .unwrap_or_default();
    let mut points = Points::default();
    for asked in requests.iter().filter(|asked| asked.intent.verb.is_write()) {
        match asked.intent.user.as_str() {
            user if user == Role::Operator.user() => points.operator += 1,
            user if is_ours(user) => points.scheduler += 1,
            _ => {}
        }
    }
    points
}
