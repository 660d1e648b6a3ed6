// SPDX-License-Identifier: Apache-2.0

// Package fuzzer makes random objects of every kind, for tests of conversion and storage. What defaulting would fill is
// never left empty, so that an object survives a round trip unchanged.
package fuzzer

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Funcs returns the functions for the group's kinds.
func Funcs(serializer.CodecFactory) []any {
	return []any{
		func(s *ichor.TalosClusterSpec, c randfill.Continue) {
			c.FillNoCustom(s)
			fill(&s.TalosVersion, "v1.14.5")
			fill(&s.KubernetesVersion, "v1.36.6")
			fill(&s.SecretsPolicy, ichor.SecretsPolicyGenerate)
			fill(&s.DriftPolicy, ichor.DriftPolicyReapply)
			fill(&s.ControlPlane.Endpoint.Port, 6443)
			fill(&s.Network.DNSDomain, "cluster.local")
			fill(&s.Install.Registry, "factory.talos.dev")
			fill(&s.Apply.MaxParallel, 10)
			fill(&s.Reprovision.ControlPlanes, ichor.ReprovisionConfirm)
			fill(&s.DeletionPolicy, ichor.ClusterDeletionOrphan)
			fill(&s.Discovery.Interval, metav1.Duration{Duration: v1alpha1.DefaultDiscoveryInterval})
			if len(s.Network.PodCIDRs) == 0 {
				s.Network.PodCIDRs = []string{"10.244.0.0/16"}
			}
			if len(s.Network.ServiceCIDRs) == 0 {
				s.Network.ServiceCIDRs = []string{"10.96.0.0/12"}
			}
			if s.CNI.Cilium != nil {
				fill(&s.CNI.Cilium.Version, "1.20.4")
			}
		},
		func(s *ichor.TalosMachineSpec, c randfill.Continue) {
			c.FillNoCustom(s)
			fill(&s.Origin, ichor.MachineAdopted)
			fill(&s.ApprovalState, ichor.ApprovalRejected)
			fill(&s.DeletionPolicy, ichor.DeletionOrphan)
			if s.Network != nil {
				fill(&s.Network.Addressing, ichor.AddressingStatic)
			}
		},
		func(s *ichor.TalosConfigPatchSpec, c randfill.Continue) {
			c.FillNoCustom(s)
			fillPointer(&s.Priority, 7)
		},
		func(s *ichor.TalosConfigPatchPreviewSpec, c randfill.Continue) {
			c.FillNoCustom(s)
			fill(&s.Change, ichor.PatchDelete)
		},
		func(s *ichor.TalosOperationSpec, c randfill.Continue) {
			c.FillNoCustom(s)
			fill(&s.Mode, ichor.OperationModePlan)
			fillPointer(&s.Drain.Timeout, metav1.Duration{Duration: time.Hour})
			fillPointer(&s.Drain.SkipWaitForDeleteTimeout, metav1.Duration{Duration: time.Minute})
			if s.Reboot != nil {
				fill(&s.Reboot.Mode, ichor.RebootPowerCycle)
			}
			for i := range s.Gates {
				fillPointer(&s.Gates[i].Timeout, metav1.Duration{Duration: time.Hour})
			}
			for i := range s.Windows {
				fill(&s.Windows[i].TimeZone, "Europe/Berlin")
			}
		},
		func(s *ichor.TalosEtcdBackupSpec, c randfill.Continue) {
			c.FillNoCustom(s)
			fill(&s.TimeZone, "Europe/Berlin")
			fill(&s.Retention.Count, 3)
		},
		func(s *ichor.TalosStorageSpec, c randfill.Continue) {
			c.FillNoCustom(s)
			fill(&s.Region, "eu-central-1")
			fill(&s.Addressing, ichor.BucketAddressingVirtualHost)
			fill(&s.Checksums, ichor.ChecksumsWhenSupported)
		},
		func(s *ichor.TalosCredentialRequestSpec, c randfill.Continue) {
			c.FillNoCustom(s)
			fillPointer(&s.TTL, metav1.Duration{Duration: time.Minute})
		},
		func(s *ichor.IchorInstallationSpec, c randfill.Continue) {
			c.FillNoCustom(s)
			fillPointer(&s.Replicas.Controller, 3)
			fillPointer(&s.Replicas.UI, 1)
			fill(&s.UI.Exposure, ichor.ExposureIngress)
		},
		func(s *ichor.IchorUserSpec, c randfill.Continue) {
			c.FillNoCustom(s)
			if s.CertificateRequest != nil {
				fillPointer(&s.CertificateRequest.TTL, metav1.Duration{Duration: time.Hour})
			}
		},
		func(o *ichor.JSONObject, c randfill.Continue) { o.Raw = object(c) },
		func(o *v1alpha1.JSONObject, c randfill.Continue) { o.Raw = object(c) },
		func(o *ichor.MachineSection, c randfill.Continue) { o.Raw = object(c) },
		func(o *v1alpha1.MachineSection, c randfill.Continue) { o.Raw = object(c) },
		func(o *ichor.ClusterSection, c randfill.Continue) { o.Raw = object(c) },
		func(o *v1alpha1.ClusterSection, c randfill.Continue) { o.Raw = object(c) },
		func(o *ichor.ConfigDocument, c randfill.Continue) { o.Raw = object(c) },
		func(o *v1alpha1.ConfigDocument, c randfill.Continue) { o.Raw = object(c) },
	}
}

// object is a random JSON object in the one spelling in which it is written.
func object(c randfill.Continue) []byte {
	values := map[string]any{"replicas": c.Int31n(9), "nested": map[string]any{"$patch": "delete", "text": c.String(20)}, "list": []any{c.Bool(), nil}}
	raw, err := json.Marshal(values)
	if err != nil {
		panic(err) // these values always encode
	}
	return raw
}

func fillPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
