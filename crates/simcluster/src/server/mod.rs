//! Requests: `(request, user) → response` over the store and the registry.
//!
//! ```text
//! Server::serve ─ route ─┬─ discovery, health, version
//!                        ├─ reviews (created, never stored)
//!                        └─ Call ─ verb: read · watch · create · update · delete · subresources
//! ```
//!
//! A verb reads, decides outside the lock, and commits what it expects to find; if somebody else wrote in between, it
//! starts again. How requests arrive is [`crate::door`]'s matter; what the cluster does by itself, [`crate::behaviour`]'s.

mod admission;
mod apply;
mod authorize;
mod binding;
mod convert;
mod create;
mod custom;
mod decode;
mod delete;
mod discovery;
mod escalation;
mod eviction;
mod impersonate;
mod intent;
mod internal;
mod jwt;
mod media;
mod openapi;
mod output;
mod part;
mod patch;
mod query;
mod quota;
mod read;
mod review;
mod route;
mod scale;
mod syntax;
mod tables;
mod token;
mod update;
mod watch;
mod webhook;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, header};
use jiff::Timestamp;

use crate::authorization::Policy;
use crate::clock::{Clock, Entropy};
use crate::fault::Faults;
use crate::history::History;
use crate::network::Network;
use crate::registry::{Registry, Resource, Review, Subresource, Version};
use crate::status::ApiError;
use crate::store::{Key, NotKept, ResourceName, Store};
use crate::user::User;
use crate::vitals::Vitals;
pub(crate) use delete::{DeleteOptions, Propagation};
pub use intent::{Intent, Verb};
pub(crate) use jwt::key_of as signing_key_of;
use media::{Accepted, View};
use output::Reply;
pub use output::ResponseBody;
use query::Query;
use route::{Route, Target};

/// Largest body that is read.
pub const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The API server.
pub struct Server {
    pub(crate) store: Arc<Store>,
    pub(crate) clock: Clock,
    pub(crate) entropy: Entropy,
    pub(crate) faults: Arc<Faults>,
    pub(crate) history: Option<Arc<History>>,
    registry: Mutex<Arc<Registry>>,
    /// Tokens that somebody else made.
    tokens: Mutex<BTreeMap<String, token::Issued>>,
    signer: jwt::Signer,
    pub(crate) network: Network,
    pub(crate) vitals: Vitals,
    hooks: webhook::Hooks,
    converters: Mutex<convert::Converters>,
    /// Whether rights are evaluated.
    pub(crate) rbac: bool,
    /// The rights, and the revision that they were read at.
    policy: Mutex<(u64, Arc<Policy>)>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// A server over an empty or a filled store.
    pub fn new(store: Arc<Store>, clock: Clock, seed: u64) -> Self {
        Self {
            store,
            entropy: Entropy::seeded(seed),
            faults: Arc::new(Faults::new(clock.clone(), seed)),
            history: None,
            clock,
            registry: Mutex::new(Arc::new(Registry::builtin())),
            tokens: Mutex::default(),
            signer: jwt::Signer::seeded(seed),
            network: Network::default(),
            vitals: Vitals::default(),
            hooks: webhook::Hooks::default(),
            converters: Mutex::default(),
            rbac: false,
            policy: Mutex::default(),
        }
    }

    /// The same server, letting nobody do what no stored role allows.
    pub fn with_rbac(mut self) -> Self {
        self.rbac = true;
        self
    }

    /// The same server, keeping the history of all that happens from now on.
    pub fn recording(mut self) -> Self {
        let history = Arc::new(History::default());
        let (recorder, clock) = (history.clone(), self.clock.clone());
        self.store
            .observe(move |resource, event| recorder.record(resource, event, clock.now()));
        self.history = Some(history);
        self
    }

    /// The same server, signing tokens with a key that is secret.
    pub(crate) fn signing_with(mut self, key: &[u8]) -> Self {
        self.signer = jwt::Signer::new(key);
        self
    }

    /// The kinds that are served now.
    pub fn registry(&self) -> Arc<Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the kinds that are served.
    pub(crate) fn change_registry(&self, change: impl FnOnce(&Registry) -> Registry) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        *registry = Arc::new(change(&registry));
    }

    /// Answers one request. Never fails: what goes wrong is an answer too.
    pub async fn serve(self: &Arc<Self>, request: Request<Bytes>, user: &User) -> Response<ResponseBody> {
        let (parts, body) = request.into_parts();
        if let Err(error) = self.authorize(&parts, user) {
            return error_response(&error);
        }
        let request = Request::from_parts(parts, body);
        let accepted = Accepted::negotiate(header_text(request.headers(), header::ACCEPT));
        let route = Route::parse(request.uri().path());
        let pretty = output::wants_pretty(request.uri(), header_text(request.headers(), header::USER_AGENT));
        let accepted = match (accepted, &route) {
            (Err(error), Route::Resource(_) | Route::Groups { .. } | Route::Group(_) | Route::GroupVersion(..)) => {
                return error_response(&error);
            }
            // Other paths do not care what the client takes.
            (accepted, _) => accepted.unwrap_or_default(),
        };
        let result = self.route(route, accepted, request, user).await;
        // Nobody gets to see what is not kept, in a cluster that keeps things.
        let kept = self.store.settled().await;
        let lost = |error: NotKept| ApiError::new(500, "InternalError", format!("Internal error occurred: {error}"));
        let result = result.and_then(|reply| kept.map(|()| reply).map_err(lost));
        let reply = result.unwrap_or_else(|error| Reply::error(&error));
        let reply = if pretty { reply.pretty() } else { reply };
        reply.into_response()
    }

    async fn route(
        self: &Arc<Self>,
        route: Route,
        accepted: Accepted,
        request: Request<Bytes>,
        user: &User,
    ) -> Result<Reply, ApiError> {
        let (parts, body) = request.into_parts();
        if body.len() > BODY_BYTES_MAX {
            return Err(ApiError::too_large(BODY_BYTES_MAX));
        }
        let registry = self.registry();
        let aggregated = accepted.view == View::AggregatedDiscovery;
        let host = header_text(&parts.headers, header::HOST);
        match route {
            Route::Groups { core } if aggregated => Ok(discovery::aggregated(&registry, core, &parts.headers)),
            Route::Groups { core: true } => Ok(discovery::core_versions(host)),
            Route::Groups { core: false } => Ok(discovery::groups(&registry)),
            Route::Group(group) => Ok(discovery::group(&registry, &group)),
            Route::GroupVersion(group, version) => Ok(discovery::resources(&registry, &group, &version)),
            Route::Other(path) if discovery::is_health(&path) => Ok(discovery::health(self, &path).await),
            Route::Other(path) => discovery::other(&registry, &parts.method, &path, &parts.headers),
            Route::Resource(target) => {
                let body = Body {
                    media_type: header_text(&parts.headers, header::CONTENT_TYPE).into(),
                    bytes: body,
                };
                if let Some(asked) = Review::find(&target.group, &target.version, &target.plural) {
                    return match parts.method {
                        Method::POST => review::create(self, asked, target.namespace.as_deref(), &body, user),
                        _ => Err(ApiError::method_not_allowed()),
                    };
                }
                let query = Query::parse(parts.uri.query().unwrap_or_default());
                let Some(place) = self.locate(&registry, target)? else {
                    return Ok(Reply::page_not_found());
                };
                let accepted = accepted.including(query.text("includeObject"))?;
                let agent = header_text(&parts.headers, header::USER_AGENT);
                let manager = match query.text("fieldManager") {
                    "" => agent.split('/').next().unwrap_or_default(),
                    manager => manager,
                };
                let call = Call {
                    server: self.clone(),
                    manager: manager.to_owned(),
                    place,
                    query,
                    accepted,
                    body,
                    now: self.clock.now(),
                    stale_by: parts.extensions.get().copied(),
                    user: user.clone(),
                    warnings: Arc::default(),
                    asked_version: None,
                };
                let warning = call.version().deprecation.clone();
                // Whoever is refused gets to see the warnings too.
                let mut reply = call
                    .run(&parts.method)
                    .await
                    .unwrap_or_else(|error| Reply::error(&error));
                reply.warnings.extend(call.take_warnings());
                reply.warnings.splice(0..0, warning);
                Ok(reply)
            }
        }
    }

    /// Finds what a path names; `None` if not even its group and version exist.
    fn locate(&self, registry: &Registry, target: Target) -> Result<Option<Place>, ApiError> {
        let name = ResourceName::new(&target.group, &target.plural);
        let resource = registry
            .get(&name)
            .filter(|resource| resource.version(&target.version).is_some());
        let Some(resource) = resource else {
            let groups = registry.groups();
            let known = groups
                .get(&target.group)
                .is_some_and(|versions| versions.contains(&target.version));
            let custom = registry.iter().any(|r| *r.name.group == *target.group && r.custom);
            return if known && !custom {
                Err(ApiError::unknown_resource())
            } else {
                Ok(None)
            };
        };
        let scope_fits = match resource.namespaced {
            true => target.namespace.is_some() || target.name.is_none(),
            false => target.namespace.is_none(),
        };
        let subresource = match target.subresource.as_deref() {
            None => None,
            Some(path) => match resource.subresources.iter().find(|s| s.path() == path) {
                Some(subresource) => Some(*subresource),
                None if resource.custom => {
                    let name = target.name.as_deref().unwrap_or_default();
                    return Err(ApiError::not_found(&resource.name, name));
                }
                None => return Err(ApiError::unknown_resource()),
            },
        };
        if !scope_fits {
            return Err(ApiError::unknown_resource());
        }
        Ok(Some(Place {
            resource: resource.clone(),
            version: target.version,
            namespace: target.namespace,
            name: target.name,
            subresource,
        }))
    }
}

/// What a request is about.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) resource: Arc<Resource>,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<Subresource>,
}

/// The body of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body {
    pub(crate) media_type: String,
    pub(crate) bytes: Bytes,
}

/// How many revisions a read lags behind, as if a replica that is not up to date answered it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StaleBy(pub(crate) u64);

/// One request to a resource, with all that a verb needs to answer it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) server: Arc<Server>,
    pub(crate) place: Place,
    pub(crate) query: Query,
    pub(crate) accepted: Accepted,
    pub(crate) body: Body,
    pub(crate) now: Timestamp,
    /// A fault: reads show an older state.
    pub(crate) stale_by: Option<StaleBy>,
    /// Who writes, for the ownership of fields.
    pub(crate) manager: String,
    /// Who asks.
    pub(crate) user: User,
    /// What webhooks want the client to know, whatever the answer is.
    warnings: Arc<Mutex<Vec<String>>>,
    /// The version that the client asked for, where a webhook sees the request in another one.
    asked_version: Option<String>,
}

impl Call {
    pub(crate) fn resource(&self) -> &Resource {
        &self.place.resource
    }

    pub(crate) fn version(&self) -> &Version {
        let resource = &self.place.resource;
        resource.version(&self.place.version).unwrap_or(&resource.versions[0])
    }

    /// Name in the path; empty for a collection.
    pub(crate) fn name(&self) -> &str {
        self.place.name.as_deref().unwrap_or_default()
    }

    /// Where the object of this request is stored.
    pub(crate) fn key(&self) -> Key {
        Key::new(self.place.namespace.clone().unwrap_or_default(), self.name())
    }

    pub(crate) fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.resource().name, self.name())
    }

    /// Tells the client something beside the answer; nobody needs to be told twice.
    fn warn(&self, warnings: &[String]) {
        let mut told = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in warnings {
            if !told.contains(warning) {
                told.push(warning.clone());
            }
        }
    }

    fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The error for an object that breaks rules.
    pub(crate) fn invalid(&self, name: &str, errors: &[crate::status::FieldError]) -> ApiError {
        ApiError::invalid(&self.resource().name.group, &self.resource().kind, name, errors)
    }

    async fn run(&self, method: &Method) -> Result<Reply, ApiError> {
        use Subresource as Sub;
        let named = self.place.name.is_some();
        match (method.as_str(), self.place.subresource, named) {
            ("GET" | "HEAD", None, false) if self.query.flag("watch") => watch::open(self).await,
            ("GET" | "HEAD", None, false) => read::list(self).await,
            ("GET" | "HEAD", None | Some(Sub::Status), true) => read::get(self).await,
            ("GET" | "HEAD", Some(Sub::Scale), true) => scale::get(self).await,
            ("POST", None, false) if self.can_create() => create::create(self).await,
            ("POST", None, false) if self.resource().custom => Ok(Reply::page_not_found()),
            ("POST", Some(Sub::Binding), true) => binding::bind(self).await,
            ("POST", Some(Sub::Eviction), true) => eviction::evict(self).await,
            ("POST", Some(Sub::Token), true) => token::issue(self).await,
            ("PUT", None | Some(Sub::Status | Sub::Finalize), true) => update::put(self).await,
            ("PUT", Some(Sub::Scale), true) => scale::put(self).await,
            ("PATCH", None | Some(Sub::Status), true) => update::patch(self).await,
            ("PATCH", Some(Sub::Scale), true) => scale::patch(self).await,
            ("DELETE", None, true) => delete::delete(self).await,
            ("DELETE", None, false) if self.resource().traits.delete_collection => {
                delete::delete_collection(self).await
            }
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// Namespaced objects are created in a namespace.
    fn can_create(&self) -> bool {
        !self.resource().namespaced || self.place.namespace.is_some()
    }
}

fn header_text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

/// An error as a response, for doors that refuse a request before it reaches the server.
pub(crate) fn error_response(error: &ApiError) -> Response<ResponseBody> {
    Reply::error(error).into_response()
}
