//! Answers: how objects, lists and errors are written down.

use std::convert::Infallible;

use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::{BoxStream, StreamExt};
use http::{HeaderValue, Response, Uri, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::{Value, json};

use super::Call;
use super::media::{Encoding, View};
use super::query::Query;
use crate::registry::Form;
use crate::status::ApiError;
use crate::store;

/// The body of a response: all there at once, or a stream of watch events.
pub type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

pub(crate) enum Content {
    Bytes(Bytes),
    Stream(BoxStream<'static, Bytes>),
}

/// An answer before it becomes HTTP.
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) content_type: &'static str,
    pub(crate) warnings: Vec<String>,
    pub(crate) etag: Option<String>,
    pub(crate) content: Content,
}

impl Reply {
    pub(crate) fn json(code: u16, value: &Value) -> Self {
        let mut text = value.to_string();
        text.push('\n');
        Self::bytes(code, "application/json", text.into())
    }

    pub(crate) fn text(code: u16, text: impl Into<String>) -> Self {
        Self::bytes(code, "text/plain; charset=utf-8", Bytes::from(text.into()))
    }

    pub(crate) fn bytes(code: u16, content_type: &'static str, bytes: Bytes) -> Self {
        Self {
            code,
            content_type,
            warnings: Vec::new(),
            etag: None,
            content: Content::Bytes(bytes),
        }
    }

    pub(crate) fn error(error: &ApiError) -> Self {
        Self::json(error.code, &error.to_status())
    }

    /// What the API server answers where it knows neither group nor path.
    pub(crate) fn page_not_found() -> Self {
        Self::text(404, "404 page not found\n")
    }

    pub(crate) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }

    /// The same with a line for every field, for people.
    pub(crate) fn pretty(mut self) -> Self {
        if let Content::Bytes(bytes) = &self.content
            && self.content_type == "application/json"
            && let Ok(value) = serde_json::from_slice::<Value>(bytes)
            && let Ok(text) = serde_json::to_string_pretty(&value)
        {
            self.content = Content::Bytes(text.into());
        }
        self
    }

    pub(crate) fn into_response(self) -> Response<ResponseBody> {
        let body = match self.content {
            Content::Bytes(bytes) => Full::new(bytes).boxed_unsync(),
            Content::Stream(stream) => StreamBody::new(stream.map(|bytes| Ok(Frame::data(bytes)))).boxed_unsync(),
        };
        let mut response = Response::new(body);
        *response.status_mut() = http::StatusCode::from_u16(self.code).unwrap_or_default();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        for warning in &self.warnings {
            let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
                headers.append(header::WARNING, value);
            }
        }
        if let Some(etag) = self.etag.and_then(|etag| HeaderValue::from_str(&etag).ok()) {
            headers.insert(header::ETAG, etag);
            headers.insert(header::VARY, HeaderValue::from_static("Accept"));
        }
        response
    }
}

/// Whether the answer is for a person: it was asked for so, or by a program for the command line.
pub(super) fn wants_pretty(uri: &Uri, agent: &str) -> bool {
    let query = Query::parse(uri.query().unwrap_or_default());
    match query.text("pretty") {
        "" => ["curl", "Wget", "Mozilla/5.0"]
            .iter()
            .any(|program| agent.starts_with(program)),
        asked => ["1", "t", "T", "true", "TRUE", "True"].contains(&asked),
    }
}

/// An object in stored form.
pub(crate) enum Document {
    /// Straight from the store.
    Stored(Bytes),
    /// Decoded.
    Value(Value),
}

impl Document {
    pub(crate) fn into_value(self) -> Value {
        match self {
            Document::Stored(bytes) => store::decode(&bytes),
            Document::Value(value) => value,
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Document::Stored(bytes) => bytes,
            Document::Value(value) => Bytes::from(value.to_string()),
        }
    }
}

impl Call {
    /// One object as JSON in the version and view that the client asked for, with `apiVersion` and `kind`.
    pub(crate) fn encode(&self, document: Document) -> Bytes {
        if let View::Table(include) = self.accepted.view {
            return Bytes::from(self.table_of_one(document, include).to_string());
        }
        if self.accepted.view == View::Metadata {
            let mut value = document.into_value();
            let metadata = json!({"metadata": value["metadata"].take()});
            return envelope("meta.k8s.io/v1", "PartialObjectMetadata", &metadata.to_string().into());
        }
        let bytes = self.served(document);
        envelope(&self.api_version(), &self.resource().kind, &bytes)
    }

    /// `apiVersion` of the version that the client asked for.
    pub(crate) fn api_version(&self) -> String {
        self.resource().api_version(&self.version().name)
    }

    /// The document in the version that the client asked for, without `apiVersion` and `kind`.
    fn served(&self, document: Document) -> Bytes {
        match &self.version().form {
            Form::Converted { serve, .. } => Bytes::from(serve(document.into_value()).to_string()),
            Form::Typed(_) | Form::Custom(_) => document.into_bytes(),
        }
    }

    /// An answer with one object.
    pub(crate) fn reply(&self, code: u16, document: Document) -> Reply {
        self.finish(code, self.encode(document))
    }

    /// An answer with a list.
    pub(crate) fn reply_list(&self, metadata: &Value, items: Vec<Document>) -> Reply {
        if let View::Table(include) = self.accepted.view {
            let mut metadata = metadata.clone();
            if let Some(fields) = metadata.as_object_mut() {
                fields.retain(|_, value| value != "");
            }
            let table = self.table(&metadata, items, include);
            return self.finish(200, Bytes::from(table.to_string()));
        }
        let partial = self.accepted.view == View::Metadata;
        let (api_version, kind) = match partial {
            true => ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadataList"),
            false => (self.api_version(), self.resource().list_kind.as_str()),
        };
        let mut out = BytesMut::new();
        out.put_slice(format!("{{\"apiVersion\":{},\"items\":[", json!(api_version)).as_bytes());
        for (i, item) in items.into_iter().enumerate() {
            if i > 0 {
                out.put_u8(b',');
            }
            // Items of built-in lists do without apiVersion and kind.
            match self.resource().custom || partial {
                true => out.put(self.encode(item)),
                false => out.put(self.served(item)),
            }
        }
        out.put_slice(format!("],\"kind\":{},\"metadata\":{metadata}}}", json!(kind)).as_bytes());
        self.finish(200, out.freeze())
    }

    fn finish(&self, code: u16, json: Bytes) -> Reply {
        match self.accepted.encoding {
            Encoding::Json => {
                let mut line = BytesMut::with_capacity(json.len() + 1);
                line.put(json);
                line.put_u8(b'\n');
                Reply::bytes(code, "application/json", line.freeze())
            }
            Encoding::Yaml => match serde_saphyr::to_string(&store::decode(&json)) {
                Ok(yaml) => Reply::bytes(code, "application/yaml", yaml.into()),
                Err(error) => Reply::error(&ApiError::plain(format!("cannot write the answer as YAML: {error}"))),
            },
        }
    }
}

/// Puts `apiVersion` and `kind` before the fields of an encoded object.
pub(crate) fn envelope(api_version: &str, kind: &str, fields: &Bytes) -> Bytes {
    let mut out = BytesMut::with_capacity(fields.len() + api_version.len() + kind.len() + 32);
    out.put_slice(format!("{{\"apiVersion\":{},\"kind\":{}", json!(api_version), json!(kind)).as_bytes());
    match fields.get(1) {
        Some(b'}') | None => out.put_u8(b'}'),
        Some(_) => {
            out.put_u8(b',');
            out.put_slice(&fields[1..]);
        }
    }
    out.freeze()
}
