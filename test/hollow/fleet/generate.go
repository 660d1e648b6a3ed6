// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/google/uuid"
)

// GenerateOptions say what fleet to make.
type GenerateOptions struct {
	// Machines is how many.
	Machines int
	// First is the address of the first machine; the others follow it one by one.
	First netip.Addr
	// PrefixBits is the length of the network's prefix, 24 if zero.
	PrefixBits int
	// Seed makes another fleet; the same options always make the same fleet.
	Seed uint64
	// NamePrefix starts the names: "hollow" gives hollow-001, and so on.
	NamePrefix string
	// TalosVersion is that of all machines; the default profile's if empty.
	TalosVersion string
	// Timings are those of all machines; zero values mean the defaults.
	Timings Timings
}

// Generate makes a fleet of machines as a small rack has them: distinct UUIDs, serials and MACs, one to three usable
// disks each, a USB stick in some, a disk too small for Talos in others.
func Generate(o GenerateOptions) (*Fleet, error) {
	setDefault(&o.NamePrefix, "hollow")
	setDefault(&o.PrefixBits, defaultPrefixBits)
	if o.Machines < 1 {
		return nil, fmt.Errorf("generate fleet: %d machines; want at least one", o.Machines)
	}
	f := &Fleet{}
	address := o.First
	for i := range o.Machines {
		rng := rand.New(rand.NewPCG(o.Seed, uint64(i)))
		f.Machines = append(f.Machines, generateMachine(rng, o, i, address))
		address = address.Next()
	}
	f.complete()
	if err := f.Validate(); err != nil {
		return nil, fmt.Errorf("generate fleet: %w", err)
	}
	return f, nil
}

// models are invented; makers of real hardware have no part in this.
var models = []struct{ manufacturer, product string }{
	{"Hollow Works", "HW-1100"}, {"Hollow Works", "HW-2400"}, {"Pithless Systems", "P10"},
}

func generateMachine(rng *rand.Rand, o GenerateOptions, i int, address netip.Addr) Machine {
	model := models[rng.IntN(len(models))]
	m := Machine{
		Name:         fmt.Sprintf("%s-%03d", o.NamePrefix, i+1),
		Address:      Prefix{netip.PrefixFrom(address, o.PrefixBits)},
		UUID:         randomUUID(rng),
		SerialNumber: fmt.Sprintf("HS%08X", rng.Uint32()),
		Manufacturer: model.manufacturer,
		ProductName:  model.product,
		TalosVersion: o.TalosVersion,
		Memory:       Size(8<<30) << rng.IntN(4),
		CPUs:         4 << rng.IntN(4),
		Timings:      o.Timings,
	}
	m.Links = generateLinks(rng)
	m.Disks = generateDisks(rng)
	return m
}

func randomUUID(rng *rand.Rand) string {
	var u uuid.UUID
	binary.BigEndian.PutUint64(u[:8], rng.Uint64())
	binary.BigEndian.PutUint64(u[8:], rng.Uint64())
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return u.String()
}

// randomMAC is locally administered and unicast, so it can't be that of a real card.
func randomMAC(rng *rand.Rand) string {
	b := rng.Uint64()
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", byte(b), byte(b>>8), byte(b>>16), byte(b>>24), byte(b>>32))
}

func generateLinks(rng *rand.Rand) []Link {
	links := []Link{{Name: "enp1s0", PermanentMAC: randomMAC(rng), Speed: 10000, Up: true}}
	if rng.IntN(2) == 0 {
		links = append(links, Link{Name: "enp2s0", PermanentMAC: randomMAC(rng), Speed: 1000, Up: rng.IntN(2) == 0})
	}
	return links
}

func generateDisks(rng *rand.Rand) []Disk {
	serial := func(prefix string) string { return fmt.Sprintf("%s%010X", prefix, rng.Uint64()&0xffffffffff) }
	eui := func() string { return fmt.Sprintf("eui.%016x", rng.Uint64()) }
	naa := func() string { return fmt.Sprintf("naa.5%015x", rng.Uint64()>>4) }
	disks := []Disk{{
		Device: "/dev/nvme0n1", Size: 512e9 << rng.IntN(2), Model: "HOLLOW NVME 9A1", Serial: serial("HN"), WWID: eui(), Transport: "nvme",
	}}
	letter := 'a'
	for range rng.IntN(3) {
		disks = append(disks, Disk{
			Device: fmt.Sprintf("/dev/sd%c", letter), Size: 4e12 << rng.IntN(2), Model: "HOLLOW HDD 7200", Serial: serial("HH"), WWID: naa(),
			Transport: "sata", Rotational: true,
		})
		letter++
	}
	if rng.IntN(3) == 0 {
		disks = append(disks, Disk{
			Device: fmt.Sprintf("/dev/sd%c", letter), Size: 32e9, Model: "HOLLOW USB STICK", Serial: serial("HU"), Transport: "usb",
		})
		letter++
	}
	if rng.IntN(3) == 0 {
		disks = append(disks, Disk{
			Device: fmt.Sprintf("/dev/sd%c", letter), Size: 4e9, Model: "HOLLOW SATADOM", Serial: serial("HD"), WWID: naa(), Transport: "sata",
		})
	}
	return disks
}
