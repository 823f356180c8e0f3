//! Graphs on an embedded cluster: applied, scaled, changed, disturbed, and with a controller that dies.

mod disturbed;
mod killed;
mod lives;
mod logged;
mod scaled;
mod topologies;
mod world;
