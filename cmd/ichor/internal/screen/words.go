// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/duration"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Unknown is drawn where nothing is known, so that it isn't taken for zero.
const Unknown = "<unknown>"

// Age is a span of time in kubectl's words. A time that isn't known is "<unknown>".
func Age(now, since time.Time) string {
	if since.IsZero() {
		return Unknown
	}
	return duration.HumanDuration(max(now.Sub(since), 0))
}

// DiskSize is a size in the decimal units that disks are sold in.
func DiskSize(size resource.Quantity) string {
	return scale(float64(size.Value()), 1000, []string{"B", "kB", "MB", "GB", "TB", "PB"})
}

// MemorySize is a size in binary units.
func MemorySize(size resource.Quantity) string {
	if size.IsZero() {
		return ""
	}
	return scale(float64(size.Value()), 1024, []string{"B", "KiB", "MiB", "GiB", "TiB"})
}

func scale(value, base float64, units []string) string {
	unit := 0
	for value >= base && unit < len(units)-1 {
		value /= base
		unit++
	}
	text := strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0")
	return text + " " + units[unit]
}

// Model names a machine's make.
func Model(inventory *v1alpha1.MachineInventory) string {
	if inventory == nil {
		return ""
	}
	return strings.TrimSpace(inventory.Manufacturer + " " + inventory.ProductName)
}

// MachineTitle is the name that people know a machine by: its hostname, else what it calls itself, else the object's.
func MachineTitle(machine *v1alpha1.TalosMachine) string {
	for _, name := range []string{machine.Spec.Hostname, machine.Status.NodeName} {
		if name != "" {
			return name
		}
	}
	return machine.Name
}

// DiskBus says how a disk is attached and what is odd about it.
func DiskBus(disk *v1alpha1.DiskInventory) string {
	words := []string{}
	if disk.Transport != "" {
		words = append(words, disk.Transport)
	}
	if disk.Rotational {
		words = append(words, "rotational")
	}
	if disk.ReadOnly {
		words = append(words, "read-only")
	}
	if disk.CDROM {
		words = append(words, "CD")
	}
	return strings.Join(words, ", ")
}

// LinkState is a network interface's carrier and speed.
func LinkState(link *v1alpha1.LinkInventory) string {
	switch {
	case !link.Up:
		return "no carrier"
	case link.SpeedMegabits >= 1000 && link.SpeedMegabits%1000 == 0:
		return fmt.Sprintf("up, %d Gbit/s", link.SpeedMegabits/1000)
	case link.SpeedMegabits > 0:
		return fmt.Sprintf("up, %d Mbit/s", link.SpeedMegabits)
	default:
		return "up"
	}
}

// LinkMAC is the address that an interface is chosen by.
func LinkMAC(link *v1alpha1.LinkInventory) string {
	if link.PermanentMAC != "" {
		return link.PermanentMAC
	}
	return link.MAC
}

// DiskID names a disk by what is burnt into it.
func DiskID(match v1alpha1.DiskMatch) string {
	switch {
	case match.Serial != "" && match.WWID != "":
		return "serial " + match.Serial + ", wwid " + match.WWID
	case match.Serial != "":
		return "serial " + match.Serial
	default:
		return "wwid " + match.WWID
	}
}

// Network describes how a machine is addressed.
func Network(network *v1alpha1.MachineNetwork) string {
	if network == nil {
		return "DHCP on every link"
	}
	words := []string{"DHCP on " + network.Interface.MAC}
	if network.Addressing == v1alpha1.AddressingStatic {
		words[0] = "static " + strings.Join(network.Addresses, ", ") + " on " + network.Interface.MAC
	}
	if network.Gateway != "" {
		words = append(words, "gateway "+network.Gateway)
	}
	if network.VLAN != nil {
		words = append(words, fmt.Sprintf("VLAN %d", *network.VLAN))
	}
	if len(network.Nameservers) > 0 {
		words = append(words, "DNS "+strings.Join(network.Nameservers, ", "))
	}
	return strings.Join(words, ", ")
}

// Plural counts things.
func Plural(count int, one, many string) string {
	if count == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", count, many)
}
