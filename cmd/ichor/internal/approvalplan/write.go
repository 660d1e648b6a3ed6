// SPDX-License-Identifier: Apache-2.0

package approvalplan

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"maesh.dev/ichor/cmd/ichor/internal/proposal"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Draft is a machine that a plan is written for.
type Draft struct {
	Machine  *v1alpha1.TalosMachine
	Proposed proposal.Proposal
	// Withheld says why it can't be approved just now; it is mentioned only.
	Withheld string
}

// Drafts proposes what machines become, each after those before it: the control planes that are missing first, then
// workers. Role is for all of them; empty for the proposal.
func Drafts(chosen []*v1alpha1.TalosMachine, facts Facts, role v1alpha1.MachineRole) []Draft {
	sequence := proposal.NewSequence(facts.Machines)
	drafts := make([]Draft, 0, len(chosen))
	for _, machine := range chosen {
		draft := Draft{Machine: machine}
		if err := facts.Blocked(machine); err != nil {
			draft.Withheld = err.Error()
			drafts = append(drafts, draft)
			continue
		}
		known := sequence.Facts(machine, facts.cluster(machine.Spec.ClusterRef.Name))
		draft.Proposed = proposal.Propose(known)
		if decision := &draft.Proposed.Decision; role != "" && decision.Role != role {
			decision.Role, decision.Hostname = role, proposal.Hostname(role, known.Machines)
		}
		sequence.Decided(machine, draft.Proposed.Decision)
		drafts = append(drafts, draft)
	}
	return drafts
}

// Write writes a plan for people to edit: what is proposed, with each machine's hardware in comments.
func Write(out io.Writer, drafts []Draft, facts Facts) error {
	var text strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	line("# What becomes of each machine. Look at the disks, change what isn't right, then check and approve:")
	line("#   ichor machine approve -f FILE --dry-run=server")
	line("#   ichor machine approve -f FILE")
	line("# Installing wipes the install disk. Fields are those of `kubectl explain talosmachine.spec`.")
	line("apiVersion: %s", APIVersion)
	line("kind: %s", Kind)
	line("defaults:")
	shared := sharedCluster(drafts)
	if shared != "" {
		line("  clusterRef: {name: %s}", scalar(shared))
	}
	line("  # nodeLabels: {topology.kubernetes.io/zone: rack-1}")
	line("  # network: {gateway: 10.0.0.1, nameservers: [10.0.0.1], vlan: 40} # each machine then has network: {addresses: [10.0.0.11/24]}")
	entries := 0
	var withheld []string
	for _, draft := range drafts {
		if draft.Withheld != "" {
			withheld = append(withheld, comment(fmt.Sprintf("left out: %s: %s", tell(draft.Machine), draft.Withheld)))
			continue
		}
		if entries == 0 {
			line("machines:")
		}
		entries++
		entry(line, draft, facts, shared)
	}
	if entries == 0 {
		line("machines: []")
	}
	for _, remark := range withheld {
		line("%s", remark)
	}
	_, err := io.WriteString(out, text.String())
	return err
}

func entry(line func(string, ...any), draft Draft, facts Facts, sharedCluster string) {
	machine, proposed := draft.Machine, draft.Proposed
	for _, remark := range hardware(machine) {
		line("%s", comment(remark))
	}
	key := best(machine, facts.Machines)
	line("- %s: %s", key.field, scalar(key.value))
	if sharedCluster == "" {
		line("  clusterRef: {name: %s}", scalar(proposed.Cluster))
	}
	line("  role: %s", proposed.Role)
	if proposed.Hostname != "" {
		line("  hostname: %s", scalar(proposed.Hostname))
	}
	switch disk, found := proposed.SystemDisk(machine.Status.Inventory); {
	case machine.Spec.Origin == v1alpha1.MachineAdopted:
	case !found:
		line("%s", comment("  installDisk is yours to choose: "+proposed.NoSystemDisk))
		line("  installDisk:")
	default:
		remark := ""
		if disk.Signature != "" {
			remark = " " + comment("holds "+disk.Signature+", which will be lost")
		}
		line("  installDisk: {%s}%s", match(disk.Match), remark)
	}
}

// hardware is what a person looks at to choose disks and interfaces.
func hardware(machine *v1alpha1.TalosMachine) []string {
	remarks := []string{screen.Model(machine.Status.Inventory) + ", at " + strings.Join(machine.Status.Addresses, ", ")}
	if machine.Status.MaintenanceFingerprint != "" {
		remarks = append(remarks, "  fingerprint "+machine.Status.MaintenanceFingerprint)
	}
	for _, disk := range proposal.Disks(machine.Status.Inventory) {
		content := "empty"
		if disk.Signature != "" {
			content = "has " + disk.Signature
		}
		words := []string{disk.Device, screen.DiskSize(disk.Size), disk.Model, screen.DiskBus(&disk.DiskInventory), content}
		if disk.Match != (v1alpha1.DiskMatch{}) {
			words = append(words, "{"+match(disk.Match)+"}")
		}
		if disk.Objection != "" {
			words = append(words, "("+disk.Objection+")")
		}
		remarks = append(remarks, "  disk "+strings.Join(words, "  "))
	}
	for _, link := range proposal.Links(machine) {
		remarks = append(remarks, "  interface "+strings.Join([]string{link.Name, link.PermanentMAC, screen.LinkState(&link.LinkInventory), strings.Join(link.Addresses, " ")}, "  "))
	}
	return remarks
}

// best is what a machine is surely known by: its serial number, else its UUID, if no other machine has it; else the name.
func best(machine *v1alpha1.TalosMachine, machines []v1alpha1.TalosMachine) key {
	for _, candidate := range []key{{"serialNumber", machine.Spec.Identity.SerialNumber}, {"uuid", machine.Spec.Identity.UUID}} {
		if useless(candidate) != "" {
			continue
		}
		fits := 0
		for n := range machines {
			if candidate.fits(&machines[n]) {
				fits++
			}
		}
		if fits == 1 {
			return candidate
		}
	}
	return key{"name", machine.Name}
}

// sharedCluster is the cluster of all machines; empty if there are several.
func sharedCluster(drafts []Draft) string {
	shared := ""
	for _, draft := range drafts {
		switch {
		case draft.Withheld != "":
		case shared == "":
			shared = draft.Proposed.Cluster
		case shared != draft.Proposed.Cluster:
			return ""
		}
	}
	return shared
}

func match(match v1alpha1.DiskMatch) string {
	var parts []string
	if match.Serial != "" {
		parts = append(parts, "serial: "+scalar(match.Serial))
	}
	if match.WWID != "" {
		parts = append(parts, "wwid: "+scalar(match.WWID))
	}
	return strings.Join(parts, ", ")
}

// plainWord is a scalar that every YAML reader takes for a text.
var plainWord = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._/-]*$`)

// reservedWords mean something else to some readers.
var reservedWords = []string{"true", "false", "yes", "no", "on", "off", "null", "y", "n"}

// scalar writes a text so that it is read as itself. What firmware says may hold anything.
func scalar(text string) string {
	if plainWord.MatchString(text) && !slices.Contains(reservedWords, strings.ToLower(text)) {
		return text
	}
	return strconv.QuoteToASCII(text)
}

// comment writes a text as a comment of one line, whatever the firmware put into it.
func comment(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, text)
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	return "# " + indent + strings.TrimSpace(text)
}
