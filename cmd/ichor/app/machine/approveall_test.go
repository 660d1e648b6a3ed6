// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/cmd/ichor/internal/apitest"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// rackOf makes a rack of machines with one disk each beside the usual fleet, and tells their names in order.
func rackOf(count int) (objects []metav1.Object, names []string) {
	objects = apitest.Fleet()
	var like *v1alpha1.TalosMachine
	for _, object := range objects {
		if object.GetName() == apitest.Pending {
			like = object.(*v1alpha1.TalosMachine)
		}
	}
	for n := range count {
		m := like.DeepCopy()
		m.Name = fmt.Sprintf("66666666-0000-4000-8000-%012d", n)
		m.UID = types.UID("rack-" + m.Name)
		m.Spec.Identity.UUID, m.Spec.Identity.SerialNumber = m.Name, fmt.Sprintf("RACK%d", n)
		m.Labels = map[string]string{"rack": "7"}
		objects, names = append(objects, m), append(names, m.Name)
	}
	return objects, names
}

func TestARackIsApprovedSideBySideAndToldInOrder(t *testing.T) {
	t.Parallel()
	objects, names := rackOf(40)
	server := apitest.Start(t, objects...)
	var mutex sync.Mutex
	arrived, most, under := 0, 0, 0
	company := make(chan struct{})
	server.Refuse = func(*http.Request, *v1alpha1.TalosMachine) *apierrors.StatusError {
		mutex.Lock()
		arrived, under = arrived+1, under+1
		most = max(most, under)
		if arrived == 2 {
			close(company)
		}
		mutex.Unlock()
		select {
		case <-company:
		case <-time.After(10 * time.Second):
			t.Error("no second approval comes while the first is under way")
		}
		mutex.Lock()
		under--
		mutex.Unlock()
		return nil
	}
	result := server.Run(t, "machine", "approve", "--all", "-l", "rack=7", "--role", "worker", "--yes", "-o", "name")
	if result.Code != 0 {
		t.Fatalf("exit status %d; standard error:\n%s", result.Code, result.Err)
	}
	want := "talosmachine.ichor.maesh.dev/" + strings.Join(names, "\ntalosmachine.ichor.maesh.dev/") + "\n"
	if diff := cmp.Diff(want, result.Out); diff != "" {
		t.Errorf("standard output (-want +got):\n%s", diff)
	}
	if most > 8 {
		t.Errorf("%d approvals were under way at once, want 8 at most", most)
	}
}

func TestControlPlanesAreApprovedInTheirOrder(t *testing.T) {
	t.Parallel()
	objects, names := rackOf(3)
	server := apitest.Start(t, objects...)
	var mutex sync.Mutex
	var order []string
	server.Refuse = func(_ *http.Request, m *v1alpha1.TalosMachine) *apierrors.StatusError {
		mutex.Lock()
		defer mutex.Unlock()
		order = append(order, m.Name)
		return nil
	}
	result := server.Run(t, "machine", "approve", "-l", "rack=7", "--role", "controlplane", "--yes")
	if result.Code != 0 {
		t.Fatalf("exit status %d; standard error:\n%s", result.Code, result.Err)
	}
	if diff := cmp.Diff(names, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
