fn main() {
    for crd in grove_api::crds::all() {
        std::fs::write(
            format!("charts/grove/crds/{}", grove_api::crds::file_name(&crd)),
            serde_saphyr::to_string(&crd).unwrap(),
        )
        .unwrap();
    }
}
