"""What a program in Python does with a cluster, by the client that Kubernetes publishes: prints a line for each answer.

Arguments: a kubeconfig and a namespace of its own.
"""

import json
import sys

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException


def told(name, answer):
    print(json.dumps([name, answer], sort_keys=True))


def refused(name, call):
    """What a client is told when it is refused."""
    try:
        call()
        told(name, "not refused")
    except ApiException as error:
        body = json.loads(error.body)
        told(name, [error.status, body.get("reason"), body.get("message"), body.get("details")])


def config_maps(core, namespace):
    def config_map(name, value):
        return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"app": "py"}), data={"k": value})

    own = {"label_selector": "app=py"}
    for index in range(5):
        made = core.create_namespaced_config_map(namespace, config_map(f"m{index}", "v"), field_manager="py")
        told("created", [made.metadata.name, made.data, made.metadata.generation, made.immutable])
    refused("created twice", lambda: core.create_namespaced_config_map(namespace, config_map("m0", "v")))
    refused("unknown", lambda: core.read_namespaced_config_map("none", namespace))

    whole = core.list_namespaced_config_map(namespace, **own)
    told("listed", [item.metadata.name for item in whole.items])
    names, token = [], None
    while token != "":
        page = core.list_namespaced_config_map(namespace, limit=2, _continue=token, **own)
        names.append([item.metadata.name for item in page.items])
        token = page.metadata._continue or ""
    told("in pages", names)

    revision = whole.metadata.resource_version
    patched = core.patch_namespaced_config_map("m0", namespace, {"data": {"k": "w", "n": "x"}})
    told("strategic", patched.data)
    patched = core.patch_namespaced_config_map("m0", namespace, [{"op": "remove", "path": "/data/n"}])
    told("json patch", patched.data)
    dry = core.patch_namespaced_config_map("m0", namespace, {"data": {"k": "dry"}}, dry_run="All")
    told("dry run", [dry.data, core.read_namespaced_config_map("m0", namespace).data])
    old = patched
    old.data = {"k": "replaced"}
    core.replace_namespaced_config_map("m0", namespace, old)
    refused("replaced at an old revision", lambda: core.replace_namespaced_config_map("m0", namespace, old))
    core.delete_namespaced_config_map("m1", namespace)
    core.create_namespaced_config_map(namespace, config_map("last", "v"))

    events = watch.Watch()
    list_call = core.list_namespaced_config_map
    for event in events.stream(list_call, namespace, resource_version=revision, timeout_seconds=60, **own):
        told("event", [event["type"], event["object"].metadata.name, event["object"].data])
        if event["object"].metadata.name == "last":
            events.stop()
    deleted = core.delete_collection_namespaced_config_map(namespace, **own)
    told("collection", len(core.list_namespaced_config_map(namespace, **own).items) if deleted else None)


def pods(core, namespace):
    container = client.V1Container(
        name="c", image="i", resources=client.V1ResourceRequirements(limits={"cpu": "1", "memory": "1Gi"})
    )
    pod = client.V1Pod(metadata=client.V1ObjectMeta(name="p"), spec=client.V1PodSpec(containers=[container]))
    made = core.create_namespaced_pod(namespace, pod)
    told("pod", [made.status.phase, made.status.qos_class, made.spec.containers[0].resources.requests])
    status = {"status": {"conditions": [{"type": "example.test/Seen", "status": "True"}]}}
    seen = core.patch_namespaced_pod_status("p", namespace, status)
    told("status", [[condition.type, condition.status] for condition in seen.status.conditions])
    refused("immutable", lambda: core.patch_namespaced_pod("p", namespace, {"metadata": {"uid": "other"}}))
    node = client.V1ObjectReference(kind="Node", name=f"{namespace}-n")
    binding = client.V1Binding(metadata=client.V1ObjectMeta(name="p"), target=node)
    # The client takes the answer for a Binding, which it is not.
    bound = core.create_namespaced_pod_binding("p", namespace, binding, _preload_content=False)
    told("binding", bound.status)
    told("bound", core.read_namespaced_pod("p", namespace).spec.node_name)
    core.delete_namespaced_pod("p", namespace, grace_period_seconds=0)
    refused("gone", lambda: core.read_namespaced_pod("p", namespace))


def everything(api, namespace):
    """The client that learns of the kinds from the server."""
    found = dynamic.DynamicClient(api)
    roles = found.resources.get(api_version="rbac.authorization.k8s.io/v1", kind="Role")
    role = {"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}
    made = roles.create(body=role, namespace=namespace)
    told("dynamic", [made.kind, made.rules[0].to_dict(), roles.namespaced, sorted(roles.verbs)])
    applied = roles.server_side_apply(
        body={"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "applied"},
              "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]},
        name="applied", namespace=namespace, field_manager="py",
    )
    told("applied", [applied.metadata.managedFields[0].manager, applied.metadata.managedFields[0].operation])
    review = client.V1TokenReview(spec=client.V1TokenReviewSpec(token="nonsense"))
    told("token", client.AuthenticationV1Api(api).create_token_review(review).status.authenticated)
    told("version", client.VersionApi(api).get_code().git_version)


def main():
    kubeconfig, namespace = sys.argv[1:]
    api = config.new_client_from_config(kubeconfig)
    core = client.CoreV1Api(api)
    config_maps(core, namespace)
    pods(core, namespace)
    everything(api, namespace)


main()
