// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"maesh.dev/ichor/test/hollow/profile"
)

// maxFileBytes bounds a fleet file; ten thousand machines take about 10 MB.
const maxFileBytes = 32 << 20

// Load reads, completes and checks a fleet file.
func Load(file string) (*Fleet, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("fleet file: %w", err)
	}
	if info.Size() > maxFileBytes {
		return nil, fmt.Errorf("fleet file %s: %d bytes, at most %d are read", file, info.Size(), maxFileBytes)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("fleet file: %w", err)
	}
	f, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("fleet file %s: %w", file, err)
	}
	return f, nil
}

// Parse reads a fleet file's text. Unknown and doubled keys are errors; all faults are told at once.
func Parse(data []byte) (*Fleet, error) {
	f := &Fleet{}
	if err := yaml.UnmarshalStrict(data, f); err != nil {
		return nil, err
	}
	f.complete()
	if err := f.Validate(); err != nil {
		return nil, err
	}
	return f, nil
}

// Encode writes the fleet as a file that Parse reads.
func (f *Fleet) Encode() ([]byte, error) { return yaml.Marshal(f) }

func (f *Fleet) complete() {
	for i := range f.Machines {
		f.Machines[i].Complete()
	}
}

// Complete fills in what was left out.
func (m *Machine) Complete() {
	setDefault(&m.TalosVersion, profile.DefaultVersion)
	setDefault(&m.State, StateMaintenance)
	setDefault(&m.CNI, CNIReady)
	setDefault(&m.Memory, 8<<30)
	setDefault(&m.CPUs, 4)
	setDefault(&m.Manufacturer, "Hollow Works")
	setDefault(&m.ProductName, "HW-1")
	setDefault(&m.Timings.Boot, DefaultTimings.Boot)
	setDefault(&m.Timings.Install, DefaultTimings.Install)
	setDefault(&m.Timings.Reboot, DefaultTimings.Reboot)
	setDefault(&m.Timings.Pull, DefaultTimings.Pull)
	setDefault(&m.Timings.FatalPause, DefaultTimings.FatalPause)
	for i := range m.Links {
		l := &m.Links[i]
		setDefault(&l.MAC, l.PermanentMAC)
		setDefault(&l.Driver, defaultDriver(l.Kind))
		if l.Kind == "" {
			setDefault(&l.BusPath, fmt.Sprintf("0000:%02x:00.0", i+1))
		}
	}
	for i := range m.Disks {
		d := &m.Disks[i]
		setDefault(&d.Transport, "sata")
		setDefault(&d.BusPath, fmt.Sprintf("/pci0000:00/0000:00:%02x.0/", 0x10+i))
	}
}

func defaultDriver(kind string) string {
	if kind != "" {
		return kind
	}
	return "ixgbe"
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

var (
	namePattern   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	linkPattern   = regexp.MustCompile(`^[A-Za-z0-9_.@-]{1,15}$`)
	devicePattern = regexp.MustCompile(`^/dev/[a-z0-9]+$`)
	loopbackRange = netip.MustParsePrefix("127.0.0.0/8")
)

// Validate tells every fault of the fleet. Doubled UUIDs, serials and MACs are allowed: they are what some tests are for.
func (f *Fleet) Validate() error {
	var faults []error
	if len(f.Machines) == 0 {
		faults = append(faults, errors.New("machines: empty; a fleet has at least one machine"))
	}
	names, addresses := map[string]int{}, map[netip.Addr]int{}
	for i := range f.Machines {
		m := &f.Machines[i]
		at := fmt.Sprintf("machines[%d]", i)
		for _, err := range m.faults() {
			faults = append(faults, fmt.Errorf("%s.%w", at, err))
		}
		if other, taken := names[m.Name]; taken {
			faults = append(faults, fmt.Errorf("%s.name: %q is also machines[%d]", at, m.Name, other))
		}
		names[m.Name] = i
		if other, taken := addresses[m.Addr()]; taken && m.Addr().IsValid() {
			faults = append(faults, fmt.Errorf("%s.address: %s is also machines[%d]", at, m.Addr(), other))
		}
		addresses[m.Addr()] = i
	}
	return errors.Join(faults...)
}

func (m *Machine) faults() []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !namePattern.MatchString(m.Name) {
		fault("name: %q is no DNS label", m.Name)
	}
	if a := m.Addr(); !a.Is4() || !loopbackRange.Contains(a) {
		fault("address: %q is not an address within %s", m.Address.String(), loopbackRange)
	}
	if _, err := profile.ForVersion(m.TalosVersion); err != nil {
		fault("talosVersion: %w", err)
	}
	switch m.State {
	case StateMaintenance, StateForeign, StateOff:
	default:
		fault("state: %q; want %s, %s or %s", m.State, StateMaintenance, StateForeign, StateOff)
	}
	switch m.CNI {
	case CNIReady, CNIAbsent:
	default:
		fault("cni: %q; want %s or %s", m.CNI, CNIReady, CNIAbsent)
	}
	if m.CPUs < 1 || m.CPUs > 1024 {
		fault("cpus: %d is not within 1 to 1024", m.CPUs)
	}
	if m.Memory < 1<<20 {
		fault("memory: %s is less than 1MiB", m.Memory)
	}
	faults = append(faults, m.linkFaults()...)
	return append(faults, m.diskFaults()...)
}

func (m *Machine) linkFaults() []error {
	var faults []error
	seen := map[string]bool{"lo": true}
	for i, l := range m.Links {
		at := fmt.Sprintf("links[%d]", i)
		if !linkPattern.MatchString(l.Name) {
			faults = append(faults, fmt.Errorf("%s.name: %q is no interface name", at, l.Name))
		}
		if seen[l.Name] {
			faults = append(faults, fmt.Errorf("%s.name: %q is used twice (lo is always there)", at, l.Name))
		}
		seen[l.Name] = true
		for field, mac := range map[string]string{"permanentMAC": l.PermanentMAC, "mac": l.MAC} {
			if _, err := net.ParseMAC(mac); mac != "" && err != nil {
				faults = append(faults, fmt.Errorf("%s.%s: %q is no MAC address", at, field, mac))
			}
		}
		if l.Speed < 0 {
			faults = append(faults, fmt.Errorf("%s.speed: %d is negative", at, l.Speed))
		}
	}
	return faults
}

func (m *Machine) diskFaults() []error {
	var faults []error
	seen := map[string]bool{}
	for i, d := range m.Disks {
		at := fmt.Sprintf("disks[%d]", i)
		if !devicePattern.MatchString(d.Device) || path.Clean(d.Device) != d.Device {
			faults = append(faults, fmt.Errorf("%s.device: %q is no device path such as /dev/sda", at, d.Device))
		}
		if seen[d.Device] {
			faults = append(faults, fmt.Errorf("%s.device: %q is used twice", at, d.Device))
		}
		seen[d.Device] = true
		if d.Size == 0 && !d.CDROM {
			faults = append(faults, fmt.Errorf("%s.size: missing", at))
		}
		if strings.ContainsAny(d.Transport, " /") {
			faults = append(faults, fmt.Errorf("%s.transport: %q is no word", at, d.Transport))
		}
	}
	return faults
}
