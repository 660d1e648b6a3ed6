// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"net/netip"
	"time"
)

// Fleet is a fleet file: the machines that one hollow process hosts.
type Fleet struct {
	Machines []Machine `json:"machines"`
}

// Machine is one hollow machine.
type Machine struct {
	// Name is how the fleet file, the control socket and log lines call the machine; it is not its hostname.
	Name string `json:"name"`
	// Address is where the Talos API listens (port 50000), within 127.0.0.0/8. A prefix length may be given; /24 is assumed.
	Address Prefix `json:"address"`
	// UUID is the SMBIOS UUID as Talos reports it; junk and duplicates are allowed on purpose. "" means that SMBIOS has none.
	UUID string `json:"uuid,omitempty"`
	// SerialNumber is the SMBIOS serial number; "" means that SMBIOS has none.
	SerialNumber string `json:"serialNumber,omitempty"`
	Manufacturer string `json:"manufacturer,omitempty"`
	ProductName  string `json:"productName,omitempty"`
	// TalosVersion is the version that the boot media (and later the disk) runs, with its "v".
	TalosVersion string `json:"talosVersion,omitempty"`
	// Schematic is the Image Factory schematic id, shown as an extension named "schematic"; "" shows none.
	Schematic string `json:"schematic,omitempty"`
	// Extensions are names of system extensions that the boot media holds.
	Extensions []string `json:"extensions,omitempty"`
	SecureBoot bool     `json:"secureBoot,omitempty"`
	// Hostname is what DHCP gives the machine; a configured name wins over it. "" gives none.
	Hostname string `json:"hostname,omitempty"`
	Memory   Size   `json:"memory,omitempty"`
	CPUs     int    `json:"cpus,omitempty"`
	Links    []Link `json:"links,omitempty"`
	Disks    []Disk `json:"disks,omitempty"`
	// State is what the machine is when the process first sees it. Later its folder decides.
	State State `json:"state,omitempty"`
	// CNI tells whether a CNI is there, and with it whether the Node can become Ready.
	CNI CNI `json:"cni,omitempty"`
	// Timings are how long the slow steps take.
	Timings Timings `json:"timings,omitempty"`
}

// State is the state a machine starts in when its folder is empty.
type State string

const (
	// StateMaintenance is a machine that booted from media and waits for a configuration.
	StateMaintenance State = "Maintenance"
	// StateForeign is a machine that another cluster configured: it wants a client certificate of a CA nobody here has.
	StateForeign State = "Foreign"
	// StateOff is a machine without power.
	StateOff State = "Off"
)

// CNI tells whether pods can get a network on the machine.
type CNI string

const (
	// CNIReady is a machine whose network plugin works.
	CNIReady CNI = "Ready"
	// CNIAbsent is a machine that waits for a network plugin, so its Node stays NotReady.
	CNIAbsent CNI = "Absent"
)

// Timings are the durations of what takes a real machine minutes.
type Timings struct {
	// Boot is from power to the first service; Talos opens maintenance about three seconds after its start.
	Boot Duration `json:"boot,omitempty"`
	// Install is the time the installer writes the disk.
	Install Duration `json:"install,omitempty"`
	// Reboot is the time without a listener between two boots.
	Reboot Duration `json:"reboot,omitempty"`
	// Pull is the time that pulling and validating an image takes.
	Pull Duration `json:"pull,omitempty"`
	// FatalPause is the time between a fatal error and the reboot (Talos: 10 s).
	FatalPause Duration `json:"fatalPause,omitempty"`
}

// DefaultTimings are used for what a fleet file leaves out.
var DefaultTimings = Timings{
	Boot:       Duration(100 * time.Millisecond),
	Install:    Duration(time.Second),
	Reboot:     Duration(time.Second),
	Pull:       Duration(100 * time.Millisecond),
	FatalPause: Duration(time.Second),
}

// Link is a network interface.
type Link struct {
	Name string `json:"name"`
	// PermanentMAC is the burnt-in address; "" on links that have none (bonds, VLANs, bridges).
	PermanentMAC string `json:"permanentMAC,omitempty"`
	// MAC is the current address; the permanent one if empty.
	MAC string `json:"mac,omitempty"`
	// Speed is in Mbit/s.
	Speed int  `json:"speed,omitempty"`
	Up    bool `json:"up,omitempty"`
	// Kind is empty for a physical link, else the kernel's word: bond, vlan, bridge, veth, …
	Kind    string `json:"kind,omitempty"`
	Driver  string `json:"driver,omitempty"`
	BusPath string `json:"busPath,omitempty"`
}

// Disk is a block device.
type Disk struct {
	// Device is the path of the device node, /dev/nvme0n1.
	Device string `json:"device"`
	Size   Size   `json:"size"`
	Model  string `json:"model,omitempty"`
	Serial string `json:"serial,omitempty"`
	WWID   string `json:"wwid,omitempty"`
	UUID   string `json:"uuid,omitempty"`
	// Transport is nvme, sata, sas, virtio, usb, mmc, …
	Transport  string `json:"transport,omitempty"`
	BusPath    string `json:"busPath,omitempty"`
	Rotational bool   `json:"rotational,omitempty"`
	ReadOnly   bool   `json:"readOnly,omitempty"`
	CDROM      bool   `json:"cdrom,omitempty"`
	// Signature is a filesystem or partition table that somebody left on the disk (ext4, ntfs, gpt, LVM2_member, …).
	Signature string `json:"signature,omitempty"`
}

// Addr is the machine's own address.
func (m *Machine) Addr() netip.Addr { return m.Address.Addr() }
