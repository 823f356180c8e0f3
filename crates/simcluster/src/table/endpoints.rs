//! Where Services lead, in the cells of Endpoints and EndpointSlices.

use jiff::Timestamp;
use serde_json::Value;

use super::builtin::{age, array, int, name, text};

/// So many items are shown; of the others it is told how many they are.
const SHOWN_MAX: usize = 3;

fn join(items: &[String]) -> String {
    let shown = items[..items.len().min(SHOWN_MAX)].join(",");
    match items.len().saturating_sub(SHOWN_MAX) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

pub(super) fn endpoints(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut addresses = Vec::new();
    for subset in array(object, "/subsets") {
        let ips = || array(subset, "/addresses").map(|address| text(address, "/ip"));
        let mut ports = array(subset, "/ports").peekable();
        if ports.peek().is_none() {
            addresses.extend(ips().map(str::to_owned));
        }
        for port in ports {
            addresses.extend(ips().map(|ip| host_port(ip, int(port, "/port"))));
        }
    }
    let shown: Value = match array(object, "/subsets").next() {
        None => "<none>".into(),
        Some(_) => join(&addresses).into(),
    };
    vec![name(object), shown, age(object, now)]
}

fn host_port(ip: &str, port: i64) -> String {
    match ip.contains(':') {
        true => format!("[{ip}]:{port}"),
        false => format!("{ip}:{port}"),
    }
}

pub(super) fn slice(object: &Value, now: Timestamp) -> Vec<Value> {
    let port = |port: &Value| match (port["port"].as_i64(), port["name"].as_str()) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "*".to_owned(),
    };
    let ports: Vec<String> = array(object, "/ports").map(port).collect();
    let addresses: Vec<String> = array(object, "/endpoints")
        .flat_map(|endpoint| array(endpoint, "/addresses"))
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let or_unset = |items: &[String]| match join(items) {
        none if none.is_empty() => "<unset>".to_owned(),
        some => some,
    };
    vec![
        name(object),
        text(object, "/addressType").into(),
        or_unset(&ports).into(),
        or_unset(&addresses).into(),
        age(object, now),
    ]
}
