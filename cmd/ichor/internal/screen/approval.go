// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"fmt"

	"maesh.dev/ichor/cmd/ichor/internal/proposal"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Summary is what an approval will do, to be read before consenting: what the machine becomes, and which disks lose what
// is on them.
func Summary(machine *v1alpha1.TalosMachine, decision proposal.Decision, style Style) string {
	p := &page{style: style}
	list := &fields{}
	list.add("Machine", machine.Name)
	list.add("Cluster", decision.Cluster)
	list.add("Role", string(decision.Role))
	hostname := decision.Hostname
	if hostname == "" {
		hostname = "as Talos chooses"
	}
	list.add("Hostname", hostname)
	list.add("Network", Network(decision.Network))
	list.add("Node labels", labels(decision.Labels))
	list.add("Reason", decision.Reason)
	list.add("Fingerprint", machine.Status.MaintenanceFingerprint)
	p.line(style.Heading("To approve"))
	for _, line := range list.lines(style, gap) {
		p.line(line)
	}
	if machine.Spec.Origin == v1alpha1.MachineAdopted {
		p.block("Nothing is written to the machine", []string{gap + "it runs already; approving takes it under management"})
		return p.text.String()
	}
	wiped, kept := diskFates(machine, decision, style)
	p.block(style.Bad("Will be wiped"), wiped)
	p.block("Will be left alone", kept)
	return p.text.String()
}

func diskFates(machine *v1alpha1.TalosMachine, decision proposal.Decision, style Style) (wiped, kept []string) {
	if machine.Status.Inventory == nil {
		return nil, nil
	}
	destroyed := map[string]bool{}
	for _, disk := range decision.Wiped(machine.Status.Inventory) {
		destroyed[disk.Device] = true
	}
	var wipedRows, keptRows [][]string
	for i := range machine.Status.Inventory.Disks {
		disk := &machine.Status.Inventory.Disks[i]
		role, name := decision.RoleOf(*disk)
		content := "empty"
		if disk.Signature != "" {
			content = "has " + disk.Signature
			if destroyed[disk.Device] {
				content = style.Bad(content)
			}
		}
		purpose := string(role)
		if name != "" {
			purpose = fmt.Sprintf("%s %s", role, name)
		}
		row := []string{disk.Device, DiskSize(disk.Size), disk.Model, orNone(diskName(disk)), content, "→ " + purpose}
		if destroyed[disk.Device] {
			wipedRows = append(wipedRows, row)
		} else {
			keptRows = append(keptRows, row)
		}
	}
	return indented(Columns(wipedRows)), indented(Columns(keptRows))
}

// Proof says after the work what became of an approval: the Node, and the disk that Talos says it is installed on.
func Proof(machine *v1alpha1.TalosMachine) string {
	text := MachineTitle(machine) + " is Ready"
	if machine.Status.NodeName != "" {
		text += ", Node " + machine.Status.NodeName
	}
	disk := machine.Status.SystemDisk
	if disk == nil {
		return text
	}
	id := v1alpha1.DiskMatch{Serial: disk.Serial}
	if disk.Serial == "" {
		id.WWID = disk.WWID
	}
	text += fmt.Sprintf(", Talos is installed on %s (%s)", disk.Device, DiskID(id))
	for _, decided := range machine.Spec.Disks {
		if decided.Role == v1alpha1.DiskSystem && proposal.Matches(decided.Match, v1alpha1.DiskInventory{Serial: disk.Serial, WWID: disk.WWID}) {
			return text + ", the disk that was approved"
		}
	}
	return text
}
