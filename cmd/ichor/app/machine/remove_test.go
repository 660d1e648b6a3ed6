// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/apitest"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// removableFleet is the running fleet, with disks in worker-1 and an etcd.
func removableFleet() []metav1.Object {
	objects := runningFleet()
	for _, object := range objects {
		switch object := object.(type) {
		case *v1alpha1.TalosMachine:
			if object.Name == "object-of-worker-1" {
				object.Spec.Disks = []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: "S1"}, Role: v1alpha1.DiskSystem}, {Match: v1alpha1.DiskMatch{Serial: "S2"}, Role: v1alpha1.DiskUserVolume, Name: "data"}}
				object.Status.Inventory = &v1alpha1.MachineInventory{Disks: []v1alpha1.DiskInventory{
					{Device: "/dev/sda", Serial: "S1", Size: resource.MustParse("1Gi")}, {Device: "/dev/sdb", Serial: "S2", Size: resource.MustParse("1Gi")},
				}}
			}
		case *v1alpha1.TalosCluster:
			object.Status.EtcdMembers = []v1alpha1.EtcdMember{{ID: "1", Machine: apitest.ControlPlane}, {ID: "2"}, {ID: "3"}}
		}
	}
	return objects
}

func TestRemove(t *testing.T) {
	t.Parallel()
	const one = "object-of-worker-1"
	person := func(typed string) apitest.Call { return apitest.Call{Terminal: apitest.Person, Typed: typed} }
	forced := &v1alpha1.MachineRemoval{Force: true, Consent: one}
	for _, test := range []struct {
		name    string
		args    []string
		call    apitest.Call
		code    int
		says    string
		deleted string
		want    *v1alpha1.MachineRemoval
	}{
		{"of nothing", nil, apitest.Call{}, cli.ExitUsage, "needs a machine, or --all, or -l", "", nil},
		{"of one that is locked", []string{"worker-3", "--yes"}, apitest.Call{}, cli.ExitBlocked, "is locked; to unlock it", "", nil},
		{"where nobody can be asked", []string{"worker-1"}, apitest.Call{}, cli.ExitUsage, "say --yes", "", nil},
		{"as a plan, with what is wiped and kept by serial", []string{"worker-1", "--plan"}, apitest.Call{}, 0, "wiped: S1 (system); kept: S2 (userVolume)", "", nil},
		{"as a plan of a control plane, with etcd's numbers", []string{"cp-1", "--plan"}, apitest.Call{}, 0, "etcd has 3 voters", "", nil},
		{"with consent", []string{"worker-1", "--yes"}, apitest.Call{}, 0, "talosmachine.ichor.maesh.dev/" + one + " is being removed", one, nil},
		{"in a dry run", []string{"worker-1", "--dry-run=server"}, apitest.Call{}, 0, "would be removed (server dry run)", "", nil},
		{"by a person who sees it and says yes", []string{"worker-1", "--accessible", "--wait=false"}, person("y\n"), 0, "Watch it with: ichor machine show " + one, one, nil},
		{"by a person who sees it and says no", []string{"worker-1", "--accessible"}, person("\n"), cli.ExitUsage, "cancelled; nothing was changed", "", nil},
		{"with a disk besides", []string{"worker-1", "--wipe-disk", "serial=S2", "--yes"}, apitest.Call{}, 0, "wiped: S1 (system), S2 (userVolume); kept: nothing", one, &v1alpha1.MachineRemoval{WipeDisks: []v1alpha1.DiskMatch{{Serial: "S2"}}}},
		{"with a disk that isn't there", []string{"worker-1", "--wipe-disk", "serial=S9", "--yes"}, apitest.Call{}, cli.ExitBlocked, "0 disks", "", nil},
		{"with a disk by its path", []string{"worker-1", "--wipe-disk", "/dev/sdb", "--yes"}, apitest.Call{}, cli.ExitUsage, "is neither serial=", "", nil},
		{"without a drain", []string{"worker-1", "--skip-drain", "--yes"}, apitest.Call{}, 0, "is being removed", one, &v1alpha1.MachineRemoval{SkipDrain: true}},
		{"by force with --yes alone", []string{"worker-1", "--force", "--yes"}, apitest.Call{}, cli.ExitUsage, "--yes isn't enough", "", nil},
		{"by force with another's name", []string{"worker-1", "--force", "--consent", "worker-2"}, apitest.Call{}, cli.ExitUsage, "isn't the machine's name", "", nil},
		{"by force of several", []string{"worker-1", "worker-2", "--force"}, apitest.Call{}, cli.ExitUsage, "for one machine", "", nil},
		{"by force with its name", []string{"worker-1", "--force", "--consent", "worker-1"}, apitest.Call{}, 0, "it is quarantined", one, forced},
		{"by force with its name typed", []string{"worker-1", "--force", "--accessible", "--wait=false"}, person("worker-1\n"), 0, "is being removed", one, forced},
		{"by force with another name typed", []string{"worker-1", "--force", "--accessible"}, person("yes\n"), cli.ExitUsage, "nothing was changed", "", nil},
		{"as it is, and without its pods", []string{"worker-1", "--orphan", "--skip-drain"}, apitest.Call{}, cli.ExitUsage, "--orphan leaves the machine as it is", "", nil},
		{"as it is", []string{"worker-1", "--orphan", "--yes"}, apitest.Call{}, 0, "nothing is wiped", one, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, removableFleet()...)
			result := server.Call(t, test.call, append([]string{"machine", "remove"}, test.args...)...)
			if result.Code != test.code {
				t.Errorf("exit status %d, want %d; standard error:\n%s", result.Code, test.code, result.Err)
			}
			if !strings.Contains(result.Out+result.Err, test.says) {
				t.Errorf("doesn't say %q:\n%s%s", test.says, result.Out, result.Err)
			}
			if machine := server.Machine(one); (machine.DeletionTimestamp != nil) != (test.deleted == one) || !cmp.Equal(test.want, machine.Spec.Removal) {
				t.Errorf("deleted: %v, removal: %+v", machine.DeletionTimestamp, machine.Spec.Removal)
			}
			if orphaned := server.Machine(one).Spec.DeletionPolicy == v1alpha1.DeletionOrphan; orphaned != (test.name == "as it is") {
				t.Errorf("left as it is: %v", orphaned)
			}
		})
	}
}

func TestConsentToAnEarlierRemovalIsNoneToThisOne(t *testing.T) {
	t.Parallel()
	const one = "object-of-worker-1"
	objects := removableFleet()
	for _, object := range objects {
		if machine, ok := object.(*v1alpha1.TalosMachine); ok && machine.Name == one {
			machine.Spec.Removal = &v1alpha1.MachineRemoval{Force: true, Consent: one, WipeDisks: []v1alpha1.DiskMatch{{Serial: "S2"}}}
		}
	}
	server := apitest.Start(t, objects...)
	result := server.Call(t, apitest.Call{}, "machine", "remove", "worker-1", "--yes")
	if machine := server.Machine(one); result.Code != 0 || machine.DeletionTimestamp == nil || !cmp.Equal(machine.Spec.Removal, &v1alpha1.MachineRemoval{WipeDisks: []v1alpha1.DiskMatch{{Serial: "S2"}}}) {
		t.Errorf("exit status %d, removal: %+v\n%s", result.Code, machine.Spec.Removal, result.Err)
	}
}

func TestRemovalIsWatchedUntilTheObjectIsGone(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, removableFleet()...)
	server.Written = func(object metav1.Object) {
		machine, ok := object.(*v1alpha1.TalosMachine)
		if !ok || machine.DeletionTimestamp == nil {
			return
		}
		machine = machine.DeepCopy()
		machine.Status.Phase = v1alpha1.PhaseRemoving
		machine.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Draining", Message: "being removed: Node worker-1 is being drained: waits for pod a/b"}}
		server.Put(machine)
	}
	var once sync.Once
	result := server.Call(t, apitest.Call{OnErr: func(soFar string) {
		if strings.Contains(soFar, "waits for pod a/b") {
			once.Do(func() { server.Delete("object-of-worker-1") })
		}
	}}, "machine", "remove", "worker-1", "--yes", "--wait")
	if result.Code != 0 || !strings.Contains(result.Err, "worker-1 Removing: Node worker-1 is being drained: waits for pod a/b") || !strings.Contains(result.Err, "removed") {
		t.Errorf("exit status %d:\n%s", result.Code, result.Err)
	}
}
