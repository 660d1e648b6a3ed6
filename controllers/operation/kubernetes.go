// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/kubernetesupgrade"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
)

// stepPullKubernetes has a machine pull the images before anything is changed.
const stepPullKubernetes = "PullImages"

// The checks of a kubernetesUpgrade besides those of pkg/kubernetesupgrade.
const checkConfigured = "Configured"

// maxFindings bounds what one check lists.
const maxFindings = 16

// kubernetesUpgradeKind moves Kubernetes to another version. All images are pulled first. Then one component after the other
// goes through all control planes, kube-apiserver first, as nothing that talks to it may be newer; then the kubelets go, each
// on a drained Node. Source: Talos, pkg/cluster/kubernetes/talos_managed.go, which doesn't drain.
func kubernetesUpgradeKind() kind {
	onControlPlanes := func(m *v1alpha1.TalosMachine) bool { return m.Spec.Role == v1alpha1.RoleControlPlane }
	k := kind{
		name: "kubernetesUpgrade", stays: true, gather: (*run).gatherKubernetes, plan: planKubernetes,
		rounds: []round{{step: stepPullKubernetes, parallel: pullsAtOnce}},
		steps: func(_ *v1alpha1.TalosMachine, gated bool) []string {
			steps := []string{stepGates}
			if gated {
				steps = append(steps, stepOwnGates)
			}
			return append(steps, stepCordon, stepDrain, v1alpha1.StepKubelet, stepUncordon)
		},
		own: map[string]step{
			stepPullKubernetes:   pulling(kubernetesImages),
			v1alpha1.StepKubelet: {try: (*visit).moveKubelet, patience: lasting(15 * time.Minute), finishes: true},
		},
	}
	for _, component := range kubernetesupgrade.ControlPlane {
		name := stepOfComponent(component)
		k.rounds = append(k.rounds, round{step: name, parallel: 1, on: onControlPlanes})
		k.own[name] = step{
			try:      func(v *visit, ctx context.Context) (outcome, error) { return v.moveComponent(ctx, component) },
			patience: lasting(15 * time.Minute),
		}
	}
	return k
}

// kubernetesImages are what a machine will run.
func kubernetesImages(v *visit) []neededImage {
	to := v.op.Status.Plan.To
	images := []neededImage{{talos.SystemImages, machineconfig.ComponentImage(string(kubernetesupgrade.Kubelet), to)}}
	if v.m.Spec.Role != v1alpha1.RoleControlPlane {
		return images
	}
	for _, component := range kubernetesupgrade.ControlPlane {
		images = append(images, neededImage{talos.KubernetesImages, machineconfig.ComponentImage(string(component), to)})
	}
	return images
}

func stepOfComponent(component kubernetesupgrade.Component) string {
	switch component {
	case kubernetesupgrade.APIServer:
		return v1alpha1.StepKubeAPIServer
	case kubernetesupgrade.ControllerManager:
		return v1alpha1.StepKubeControllerManager
	case kubernetesupgrade.Scheduler:
		return v1alpha1.StepKubeScheduler
	default:
		return v1alpha1.StepKubelet
	}
}

// versionOf is the version that a machine's component is to have.
func versionOf(settled *v1alpha1.SettledVersions, component kubernetesupgrade.Component) string {
	own := ""
	switch component {
	case kubernetesupgrade.APIServer:
		own = settled.KubeAPIServer
	case kubernetesupgrade.ControllerManager:
		own = settled.KubeControllerManager
	case kubernetesupgrade.Scheduler:
		own = settled.KubeScheduler
	case kubernetesupgrade.Kubelet:
	}
	return cmp.Or(own, settled.Kubernetes)
}

// settle has a component have a version from now on. With the kubelet's, the last, the machine has one version again.
func settle(settled *v1alpha1.SettledVersions, component kubernetesupgrade.Component, to string) {
	switch component {
	case kubernetesupgrade.APIServer:
		settled.KubeAPIServer = to
	case kubernetesupgrade.ControllerManager:
		settled.KubeControllerManager = to
	case kubernetesupgrade.Scheduler:
		settled.KubeScheduler = to
	case kubernetesupgrade.Kubelet:
		settled.Kubernetes, settled.KubeAPIServer, settled.KubeControllerManager, settled.KubeScheduler = to, "", "", ""
	}
}

// hasAll tells whether a machine is to have one version of everything.
func hasAll(settled *v1alpha1.SettledVersions, to string) bool {
	return kubernetesupgrade.Same(settled.Kubernetes, to) && settled.KubeAPIServer == "" && settled.KubeControllerManager == "" && settled.KubeScheduler == ""
}

// planKubernetes judges what was gathered, and leaves out the machines that have the version.
func planKubernetes(p *planning) {
	to := targetOf(p)
	p.plan.To = kubernetesupgrade.WithV(to)
	machines := make([]kubernetesupgrade.Machine, 0, len(p.kubernetes.machines))
	for _, m := range p.kubernetes.machines {
		m.Chosen = slices.ContainsFunc(p.chosen, func(chosen *v1alpha1.TalosMachine) bool { return chosen.Name == m.Name })
		machines = append(machines, m)
	}
	from, findings := kubernetesupgrade.Check(machines, to)
	p.plan.From = from
	findings = append(findings, p.kubernetes.findings...)
	for _, m := range p.chosen {
		findings = append(findings, installedTalos(m, to)...)
	}
	for _, name := range []string{
		kubernetesupgrade.CheckPath, kubernetesupgrade.CheckSkew, kubernetesupgrade.CheckTalos,
		kubernetesupgrade.CheckRemoved, kubernetesupgrade.CheckAPIVersions,
	} {
		result, message := sumUp(name, findings)
		p.check(name, result, message)
	}
	p.check(checkConfigured, v1alpha1.CheckPassed, "")
	var foreign []string
	for _, m := range p.chosen {
		if m.Status.SettledVersions == nil {
			foreign = append(foreign, m.Name)
		}
	}
	if len(foreign) > 0 {
		p.plan.Checks[len(p.plan.Checks)-1] = v1alpha1.OperationCheck{Name: checkConfigured, Result: v1alpha1.CheckFailed, Message: fmt.Sprintf(
			"adopted with a configuration of their own, which Ichor doesn't change: %s; upgrade them with talosctl, or take them out of spec.machines", list(foreign))}
	}
	if wanted := p.cluster.Spec.KubernetesVersion; !kubernetesupgrade.Same(wanted, to) {
		p.plan.Risks = append(p.plan.Risks, fmt.Sprintf("spec.kubernetesVersion of cluster %s stays %s: machines that join are given that, or what the oldest kube-apiserver is if that is older", p.cluster.Name, kubernetesupgrade.WithV(wanted)))
	}
	p.plan.Risks = append(p.plan.Risks,
		"Talos' own manifests (CoreDNS, kube-proxy, flannel) stay as they are: Talos writes each once; change their images by kubectl")
	p.chosen = slices.DeleteFunc(p.chosen, func(m *v1alpha1.TalosMachine) bool {
		return m.Status.SettledVersions != nil && hasAll(m.Status.SettledVersions, to) && p.kubernetes.runsAll(m.Name, to)
	})
}

// targetOf is the version to go to: the operation's, else the cluster's.
func targetOf(p *planning) string {
	return cmp.Or(p.operation.Spec.KubernetesUpgrade.Version, p.cluster.Spec.KubernetesVersion)
}

// sumUp puts the findings of one check into words.
func sumUp(check string, findings []kubernetesupgrade.Finding) (v1alpha1.CheckResult, string) {
	result := v1alpha1.CheckPassed
	var messages []string
	for _, finding := range findings {
		if finding.Check != check {
			continue
		}
		messages = append(messages, finding.Message)
		switch {
		case finding.Blocks:
			result = v1alpha1.CheckFailed
		case result == v1alpha1.CheckPassed:
			result = v1alpha1.CheckWarned
		}
	}
	if more := len(messages) - maxFindings; more > 0 {
		messages = append(messages[:maxFindings], fmt.Sprintf("and %d more", more))
	}
	return result, strings.Join(messages, "; ")
}
