//! MNNVL: a ComputeDomain for each NVLink group of each replica. NVIDIA's driver is not run: of it there is only the
//! definition of its kind, so that pods that claim a channel wait for ever.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use grove_api::{ComputeDomain, PodCliqueSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::PostParams;

use crate::support::{Place, WORKLOAD, names};

async fn has_domains(place: &Place, expected: &[&str]) -> Result<()> {
    place
        .until("the ComputeDomains to be as many as the replicas", async |place| {
            Ok(names(&place.list::<ComputeDomain>().await?) == expected)
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mnnvl_domains_follow_the_scale_and_go_with_the_set() -> Result<()> {
    let place = Place::new("mnnvl").await?;
    let mut set: PodCliqueSet = serde_saphyr::from_str(WORKLOAD)?;
    set.metadata.annotations = Some([("grove.io/mnnvl-group".to_owned(), "nv".to_owned())].into());
    let limits = serde_json::json!({"limits": {"nvidia.com/gpu": "1"}});
    let containers = &mut set.spec.template.cliques[0].spec.pod_spec.containers;
    containers.first_mut().context("a container")?.resources = Some(serde_json::from_value(limits)?);
    place.all().create(&PostParams::default(), &set).await?;
    has_domains(&place, &["w-0-nv"]).await?;
    place
        .until("the pods with GPUs to claim a channel, and no others", async |place| {
            let pods = place.list::<Pod>().await?;
            let claims = |pod: &&Pod| {
                let mut claims = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
                claims.any(|claim| claim.resource_claim_template_name.as_deref() == Some("w-0-nv"))
            };
            let claiming: BTreeSet<bool> = pods
                .iter()
                .filter(claims)
                .map(|pod| pod.name_any().starts_with("w-0-pc-a-"))
                .collect();
            Ok(pods.iter().filter(claims).count() == 2 && claiming == BTreeSet::from([true]))
        })
        .await?;
    place.scale::<PodCliqueSet>("w", 2).await?;
    has_domains(&place, &["w-0-nv", "w-1-nv"]).await?;
    place.scale::<PodCliqueSet>("w", 1).await?;
    has_domains(&place, &["w-0-nv"]).await?;
    place.delete::<PodCliqueSet>("w").await?;
    has_domains(&place, &[]).await
}
