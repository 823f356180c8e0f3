//! Compares the engine with brute force on as many cases as asked for:
//! `cargo run --release -p grove-placement --example exact -- 200000`.

#[path = "../tests/it/generate.rs"]
mod generate;
#[path = "../tests/it/world.rs"]
mod world;

use grove_placement::{Budget, Solver};
use grove_plancheck::{Instance, best};
use world::Answer;

/// What became of the cases of one class with the default budget.
#[derive(Default)]
struct Class {
    placed: u64,
    best: u64,
    /// Placements that miss more of a preference, use more domains or more hosts than they had to.
    visible: u64,
}

impl Class {
    fn count(&mut self, instance: &Instance, best: &[u64], key: &[u64]) {
        self.placed += 1;
        self.best += u64::from(best == key);
        // A gang that states no level is not placed by how many domains it uses.
        let shown = 3 + if instance.states_level() {
            instance.levels + 1
        } else {
            0
        };
        self.visible += u64::from(best[..shown] != key[..shown]);
    }

    fn say(&self, name: &str) {
        let share = |part: u64| part as f64 * 100.0 / self.placed.max(1) as f64;
        println!(
            "with the default budget, {name}: {} of {} at the optimum ({:.2} %), {} ({:.2} %) with a domain or host more",
            self.best,
            self.placed,
            share(self.best),
            self.visible,
            share(self.visible)
        );
    }
}

fn main() {
    let cases = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(200_000);
    let (mut solver, mut quick) = (Solver::new(), Solver::new());
    let (mut placed, mut refused, mut undecided) = (0_u64, 0_u64, 0_u64);
    let (mut alike, mut others) = (Class::default(), Class::default());
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
            (Some(best), Answer::Placed { key, .. }) => {
                let is_alike = generate::is_alike(&instance);
                let class = if is_alike { &mut alike } else { &mut others };
                class.count(&instance, best, &key);
            }
            (None, Answer::Infeasible) => {}
            (_, Answer::Undecided) => undecided += 1,
            (best, answer) => panic!("seed {seed}: brute force says {best:?}, the engine {answer:?}\n{instance:?}"),
        }
    }
    println!("{cases} cases: {placed} placed at the optimum, {refused} refused, all as brute force");
    alike.say("alike pods");
    others.say("others");
    println!("{undecided} undecided");
    let is_short = alike.best < alike.placed || (others.placed - others.best) * 100 > others.placed;
    assert!(!is_short && undecided == 0, "the default budget falls short");
}
