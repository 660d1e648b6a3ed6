// SPDX-License-Identifier: Apache-2.0

package approvalplan

import (
	"fmt"
	"slices"
	"strings"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/identity"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// match finds the one machine that an entry means. What firmware has where nobody entered anything is refused as a key even
// if one machine has it just now: the next board that is plugged in has it too.
func (i *Item) match(machines []v1alpha1.TalosMachine) (*v1alpha1.TalosMachine, []*Fault) {
	keys := i.given()
	if len(keys) == 0 {
		return nil, []*Fault{i.Fault(cli.ExitUsage, "", "doesn't say which machine: give its serialNumber, uuid, macAddress or name")}
	}
	var faults []*Fault
	for _, key := range keys {
		if why := useless(key); why != "" {
			faults = append(faults, i.Fault(cli.ExitUsage, key.field, why))
		}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	var found []*v1alpha1.TalosMachine
	for n := range machines {
		if !slices.ContainsFunc(keys, func(key key) bool { return !key.fits(&machines[n]) }) {
			found = append(found, &machines[n])
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, []*Fault{i.Fault(cli.ExitBlocked, keys[0].field, missing(keys, machines))}
	}
	names := make([]string, 0, len(found))
	for _, machine := range found {
		names = append(names, tell(machine))
	}
	return nil, []*Fault{i.Fault(cli.ExitBlocked, keys[0].field, fmt.Sprintf("fits %d machines: %s; give the name too", len(found), strings.Join(names, ", ")))}
}

// useless says why a value can't tell a machine from others; empty if it can.
func useless(key key) string {
	switch {
	case key.field == "uuid" && identity.IsJunkUUID(key.value):
		return "can't tell a machine from others: it is malformed, one digit again and again, or a default that vendors leave in many boards; use the serialNumber"
	case key.field == "serialNumber" && identity.IsJunkSerial(key.value):
		return "is what firmware has where nobody entered a serial number; use the uuid, a macAddress or the name"
	case key.field == "macAddress" && identity.NormalizeMAC(key.value) == "":
		return "is no address of a network card, such as 02:00:5e:00:53:01"
	}
	return ""
}

// fits tells whether a machine is known by the key.
func (k key) fits(machine *v1alpha1.TalosMachine) bool {
	known := machine.Spec.Identity
	switch k.field {
	case "serialNumber":
		return strings.EqualFold(strings.TrimSpace(known.SerialNumber), k.value)
	case "uuid":
		return strings.EqualFold(strings.TrimSpace(known.UUID), k.value)
	case "macAddress":
		return slices.Contains(known.MACAddresses, identity.NormalizeMAC(k.value))
	default:
		return machine.Name == strings.ToLower(k.value)
	}
}

// of is what a machine has for the key.
func (k key) of(machine *v1alpha1.TalosMachine) string {
	switch k.field {
	case "serialNumber":
		return machine.Spec.Identity.SerialNumber
	case "uuid":
		return machine.Spec.Identity.UUID
	case "name":
		return machine.Name
	}
	return ""
}

// missing says why no machine fits: each key's machine if the keys disagree, else what may have been meant.
func missing(keys []key, machines []v1alpha1.TalosMachine) string {
	var alone []string
	for _, key := range keys {
		for n := range machines {
			if key.fits(&machines[n]) {
				alone = append(alone, fmt.Sprintf("%s %s is machine %s", key.field, key.value, tell(&machines[n])))
			}
		}
	}
	if len(alone) > 0 {
		return "no machine has all that the entry gives: " + strings.Join(alone, ", ")
	}
	var known []string
	for n := range machines {
		if value := keys[0].of(&machines[n]); value != "" {
			known = append(known, value)
		}
	}
	text := fmt.Sprintf("none of the %d machines that are known has it", len(machines))
	if near := nearest(keys[0].value, known); near != "" {
		return text + fmt.Sprintf("; did you mean %s?", near)
	}
	return text + "; is it switched on, in maintenance mode and in a network that is scanned? `ichor machine list -o wide` shows what was found"
}

// tell names a machine with what a person compares.
func tell(machine *v1alpha1.TalosMachine) string {
	var words []string
	for _, word := range []string{machine.Spec.Hostname, machine.Spec.Identity.SerialNumber} {
		if word != "" {
			words = append(words, word)
		}
	}
	if len(words) == 0 {
		return machine.Name
	}
	return fmt.Sprintf("%s (%s)", machine.Name, strings.Join(words, ", "))
}
