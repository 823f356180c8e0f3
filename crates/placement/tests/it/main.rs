//! The engine against its judge: every plan made here is checked by `grove-plancheck`, which shares no code with it.

mod completeness;
mod exactness;
mod explanations;
mod generate;
mod ilp;
mod invariants;
mod judged;
mod numa;
mod preemption;
mod quality;
mod repair;
mod replay;
mod world;
