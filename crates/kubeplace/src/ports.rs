//! Host ports as resources.
//!
//! A port that is asked for on all addresses keeps everybody else off it; one that is asked for on a single address
//! keeps off whoever wants that address or all of them. With many tickets for a port, one for each address that uses
//! it and all of them for a pod that wants every address, both rules are sums.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PodSpec;

/// Addresses of one node that may share a port number.
const TICKETS: u64 = 1 << 16;

/// A resource that stands for a port: its name, what every node has of it and what the pod takes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortClaim {
    pub(crate) resource: String,
    pub(crate) everywhere: u64,
    pub(crate) amount: u64,
}

/// What a pod's host ports take. A port that two of its containers name is one port.
pub(crate) fn claims(spec: &PodSpec) -> Vec<PortClaim> {
    let on_host = spec.host_network == Some(true);
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| &container.ports);
    let mut claims = BTreeSet::new();
    for port in ports.flatten() {
        // On the host's network a container's port is the host's, which the API server fills in.
        let number = port.host_port.filter(|number| *number > 0);
        let Some(number) = number.or_else(|| on_host.then_some(port.container_port)) else {
            continue;
        };
        let protocol = port
            .protocol
            .as_deref()
            .filter(|text| !text.is_empty())
            .unwrap_or("TCP");
        let resource = format!("port/{protocol}/{number}");
        let address = port.host_ip.as_deref().unwrap_or("");
        let is_single = !["", "0.0.0.0", "::"].contains(&address);
        claims.insert(PortClaim {
            resource: resource.clone(),
            everywhere: TICKETS,
            amount: if is_single { 1 } else { TICKETS },
        });
        if is_single {
            claims.insert(PortClaim {
                resource: format!("{resource}/{address}"),
                everywhere: 1,
                amount: 1,
            });
        }
    }
    claims.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn taken(spec: Value) -> Vec<(String, u64)> {
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        claims(&spec)
            .into_iter()
            .map(|claim| (claim.resource, claim.amount))
            .collect()
    }

    fn with_ports(ports: Value, host_network: bool) -> Vec<(String, u64)> {
        taken(json!({"hostNetwork": host_network, "containers": [{"name": "a", "ports": ports}]}))
    }

    #[test]
    fn only_ports_of_the_host_count() {
        let ports = json!([{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081, "protocol": "UDP"}]);
        assert_eq!(
            with_ports(ports.clone(), false),
            [("port/UDP/8081".to_owned(), TICKETS)]
        );
        assert_eq!(with_ports(ports, true).len(), 2);
    }

    #[test]
    fn one_address_leaves_the_others_free() {
        let ports = |address: &str| json!([{"containerPort": 80, "hostPort": 80, "hostIP": address}]);
        let [first, second] = ["10.0.0.1", "10.0.0.2"].map(|address| with_ports(ports(address), false));
        let everywhere = with_ports(ports("0.0.0.0"), false);
        let sum = |one: &[(String, u64)], other: &[(String, u64)]| {
            let all = one.iter().chain(other).filter(|(name, _)| name == "port/TCP/80");
            all.map(|(_, amount)| amount).sum::<u64>()
        };
        assert!(sum(&first, &second) <= TICKETS, "they share the port");
        assert!(sum(&first, &everywhere) > TICKETS, "all addresses include this one");
        assert_ne!(first[1].0, second[1].0);
    }
}
