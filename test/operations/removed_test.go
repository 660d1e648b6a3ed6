// SPDX-License-Identifier: Apache-2.0

package operations_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"

	"maesh.dev/ichor/pkg/kubernetesupgrade"
)

// Kubernetes' own types say when they go away.
func TestTheTableOfRemovedAPIVersionsIsKubernetesOwn(t *testing.T) {
	t.Parallel()
	seen := 0
	for kind, of := range scheme.Scheme.AllKnownTypes() {
		going, is := reflect.New(of).Interface().(interface{ APILifecycleRemoved() (major, minor int) })
		if !is || strings.HasSuffix(kind.Kind, "List") {
			continue
		}
		major, minor := going.APILifecycleRemoved()
		if major != 1 || minor < 32 {
			continue
		}
		seen++
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		api := kubernetesupgrade.API{Group: resource.Group, Version: resource.Version, Resource: resource.Resource}
		if gone := kubernetesupgrade.APIGoneIn(api, "", fmt.Sprintf("v1.%d.0", minor)); gone != fmt.Sprintf("1.%d", minor) {
			t.Errorf("%s goes in 1.%d, by the table in %q", api, minor, gone)
		}
		if gone := kubernetesupgrade.APIGoneIn(api, "", fmt.Sprintf("v1.%d.9", minor-1)); gone != "" {
			t.Errorf("%s goes in 1.%d, by the table in %q", api, minor, gone)
		}
	}
	if seen < 30 {
		t.Errorf("%d types go: they are looked for in the wrong way", seen)
	}
}
