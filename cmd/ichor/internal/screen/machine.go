// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/proposal"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Machine is all about one machine on one screen. Next are the lines about what to do, ready-made.
func Machine(machine *v1alpha1.TalosMachine, next []string, now time.Time, style Style) string {
	p := &page{style: style}
	title := style.Heading(MachineTitle(machine))
	if MachineTitle(machine) != machine.Name {
		title += "  " + style.Faint(machine.Name)
	}
	p.line(title + "  " + Phase(machine, style))
	p.block("Identity", identity(machine, style))
	p.block("Hardware", hardware(machine, style))
	p.block("Decided", decided(machine, now, style))
	p.block("Observed", observed(machine, now, style))
	p.block("Conditions", Conditions(machine.Status.Conditions, now, style))
	p.block("Next", indented(next))
	return p.text.String()
}

// Phase is where a machine is, coloured by whether that is good.
func Phase(machine *v1alpha1.TalosMachine, style Style) string {
	phase := machine.Status.Phase
	switch phase {
	case "":
		return style.Wait(Unknown)
	case v1alpha1.PhaseReady:
		return style.Good(string(phase))
	case v1alpha1.PhaseFailed:
		return style.Bad(string(phase))
	default:
		return style.Wait(string(phase))
	}
}

// Identity is what a person compares with the label on the case and with the console before consenting to anything.
func Identity(machine *v1alpha1.TalosMachine, style Style) string {
	p := &page{style: style}
	p.line(style.Heading(machine.Name))
	p.block("Identity", identity(machine, style))
	p.block("Hardware", hardware(machine, style))
	return p.text.String()
}

func identity(machine *v1alpha1.TalosMachine, style Style) []string {
	known := machine.Spec.Identity
	list := &fields{}
	list.add("Model", Model(machine.Status.Inventory))
	list.add("Serial number", orNone(known.SerialNumber))
	list.add("UUID", orNone(known.UUID))
	list.add("MAC addresses", orNone(strings.Join(known.MACAddresses, ", ")))
	list.add("Addresses", orNone(strings.Join(machine.Status.Addresses, ", ")))
	if machine.Spec.Origin == v1alpha1.MachineAdopted {
		list.add("Origin", "already running with the cluster's certificate authorities, at "+machine.Spec.Address)
	}
	if fingerprint := machine.Status.MaintenanceFingerprint; fingerprint != "" {
		list.add("Fingerprint", fingerprint+style.Faint("  (the machine's console shows the same)"))
	}
	if resolution := machine.Spec.IdentityResolution; resolution != nil {
		list.add("Resolved", strings.TrimSpace(fmt.Sprintf("%s %s", resolution.Decision, resolution.Machine))+by(resolution.By))
	}
	return list.lines(style, gap)
}

func hardware(machine *v1alpha1.TalosMachine, style Style) []string {
	inventory := machine.Status.Inventory
	if inventory == nil {
		return []string{gap + style.Wait("not looked at yet")}
	}
	list := &fields{}
	list.add("Processor", processor(inventory.CPU))
	list.add("Memory", MemorySize(inventory.Memory))
	list.add("SecureBoot", map[bool]string{true: "on", false: "off"}[inventory.SecureBoot])
	list.addLines("Disks", disks(inventory.Disks, machine, style))
	list.addLines("Network", links(inventory.Links, style))
	return list.lines(style, gap)
}

func processor(cpu v1alpha1.CPUInventory) string {
	var words []string
	if cpu.Model != "" {
		words = append(words, cpu.Model)
	}
	if cpu.Cores > 0 {
		words = append(words, Plural(int(cpu.Cores), "core", "cores"))
	}
	if cpu.Threads > 0 {
		words = append(words, Plural(int(cpu.Threads), "thread", "threads"))
	}
	return strings.Join(words, ", ")
}

func disks(found []v1alpha1.DiskInventory, machine *v1alpha1.TalosMachine, style Style) []string {
	if len(found) == 0 {
		return []string{"none found"}
	}
	rows := make([][]string, 0, len(found))
	for i := range found {
		disk := &found[i]
		content := "empty"
		if disk.Signature != "" {
			content = style.Wait("has " + disk.Signature)
		}
		rows = append(rows, []string{
			disk.Device, DiskSize(disk.Size), disk.Model, orNone(diskName(disk)), DiskBus(disk), content, diskRole(disk, machine, style),
		})
	}
	return Columns(rows)
}

func diskName(disk *v1alpha1.DiskInventory) string {
	if disk.Serial != "" {
		return disk.Serial
	}
	return disk.WWID
}

// diskRole is what was decided about a disk, and whether Talos says it is installed there.
func diskRole(disk *v1alpha1.DiskInventory, machine *v1alpha1.TalosMachine, style Style) string {
	role := ""
	for _, decided := range machine.Spec.Disks {
		if proposal.Matches(decided.Match, *disk) {
			role = strings.TrimSpace(string(decided.Role) + " " + decided.Name)
		}
	}
	if system := machine.Status.SystemDisk; system != nil && system.Device == disk.Device {
		if role != string(v1alpha1.DiskSystem) {
			return style.Bad(strings.TrimSpace(role + ", but Talos is installed here"))
		}
		role = style.Good("system, installed")
	}
	return role
}

func links(found []v1alpha1.LinkInventory, style Style) []string {
	if len(found) == 0 {
		return []string{"none found"}
	}
	rows := make([][]string, 0, len(found))
	for i := range found {
		link := &found[i]
		state := LinkState(link)
		if !link.Up {
			state = style.Faint(state)
		}
		rows = append(rows, []string{link.Name, LinkMAC(link), state, strings.Join(link.Addresses, ", ")})
	}
	return Columns(rows)
}

func decided(machine *v1alpha1.TalosMachine, now time.Time, style Style) []string {
	spec := &machine.Spec
	list := &fields{}
	list.add("State", approvalState(spec, now, style))
	list.add("Cluster", spec.ClusterRef.Name)
	if spec.ApprovalState != v1alpha1.ApprovalApproved {
		return list.lines(style, gap)
	}
	list.add("Role", string(spec.Role))
	list.add("Hostname", spec.Hostname)
	list.add("Node labels", labels(spec.NodeLabels))
	list.add("Network", Network(spec.Network))
	for _, disk := range spec.Disks {
		list.add("Disk", strings.TrimSpace(string(disk.Role)+" "+disk.Name)+": "+DiskID(disk.Match))
	}
	if spec.Approval != nil {
		list.add("Pinned", spec.Approval.MaintenanceFingerprint)
	}
	if spec.Locked {
		list.add("Locked", "can't be removed")
	}
	return list.lines(style, gap)
}

func approvalState(spec *v1alpha1.TalosMachineSpec, now time.Time, style Style) string {
	state := string(spec.ApprovalState)
	switch spec.ApprovalState {
	case v1alpha1.ApprovalPending, "":
		return style.Wait("pending: nobody has decided yet")
	case v1alpha1.ApprovalRejected:
		state = style.Bad(state)
	}
	if spec.Approval == nil {
		return state
	}
	state += by(spec.Approval.By)
	if spec.Approval.At != nil {
		state += fmt.Sprintf(", %s ago (%s)", Age(now, spec.Approval.At.Time), spec.Approval.At.Local().Format(time.DateTime))
	}
	if spec.Approval.Reason != "" {
		state += fmt.Sprintf(": %q", spec.Approval.Reason)
	}
	return state
}

func observed(machine *v1alpha1.TalosMachine, now time.Time, style Style) []string {
	status := &machine.Status
	list := &fields{}
	list.add("Stage", orUnknown(string(status.Stage)))
	list.add("Talos", orUnknown(status.TalosVersion))
	if settled := status.SettledVersions; settled != nil {
		list.add("Is to have", fmt.Sprintf("Talos %s, Kubernetes %s", settled.Talos, settled.Kubernetes))
	}
	list.add("Schematic", status.SchematicID)
	list.add("Node", status.NodeName)
	list.add("etcd member", status.EtcdMemberID)
	if disk := status.SystemDisk; disk != nil {
		name := DiskID(v1alpha1.DiskMatch{Serial: disk.Serial, WWID: disk.WWID})
		list.add("Installed on", disk.Device+", "+name)
	}
	if config := status.Config; config != nil && len(config.Drift) > 0 {
		list.add("Drift", style.Wait(Plural(len(config.Drift), "field differs", "fields differ")))
	}
	seen := Unknown
	if !machine.CreationTimestamp.IsZero() {
		seen = Age(now, machine.CreationTimestamp.Time) + " ago"
	}
	list.add("First seen", seen)
	return list.lines(style, gap)
}

// conditionOrder is the order in which a machine's conditions come true; a cluster's aren't among them and keep theirs.
var conditionOrder = []string{
	v1alpha1.ConditionIdentityResolved, v1alpha1.ConditionReachable, v1alpha1.ConditionFingerprintTrusted, v1alpha1.ConditionConfigApplied,
	v1alpha1.ConditionInstalled, v1alpha1.ConditionJoined, v1alpha1.ConditionReady,
}

// Conditions lists conditions with their messages, those that aren't as they should be marked.
func Conditions(conditions []metav1.Condition, now time.Time, style Style) []string {
	rows := make([][]string, 0, len(conditions))
	sorted := slices.Clone(conditions)
	slices.SortStableFunc(sorted, func(a, b metav1.Condition) int {
		return slices.Index(conditionOrder, a.Type) - slices.Index(conditionOrder, b.Type)
	})
	for _, condition := range sorted {
		status := string(condition.Status)
		good := metav1.ConditionTrue
		if condition.Type == v1alpha1.ConditionSurplusControlPlane {
			good = metav1.ConditionFalse
		}
		switch condition.Status {
		case good:
			status = style.Good(status)
		case metav1.ConditionUnknown:
			status = style.Faint(status)
		default:
			status = style.Wait(status)
		}
		rows = append(rows, []string{condition.Type, status, Age(now, condition.LastTransitionTime.Time), condition.Reason, condition.Message})
	}
	return indented(Columns(rows))
}

func labels(set map[string]string) string {
	words := make([]string, 0, len(set))
	for _, key := range slices.Sorted(maps.Keys(set)) {
		words = append(words, key+"="+set[key])
	}
	return strings.Join(words, ", ")
}

func by(user string) string {
	if user == "" {
		return ""
	}
	return " by " + user
}

func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}

func orUnknown(text string) string {
	if text == "" {
		return Unknown
	}
	return text
}
