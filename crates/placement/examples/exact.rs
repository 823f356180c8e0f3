//! Compares the engine with brute force on as many cases as asked for:
//! `cargo run --release -p grove-placement --example exact -- 200000`.

#[path = "../tests/it/generate.rs"]
mod generate;
#[path = "../tests/it/world.rs"]
mod world;

use grove_placement::{Budget, Solver};
use grove_plancheck::best;
use world::Answer;

fn main() {
    let cases = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(200_000);
    let (mut solver, mut quick) = (Solver::new(), Solver::new());
    let (mut placed, mut refused, mut quick_optimal, mut undecided) = (0_u64, 0_u64, 0_u64, 0_u64);
    for seed in 0..cases {
        let instance = generate::instance(seed);
        let mut world = world::build(&instance);
        let expected = best(&instance);
        match (
            &expected,
            world::solve(&mut world, &instance, &mut solver, Budget::UNLIMITED),
        ) {
            (Some(best), Answer::Placed { key, .. }) if *best == key => placed += 1,
            (None, Answer::Infeasible) => refused += 1,
            (best, answer) => panic!("seed {seed}: brute force says {best:?}, the engine {answer:?}\n{instance:?}"),
        }
        match (
            &expected,
            world::solve(&mut world, &instance, &mut quick, Budget::default()),
        ) {
            (Some(best), Answer::Placed { key, .. }) => quick_optimal += u64::from(*best == key),
            (None, Answer::Infeasible) => {}
            (_, Answer::Undecided) => undecided += 1,
            (best, answer) => panic!("seed {seed}: brute force says {best:?}, the engine {answer:?}\n{instance:?}"),
        }
    }
    println!("{cases} cases: {placed} placed at the optimum, {refused} refused, all as brute force");
    println!("with the default budget: {quick_optimal} at the optimum, {undecided} undecided");
}
