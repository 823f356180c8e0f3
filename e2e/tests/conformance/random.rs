//! Sequences of operations that nobody thought of: a seed makes them, both clusters run them, the answers must be equal.
//!
//! A sequence is a case like any other. It works on few objects with few values, so that operations meet: updates at old
//! revisions, managers that claim each other's fields, finalizers that hold what is deleted.

use serde_json::{Value, json};

use crate::case::{Case, Step};

/// Few enough that a difference can be read, many enough that operations meet.
const STEPS: std::ops::RangeInclusive<u64> = 5..=14;

/// The object that is made last of each kind.
const END: &str = "end";

/// A small generator with a long period (splitmix64): the same seed makes the same sequence on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        let index = self.below(choices.len() as u64);
        choices[usize::try_from(index).unwrap_or_default()]
    }
}

/// What a sequence works on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    ConfigMap,
    Service,
    Widget,
    Pod,
}

/// What sequences of a family work on. A family keeps its seeds: a new kind comes in a new family.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    /// Plain objects and custom ones.
    Objects,
    /// Pods with their status and binding, custom objects with their status and scale.
    Subresources,
}

impl Family {
    fn kinds(self) -> &'static [Kind] {
        match self {
            Family::Objects => &[Kind::ConfigMap, Kind::Service, Kind::Widget],
            Family::Subresources => &[Kind::Pod, Kind::Widget],
        }
    }

    fn pick(self, dice: &mut Dice) -> Kind {
        match (self, dice.below(4)) {
            (Family::Objects, 0) => Kind::Service,
            (Family::Objects, 1 | 2) => Kind::Widget,
            (Family::Objects, _) => Kind::ConfigMap,
            (Family::Subresources, 0..3) => Kind::Pod,
            (Family::Subresources, _) => Kind::Widget,
        }
    }

    /// Listed differences: who owns what was written through `scale`, and the Go structs in errors about pods.
    fn ignored(self, method: &str, path: &str) -> Vec<String> {
        let pointers: &[&str] = match (self, method) {
            (Family::Subresources, _) if path.starts_with(Kind::Widget.plural()) => &[
                "/metadata/managedFields",
                "/items/*/metadata/managedFields",
                "/*/object/metadata/managedFields",
            ],
            (Family::Subresources, "PUT" | "PATCH") => &["/message", "/details/causes"],
            _ => &[],
        };
        pointers.iter().map(|pointer| (*pointer).to_owned()).collect()
    }
}

impl Kind {
    fn plural(self) -> &'static str {
        match self {
            Kind::ConfigMap => "configmaps",
            Kind::Service => "services",
            Kind::Widget => "widgets",
            Kind::Pod => "pods",
        }
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Kind::ConfigMap => ("v1", "ConfigMap"),
            Kind::Service => ("v1", "Service"),
            Kind::Widget => ("conformance.test/v1", "Widget"),
            Kind::Pod => ("v1", "Pod"),
        }
    }
}

struct Generator {
    family: Family,
    dice: Dice,
    steps: Vec<Step>,
    /// Revisions that earlier steps saw, as variables.
    seen: Vec<String>,
}

/// The sequence of a seed.
pub(crate) fn case(seed: u64) -> Case {
    case_of(Family::Objects, seed)
}

/// The sequence of a seed on pods and through subresources.
pub(crate) fn subresources(seed: u64) -> Case {
    case_of(Family::Subresources, seed)
}

fn case_of(family: Family, seed: u64) -> Case {
    let mut generator = Generator {
        family,
        dice: Dice(seed),
        steps: Vec::new(),
        seen: Vec::new(),
    };
    // The revision that the last step watches from: every event of the sequence must be the same.
    generator.push("POST", "secrets", Some(json!({"metadata": {"name": "begin"}})), None);
    generator.save_revision();
    let count = STEPS.start() + generator.dice.below(STEPS.end() - STEPS.start() + 1);
    for _ in 0..count {
        generator.operation();
    }
    for kind in family.kinds() {
        generator.watch(*kind);
    }
    Case {
        name: format!("seed {seed}"),
        steps: generator.steps,
    }
}

impl Generator {
    fn push(&mut self, method: &str, path: &str, body: Option<Value>, media_type: Option<&str>) {
        self.steps.push(Step {
            request: format!("{method} {path}"),
            body,
            media_type: media_type.map(str::to_owned),
            ignore: self.family.ignored(method, path),
            ..Step::default()
        });
    }

    /// Every event of a kind since the sequence began.
    fn watch(&mut self, kind: Kind) {
        let (api_version, kind_name) = kind.names();
        let mut end = match kind {
            Kind::ConfigMap | Kind::Widget => json!({}),
            Kind::Service => json!({"spec": {"ports": [{"port": 80}]}}),
            Kind::Pod => json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}),
        };
        end["apiVersion"] = json!(api_version);
        end["kind"] = json!(kind_name);
        end["metadata"] = json!({"name": END});
        self.push("POST", kind.plural(), Some(end), None);
        let path = format!(
            "{}?watch=true&timeoutSeconds=15&resourceVersion=${{rv0}}&fieldSelector=metadata.name!%3Dkube-root-ca.crt",
            kind.plural()
        );
        self.push("GET", &path, None, None);
        if let Some(step) = self.steps.last_mut() {
            step.last = Some(END.to_owned());
        }
    }

    /// Keeps the revision of the last step's answer, if it has one.
    fn save_revision(&mut self) {
        let variable = format!("rv{}", self.seen.len());
        if let Some(step) = self.steps.last_mut() {
            step.save_if_there = Some((variable.clone(), "/metadata/resourceVersion".to_owned()));
        }
        self.seen.push(variable);
    }

    fn operation(&mut self) {
        let kind = self.family.pick(&mut self.dice);
        let name = self.dice.pick(&["a", "b"]);
        let path = format!("{}/{name}", kind.plural());
        match self.dice.below(12) {
            0 | 1 => self.write("POST", kind.plural().to_owned(), kind, name),
            2 => self.write("PUT", path, kind, name),
            3 | 4 => self.merge(&path, kind),
            5 => self.json_patch(&path, kind),
            6 | 7 => self.apply(&path, kind, name),
            8 => self.delete(&path),
            9 if self.family == Family::Subresources && (kind == Kind::Pod || self.dice.one_in(2)) => {
                self.subresource(&path, kind, name);
            }
            9 => self.finalize(&path),
            10 => self.status(&path, kind),
            _ => self.read(&path, kind),
        }
    }

    fn options(&mut self) -> String {
        let mut options = vec![format!("fieldManager={}", self.dice.pick(&["one", "two"]))];
        if self.dice.one_in(10) {
            options.push("dryRun=All".to_owned());
        }
        if self.dice.one_in(4) {
            let validation = self.dice.pick(&["Strict", "Warn", "Ignore"]);
            options.push(format!("fieldValidation={validation}"));
        }
        options.join("&")
    }

    /// The desired state of an object, with few values for few fields.
    fn desired(&mut self, kind: Kind) -> Value {
        let value = self.dice.pick(&["v", "w"]);
        match kind {
            Kind::ConfigMap => match self.dice.below(4) {
                0 => json!({"data": {"k": value}}),
                1 => json!({"data": {"k": value, "m": value}}),
                2 => json!({"data": {"m": value}, "unknown": 1}),
                _ => json!({"binaryData": {"k": "AAEC"}, "data": {"m": value}}),
            },
            Kind::Service => match self.dice.below(3) {
                0 => json!({"spec": {"ports": [{"port": 80, "protocol": "TCP", "name": value}]}}),
                1 => json!({"spec": {"ports": [{"port": 80, "protocol": "TCP", "name": "a"},
                                               {"port": 81, "protocol": "TCP", "name": value}]}}),
                _ => json!({"spec": {"selector": {"app": value}, "ports": [{"port": 80, "protocol": "TCP"}]}}),
            },
            Kind::Pod => {
                let containers = json!([{"name": "c", "image": value}]);
                match self.dice.below(4) {
                    0 => json!({"spec": {"containers": containers, "schedulingGates": [{"name": "x.test/g"}]}}),
                    1 => json!({"spec": {"containers": containers, "nodeSelector": {"l": value}}}),
                    2 => {
                        json!({"spec": {"containers": containers, "tolerations": [{"key": value, "operator": "Exists"}]}})
                    }
                    _ => json!({"spec": {"containers": containers}}),
                }
            }
            Kind::Widget => match self.dice.below(7) {
                0 => json!({"spec": {"replicas": self.dice.below(3), "min": self.dice.below(3)}}),
                1 => json!({"spec": {"color": value}}),
                2 => json!({"spec": {"items": [{"name": "a", "value": value}]}}),
                3 => json!({"spec": {"items": [{"name": "b", "value": value}, {"name": "a"}], "tags": [value]}}),
                4 => json!({"spec": {"tags": ["p", value], "labels": {"l": value}}}),
                5 => json!({"spec": {"grow": self.dice.below(4), "template": {"image": value, "nested": {}}}}),
                _ => json!({"spec": {"plain": [value], "nonsense": 1, "free": {"any": value}}}),
            },
        }
    }

    fn metadata(&mut self, name: &str) -> Value {
        let mut metadata = json!({ "name": name });
        if self.dice.one_in(3) {
            metadata["labels"] = json!({"l": self.dice.pick(&["v", "w"])});
        }
        if self.dice.one_in(6) {
            metadata["finalizers"] = json!([self.dice.pick(&["x.test/f", "x.test/g"])]);
        }
        metadata
    }

    fn whole(&mut self, kind: Kind, name: &str) -> Value {
        let (api_version, kind_name) = kind.names();
        let mut object = self.desired(kind);
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind_name);
        object["metadata"] = self.metadata(name);
        if let (Kind::Pod, Some(metadata)) = (kind, object["metadata"].as_object_mut()) {
            // The controller manager gives up a deleted pod that nobody bound, in its own time.
            metadata.remove("finalizers");
        }
        object
    }

    fn write(&mut self, method: &str, path: String, kind: Kind, name: &str) {
        let mut object = self.whole(kind, name);
        if method == "PUT" && self.dice.one_in(2) {
            object["metadata"]["resourceVersion"] = json!(self.revision());
        }
        let options = self.options();
        self.push(method, &format!("{path}?{options}"), Some(object), None);
        self.save_revision();
    }

    /// A revision that an earlier answer had; mostly an old one.
    fn revision(&mut self) -> String {
        let seen: Vec<&str> = self.seen.iter().map(String::as_str).collect();
        let variable = if self.dice.one_in(2) {
            seen.last().copied().unwrap_or("rv0")
        } else {
            self.dice.pick(&seen)
        };
        format!("${{{variable}}}")
    }

    fn merge(&mut self, path: &str, kind: Kind) {
        let mut patch = self.desired(kind);
        if self.dice.one_in(5) {
            patch["metadata"]["labels"] = json!({"l": null, "q": "r"});
        }
        if self.dice.one_in(6) {
            patch["metadata"]["resourceVersion"] = json!(self.revision());
        }
        let strategic = self.dice.one_in(3) && !matches!(kind, Kind::Widget);
        let options = self.options();
        let media_type = if strategic { "strategic" } else { "merge" };
        self.push("PATCH", &format!("{path}?{options}"), Some(patch), Some(media_type));
        self.save_revision();
    }

    fn json_patch(&mut self, path: &str, kind: Kind) {
        let value = self.dice.pick(&["v", "w"]);
        let field = match kind {
            Kind::ConfigMap => "/data/k",
            Kind::Service => "/spec/selector",
            Kind::Widget => "/spec/color",
            Kind::Pod => self.dice.pick(&["/spec/containers/0/image", "/spec/schedulingGates"]),
        };
        let set = match kind {
            Kind::Service => json!({ "app": value }),
            Kind::ConfigMap | Kind::Widget | Kind::Pod => json!(value),
        };
        let patch = match self.dice.below(4) {
            0 => json!([{"op": "add", "path": field, "value": set}]),
            1 => json!([{"op": "remove", "path": field}]),
            2 => {
                json!([{"op": "test", "path": field, "value": set}, {"op": "add", "path": "/metadata/labels", "value": {"t": value}}])
            }
            _ => json!([{"op": "replace", "path": field, "value": set}]),
        };
        let options = self.options();
        self.push("PATCH", &format!("{path}?{options}"), Some(patch), Some("json-patch"));
        self.save_revision();
    }

    fn apply(&mut self, path: &str, kind: Kind, name: &str) {
        let config = self.whole(kind, name);
        let mut options = self.options();
        if self.dice.one_in(3) {
            options.push_str("&force=true");
        }
        self.push("PATCH", &format!("{path}?{options}"), Some(config), Some("apply"));
        self.save_revision();
    }

    fn delete(&mut self, path: &str) {
        let body = match self.dice.below(5) {
            0 => Some(json!({"preconditions": {"resourceVersion": self.revision()}})),
            1 => Some(json!({"dryRun": ["All"]})),
            _ => None,
        };
        self.push("DELETE", path, body, None);
        self.save_revision();
    }

    fn finalize(&mut self, path: &str) {
        let finalizers = match self.dice.below(3) {
            0 => json!(["x.test/f"]),
            1 => json!(["x.test/g", "x.test/f"]),
            _ => Value::Null,
        };
        let patch = json!({"metadata": {"finalizers": finalizers}});
        let options = self.options();
        self.push("PATCH", &format!("{path}?{options}"), Some(patch), Some("merge"));
        self.save_revision();
    }

    fn status(&mut self, path: &str, kind: Kind) {
        let value = self.dice.pick(&["v", "w"]);
        let (status, media_type) = match kind {
            Kind::Widget => {
                let conditions = json!([{"type": "Ready", "status": value}]);
                (
                    json!({"phase": value, "replicas": self.dice.below(3), "conditions": conditions}),
                    "merge",
                )
            }
            Kind::Service => (json!({"loadBalancer": {"ingress": [{"hostname": value}]}}), "strategic"),
            Kind::Pod => {
                let conditions = json!([{"type": "Ready", "status": "True", "reason": value}]);
                let phase = self.dice.pick(&["Running", "Pending"]);
                (json!({"phase": phase, "conditions": conditions}), "strategic")
            }
            // It has none, and must say so.
            Kind::ConfigMap => (json!({}), "merge"),
        };
        let options = self.options();
        let patch = json!({"status": status, "metadata": {"labels": {"ignored": value}}});
        self.push(
            "PATCH",
            &format!("{path}/status?{options}"),
            Some(patch),
            Some(media_type),
        );
        self.save_revision();
    }

    /// What a scheduler and an autoscaler do.
    fn subresource(&mut self, path: &str, kind: Kind, name: &str) {
        let (replicas, version) = (self.dice.below(4), self.revision());
        if kind == Kind::Pod {
            // Of this sequence alone: the controller manager collects the pods of a node that has been missing for long.
            let node = self.dice.pick(&["${ns}-1", "${ns}-2"]);
            let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
            return self.push("POST", &format!("{path}/binding"), Some(binding), None);
        }
        let path = format!("{path}/scale");
        match self.dice.below(4) {
            0 => self.push("GET", &path, None, None),
            1 => {
                let scale = json!({"metadata": {"name": name}, "spec": {"replicas": replicas}});
                self.push("PUT", &path, Some(scale), None);
            }
            2 => {
                let metadata = json!({"name": name, "resourceVersion": version});
                let scale = json!({"metadata": metadata, "spec": {"replicas": replicas}});
                self.push("PUT", &path, Some(scale), None);
            }
            _ => self.push(
                "PATCH",
                &path,
                Some(json!({"spec": {"replicas": replicas}})),
                Some("merge"),
            ),
        }
        self.save_revision();
    }

    fn read(&mut self, path: &str, kind: Kind) {
        match self.dice.below(3) {
            0 => self.push("GET", path, None, None),
            1 => {
                let query = "labelSelector=l&fieldSelector=metadata.name!%3Dkube-root-ca.crt";
                self.push("GET", &format!("{}?{query}", kind.plural()), None, None);
            }
            _ => {
                let query = format!("resourceVersion={}&resourceVersionMatch=Exact", self.revision());
                let query = format!("{query}&fieldSelector=metadata.name!%3Dkube-root-ca.crt");
                self.push("GET", &format!("{}?{query}", kind.plural()), None, None);
            }
        }
    }
}
