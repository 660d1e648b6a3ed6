// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// The checks of a plan.
const (
	checkType     = "Type"
	checkMachines = "Machines"
	checkLocked   = "Locked"
	checkReady    = "Ready"
	checkEtcd     = "Etcd"
)

// maxNamed bounds how many names a message lists.
const maxNamed = 10

// makePlan decides what an operation does, in which order. It looks at what it is given alone, and changes nothing.
func makePlan(p *planning) *v1alpha1.OperationPlan {
	operation, cluster, all, plan := p.operation, p.cluster, p.all, &v1alpha1.OperationPlan{At: p.now}
	p.plan = plan
	kind, known := kindOf(&operation.Spec)
	if !known {
		p.check(checkType, v1alpha1.CheckFailed, fmt.Sprintf("operations of type %s can't be carried out by this version of ichor-controller; nothing was done", kind.name))
		return plan
	}
	chosen, check := choose(operation.Spec.Machines, cluster, all)
	plan.Checks = append(plan.Checks, check)
	p.chosen, check = withoutLocked(cluster, operation.Spec.Machines, chosen, &plan.Risks)
	plan.Checks = append(plan.Checks, check)
	if kind.plan != nil {
		kind.plan(p)
	}
	order := kind.order
	if order == nil {
		order = controlPlanesFirst
	}
	slices.SortFunc(p.chosen, order)
	plan.Checks = append(plan.Checks, readyCheck(p.chosen), etcdCheck(cluster))
	for _, m := range p.chosen {
		plan.Machines = append(plan.Machines, v1alpha1.PlannedMachine{
			Name: m.Name, Steps: kind.stepsOf(m, len(operation.Spec.Gates) > 0), Image: p.images[m.Name],
		})
	}
	plan.Risks = append(plan.Risks, risks(cluster, p.chosen, all, kind.stays)...)
	return plan
}

// choose finds the machines of an operation: those that fit everything that is given, all of the cluster if nothing is.
func choose(wanted *v1alpha1.OperationMachines, cluster *v1alpha1.TalosCluster, all []*v1alpha1.TalosMachine) ([]*v1alpha1.TalosMachine, v1alpha1.OperationCheck) {
	check := v1alpha1.OperationCheck{Name: checkMachines, Result: v1alpha1.CheckPassed}
	selector := labels.Everything()
	if wanted != nil && wanted.Selector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(wanted.Selector); err != nil {
			check.Result, check.Message = v1alpha1.CheckFailed, "spec.machines.selector can't be read: "+err.Error()
			return nil, check
		}
	}
	missing := map[string]bool{}
	if wanted != nil {
		for _, name := range wanted.Names {
			missing[name] = true
		}
	}
	named := len(missing) > 0
	var chosen []*v1alpha1.TalosMachine
	for _, m := range all {
		if named && !missing[m.Name] || !isMember(m, cluster) || !selector.Matches(labels.Set(m.Labels)) {
			continue
		}
		delete(missing, m.Name)
		chosen = append(chosen, m)
	}
	if len(missing) > 0 {
		var names []string
		for name := range missing {
			names = append(names, name)
		}
		check.Result = v1alpha1.CheckFailed
		check.Message = fmt.Sprintf("no approved machines of cluster %s that fit: %s; take them out of spec.machines, or approve them first", cluster.Name, list(names))
	}
	if wanted != nil && len(chosen) == 0 && check.Result == v1alpha1.CheckPassed {
		check.Result, check.Message = v1alpha1.CheckFailed, fmt.Sprintf("no approved machine of cluster %s fits spec.machines", cluster.Name)
	}
	return chosen, check
}

// isMember tells whether a machine runs in a cluster, as far as its object says.
func isMember(m *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster) bool {
	return m.Spec.ClusterRef.Name == cluster.Name && m.Spec.ApprovalState == v1alpha1.ApprovalApproved &&
		m.DeletionTimestamp == nil && (m.Spec.Origin == v1alpha1.MachineAdopted || m.Status.Provisioning != nil && m.Status.Provisioning.AppliedAt != nil)
}

// withoutLocked leaves out machines that are locked; naming one is a fault, and so is a cluster that is locked.
func withoutLocked(cluster *v1alpha1.TalosCluster, wanted *v1alpha1.OperationMachines, chosen []*v1alpha1.TalosMachine, risks *[]string) ([]*v1alpha1.TalosMachine, v1alpha1.OperationCheck) {
	check := v1alpha1.OperationCheck{Name: checkLocked, Result: v1alpha1.CheckPassed}
	var free []*v1alpha1.TalosMachine
	var locked, named []string
	for _, m := range chosen {
		switch {
		case !m.Spec.Locked:
			free = append(free, m)
		case wanted != nil && slices.Contains(wanted.Names, m.Name):
			named = append(named, m.Name)
		default:
			locked = append(locked, m.Name)
		}
	}
	if cluster.Spec.Locked {
		check.Result = v1alpha1.CheckFailed
		check.Message = fmt.Sprintf("spec.locked of cluster %s is true; set it to false first", cluster.Name)
	} else if len(named) > 0 {
		check.Result = v1alpha1.CheckFailed
		check.Message = fmt.Sprintf("spec.locked is true for %s; set it to false, or take them out of spec.machines", list(named))
	}
	if len(locked) > 0 {
		if check.Result == v1alpha1.CheckPassed {
			check.Result = v1alpha1.CheckWarned
		}
		*risks = append(*risks, fmt.Sprintf("left out, because spec.locked is true: %s", list(locked)))
	}
	return free, check
}

// controlPlanesFirst puts control planes first, each kind of machine by name: what would break the cluster shows on a
// machine whose absence it is made for.
func controlPlanesFirst(a, b *v1alpha1.TalosMachine) int {
	if a.Spec.Role != b.Spec.Role {
		if a.Spec.Role == v1alpha1.RoleControlPlane {
			return -1
		}
		return 1
	}
	return strings.Compare(a.Name, b.Name)
}

func readyCheck(chosen []*v1alpha1.TalosMachine) v1alpha1.OperationCheck {
	check := v1alpha1.OperationCheck{Name: checkReady, Result: v1alpha1.CheckPassed}
	var unready []string
	for _, m := range chosen {
		if !meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReady) {
			unready = append(unready, m.Name)
		}
	}
	if len(unready) > 0 {
		check.Result, check.Message = v1alpha1.CheckWarned, "not Ready now: "+list(unready)
	}
	return check
}

func etcdCheck(cluster *v1alpha1.TalosCluster) v1alpha1.OperationCheck {
	check := v1alpha1.OperationCheck{Name: checkEtcd, Result: v1alpha1.CheckPassed}
	condition := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionEtcdHealthy)
	if condition == nil || condition.Status != metav1.ConditionTrue {
		check.Result, check.Message = v1alpha1.CheckWarned, "etcd isn't known to be healthy; no machine is begun until it is"
		if condition != nil {
			check.Message += ": " + condition.Message
		}
	}
	return check
}

// risks are what a person should know before it starts.
func risks(cluster *v1alpha1.TalosCluster, chosen, all []*v1alpha1.TalosMachine, stays bool) []string {
	voters := 0
	for _, m := range all {
		if isMember(m, cluster) && m.Spec.Role == v1alpha1.RoleControlPlane {
			voters++
		}
	}
	disrupted := slices.ContainsFunc(chosen, func(m *v1alpha1.TalosMachine) bool { return m.Spec.Role == v1alpha1.RoleControlPlane })
	switch {
	case disrupted && voters == 1 && stays:
		return []string{"the cluster has one control plane: its API is away for a while"}
	case stays:
		return nil
	case disrupted && voters == 1:
		return []string{"the cluster has one control plane: its API and etcd are away while that machine is"}
	case disrupted && voters == 2:
		return []string{"the cluster has two control planes: etcd has no quorum without either, so none of them is begun; bring a third"}
	default:
		return nil
	}
}

// failedChecks are the messages of what keeps a plan from being carried out.
func failedChecks(plan *v1alpha1.OperationPlan) string {
	var messages []string
	for _, check := range plan.Checks {
		if check.Result == v1alpha1.CheckFailed {
			messages = append(messages, check.Message)
		}
	}
	return strings.Join(messages, "; ")
}

// list names some things, in order, and how many more there are.
func list(names []string) string {
	slices.Sort(names)
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}
