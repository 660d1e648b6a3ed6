// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"maesh.dev/ichor/cmd/ichor/internal/prompt"
	"maesh.dev/ichor/cmd/ichor/internal/proposal"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Answers of the approval's form.
const (
	askRole      = "role"
	askHostname  = "hostname"
	askDisk      = "disk"
	askOthers    = "others"
	askUse       = "use "  // and the disk's device
	askVolume    = "name " // and the disk's device
	askNetwork   = "network"
	askInterface = "interface"
	askVLAN      = "vlan"
	askAddress   = "address"
	askGateway   = "gateway"
	askDNS       = "dns"
	askLabels    = "labels"
	askReason    = "reason"

	leaveUnused  = "unused"
	decideEach   = "each"
	networkAll   = "all"
	networkDHCP  = "dhcp"
	networkFixed = "static"
	talosChooses = "-"
)

// approvalForm are the questions about one machine, the sensible answer first or preselected.
func approvalForm(facts proposal.Facts, proposed proposal.Proposal) []prompt.Page {
	machine := facts.Machine
	pages := []prompt.Page{rolePage(facts, proposed)}
	disks := proposal.Disks(machine.Status.Inventory)
	pages = append(pages, installPage(disks, proposed))
	pages = append(pages, otherDiskPages(disks)...)
	pages = append(pages, networkPages(proposal.Links(machine), facts.Machines)...)
	return append(pages, prompt.Page{Title: "Notes", Questions: []prompt.Question{
		{Key: askLabels, Title: "Labels of the Node", Help: "key=value, separated by commas; empty for none", Check: checkLabels},
		{Key: askReason, Title: "Reason", Help: "a note that is kept with the approval; may be empty"},
	}})
}

func rolePage(facts proposal.Facts, proposed proposal.Proposal) prompt.Page {
	roles := []prompt.Option{
		{Label: "control plane: etcd and the Kubernetes API", Value: string(v1alpha1.RoleControlPlane)},
		{Label: "worker: workloads only", Value: string(v1alpha1.RoleWorker)},
	}
	if proposed.Role == v1alpha1.RoleWorker {
		slices.Reverse(roles)
	}
	return prompt.Page{Title: "What it becomes in cluster " + proposed.Cluster, Questions: []prompt.Question{
		{Key: askRole, Title: "Role", Options: roles, Default: prompt.Always(string(proposed.Role))},
		{
			Key: askHostname, Title: "Hostname", Help: "Enter takes the one shown; " + talosChooses + " lets Talos choose", DependsOn: askRole,
			Default: func(answers prompt.Answers) string {
				return proposal.Hostname(v1alpha1.MachineRole(answers[askRole]), facts.Machines)
			},
			Check: checkHostname,
		},
	}}
}

func installPage(disks []proposal.Disk, proposed proposal.Proposal) prompt.Page {
	question := prompt.Question{Key: askDisk, Title: "Disk to install Talos on", Help: "everything on it will be wiped"}
	var left []string
	for i := range disks {
		if disks[i].Impossible {
			left = append(left, disks[i].Device+" ("+disks[i].Objection+")")
			continue
		}
		question.Options = append(question.Options, prompt.Option{Label: diskLabel(&disks[i]), Value: disks[i].Device})
	}
	if len(left) > 0 {
		question.Help += "; not fit for it: " + strings.Join(left, ", ")
	}
	if len(proposed.Candidates) == 1 {
		question.Default = prompt.Always(proposed.Candidates[0].Device)
	}
	if len(question.Options) == 0 {
		question.Check = func(string) error { return errors.New("the machine has no disk that Talos can be installed on") }
	}
	return prompt.Page{Title: "Install disk", Questions: []prompt.Question{question}}
}

// diskLabel names a disk by what is printed on it, and says what speaks against it.
func diskLabel(disk *proposal.Disk) string {
	words := []string{screen.DiskSize(disk.Size), disk.Model, screen.DiskID(disk.Match), screen.DiskBus(&disk.DiskInventory), disk.Device}
	if disk.Signature != "" {
		words = append(words, "has "+disk.Signature)
	}
	label := strings.Join(slices.DeleteFunc(words, func(word string) bool { return word == "" }), ", ")
	if disk.Objection != "" {
		label += " — " + disk.Objection
	}
	return label
}

// otherDiskPages ask what the disks besides the install disk are for, one by one if that is wanted at all.
func otherDiskPages(disks []proposal.Disk) []prompt.Page {
	usable := slices.DeleteFunc(slices.Clone(disks), func(disk proposal.Disk) bool { return !disk.Usable() })
	if len(usable) < 2 {
		return nil
	}
	others := "the other disk"
	if len(usable) > 2 {
		others = fmt.Sprintf("the %d other disks", len(usable)-1)
	}
	pages := []prompt.Page{{Title: "Other disks", Questions: []prompt.Question{{
		Key: askOthers, Title: "What about " + others + "?", Default: prompt.Always(leaveUnused),
		Options: []prompt.Option{{Label: "leave unused, untouched", Value: leaveUnused}, {Label: "decide one by one", Value: decideEach}},
	}}}}
	for i := range usable {
		disk := &usable[i]
		applies := func(answers prompt.Answers) bool {
			return answers[askOthers] == decideEach && answers[askDisk] != disk.Device
		}
		pages = append(pages,
			prompt.Page{Title: "Other disks", When: applies, Questions: []prompt.Question{{
				Key: askUse + disk.Device, Title: diskLabel(disk), Default: prompt.Always(string(v1alpha1.DiskUnused)),
				Options: []prompt.Option{
					{Label: "unused: left alone", Value: string(v1alpha1.DiskUnused)},
					{Label: "storage: left to a storage system in the cluster", Value: string(v1alpha1.DiskStorage)},
					{Label: "user volume: formatted and mounted under /var/mnt", Value: string(v1alpha1.DiskUserVolume)},
					{Label: "ephemeral: holds /var instead of the install disk", Value: string(v1alpha1.DiskEphemeral)},
				},
			}}},
			prompt.Page{
				Title: "Other disks",
				When: func(answers prompt.Answers) bool {
					return answers[askUse+disk.Device] == string(v1alpha1.DiskUserVolume)
				},
				Questions: []prompt.Question{{Key: askVolume + disk.Device, Title: "Name of the user volume on " + disk.Device, Help: "mounted under /var/mnt/<name>", Check: checkVolume}},
			})
	}
	return pages
}

func networkPages(links []proposal.Link, machines []v1alpha1.TalosMachine) []prompt.Page {
	chosen := func(answers prompt.Answers) bool { return answers[askNetwork] != networkAll }
	interfaces := prompt.Question{Key: askInterface, Title: "Interface"}
	for i := range links {
		link := &links[i]
		words := []string{link.PermanentMAC, screen.LinkState(&link.LinkInventory), strings.Join(link.Addresses, " ")}
		label := link.Name + ", " + strings.Join(slices.DeleteFunc(words, func(word string) bool { return word == "" }), ", ")
		interfaces.Options = append(interfaces.Options, prompt.Option{Label: label, Value: link.PermanentMAC})
	}
	if best, found := proposal.BestLink(links); found {
		interfaces.Default = prompt.Always(best.PermanentMAC)
	}
	address := func(answers prompt.Answers) string {
		link, err := proposal.FindLink(links, answers[askInterface])
		if err != nil {
			return ""
		}
		return link.Address()
	}
	gateway := func(answers prompt.Answers) string {
		found, _ := proposal.Neighbourhood(address(answers), machines)
		return found
	}
	nameservers := func(answers prompt.Answers) string {
		_, found := proposal.Neighbourhood(address(answers), machines)
		return strings.Join(found, ",")
	}
	modes := []prompt.Option{{Label: "DHCP on every link, as now", Value: networkAll}}
	if len(links) > 0 {
		modes = append(modes, prompt.Option{Label: "DHCP on one interface", Value: networkDHCP}, prompt.Option{Label: "a static address", Value: networkFixed})
	}
	return []prompt.Page{
		{Title: "Network", Questions: []prompt.Question{{Key: askNetwork, Title: "Addressing", Options: modes, Default: prompt.Always(networkAll)}}},
		{Title: "Network", When: chosen, Questions: []prompt.Question{
			interfaces,
			{Key: askVLAN, Title: "VLAN", Help: "1 to 4094; empty for untagged", Check: checkVLAN},
		}},
		{Title: "Network", When: func(answers prompt.Answers) bool { return answers[askNetwork] == networkFixed }, Questions: []prompt.Question{
			{Key: askAddress, Title: "Address with prefix length", Help: "for instance 10.0.0.21/24", DependsOn: askInterface, Default: address, Check: checkPrefix},
			{Key: askGateway, Title: "Gateway", Help: "may be empty", DependsOn: askInterface, Default: gateway, Check: checkAddresses(1)},
			{Key: askDNS, Title: "DNS servers", Help: "separated by commas; may be empty", DependsOn: askInterface, Default: nameservers, Check: checkAddresses(8)},
		}},
	}
}

// choicesOf makes of the answers what flags would have said.
func choicesOf(answers prompt.Answers) proposal.Choices {
	choices := proposal.Choices{Role: answers[askRole], InstallDisk: answers[askDisk], Reason: answers[askReason], Labels: parseLabels(answers[askLabels])}
	if hostname := answers[askHostname]; hostname != talosChooses {
		choices.Hostname = hostname
	}
	for key, role := range answers {
		device, isDisk := strings.CutPrefix(key, askUse)
		if !isDisk || role == string(v1alpha1.DiskUnused) {
			continue
		}
		choice := device + ":" + role
		if role == string(v1alpha1.DiskUserVolume) {
			choice += ":" + answers[askVolume+device]
		}
		choices.Disks = append(choices.Disks, choice)
	}
	slices.Sort(choices.Disks)
	if answers[askNetwork] == networkAll {
		return choices
	}
	choices.Interface = answers[askInterface]
	if vlan, err := strconv.ParseInt(answers[askVLAN], 10, 32); err == nil {
		choices.VLAN = int32(vlan)
	}
	if answers[askNetwork] == networkFixed {
		choices.Addresses, choices.Gateway, choices.Nameservers = []string{answers[askAddress]}, answers[askGateway], words(answers[askDNS])
	}
	return choices
}

func words(text string) []string {
	return strings.FieldsFunc(text, func(letter rune) bool { return letter == ',' || letter == ' ' })
}

func parseLabels(text string) map[string]string {
	labels := map[string]string{}
	for _, word := range words(text) {
		key, value, _ := strings.Cut(word, "=")
		labels[key] = value
	}
	return labels
}

func checkHostname(answer string) error {
	if answer == talosChooses {
		return nil
	}
	return first(validation.IsDNS1123Label(answer))
}

func checkVolume(answer string) error {
	if answer == "" || len(answer) > 34 {
		return errors.New("1 to 34 letters, digits and hyphens")
	}
	return first(validation.IsDNS1123Label(strings.ToLower(answer)))
}

func checkVLAN(answer string) error {
	if answer == "" {
		return nil
	}
	if vlan, err := strconv.Atoi(answer); err != nil || vlan < 1 || vlan > 4094 {
		return errors.New("a number from 1 to 4094, or nothing")
	}
	return nil
}

func checkPrefix(answer string) error {
	if _, err := netip.ParsePrefix(answer); err != nil {
		return errors.New("an address with its prefix length, for instance 10.0.0.21/24")
	}
	return nil
}

func checkAddresses(most int) func(string) error {
	return func(answer string) error {
		addresses := words(answer)
		if len(addresses) > most {
			return fmt.Errorf("at most %s", screen.Plural(most, "address", "addresses"))
		}
		for _, address := range addresses {
			if _, err := netip.ParseAddr(address); err != nil {
				return fmt.Errorf("%q is no IP address", address)
			}
		}
		return nil
	}
}

func checkLabels(answer string) error {
	for key, value := range parseLabels(answer) {
		if err := first(append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)); err != nil {
			return fmt.Errorf("%s=%s: %w", key, value, err)
		}
	}
	return nil
}

func first(faults []string) error {
	if len(faults) == 0 {
		return nil
	}
	return errors.New(faults[0])
}
