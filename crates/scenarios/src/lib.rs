//! The tests and scenarios of the topology designs, and those of gangs ([`gangs`]), each as steps that any cluster can go
//! through.
//!
//! A cluster takes part by being a [`Stage`]: it lets operators start on it, and waits in its own way. So the same steps
//! run on the embedded cluster in virtual time and on a real control plane; [`for_each_scenario`] names them all. What a
//! step looks at, it reads from the API.
//!
//! Functions that bear the name of a test or scenario of the designs follow its steps. Gangs are placed by one of Grove's
//! profiles, and steps look at the nodes that their pods are on; [`audit`] judges all of it. KAI itself is not run: where
//! a step looks at what KAI is told, its API is there and nothing behind it.

#![allow(clippy::unwrap_used, reason = "a step that meets the unexpected must fail its test")]

pub mod audit;
pub mod embedded;
pub mod end;
pub mod gangs;
mod lifecycle;
mod look;
mod manifests;
mod operations;
mod partitions;
pub mod rights;
mod stage;
mod status;
mod stories;
mod workloads;

pub use look::{Keys, Look, keys, keys_of, node_labels, refusal};
pub use manifests::{
    BLOCK, CAPACITY, DEFAULT, HOST, NUMA, OFF, RACK, SHARED, ZONE, cells, cells_definition, claim_counts,
    claims_by_owner, clique, compute_domain_definition, configuration, kai_definition, levels, nodes, on, packed,
    placed_by_kai, pod_group_definition, set, three_scopes, topology_definition, with_gpus, with_kai, with_policies,
};
pub use stage::Stage;

/// Calls a macro with the module and name of every scenario.
#[macro_export]
macro_rules! for_each_scenario {
    ($each:ident) => {
        $each! {
            lifecycle::e2e_top_01_initial_setup_with_valid_topology,
            lifecycle::e2e_top_02_topology_disabled_to_enabled_transition,
            lifecycle::e2e_top_03_topology_enabled_to_disabled_transition,
            lifecycle::e2e_top_04_add_new_topology_level,
            lifecycle::e2e_top_05_remove_topology_level,
            lifecycle::e2e_top_06_kai_topology_creation_failure_and_recovery,
            workloads::e2e_top_07_pod_clique_set_with_rack_level_constraint,
            workloads::e2e_top_08_pod_clique_set_with_host_level_constraint,
            workloads::e2e_top_09_multi_level_hierarchy_constraints,
            workloads::e2e_top_10_workload_rejected_when_topology_disabled,
            workloads::e2e_top_11_workload_rejected_with_non_existent_level,
            workloads::e2e_top_12_pod_packing_within_single_rack,
            workloads::e2e_top_13_pod_packing_within_single_host,
            workloads::e2e_top_14_multiple_replicas_across_topology_domains,
            workloads::e2e_top_15_preferred_constraint_optimization_with_fallback,
            workloads::e2e_top_16_update_topology_constraint_rack_to_host,
            status::e2e_top_17_topology_level_removed_status_condition_updated,
            workloads::e2e_top_18_strictest_level_changes,
            workloads::e2e_top_19_scaling_with_topology_constraints,
            status::e2e_top_20_topology_constraints_condition_true,
            status::e2e_top_21_topology_constraints_condition_false_topology_disabled,
            status::e2e_top_22_topology_constraints_condition_false_level_not_found,
            status::e2e_top_23_observed_generation_tracking,
            operations::scenario_01_initial_setup,
            operations::scenario_02_tas_disabled,
            operations::scenario_03_tas_enabled_with_invalid_config,
            operations::scenario_04_valid_workload_submission,
            operations::scenario_05_constraint_not_in_cluster_topology,
            operations::scenario_06_submission_while_tas_is_disabled,
            operations::scenario_07_adding_a_level_disturbs_nobody,
            operations::scenario_08_removing_a_level_touches_only_those_that_used_it,
            operations::scenario_09_kai_topology_creation_failure,
            operations::scenario_10_hierarchy_constraint_violation,
            operations::scenario_11_dynamic_constraint_update_on_running_workload,
            operations::scenario_12_complete_tas_lifecycle,
            stories::story_1_a_workload_moves_between_clusters_unchanged,
            stories::story_2_disaggregated_inference_keeps_its_parts_close,
            stories::story_3_two_gpus_of_one_numa_cell,
            stories::story_4_two_kinds_of_hardware_side_by_side,
            stories::story_5_another_topology_while_nothing_is_scheduled,
            partitions::h100_and_gb200_side_by_side_on_relabelled_nodes,
            partitions::the_kai_pod_group_names_the_topology_of_its_set,
            partitions::a_topology_in_use_stays_until_its_last_user_is_gone,
            partitions::levels_in_use_by_scheduled_pods_are_locked,
        }
    };
}

/// Calls a macro with the module and name of every scenario that looks at pods that run, or at where they are.
#[macro_export]
macro_rules! for_each_placement {
    ($each:ident) => {
        $each! {
            lifecycle::e2e_top_02_topology_disabled_to_enabled_transition,
            lifecycle::e2e_top_03_topology_enabled_to_disabled_transition,
            lifecycle::e2e_top_04_add_new_topology_level,
            lifecycle::e2e_top_05_remove_topology_level,
            workloads::e2e_top_07_pod_clique_set_with_rack_level_constraint,
            workloads::e2e_top_08_pod_clique_set_with_host_level_constraint,
            workloads::e2e_top_09_multi_level_hierarchy_constraints,
            workloads::e2e_top_12_pod_packing_within_single_rack,
            workloads::e2e_top_13_pod_packing_within_single_host,
            workloads::e2e_top_14_multiple_replicas_across_topology_domains,
            workloads::e2e_top_15_preferred_constraint_optimization_with_fallback,
            workloads::e2e_top_16_update_topology_constraint_rack_to_host,
            status::e2e_top_17_topology_level_removed_status_condition_updated,
            workloads::e2e_top_18_strictest_level_changes,
            workloads::e2e_top_19_scaling_with_topology_constraints,
            status::e2e_top_20_topology_constraints_condition_true,
            operations::scenario_04_valid_workload_submission,
            operations::scenario_07_adding_a_level_disturbs_nobody,
            operations::scenario_08_removing_a_level_touches_only_those_that_used_it,
            operations::scenario_09_kai_topology_creation_failure,
            operations::scenario_11_dynamic_constraint_update_on_running_workload,
            operations::scenario_12_complete_tas_lifecycle,
            stories::story_2_disaggregated_inference_keeps_its_parts_close,
            stories::story_3_two_gpus_of_one_numa_cell,
            stories::story_5_another_topology_while_nothing_is_scheduled,
            partitions::h100_and_gb200_side_by_side_on_relabelled_nodes,
            partitions::levels_in_use_by_scheduled_pods_are_locked,
        }
    };
}

/// What is not in the list is dead code, and the compiler says so.
macro_rules! reachable {
    ($($module:ident::$name:ident,)*) => { $(pub use $module::$name;)* };
}
for_each_scenario!(reachable);
