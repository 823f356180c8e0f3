//! The headless Service of each replica: it gives every pod a DNS name.

use grove_api::labels;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};

use super::Expansion;
use crate::meta::{base_labels, child_meta};
use crate::names;

impl Expansion<'_> {
    pub(super) fn service(&self, replica: i32) -> Service {
        let set = self.set_name();
        let index = (labels::PCS_REPLICA_INDEX.to_owned(), replica.to_string());
        let mut metadata = child_meta(
            self.set,
            &names::service(&set, replica),
            Some(labels::component::HEADLESS_SERVICE),
        );
        metadata.labels.get_or_insert_default().extend([index.clone()]);
        let mut selector = base_labels(&set);
        selector.extend([index]);
        let config = self
            .set
            .spec
            .template
            .headless_service_config
            .clone()
            .unwrap_or_default();
        let spec = ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            selector: Some(selector),
            publish_not_ready_addresses: Some(config.publish_not_ready_addresses),
            ..ServiceSpec::default()
        };
        Service {
            metadata,
            spec: Some(spec),
            status: None,
        }
    }
}
