// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"time"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
)

// inputs are a cluster with patches: half of them set fields of the first document, the others have a document each.
func inputs(patches int) (machineconfig.Inputs, error) {
	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), talosconfig.TalosVersion1_13)
	if err != nil {
		return machineconfig.Inputs{}, fmt.Errorf("make the cluster's secrets: %w", err)
	}
	cluster := &v1alpha1.TalosCluster{}
	cluster.Name = "prod"
	cluster.Spec.ControlPlane = v1alpha1.ControlPlane{Count: 3, Endpoint: v1alpha1.Endpoint{Host: "10.0.0.10"}}
	v1alpha1.SetDefaults_TalosClusterSpec(&cluster.Spec)
	in := machineconfig.Inputs{
		Bundle: bundle, Cluster: cluster,
		Facts: machineconfig.Facts{
			MaintenanceVersion: cluster.Spec.TalosVersion,
			Inventory:          &v1alpha1.MachineInventory{Disks: []v1alpha1.DiskInventory{{Device: "/dev/sda", Serial: "S1", Transport: "sata"}}},
			Versions:           machineconfig.Settle(cluster, ""),
		},
	}
	for i := range patches {
		patch := &v1alpha1.TalosConfigPatch{}
		patch.Name = fmt.Sprintf("patch-%02d", i)
		patch.Spec.Target.ClusterRef.Name = cluster.Name
		if i%2 == 0 {
			patch.Spec.Machine = &v1alpha1.MachineSection{Raw: fmt.Appendf(nil, `{"sysctls":{"net.core.somaxconn":"%d","vm.x%d":"1"},"nodeLabels":{"l%d":"v"},"kubelet":{"extraArgs":{"max-pods":"%d"}}}`, i, i, i, i+100)}
		} else {
			patch.Spec.Documents = []v1alpha1.ConfigDocument{{Raw: fmt.Appendf(nil, `{"apiVersion":"v1alpha1","kind":"StaticHostConfig","name":"10.0.1.%d","hostnames":["h%d.example.org"]}`, i, i)}}
		}
		ready, err := machineconfig.Compile(patch, false, func(v1alpha1.SecretKeyReference) (string, error) { return "", errors.New("no patch has secrets") })
		if err != nil {
			return machineconfig.Inputs{}, err
		}
		in.Patches = append(in.Patches, ready)
	}
	return in, nil
}
