// SPDX-License-Identifier: Apache-2.0

package talosclusters

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// none stands for what isn't known or doesn't apply.
const none = "<none>"

var columns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]},
	{Name: "Endpoint", Type: "string", Description: "Where the Kubernetes API is reached."},
	{Name: "Talos", Type: "string", Description: "The Talos version of new machines."},
	{Name: "Kubernetes", Type: "string", Description: "The Kubernetes version of new machines."},
	{Name: "CP", Type: "string", Description: "Control planes that are Ready, of those wanted."},
	{Name: "Workers", Type: "string", Description: "Workers that are Ready, of those approved."},
	{Name: "Etcd", Type: "string", Description: "Whether etcd has a quorum of healthy voters."},
	{Name: "Drift", Type: "string", Description: "Whether somebody changed a machine's configuration, or one is pending: it waits for a reboot or a person."},
	{Name: "Age", Type: "string", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]},
}

// tableConvertor prints clusters for kubectl get.
type tableConvertor struct {
	// other prints what isn't a cluster: the answer to a deletion.
	other rest.TableConvertor
}

func newTableConvertor() rest.TableConvertor {
	return tableConvertor{other: rest.NewDefaultTableConvertor(ichor.Resource("talosclusters"))}
}

// ConvertToTable prints a cluster or a list of clusters.
func (c tableConvertor) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	switch obj.(type) {
	case *ichor.TalosCluster, *ichor.TalosClusterList:
	default:
		return c.other.ConvertToTable(ctx, obj, options)
	}
	table := &metav1.Table{}
	if opt, ok := options.(*metav1.TableOptions); !ok || !opt.NoHeaders {
		table.ColumnDefinitions = columns
	}
	if list, err := meta.ListAccessor(obj); err == nil {
		table.ResourceVersion = list.GetResourceVersion()
		table.Continue = list.GetContinue()
		table.RemainingItemCount = list.GetRemainingItemCount()
	} else if object, err := meta.CommonAccessor(obj); err == nil {
		table.ResourceVersion = object.GetResourceVersion()
	}
	var err error
	table.Rows, err = metatable.MetaToTableRow(obj, row)
	return table, err
}

func row(obj runtime.Object, _ metav1.Object, name, age string) ([]any, error) {
	cluster := obj.(*ichor.TalosCluster)
	spec, status := &cluster.Spec, &cluster.Status
	endpoint := net.JoinHostPort(spec.ControlPlane.Endpoint.Host, strconv.Itoa(int(spec.ControlPlane.Endpoint.Port)))
	return []any{
		name, endpoint, spec.TalosVersion, spec.KubernetesVersion,
		fmt.Sprintf("%d/%d", status.ControlPlanes.Ready, spec.ControlPlane.Count),
		fmt.Sprintf("%d/%d", status.Machines.WorkersReady, status.Machines.Workers),
		word(status, v1alpha1.ConditionEtcdHealthy, "Healthy", "Unhealthy"),
		drift(status),
		age,
	}, nil
}

// drift says in one word how the machines' configurations are: what somebody changed comes first, then what waits.
func drift(status *ichor.TalosClusterStatus) string {
	waits := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionConfigurationPending)
	says := word(status, v1alpha1.ConditionDriftDetected, "Drifted", "InSync")
	if says == "InSync" && waits != nil && waits.Status == metav1.ConditionTrue {
		return "Pending"
	}
	return says
}

// word says in one word what a condition says.
func word(status *ichor.TalosClusterStatus, condition, yes, no string) string {
	found := meta.FindStatusCondition(status.Conditions, condition)
	switch {
	case found == nil:
		return none
	case found.Status == metav1.ConditionTrue:
		return yes
	case found.Status == metav1.ConditionFalse:
		return no
	}
	return string(found.Status)
}
