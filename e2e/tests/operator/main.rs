//! The workload operator on a real control plane: kube-apiserver, garbage collection, kube-scheduler, kwok's kubelets.
//!
//! Pods are placed one by one by kube-scheduler here: the gangs' own placement is tested where a scheduler of gangs runs.

mod lifecycle;
mod support;
