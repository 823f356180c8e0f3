//! Grove's kinds on a control plane.

use std::time::Duration;

use anyhow::{Result, ensure};
use grove_api::crds;
use grove_e2e::{ControlPlane, Identity, eventually};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, PostParams};

/// Ten times what it takes on an idle machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Makes the API server serve Grove's kinds, and others.
pub(crate) async fn install_kinds(plane: &ControlPlane, others: &[CustomResourceDefinition]) -> Result<()> {
    let definitions = Api::<CustomResourceDefinition>::all(plane.client(Identity::Admin).await?);
    for definition in crds::all().iter().chain(others) {
        definitions.create(&PostParams::default(), definition).await?;
    }
    eventually("kinds to be served", LIMIT, async || -> Result<()> {
        for definition in definitions.list(&ListParams::default()).await? {
            let conditions = definition.status.and_then(|status| status.conditions);
            let mut conditions = conditions.into_iter().flatten();
            ensure!(
                conditions.any(|condition| condition.type_ == "Established" && condition.status == "True"),
                "{} is not",
                definition.metadata.name.unwrap_or_default()
            );
        }
        Ok(())
    })
    .await?;
    Ok(())
}
