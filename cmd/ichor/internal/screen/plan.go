// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"fmt"
	"strings"

	"maesh.dev/ichor/cmd/ichor/internal/proposal"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// PlanRow is a machine of a plan, and what becomes of it.
type PlanRow struct {
	Machine  *v1alpha1.TalosMachine
	Decision proposal.Decision
	// Warnings are what the server said about it.
	Warnings []string
}

// Plan is what approving many machines will do, to be read before consenting: a line for each, with the disks that lose
// what is on them.
func Plan(rows []PlanRow, style Style) string {
	p := &page{style: style}
	table := [][]string{{"SERIAL", "ROLE", "HOSTNAME", "WIPED", "NETWORK", "MACHINE"}}
	var warnings []string
	for _, row := range rows {
		serial := row.Machine.Spec.Identity.SerialNumber
		table = append(table, []string{
			orNone(serial), string(row.Decision.Role), orNone(row.Decision.Hostname), wipedInBrief(row, style), Network(row.Decision.Network), row.Machine.Name,
		})
		for _, warning := range row.Warnings {
			warnings = append(warnings, gap+firstOf(row.Decision.Hostname, serial, row.Machine.Name)+": "+warning)
		}
	}
	p.line(style.Heading("To approve"))
	for _, line := range indented(Columns(table)) {
		p.line(line)
	}
	p.block(style.Wait("Warnings"), warnings)
	return p.text.String()
}

func wipedInBrief(row PlanRow, style Style) string {
	if row.Machine.Spec.Origin == v1alpha1.MachineAdopted {
		return "nothing, it runs already"
	}
	var words []string
	for _, disk := range row.Decision.Wiped(row.Machine.Status.Inventory) {
		content := "empty"
		if disk.Signature != "" {
			content = style.Bad("has " + disk.Signature)
		}
		role, name := row.Decision.RoleOf(disk)
		purpose := strings.TrimSpace(fmt.Sprintf("%s %s", role, name))
		words = append(words, fmt.Sprintf("%s %s %s, %s → %s", disk.Device, orNone(diskName(&disk)), DiskSize(disk.Size), content, purpose))
	}
	return orNone(strings.Join(words, "; "))
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
