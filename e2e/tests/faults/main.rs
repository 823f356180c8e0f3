//! What breaks around the operator on a real control plane: itself, the API server, etcd, the way to them, its share of the
//! API server, the room for pods, its webhooks. Each time everything comes that was asked for, no pod is made twice, and no
//! pod of a healthy gang is replaced. How long it took is printed (`-- --nocapture`).

mod egress;
mod hooks;
mod kills;
#[path = "../common/kinds.rs"]
mod kinds;
mod leaders;
mod proxy;
mod quota;
#[path = "../common/replica.rs"]
mod replica;
mod restarts;
#[path = "../common/space.rs"]
mod space;
mod stage;
mod way;
