import * as gkeai from "@my-organization/gke-ai";
import * as k8s from "@pulumi/kubernetes";
import * as pulumi from "@pulumi/pulumi";

const project = new pulumi.Config().require("project");
const cluster = new gkeai.GkeCluster("tpu-research", { project, mode: "standard", location: "us-east5" });
const slice = new gkeai.FlexStartTpuPool("slice", {
    project, cluster: cluster.clusterName, location: "us-east5", zones: ["us-east5-b"], version: "v6e", topology: "4x4",
});
const inCluster = new k8s.Provider("inCluster", { kubeconfig: cluster.kubeconfig, clusterIdentifier: cluster.clusterIdentifier });
new gkeai.KueueStack("kueue", {
    namespaces: ["research"],
    flavors: [{ name: "v6e-4x4", nodeLabels: { "cloud.google.com/gke-tpu-topology": "4x4" } }],
    clusterQueues: [{ name: "tpus", flavors: [{ flavor: "v6e-4x4", quota: { "google.com/tpu": "16" } }] }],
}, { providers: [inCluster], dependsOn: [cluster] });

export const kubeconfig = cluster.kubeconfig;
export const pool = slice.poolName;
