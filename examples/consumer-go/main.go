// A Standard cluster, a flex-start slice of TPU v6e, and Kueue with the quota of that slice.
package main

import (
	"github.com/my-organization/gke-ai/sdk/go/gkeai"
	"github.com/pulumi/pulumi-kubernetes/sdk/v4/go/kubernetes"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/config"
)

func main() {
	pulumi.Run(func(ctx *pulumi.Context) error {
		project := pulumi.String(config.Require(ctx, "project"))
		cluster, err := gkeai.NewGkeCluster(ctx, "tpu-research", &gkeai.GkeClusterArgs{
			Project: project, Mode: new(gkeai.GkeClusterModeStandard), Location: new("us-east5"),
		})
		if err != nil {
			return err
		}
		slice, err := gkeai.NewFlexStartTpuPool(ctx, "slice", &gkeai.FlexStartTpuPoolArgs{
			Project: project, Cluster: cluster.ClusterName, Location: new("us-east5"),
			Zones: []string{"us-east5-b"}, Version: "v6e", Topology: "4x4",
		})
		if err != nil {
			return err
		}
		inCluster, err := kubernetes.NewProvider(ctx, "inCluster", &kubernetes.ProviderArgs{
			Kubeconfig:        cluster.Kubeconfig,
			ClusterIdentifier: cluster.ClusterIdentifier,
		}, pulumi.Version("4.34.2")) // the plugin of the components, which is newer than that of the SDK in go.mod
		if err != nil {
			return err
		}
		_, err = gkeai.NewKueueStack(ctx, "kueue", &gkeai.KueueStackArgs{
			Namespaces: []string{"research"},
			Flavors: []gkeai.FlavorArgs{{
				Name: "v6e-4x4", NodeLabels: map[string]string{"cloud.google.com/gke-tpu-topology": "4x4"},
			}},
			ClusterQueues: []gkeai.ClusterQueueArgs{{
				Name: "tpus",
				Flavors: []gkeai.FlavorQuotaArgs{{
					Flavor: "v6e-4x4", Quota: map[string]string{"google.com/tpu": "16"},
				}},
			}},
		}, pulumi.Providers(inCluster), pulumi.DependsOn([]pulumi.Resource{cluster}))
		if err != nil {
			return err
		}
		ctx.Export("kubeconfig", cluster.Kubeconfig)
		ctx.Export("pool", slice.PoolName)
		return nil
	})
}
