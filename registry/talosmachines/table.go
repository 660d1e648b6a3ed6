// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"context"
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
	{Name: "Cluster", Type: "string", Description: "The cluster that the machine belongs, or would belong, to."},
	{Name: "Role", Type: "string", Description: "controlplane or worker, once it is decided."},
	{Name: "Approval", Type: "string", Description: "pending, approved or rejected."},
	{Name: "Stage", Type: "string", Description: "What Talos reports of itself."},
	{Name: "Ready", Type: "string", Description: "Whether Talos runs, the Node is ready and the configuration is the rendered one."},
	{Name: "Address", Type: "string", Description: "The address that the machine was last reached at."},
	{Name: "Talos", Type: "string", Description: "The Talos version that runs."},
	{Name: "Drift", Type: "string", Description: "The number of fields in which the running configuration differs."},
	{Name: "Age", Type: "string", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]},
	{Name: "UUID", Type: "string", Priority: 1, Description: "The SMBIOS system UUID."},
	{Name: "Serial", Type: "string", Priority: 1, Description: "The SMBIOS system serial number."},
	{Name: "Node", Type: "string", Priority: 1, Description: "The name of the Kubernetes Node."},
	{Name: "Schematic", Type: "string", Priority: 1, Description: "The Image Factory schematic that the machine reports."},
}

// tableConvertor prints machines for kubectl get.
type tableConvertor struct {
	// other prints what isn't a machine: the answer to a deletion.
	other rest.TableConvertor
}

func newTableConvertor() rest.TableConvertor {
	return tableConvertor{other: rest.NewDefaultTableConvertor(ichor.Resource("talosmachines"))}
}

// ConvertToTable prints a machine or a list of machines.
func (c tableConvertor) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	switch obj.(type) {
	case *ichor.TalosMachine, *ichor.TalosMachineList:
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
	machine := obj.(*ichor.TalosMachine)
	status := &machine.Status
	address := machine.Spec.Address
	if len(status.Addresses) > 0 {
		address = status.Addresses[0]
	}
	drift := ""
	if status.Config != nil {
		drift = strconv.Itoa(len(status.Config.Drift))
	}
	return []any{
		name, or(machine.Spec.ClusterRef.Name), or(string(machine.Spec.Role)), string(machine.Spec.ApprovalState),
		or(string(status.Stage)), or(ready(status)), or(address), or(status.TalosVersion), or(drift), age,
		or(machine.Spec.Identity.UUID), or(machine.Spec.Identity.SerialNumber), or(status.NodeName), or(status.SchematicID),
	}, nil
}

func ready(status *ichor.TalosMachineStatus) string {
	if condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); condition != nil {
		return string(condition.Status)
	}
	return ""
}

func or(text string) string {
	if text == "" {
		return none
	}
	return text
}
