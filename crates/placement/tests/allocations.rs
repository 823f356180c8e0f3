//! Placing a gang whose shape is known takes no memory. A program of its own: the count is of the whole process.

use grove_placement::bench::Instance;
use grove_placement::{Budget, Solver};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

#[test]
fn the_warm_path_does_not_allocate() {
    let mut instance = Instance::new(2_000);
    let cases = instance.cases();
    let mut solver = Solver::new();
    for case in &cases {
        let _ = solver.solve(&mut instance.cluster, &case.gang, Budget::default());
    }
    let _profiler = dhat::Profiler::builder().testing().build();
    for case in &cases {
        let mut solve = || {
            let before = dhat::HeapStats::get().total_blocks;
            let _ = solver.solve(&mut instance.cluster, &case.gang, Budget::default());
            dhat::HeapStats::get().total_blocks - before
        };
        // What waits for this test may take memory meanwhile, but not every time.
        let allocated = (0..5).map(|_| solve()).min();
        assert_eq!(allocated, Some(0), "{}", case.name);
    }
}
