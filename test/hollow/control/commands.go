// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/node"
)

// command is one thing that can be done to a machine.
type command struct {
	// args names the arguments, for the usage text.
	args []string
	help string
	// read tells that the command changes nothing; its result is shown.
	read bool
	run  func(n *node.Node, args []string) (any, error)
}

// errArgument marks what the one who asks did wrong.
var errArgument = errors.New("bad argument")

func argument(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errArgument, fmt.Errorf(format, args...))
}

func look[T any](at func(*node.Node) T) func(*node.Node, []string) (any, error) {
	return func(n *node.Node, _ []string) (any, error) { return at(n), nil }
}

func simple(do func(n *node.Node) error) func(*node.Node, []string) (any, error) {
	return func(n *node.Node, _ []string) (any, error) { return nil, do(n) }
}

func certain(do func(n *node.Node)) func(*node.Node, []string) (any, error) {
	return func(n *node.Node, _ []string) (any, error) {
		do(n)
		return nil, nil
	}
}

func onOff(do func(n *node.Node, on bool)) func(*node.Node, []string) (any, error) {
	return func(n *node.Node, args []string) (any, error) {
		switch args[0] {
		case "on", "off":
			do(n, args[0] == "on")
			return nil, nil
		}
		return nil, argument("%q is neither on nor off", args[0])
	}
}

// commands are all there are, by name.
var commands = map[string]command{
	"status": {read: true, help: "what the machine is doing", run: look((*node.Node).Status)},
	"applies": {read: true, help: "the configurations it was sent, without their text", run: look(func(n *node.Node) []node.Apply {
		return append([]node.Apply{}, n.Applies()...) // never null in JSON
	})},
	"deeds": {read: true, help: "what it did: boots, installers, pulls, and what it was told", run: look(func(n *node.Node) []node.Deed {
		return append([]node.Deed{}, n.Deeds()...)
	})},
	"talosconfig": {read: true, help: "a client configuration of an administrator of the cluster that configured it", run: func(n *node.Node, _ []string) (any, error) {
		return n.Talosconfig()
	}},
	"power-off":    {help: "cut the power", run: simple((*node.Node).PowerOff)},
	"power-on":     {help: "switch the machine on", run: simple((*node.Node).PowerOn)},
	"wipe":         {help: "empty all disks, with a power cut", run: simple((*node.Node).Wipe)},
	"certificate":  {help: "present a new certificate with a new key", run: certain((*node.Node).NewCertificate)},
	"drop-apply":   {help: "break the connection of the next ApplyConfiguration after it took effect", run: certain((*node.Node).DropApply)},
	"cut-apply":    {help: "break the connection of the next ApplyConfiguration before all of it arrived", run: certain((*node.Node).CutApply)},
	"late-apply":   {args: []string{"DURATION"}, help: "let the next ApplyConfiguration take effect only after a time, even if its caller is gone", run: lasting((*node.Node).LateApply)},
	"hang-tls":     {args: []string{"on|off"}, help: "accept connections and never answer", run: onOff((*node.Node).HangTLS)},
	"fail-install": {args: []string{"on|off"}, help: "make installs and upgrades fail", run: onOff((*node.Node).FailInstall)},
	"fail-pull": {args: []string{"missing|down|off"}, help: "make pulls of images end badly", run: func(n *node.Node, args []string) (any, error) {
		how := args[0]
		if how == "off" {
			how = ""
		}
		if err := n.FailPull(how); err != nil {
			return nil, argument("%w", err)
		}
		return nil, nil
	}},
	"slow-pull":          {args: []string{"DURATION"}, help: "let each pull of an image take a time; 0s ends it", run: lasting((*node.Node).SlowPull)},
	"slow-install":       {args: []string{"DURATION"}, help: "let each installer take a time; 0s ends it", run: lasting((*node.Node).SlowInstall)},
	"drop-upgrade":       {help: "break the connection of the next upgrade once its installer runs", run: certain((*node.Node).DropUpgrade)},
	"fail-upgraded-boot": {args: []string{"on|off"}, help: "make upgraded systems fail to boot, so that the machine goes back to the old one", run: onOff((*node.Node).FailUpgradedBoot)},
	"other-schematic": {args: []string{"ID|off"}, help: "install another schematic than an image names", run: func(n *node.Node, args []string) (any, error) {
		if args[0] == "off" {
			args[0] = ""
		}
		n.OtherSchematic(args[0])
		return nil, nil
	}},
	"oversize":       {args: []string{"on|off"}, help: "make the inventory too large for any client to receive", run: onOff((*node.Node).Oversize)},
	"slow":           {args: []string{"DURATION"}, help: "delay each call; 0s ends it", run: lasting((*node.Node).Slow)},
	"change-address": {args: []string{"ADDRESS[/BITS]"}, help: "give the machine another address", run: changeAddress},
	"also-at":        {args: []string{"ADDRESS[/BITS]|none"}, help: "give the machine one more address, as a virtual IP does", run: alsoAt},
	"swap-nic":       {args: []string{"LINK", "MAC"}, help: "put in another NIC, with a power cut", run: swapNIC},
	"present-uuid": {args: []string{"UUID"}, help: "present another SMBIOS UUID (any text), with a power cut", run: func(n *node.Node, args []string) (any, error) {
		return nil, n.PresentUUID(args[0])
	}},
	"swap-disk": {args: []string{"DEVICE", "SIZE", "SERIAL"}, help: "put in another disk, with a power cut", run: swapDisk},
}

func lasting(do func(n *node.Node, d time.Duration)) func(*node.Node, []string) (any, error) {
	return func(n *node.Node, args []string) (any, error) {
		d, err := time.ParseDuration(args[0])
		if err != nil || d < 0 {
			return nil, argument("%q is no time such as 2s", args[0])
		}
		do(n, d)
		return nil, nil
	}
}

func changeAddress(n *node.Node, args []string) (any, error) {
	p, err := address(args[0])
	if err != nil {
		return nil, err
	}
	return nil, n.ChangeAddress(p)
}

func alsoAt(n *node.Node, args []string) (any, error) {
	if args[0] == "none" {
		return nil, n.AlsoAt()
	}
	p, err := address(args[0])
	if err != nil {
		return nil, err
	}
	return nil, n.AlsoAt(p)
}

func address(text string) (netip.Prefix, error) {
	p, err := fleet.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, argument("%w", err)
	}
	if !p.Addr().Is4() || !p.Addr().IsLoopback() {
		return netip.Prefix{}, argument("%s is not within 127.0.0.0/8", p.Addr())
	}
	return p.Prefix, nil
}

func swapNIC(n *node.Node, args []string) (any, error) {
	if _, err := net.ParseMAC(args[1]); err != nil {
		return nil, argument("%q is no MAC address such as 02:00:00:00:00:01", args[1])
	}
	err := n.SwapNIC(args[0], args[1])
	if errors.Is(err, node.ErrNoSuchLink) {
		// The power was cut to look inside.
		return nil, errors.Join(argument("%w", err), n.Start())
	}
	return nil, err
}

func swapDisk(n *node.Node, args []string) (any, error) {
	size, err := fleet.ParseSize(args[1])
	if err != nil {
		return nil, argument("%w", err)
	}
	d := fleet.Disk{Device: args[0], Size: size, Serial: args[2], Transport: "sata", Model: "HOLLOW SPARE"}
	machine := fleet.Machine{Name: "any", Address: fleet.PrefixOf(netip.AddrFrom4([4]byte{127, 0, 0, 1})), Disks: []fleet.Disk{d}}
	machine.Complete()
	if err := (&fleet.Fleet{Machines: []fleet.Machine{machine}}).Validate(); err != nil {
		return nil, argument("%w", err)
	}
	return nil, n.SwapDisk(machine.Disks[0])
}

// Usage are the commands with their arguments, one per line.
func Usage() string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		c := commands[name]
		fmt.Fprintf(&out, "  %-38s %s\n", strings.Join(append([]string{name, "MACHINE"}, c.args...), " "), c.help)
	}
	return out.String()
}
