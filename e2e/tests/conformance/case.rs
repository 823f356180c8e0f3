//! What a case is: requests in a row, written as data in `cases/*.yaml`, and how they are run.
//!
//! A step is a request, `POST configmaps/a?dryRun=All`, with
//!   body, text   the body as an object or word for word
//!   repeat       texts that are too long to write down, for this step to use as `${name}`: `{x: [y, 1000]}`
//!   as           what the body is: merge, json-patch, strategic, apply, yaml, or any media type
//!   accept       the Accept header
//!   headers      further headers
//!   save         values of the answer, by JSON pointer, for later steps to use as `${name}`
//!   until        the step is repeated until the answer has these values (null: has them not)
//!   last         a watch ends with the first event of the object of this name, not by its timeoutSeconds
//!   ignore       pointers into the answer that are not compared; a comment says why
//! A path without a slash in front begins with a resource; its group, version and the case's namespace are put before it.
//! `${ns}` is the case's own namespace, `${ns64}` the same in base64. Every case is alone in it, so cases run at the same time.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use grove_e2e::eventually;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::normal::Normalizer;
use crate::target::{Answer, Sent, Target};

const LIMIT: Duration = Duration::from_secs(30);

/// Where the resources are that cases name without a path.
const RESOURCES: [(&str, &str, bool); 36] = [
    ("configmaps", "/api/v1", true),
    ("endpoints", "/api/v1", true),
    ("events", "/api/v1", true),
    ("limitranges", "/api/v1", true),
    ("persistentvolumeclaims", "/api/v1", true),
    ("pods", "/api/v1", true),
    ("resourcequotas", "/api/v1", true),
    ("secrets", "/api/v1", true),
    ("serviceaccounts", "/api/v1", true),
    ("services", "/api/v1", true),
    ("namespaces", "/api/v1", false),
    ("nodes", "/api/v1", false),
    ("controllerrevisions", "/apis/apps/v1", true),
    ("horizontalpodautoscalers", "/apis/autoscaling/v2", true),
    ("leases", "/apis/coordination.k8s.io/v1", true),
    ("endpointslices", "/apis/discovery.k8s.io/v1", true),
    ("newevents", "/apis/events.k8s.io/v1", true),
    ("poddisruptionbudgets", "/apis/policy/v1", true),
    ("roles", "/apis/rbac.authorization.k8s.io/v1", true),
    ("rolebindings", "/apis/rbac.authorization.k8s.io/v1", true),
    ("clusterroles", "/apis/rbac.authorization.k8s.io/v1", false),
    ("clusterrolebindings", "/apis/rbac.authorization.k8s.io/v1", false),
    ("priorityclasses", "/apis/scheduling.k8s.io/v1", false),
    ("resourceclaims", "/apis/resource.k8s.io/v1", true),
    ("resourceclaimtemplates", "/apis/resource.k8s.io/v1", true),
    ("deviceclasses", "/apis/resource.k8s.io/v1", false),
    (
        "mutatingwebhookconfigurations",
        "/apis/admissionregistration.k8s.io/v1",
        false,
    ),
    (
        "validatingwebhookconfigurations",
        "/apis/admissionregistration.k8s.io/v1",
        false,
    ),
    ("customresourcedefinitions", "/apis/apiextensions.k8s.io/v1", false),
    ("selfsubjectreviews", "/apis/authentication.k8s.io/v1", false),
    ("selfsubjectaccessreviews", "/apis/authorization.k8s.io/v1", false),
    ("selfsubjectrulesreviews", "/apis/authorization.k8s.io/v1", false),
    ("subjectaccessreviews", "/apis/authorization.k8s.io/v1", false),
    ("localsubjectaccessreviews", "/apis/authorization.k8s.io/v1", true),
    ("widgets", "/apis/conformance.test/v1", true),
    ("gadgets", "/apis/conformance.test/v1", false),
];

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    #[serde(rename = "case")]
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    /// Method and path.
    #[serde(rename = "do")]
    pub(crate) request: String,
    #[serde(default)]
    pub(crate) body: Option<Value>,
    #[serde(default)]
    pub(crate) text: Option<String>,
    #[serde(default, rename = "as")]
    pub(crate) media_type: Option<String>,
    #[serde(default)]
    pub(crate) accept: Option<String>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) repeat: BTreeMap<String, (String, usize)>,
    #[serde(default)]
    pub(crate) save: BTreeMap<String, String>,
    /// The same where the answer may be another one: then the variable is what was saved last.
    #[serde(skip)]
    pub(crate) save_if_there: Option<(String, String)>,
    #[serde(default)]
    pub(crate) until: BTreeMap<String, Value>,
    #[serde(default)]
    pub(crate) last: Option<String>,
    #[serde(default)]
    pub(crate) ignore: Vec<String>,
}

/// What one step did, normalised.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) request: String,
    pub(crate) answer: Value,
}

/// Everything that a case did.
pub(crate) type Transcript = Vec<Entry>;

/// The cases of a file.
pub(crate) fn read(text: &str) -> Result<Vec<Case>> {
    // Cases share much by aliases; the files are ours.
    let options = serde_saphyr::options! { budget: None };
    Ok(serde_saphyr::from_str_with_options(text, options)?)
}

impl Case {
    /// Runs the case in a namespace that exists.
    pub(crate) async fn run(&self, target: &Target, namespace: &str) -> Result<Transcript> {
        let mut variables = BTreeMap::from([
            ("ns".to_owned(), namespace.to_owned()),
            ("ns64".to_owned(), STANDARD.encode(namespace)),
        ]);
        let mut normalizer = Normalizer::default();
        let mut transcript = Vec::new();
        let mut latest = "0".to_owned();
        for (index, step) in self.steps.iter().enumerate() {
            let at = || format!("step {} ({})", index + 1, step.request);
            let answer = step.run(target, &variables).await.with_context(at)?;
            for (variable, pointer) in &step.save {
                let value = answer.body.pointer(pointer);
                let value = value.with_context(|| format!("{}: no {pointer} in {}", at(), answer.body))?;
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                variables.insert(variable.clone(), value);
            }
            if let Some((variable, pointer)) = &step.save_if_there {
                let value = answer.body.pointer(pointer).and_then(Value::as_str);
                latest = value.map_or(latest, str::to_owned);
                variables.insert(variable.clone(), latest.clone());
            }
            transcript.push(Entry {
                request: step.request.clone(),
                answer: normalizer.answer(answer, &step.ignore),
            });
        }
        Ok(transcript)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        for (index, step) in self.steps.iter().enumerate() {
            let body = step.body.as_ref().map(Value::to_string).unwrap_or_default();
            writeln!(f, "  {}. {} {body}", index + 1, step.request)?;
        }
        Ok(())
    }
}

impl Step {
    /// A plain read of a whole path.
    pub(crate) fn get(path: &str) -> Sent {
        Sent {
            method: "GET".to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            last: None,
        }
    }

    async fn run(&self, target: &Target, variables: &BTreeMap<String, String>) -> Result<Answer> {
        let sent = self.filled(variables)?;
        if let Some((collection, _)) = sent.path.split_once("?watch=") {
            // The real server serves watches from a cache that follows its database at a distance. A list waits for it.
            target.send(&Step::get(collection)).await?;
        }
        if self.until.is_empty() {
            return target.send(&sent).await;
        }
        let found = eventually(&self.request, LIMIT, async || -> Result<Answer> {
            let answer = target.send(&sent).await?;
            for (pointer, wanted) in &self.until {
                let found = match pointer.as_str() {
                    "code" => json!(answer.code),
                    pointer => answer.body.pointer(pointer).cloned().unwrap_or_default(),
                };
                let wanted = wanted
                    .as_str()
                    .map_or_else(|| wanted.clone(), |text| json!(fill(text, variables)));
                ensure!(
                    found == wanted,
                    "{pointer} is {found}, not {wanted}, on {}",
                    target.name
                );
            }
            Ok(answer)
        });
        Ok(found.await?)
    }

    fn filled(&self, variables: &BTreeMap<String, String>) -> Result<Sent> {
        let mut variables = variables.clone();
        variables.extend(
            self.repeat
                .iter()
                .map(|(name, (text, times))| (name.clone(), text.repeat(*times))),
        );
        let fill = |text: &str| fill(text, &variables);
        let (method, path) = self.request.split_once(' ').context("a step is a method and a path")?;
        let headers = self.headers.iter().map(|(name, value)| (name.clone(), fill(value)));
        let mut headers: Vec<(String, String)> = headers.collect();
        let body = match (&self.body, &self.text) {
            (Some(body), _) => fill(&body.to_string()),
            (None, Some(text)) => fill(text),
            (None, None) => String::new(),
        };
        let media_type = match self.media_type.as_deref() {
            Some("merge") => "application/merge-patch+json",
            Some("json-patch") => "application/json-patch+json",
            Some("strategic") => "application/strategic-merge-patch+json",
            Some("apply") => "application/apply-patch+yaml",
            Some("yaml") => "application/yaml",
            Some(other) => other,
            None => "application/json",
        };
        if !body.is_empty() && media_type != "none" {
            headers.push(("content-type".to_owned(), media_type.to_owned()));
        }
        if let Some(accept) = &self.accept {
            headers.push(("accept".to_owned(), accept.clone()));
        }
        Ok(Sent {
            method: method.to_owned(),
            path: fill(&located(path)?),
            headers,
            body: body.into_bytes(),
            last: self.last.clone(),
        })
    }
}

/// A text with the values of its variables.
fn fill(text: &str, variables: &BTreeMap<String, String>) -> String {
    variables.iter().fold(text.to_owned(), |text, (name, value)| {
        text.replace(&format!("${{{name}}}"), value)
    })
}

/// The whole path of a short one.
fn located(path: &str) -> Result<String> {
    if path.starts_with('/') {
        return Ok(path.to_owned());
    }
    let end = path.find(['/', '?']).unwrap_or(path.len());
    let (plural, rest) = path.split_at(end);
    let known = RESOURCES.iter().find(|(name, ..)| *name == plural);
    let (plural, prefix, namespaced) = known.with_context(|| format!("{plural} is not in the list of resources"))?;
    // The two groups that serve events use the same word.
    let plural = plural.strip_prefix("new").unwrap_or(plural);
    Ok(match namespaced {
        true => format!("{prefix}/namespaces/${{ns}}/{plural}{rest}"),
        false => format!("{prefix}/{plural}{rest}"),
    })
}
