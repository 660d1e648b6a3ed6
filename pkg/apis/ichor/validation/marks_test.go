// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
)

// TestWhoSharesNoMarkIsInNobodysWay judges many random decisions twice: knowing all other machines, and knowing only
// those that share a mark. Few values make many collisions.
func TestWhoSharesNoMarkIsInNobodysWay(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	collisions := 0
	for range 5000 {
		known := facts()
		known.Others = nil
		for n := range random.IntN(4) {
			other := pending()
			other.Name = fmt.Sprintf("other-%d", n)
			other.Spec.ClusterRef.Name = one("prod", "prod", "lab")
			other.Spec.Identity = ichor.MachineIdentity{UUID: one(other.Spec.Identity.UUID, "", "4C4C4544-0051-3610-8052-B4C04F4C3132"), SerialNumber: one("SN", "", "X"), MACAddresses: []string{one(mac, "02:00:5e:00:53:f1")}}
			other.Spec.ApprovalState = ichor.ApprovalState(one("pending", "approved", "rejected"))
			other.Spec.Hostname, other.Status.Hostname, other.Status.NodeName = one("cp-1", "", "x"), one("cp-1", "", "x"), one("cp-1", "", "x")
			other.Status.Addresses = []string{one("10.0.0.11", "10.0.0.12", "bad", "2001:db8::11")}
			if random.IntN(2) == 0 {
				other.Spec.Network = static(one("10.0.0.11/16", "10.0.0.13/24", "bad"))
			}
			known.Others = append(known.Others, *other)
		}
		machine := approved()
		machine.Spec.Hostname = one("cp-1", "", "x", "y")
		if random.IntN(2) == 0 {
			machine.Spec.Network = static(one("10.0.0.11/24", "10.0.0.13/24", "10.0.0.99/24", "bad"), one("2001:db8::11/64", "2001:DB8:0::11/64", "2001:db8::12/64"))
		}
		all := faults(validation.ValidateTalosMachineApprovalUpdate(machine, pending(), known))
		asked, few := validation.ApprovalMarks(machine), known
		few.Others = slices.DeleteFunc(slices.Clone(known.Others), func(other ichor.TalosMachine) bool {
			return !slices.ContainsFunc(validation.Marks(&other), func(mark string) bool { return slices.Contains(asked, mark) })
		})
		if diff := cmp.Diff(all, faults(validation.ValidateTalosMachineApprovalUpdate(machine, pending(), few))); diff != "" {
			t.Fatalf("%+v among %+v (-all +marked):\n%s", machine.Spec, known.Others, diff)
		}
		if len(few.Others) < len(known.Others) && len(all) > 0 {
			collisions++
		}
	}
	if collisions < 100 {
		t.Errorf("%d decisions collide with some of the others and not with the rest; the test is too easy", collisions)
	}
}
