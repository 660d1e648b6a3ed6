// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
)

// The steps that only a talosUpgrade has.
const (
	stepPullInstaller = "PullImage"
	stepInstall       = "Install"
)

// The checks of a talosUpgrade.
const (
	checkVersion    = "Version"
	checkPath       = "Path"
	checkKubernetes = "KubernetesVersion"
)

// talosUpgradeKind installs another version of Talos. Every machine has the installer before the first one is cordoned. The
// lead of etcd is handed over before the installer is run: machines up to 1.12 install and reboot in one.
func talosUpgradeKind() kind {
	return kind{
		name: "talosUpgrade", bootMark: stepInstall, plan: planTalosUpgrade,
		rounds: []round{{step: stepPullInstaller, parallel: pullsAtOnce}},
		steps: func(m *v1alpha1.TalosMachine, gated bool) []string {
			steps := around(m, gated)
			return slices.Insert(steps, slices.Index(steps, stepReboot), stepInstall)
		},
		own: map[string]step{
			stepPullInstaller: pulling(func(v *visit) []neededImage { return []neededImage{{talos.SystemImages, v.installer()}} }),
			stepInstall:       {try: (*visit).install, patience: lasting(installPatience), finishes: true, then: true},
		},
		still: (*visit).stillToUpgrade, booted: (*visit).bootedVersion, verified: (*visit).verifyVersion, putBack: (*visit).leaveVersion,
	}
}

// sameVersion compares two versions, with or without their "v".
func sameVersion(a, b string) bool { return strings.TrimPrefix(a, "v") == strings.TrimPrefix(b, "v") }

// schematicFor is the schematic that a machine is to get: the one that is asked for, else its own, so that its extensions
// stay. What it was settled on counts before what it reports, which is another one after an installation that went wrong.
func schematicFor(operation *v1alpha1.TalosOperation, cluster *v1alpha1.TalosCluster, m *v1alpha1.TalosMachine) string {
	settled := ""
	if m.Status.SettledVersions != nil {
		settled = m.Status.SettledVersions.SchematicID
	}
	return cmp.Or(operation.Spec.TalosUpgrade.SchematicID, settled, m.Status.SchematicID, cluster.Spec.Install.SchematicID, machineconfig.PlainSchematicID)
}

// planTalosUpgrade decides the version and each machine's image, and leaves out who has both.
func planTalosUpgrade(p *planning) {
	spec, cluster := p.operation.Spec.TalosUpgrade, p.cluster
	to := cmp.Or(spec.Version, cluster.Spec.TalosVersion)
	p.plan.To = to
	checkTargetVersion(p, to)
	p.images = map[string]string{}
	p.chosen = slices.DeleteFunc(p.chosen, func(m *v1alpha1.TalosMachine) bool {
		schematic := schematicFor(p.operation, cluster, m)
		p.images[m.Name] = machineconfig.InstallerFor(cluster, m.Status.Inventory, v1alpha1.SettledVersions{Talos: to, SchematicID: schematic})
		return isOn(m.Status.TalosVersion, m.Status.SchematicID, to, schematic) && isSettledOn(m, to, schematic)
	})
	p.plan.From = lowest(p.chosen)
	checkUpgradePath(p, to)
	checkKubernetesVersions(p, to)
	if spec.SchematicID != "" {
		var other []string
		for _, m := range p.chosen {
			if m.Status.SchematicID != "" && m.Status.SchematicID != spec.SchematicID {
				other = append(other, m.Name)
			}
		}
		if len(other) > 0 {
			p.plan.Risks = append(p.plan.Risks, fmt.Sprintf("the schematic is another one than these machines have, and with it their extensions: %s", list(other)))
		}
	}
}

// isOn tells whether a machine runs a version and schematic. Talos doesn't report the plain schematic from an image that the
// Image Factory didn't make.
func isOn(isVersion, isSchematic, version, schematic string) bool {
	return sameVersion(isVersion, version) && cmp.Or(isSchematic, machineconfig.PlainSchematicID) == schematic
}

// isSettledOn tells whether a machine is to have a version and schematic anyway. One that keeps a configuration of its own is
// settled on nothing.
func isSettledOn(m *v1alpha1.TalosMachine, version, schematic string) bool {
	settled := m.Status.SettledVersions
	return settled == nil || sameVersion(settled.Talos, version) && settled.SchematicID == schematic
}

// lowest is the earliest version that some machines run.
func lowest(machines []*v1alpha1.TalosMachine) string {
	earliest := ""
	for _, m := range machines {
		is, err := version.ParseSemantic(m.Status.TalosVersion)
		if err != nil {
			continue
		}
		if before, err := version.ParseSemantic(earliest); err != nil || is.LessThan(before) {
			earliest = m.Status.TalosVersion
		}
	}
	return earliest
}

// checkTargetVersion holds the version against what the cluster is to have: another one is for machines that are named.
func checkTargetVersion(p *planning, to string) {
	named := p.operation.Spec.Machines != nil && len(p.operation.Spec.Machines.Names) > 0
	switch is := p.cluster.Spec.TalosVersion; {
	case sameVersion(to, is):
		p.check(checkVersion, v1alpha1.CheckPassed, "")
	case named:
		p.check(checkVersion, v1alpha1.CheckWarned, fmt.Sprintf("%s is not the cluster's spec.talosVersion, which is %s; new machines get that, and so do these by an operation without a version", to, is))
	default:
		p.check(checkVersion, v1alpha1.CheckFailed, fmt.Sprintf("%s is not the cluster's spec.talosVersion, which is %s; change that first, or name the machines in spec.machines.names", to, is))
	}
}

func checkUpgradePath(p *planning, to string) {
	var refused, unknown []string
	why := ""
	for _, m := range p.chosen {
		if m.Status.TalosVersion == "" {
			unknown = append(unknown, m.Name)
			continue
		}
		if err := machineconfig.CheckUpgradePath(m.Status.TalosVersion, to); err != nil {
			refused, why = append(refused, m.Name), err.Error()
		}
	}
	switch {
	case len(refused) > 0:
		p.check(checkPath, v1alpha1.CheckFailed, fmt.Sprintf("%s: %s", list(refused), why))
	case len(unknown) > 0:
		p.check(checkPath, v1alpha1.CheckFailed, fmt.Sprintf("it isn't known which version these machines run: %s; wait until they answer, or leave them out", list(unknown)))
	default:
		p.check(checkPath, v1alpha1.CheckPassed, "")
	}
}

// checkKubernetesVersions holds what runs, and what is to run, against the version of Talos.
func checkKubernetesVersions(p *planning, to string) {
	wanted := []string{p.cluster.Spec.KubernetesVersion}
	for _, m := range p.chosen {
		if m.Status.SettledVersions != nil {
			wanted = append(wanted, machineconfig.KubernetesVersions(*m.Status.SettledVersions)...)
		}
	}
	slices.Sort(wanted)
	for _, kubernetes := range slices.Compact(wanted) {
		if err := machineconfig.CheckKubernetesOn(kubernetes, to); kubernetes != "" && err != nil {
			p.check(checkKubernetes, v1alpha1.CheckFailed, fmt.Sprintf("%s; upgrade Kubernetes first, or choose another version of Talos", err))
			return
		}
	}
	p.check(checkKubernetes, v1alpha1.CheckPassed, "")
}

// installer is the image that the machine is to get, as it was planned.
func (v *visit) installer() string { return v.plannedMachine().Image }

// target is what the machine is to have when it is done.
func (v *visit) target() (version, schematic string) {
	name, version, _ := strings.Cut(v.installer()[strings.LastIndex(v.installer(), "/")+1:], ":")
	return version, name
}

// settleTalos writes down that the machine is to have what it has by now. It is done once the machine runs it: until then its
// configuration names the old installer, which is what it would be rendered with, so nothing drifts, and a machine that
// went back to its old version has all that it should.
func (v *visit) settleTalos(ctx context.Context) error {
	version, schematic := v.target()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	machines := v.Client.IchorV1alpha1().TalosMachines()
	m, err := machines.Get(ctx, v.m.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read machine %s: %w", v.m.Name, err)
	}
	if m.UID != v.m.UID || isSettledOn(m, version, schematic) {
		return nil
	}
	m.Status.SettledVersions.Talos, m.Status.SettledVersions.SchematicID = version, schematic
	if _, err := machines.UpdateStatus(ctx, m, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write which version machine %s is to have: %w", v.m.Name, err)
	}
	return nil
}

// stillToUpgrade looks, as the machine itself tells, whether somebody upgraded it since it was planned.
func (v *visit) stillToUpgrade(ctx context.Context) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	node, err := v.reach(ctx, v.m)
	if err != nil {
		return outcome{}, nil //nolint:nilerr // the gates say that it doesn't answer
	}
	defer node.Close() //nolint:errcheck // it was read from only
	facts, err := node.Facts(ctx)
	if err != nil {
		return outcome{}, nil //nolint:nilerr // likewise
	}
	version, schematic := v.target()
	if isOn(facts.TalosVersion, facts.SchematicID, version, schematic) {
		return outcome{needless: true, message: fmt.Sprintf("it runs Talos %s already", version)}, v.settleTalos(ctx)
	}
	if now := schematicFor(v.op, v.cluster, v.m); now != schematic {
		return failed("the schematic %.12s… was planned, and by now it is to keep %.12s…; cancel the operation and make another", schematic, now)
	}
	return v.mayInstall(facts.TalosVersion)
}

// mayInstall tells whether the planned version may be installed over the one that runs by now: an operation may have waited
// for days since that was checked, and another one, or a person, have brought the machine to a later version.
func (v *visit) mayInstall(running string) (outcome, error) {
	version, _ := v.target()
	if running == "" {
		return waiting("its version isn't known")
	}
	if err := machineconfig.CheckUpgradePath(running, version); err != nil {
		return failed("it runs another version than when this was planned: %s; cancel the operation and make another", err)
	}
	return outcome{done: true}, nil
}

// conditionRolledBack tells that a machine came back with another version than the one that was installed.
const conditionRolledBack = "RolledBack"

// bootedVersion tells whether the machine booted what was installed.
func (v *visit) bootedVersion(ctx context.Context, node talos.ConfiguredNode) (outcome, error) {
	facts, err := node.Facts(ctx)
	if err != nil {
		return waiting("its version can't be read: %s", err)
	}
	version, _ := v.target()
	switch is := facts.TalosVersion; {
	case is == "":
		return waiting("its version isn't known yet")
	case !sameVersion(is, version):
		message := fmt.Sprintf("%s came back with Talos %s, not with %s: the new system didn't come up, or the old one was started again", v.m.Name, is, version)
		if !meta.IsStatusConditionTrue(v.op.Status.Conditions, conditionRolledBack) {
			v.tell(corev1.EventTypeWarning, conditionRolledBack, "%s", message)
		}
		v.condition(conditionRolledBack, true, conditionRolledBack, message)
		return failed("RolledBack: %s; look at its console and its kernel log, then cancel this operation and make another", message)
	default:
		return outcome{done: true}, nil
	}
}

// verifyVersion tells whether the machine, which is ready, is what it was to become, and writes that down.
func (v *visit) verifyVersion(ctx context.Context, node talos.ConfiguredNode) (outcome, error) {
	facts, err := node.Facts(ctx)
	if err != nil {
		return waiting("its schematic can't be read: %s", err)
	}
	version, schematic := v.target()
	if !isOn(facts.TalosVersion, facts.SchematicID, version, schematic) {
		return failed("it runs Talos %s with the schematic %s, and was to get %s: its extensions may be missing; look at what %s is made of", facts.TalosVersion, cmp.Or(facts.SchematicID, "that has no id"), schematic, v.installer())
	}
	if err := v.settleTalos(ctx); err != nil {
		return outcome{}, err
	}
	if meta.FindStatusCondition(v.op.Status.Conditions, conditionRolledBack) != nil {
		v.condition(conditionRolledBack, false, "Upgraded", fmt.Sprintf("%s runs Talos %s", v.m.Name, version))
	}
	return outcome{done: true}, nil
}

// leavePatience is how long a machine may not answer that a cancelled operation leaves.
const leavePatience = time.Minute

// leaveVersion tells what a cancelled operation leaves behind. What was installed can't be taken back without a reboot.
func (v *visit) leaveVersion(ctx context.Context) (outcome, error) {
	if v.record.BootID == "" {
		return outcome{done: true}, nil // nothing was installed
	}
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	came, err := v.lookAtLeft(asking)
	if err == nil && !came.done && v.lasted(v.record) > leavePatience {
		v.tell(corev1.EventTypeWarning, "UpgradeLeft", "%s: it isn't known whether %s was installed, and boots next: %s", v.m.Name, v.installer(), came.message)
		return outcome{done: true}, nil
	}
	return came, err
}

func (v *visit) lookAtLeft(ctx context.Context) (outcome, error) {
	node, err := v.reach(ctx, v.m)
	if err != nil {
		return waiting("doesn't answer: %s", err)
	}
	defer node.Close() //nolint:errcheck // it was read from only
	facts, err := node.Facts(ctx)
	if err != nil {
		return waiting("its version can't be read: %s", err)
	}
	version, schematic := v.target()
	if isOn(facts.TalosVersion, facts.SchematicID, version, schematic) {
		return outcome{done: true}, v.settleTalos(ctx)
	}
	target, ok := node.(talos.Upgrader)
	if !ok {
		return outcome{done: true}, nil
	}
	if trace, err := target.InstallerTrace(ctx, v.installer()); err == nil && trace != talos.TraceNone && trace != talos.TraceFailed {
		v.tell(corev1.EventTypeWarning, "UpgradeLeft", "%s: %s was installed before the operation was cancelled, and boots next, whatever reboots the machine", v.m.Name, v.installer())
	}
	return outcome{done: true}, nil
}
