// SPDX-License-Identifier: Apache-2.0

package lookup

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

// pageSize is how many objects are asked for at a time, as kubectl does.
const pageSize = 500

// Machines lists all machines that the selectors fit.
func Machines(ctx context.Context, client versioned.Interface, options metav1.ListOptions) ([]v1alpha1.TalosMachine, error) {
	var machines []v1alpha1.TalosMachine
	options.Limit = pageSize
	for {
		list, err := client.IchorV1alpha1().TalosMachines().List(ctx, options)
		if err != nil {
			return nil, err
		}
		machines = append(machines, list.Items...)
		if options.Continue = list.Continue; options.Continue == "" {
			return machines, nil
		}
	}
}

// FetchMachine finds the machine that a query means. An object's name is fetched directly, so that someone who may only
// read that one object isn't refused the list.
func FetchMachine(ctx context.Context, client versioned.Interface, query string) (*v1alpha1.TalosMachine, error) {
	if name := strings.ToLower(ObjectName(query)); looksLikeObjectName(name) {
		machine, err := client.IchorV1alpha1().TalosMachines().Get(ctx, name, metav1.GetOptions{})
		if err == nil || !apierrors.IsNotFound(err) {
			return machine, err
		}
	}
	machines, err := Machines(ctx, client, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return Machine(machines, query)
}

// looksLikeObjectName is true for a UUID and for weak-<hash>.
func looksLikeObjectName(name string) bool {
	return strings.HasPrefix(name, "weak-") || (len(name) == 36 && strings.Count(name, "-") == 4)
}

// FetchCluster gets a cluster by name, or the only one there is when no name is given.
func FetchCluster(ctx context.Context, client versioned.Interface, name string) (*v1alpha1.TalosCluster, error) {
	if name != "" {
		return client.IchorV1alpha1().TalosClusters().Get(ctx, ObjectName(name), metav1.GetOptions{})
	}
	list, err := client.IchorV1alpha1().TalosClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	switch len(list.Items) {
	case 1:
		return &list.Items[0], nil
	case 0:
		return nil, fmt.Errorf("there is no TalosCluster; create one first (`kubectl explain taloscluster`)")
	}
	names := make([]string, 0, len(list.Items))
	for _, cluster := range list.Items {
		names = append(names, cluster.Name)
	}
	return nil, fmt.Errorf("there are %d clusters: %s; name one", len(names), strings.Join(names, ", "))
}
