//! Leaders die and stand still.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use rustix::process::Signal;

use crate::stage::{Stage, recovery};

/// One that is killed leaves its Lease behind; one that stands still believes that it leads when it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_is_killed_and_another_is_paused_until_a_third_leads() -> Result<()> {
    let mut stage = Stage::shared("leaders").await?;
    let first = stage.candidate().await?;
    first.replica.says("registered the webhooks").await?;
    let second = stage.candidate().await?;
    second.replica.says("another replica leads").await?;
    stage.calm().await?;
    stage.create("w", 30).await?;
    stage.has_at_least(5).await?;
    first.replica.kill().await?;
    let before = recovery("leader killed", stage.all_ready(30, &BTreeSet::new())).await?;

    let third = stage.candidate().await?;
    third.replica.says("another replica leads").await?;
    stage.scale(40).await?;
    stage.has_at_least(32).await?;
    second.replica.signal(Signal::STOP)?;
    recovery("leader paused", third.replica.says("elected leader")).await?;
    let before = stage.all_ready(40, &before).await?;
    stage.scale(60).await?;
    stage.has_at_least(42).await?;
    let made = second.proxy.writes();
    second.replica.signal(Signal::CONT)?;
    second.replica.says("lost lease").await?;
    recovery("leader resumed beside another", stage.all_ready(60, &before)).await?;
    // One request may have been on its way to the socket when the process was stopped.
    let late = second.proxy.writes() - made;
    println!("leader resumed: {late} writes before it knew");
    ensure!(late <= 1, "{late} writes of a leader whose time was over");
    third.replica.terminate().await?;
    Ok(())
}
