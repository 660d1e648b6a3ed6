// SPDX-License-Identifier: Apache-2.0

// Package flags builds the command lines of etcd and the Kubernetes control plane from Talos' defaults and the extra
// arguments of a machine configuration. It decides which extra argument may replace, extend or not touch a default; it
// starts nothing.
package flags

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Policy says what happens when an extra argument names a flag that has a default.
type Policy int

const (
	// Replace takes the extra argument instead of the default; it is the policy of every flag not named otherwise.
	Replace Policy = iota
	// Extend appends what the default doesn't have yet to a comma-separated list.
	Extend
	// Refuse makes the whole command line an error, as Talos does for flags it owns.
	Refuse
)

// Set holds flags without their dashes; a flag with several values is repeated on the command line.
type Set map[string][]string

// Of makes a set of single-valued flags.
func Of(values map[string]string) Set {
	s := make(Set, len(values))

	for name, value := range values {
		s[name] = []string{value}
	}

	return s
}

// Put sets a single-valued flag.
func (s Set) Put(name, value string) { s[name] = []string{value} }

// Merge applies extra arguments under the given policies. The set is unchanged when an error is returned.
func (s Set) Merge(extra map[string][]string, policies map[string]Policy) error {
	for name := range extra {
		if policies[name] == Refuse {
			return fmt.Errorf("extra arg %q is not allowed", name)
		}
	}

	for name, values := range extra {
		if policies[name] == Extend {
			s[name] = []string{strings.Join(union(s[name], values), ",")}

			continue
		}

		s[name] = slices.Clone(values)
	}

	return nil
}

// BindTo replaces wildcard listen addresses by one address: hollow nodes share a host, so what a real node may bind on
// every interface, a hollow node binds on its own loopback address.
func (s Set) BindTo(address netip.Addr) {
	wildcards := strings.NewReplacer("//0.0.0.0", "//"+address.String(), "//[::]", "//"+address.String())

	for name, values := range s {
		bound := make([]string, len(values))

		for i, value := range values {
			switch value {
			case "0.0.0.0", "::", "[::]":
				bound[i] = address.String()
			default:
				bound[i] = wildcards.Replace(value)
			}
		}

		s[name] = bound
	}
}

// Args returns the command line in a stable order.
func (s Set) Args() []string {
	names := make([]string, 0, len(s))
	for name := range s {
		names = append(names, name)
	}

	slices.Sort(names)

	var args []string

	for _, name := range names {
		for _, value := range s[name] {
			args = append(args, "--"+name+"="+value)
		}
	}

	return args
}

func union(lists ...[]string) []string {
	var all []string

	for _, list := range lists {
		for _, joined := range list {
			for item := range strings.SplitSeq(joined, ",") {
				item = strings.TrimSpace(item)
				if item != "" && !slices.Contains(all, item) {
					all = append(all, item)
				}
			}
		}
	}

	return all
}
