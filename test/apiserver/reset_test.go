// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"

	"maesh.dev/ichor/apiserver"
	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/registry"
	"maesh.dev/ichor/registry/reset/resettest"
	"maesh.dev/ichor/registry/talosmachines"
	"maesh.dev/ichor/test/apiserver/harness"
)

// adjusted makes two random objects of a resource such that a strategy takes the new one's fields.
var adjusted = map[string]func(obj, old runtime.Object){
	"talosmachines": func(obj, old runtime.Object) {
		for i, m := range []*ichor.TalosMachine{obj.(*ichor.TalosMachine), old.(*ichor.TalosMachine)} {
			m.Spec.ClusterRef.Name = []string{"a", "b"}[i] // an empty one means the one that is there
			m.Spec.Identity = ichor.MachineIdentity{UUID: machineUUID(i), SerialNumber: []string{"A", "B"}[i], MACAddresses: []string{machineMAC(i)}}
			m.Spec.Network.Interface.MAC = machineMAC(i)
		}
		machine, was := obj.(*ichor.TalosMachine), old.(*ichor.TalosMachine)
		machine.Spec.ApprovalState, was.Spec.ApprovalState = ichor.ApprovalApproved, ichor.ApprovalPending
		machine.Spec.Origin, was.Spec.Origin = ichor.MachineAdopted, ichor.MachineDiscovered
		machine.Spec.IdentityResolution.Decision = ichor.IdentityDistinct
		machine.Spec.DeletionPolicy = ichor.DeletionReset
	},
	// An approval of a machine that was adopted keeps no fingerprint.
	"talosmachines/approval": func(obj, old runtime.Object) {
		obj.(*ichor.TalosMachine).Spec.Origin = ichor.MachineDiscovered
		old.(*ichor.TalosMachine).Spec.Origin = ichor.MachineDiscovered
	},
	// A cancellation that was asked for stays.
	"talosoperations/cancel": func(obj, old runtime.Object) {
		obj.(*ichor.TalosOperation).Spec.Control.CancelRequested, old.(*ichor.TalosOperation).Spec.Control.CancelRequested = false, true
	},
	// The UUID is spelled in one way.
	"machinereclaims": func(obj, old runtime.Object) {
		obj.(*ichor.MachineReclaim).Spec.UUID, old.(*ichor.MachineReclaim).Spec.UUID = machineUUID(0), machineUUID(1)
	},
}

// unwritten are fields that a door neither takes nor resets.
var unwritten = map[string][]string{
	// The identity in an approval is compared with the machine's; the origin isn't its business, and the same in both.
	"talosmachines/approval": {"spec.identity", "spec.origin"},
}

// withoutReset are doors that no manager of fields comes through.
var withoutReset = map[string]string{
	"ichorusers/password": "takes no object", "talosmachines/config": "is only read", "talosmachines/drift": "is only read", "talosmachines/log": "is only read",
	"talosconfigpatches/preview": "stores nothing",
	"talosmachines/history":      "is only added to",
}

func TestWhatEveryDoorResetsIsWhatItDeclares(t *testing.T) {
	t.Parallel()
	allow := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
	built, err := registry.New(apiserver.Scheme, harness.RESTOptions(t), allow, talosmachines.NodeStreams{})
	if err != nil {
		t.Fatal(err)
	}
	for path, storage := range built.Storage() {
		t.Cleanup(storage.Destroy)
		if why := withoutReset[path]; why != "" {
			continue
		}
		t.Run(path, func(t *testing.T) {
			writer, ok := storage.(interface {
				Strategy() rest.RESTUpdateStrategy
			})
			if !ok {
				t.Fatalf("%T has no strategy to be held to what it declares", storage)
			}
			resource, _, _ := strings.Cut(path, "/")
			declared := resettest.DeclaredBy(storage)
			if declared == nil {
				t.Fatalf("%T declares nothing of what it resets", storage)
			}
			kinds, _, err := apiserver.Scheme.ObjectKinds(storage.New())
			if err != nil {
				t.Fatal(err)
			}
			resettest.Check(t, resettest.Writer{
				Kind: kinds[0].Kind, Strategy: writer.Strategy(), Declared: declared, Kept: unwritten[path],
				Adjust: func(obj, old runtime.Object) {
					for _, of := range slices.Compact([]string{resource, path}) {
						if adjust := adjusted[of]; adjust != nil {
							adjust(obj, old)
						}
					}
				},
			})
		})
	}
}
