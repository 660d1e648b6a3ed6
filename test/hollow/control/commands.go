// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"fmt"
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
	run  func(n *node.Node, args []string) (any, error)
}

// nothing is the result of a command that has none.
var nothing = struct{}{}

func simple(do func(n *node.Node) error) func(*node.Node, []string) (any, error) {
	return func(n *node.Node, _ []string) (any, error) { return nothing, do(n) }
}

func onOff(do func(n *node.Node, on bool)) func(*node.Node, []string) (any, error) {
	return func(n *node.Node, args []string) (any, error) {
		switch args[0] {
		case "on", "off":
			do(n, args[0] == "on")
			return nothing, nil
		}
		return nil, fmt.Errorf("%q: want on or off", args[0])
	}
}

// commands are all there are, by name.
var commands = map[string]command{
	"status":    {help: "what the machine is doing", run: func(n *node.Node, _ []string) (any, error) { return n.Status(), nil }},
	"applies":   {help: "the configurations that were applied, without their text", run: func(n *node.Node, _ []string) (any, error) { return n.Applies(), nil }},
	"power-off": {help: "cut the power", run: simple((*node.Node).PowerOff)},
	"power-on":  {help: "switch the machine on", run: simple((*node.Node).PowerOn)},
	"wipe":      {help: "empty all disks, with a power cut", run: simple((*node.Node).Wipe)},
	"new-certificate": {help: "present a new certificate with a new key", run: simple(func(n *node.Node) error {
		n.NewCertificate()
		return nil
	})},
	"drop-apply": {help: "break the connection of the next ApplyConfiguration after it took effect", run: simple(func(n *node.Node) error {
		n.DropApply()
		return nil
	})},
	"hang-tls":     {args: []string{"on|off"}, help: "accept connections and never answer", run: onOff((*node.Node).HangTLS)},
	"fail-install": {args: []string{"on|off"}, help: "make installs and upgrades fail", run: onOff((*node.Node).FailInstall)},
	"slow": {args: []string{"DURATION"}, help: "delay each call; 0s ends it", run: func(n *node.Node, args []string) (any, error) {
		d, err := time.ParseDuration(args[0])
		if err != nil || d < 0 {
			return nil, fmt.Errorf("%q: want a time such as 2s", args[0])
		}
		n.Slow(d)
		return nothing, nil
	}},
	"change-address": {args: []string{"ADDRESS[/BITS]"}, help: "give the machine another address", run: func(n *node.Node, args []string) (any, error) {
		p, err := fleet.ParsePrefix(args[0])
		if err != nil {
			return nil, err
		}
		return nothing, n.ChangeAddress(p.Prefix)
	}},
	"swap-nic": {args: []string{"LINK", "MAC"}, help: "put in another NIC, with a power cut", run: func(n *node.Node, args []string) (any, error) {
		return nothing, n.SwapNIC(args[0], args[1])
	}},
	"present-uuid": {args: []string{"UUID"}, help: "present another SMBIOS UUID, with a power cut", run: func(n *node.Node, args []string) (any, error) {
		return nothing, n.PresentUUID(args[0])
	}},
	"swap-disk": {args: []string{"DEVICE", "SIZE", "SERIAL"}, help: "put in another disk, with a power cut", run: func(n *node.Node, args []string) (any, error) {
		size, err := fleet.ParseSize(args[1])
		if err != nil {
			return nil, err
		}
		return nothing, n.SwapDisk(fleet.Disk{Device: args[0], Size: size, Serial: args[2], Transport: "sata", Model: "HOLLOW SPARE"})
	}},
}

// Usage are the commands with their arguments, one per line.
func Usage() string {
	var names []string
	for name := range commands {
		names = append(names, name)
	}
	slices.Sort(names)
	var out strings.Builder
	for _, name := range names {
		c := commands[name]
		fmt.Fprintf(&out, "  %-40s %s\n", strings.Join(append([]string{name}, c.args...), " "), c.help)
	}
	return out.String()
}

// errCommand tells that there is no such command.
var errCommand = errors.New("no such command; hollow ctl --help lists them")

func (s *Server) do(r Request) (any, error) {
	if r.Machine == "" && r.Command == "status" {
		var all []node.Status
		for _, name := range s.host.Names() {
			n, err := s.host.Node(name)
			if err != nil {
				return nil, err
			}
			all = append(all, n.Status())
		}
		return all, nil
	}
	c, ok := commands[r.Command]
	if !ok {
		return nil, fmt.Errorf("%q: %w", r.Command, errCommand)
	}
	n, err := s.host.Node(r.Machine)
	if err != nil {
		return nil, err
	}
	if len(r.Args) != len(c.args) {
		return nil, fmt.Errorf("%s takes %d arguments (%s), not %d", r.Command, len(c.args), strings.Join(c.args, " "), len(r.Args))
	}
	return c.run(n, r.Args)
}
