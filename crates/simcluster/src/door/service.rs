//! The door for clients in the same process.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use tower::{BoxError, Service};

use super::identify;
use crate::fault::{Visitor, pass};
use crate::server::{ResponseBody, Server, error_response};
use crate::user::User;

/// A `tower::Service` that `kube::Client` takes in place of a connection.
#[derive(Clone, Debug)]
pub struct Door {
    server: Arc<Server>,
    user: User,
    /// When the connection was opened, as faults count.
    born: u64,
}

impl Door {
    /// A door through which requests without credentials come from `user`.
    pub fn new(server: Arc<Server>, user: User) -> Self {
        let born = server.faults.epoch();
        Self { server, user, born }
    }

    /// A client on this door. It sends nothing by itself: what the server answers is what its caller hears.
    ///
    /// Must be called inside a tokio runtime, because the client keeps a task.
    pub fn client(self) -> kube::Client {
        kube::Client::new(self, "default")
    }
}

impl Service<Request<Body>> for Door {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let door = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await?.to_bytes();
            let user = match identify(&door.server, &parts, Some(&door.user)) {
                Ok(user) => user,
                Err(error) => return Ok(error_response(&error)),
            };
            let visitor = Visitor { user, born: door.born };
            let answer = pass(&door.server, Request::from_parts(parts, bytes), &visitor).await;
            answer.map_err(BoxError::from)
        })
    }
}
